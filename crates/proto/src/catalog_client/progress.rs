//! How far a watch has come: what its events mean, and where the next connection goes on.
use crate::catalog_client::News;
use crate::v1::event::Event as Told;
use crate::v1::{Cursor, Event};

#[derive(Debug, Default)]
pub struct Progress {
    cursor: Option<Cursor>,
    /// This connection's first event was seen.
    begun: bool,
}

/// Events that no catalog sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonsense(pub &'static str);

impl Progress {
    /// A new connection: where it is to begin.
    pub fn connect(&mut self) -> Option<Cursor> {
        self.begun = false;
        self.cursor
    }

    /// Nothing that was seen is relied on any more.
    pub fn forget(&mut self) {
        *self = Progress::default();
    }

    pub fn take(&mut self, event: Event) -> Result<Option<News>, Nonsense> {
        match (event.event, self.cursor.as_mut().filter(|_| self.begun)) {
            (Some(Told::Begin(begin)), None) => {
                let revision = match (begin.whole, self.cursor) {
                    (true, _) => 0,
                    (false, Some(cursor)) => cursor.revision,
                    (false, None) => return Err(Nonsense("a part, and nobody has the rest")),
                };
                self.begun = true;
                self.cursor = Some(Cursor { session: begin.session, revision });
                Ok(begin.whole.then_some(News::Everything))
            }
            (Some(Told::Object(object)), Some(cursor)) if object.revision > cursor.revision => {
                cursor.revision = object.revision;
                Ok(Some(News::Object(Box::new(object))))
            }
            (Some(Told::Current(current)), Some(cursor)) if current.revision >= cursor.revision => {
                cursor.revision = current.revision;
                Ok(Some(News::Current { revision: current.revision }))
            }
            (Some(Told::Object(_) | Told::Current(_)), Some(_)) => {
                Err(Nonsense("a revision that went back"))
            }
            (Some(Told::Begin(_)), Some(_)) => Err(Nonsense("a second beginning")),
            (Some(_), None) => Err(Nonsense("an event before the beginning")),
            (None, _) => Err(Nonsense("an event of an unknown kind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{Begin, Current, Object};

    fn begin(whole: bool, session: u64) -> Event {
        Event { event: Some(Told::Begin(Begin { whole, session })) }
    }

    fn object(revision: u64) -> Event {
        Event { event: Some(Told::Object(Object { revision, ..Object::default() })) }
    }

    fn current(revision: u64) -> Event {
        Event { event: Some(Told::Current(Current { revision })) }
    }

    #[test]
    fn a_watch_goes_on_where_it_was_in_the_session_that_it_was_told() {
        let mut progress = Progress::default();
        assert_eq!(progress.connect(), None);
        assert_eq!(progress.take(begin(true, 7)), Ok(Some(News::Everything)));
        assert!(progress.take(object(3)).is_ok() && progress.take(current(5)).is_ok());
        assert_eq!(progress.connect(), Some(Cursor { session: 7, revision: 5 }));
        assert_eq!(progress.take(begin(false, 8)), Ok(None));
        assert!(progress.take(object(6)).is_ok());
        assert_eq!(progress.connect(), Some(Cursor { session: 8, revision: 6 }));
    }

    /// Protects from a restored catalog whose revisions begin below what was seen.
    #[test]
    fn everything_begins_anew() {
        let mut progress = Progress::default();
        for (session, revision) in [(7, 90), (9, 40)] {
            progress.connect();
            assert_eq!(progress.take(begin(true, session)), Ok(Some(News::Everything)));
            assert!(progress.take(object(revision)).is_ok());
        }
    }

    #[test]
    fn what_no_catalog_sends_is_noticed() {
        for events in [
            vec![object(1)],
            vec![current(1)],
            vec![begin(false, 7)],
            vec![begin(true, 7), begin(true, 7)],
            vec![begin(true, 7), object(3), object(3)],
            vec![begin(true, 7), current(3), object(3)],
            vec![begin(true, 7), object(3), current(2)],
            vec![begin(true, 7), Event { event: None }],
        ] {
            let mut progress = Progress::default();
            let (last, before) = events.split_last().unwrap();
            for event in before {
                assert!(progress.take(event.clone()).is_ok(), "{event:?}");
            }
            assert!(progress.take(last.clone()).is_err(), "{last:?}");
        }
    }
}
