//! What the log is told of others: everything once, and no flood of it.
use std::collections::HashMap;

use replication::words::{Moment, Span};

/// The same is said again after so long.
const AGAIN: Span = Span::secs(30);

/// Different things of one kind within that time. Whoever brings more is not worth a line each; what is of
/// another kind is told all the same.
const DIFFERENT_MAX: usize = 32;

#[derive(Debug)]
struct Said {
    at: Moment,
    /// How often it was kept back since.
    kept_back: u64,
}

#[derive(Debug, Default)]
pub struct Complaints {
    kinds: HashMap<&'static str, HashMap<String, Said>>,
}

impl Complaints {
    /// Whether it is to be said now, and how often it was not said before.
    pub fn due(&mut self, kind: &'static str, what: &str, now: Moment) -> Option<u64> {
        let all = self.kinds.entry(kind).or_default();
        if let Some(said) = all.get_mut(what) {
            if now < said.at + AGAIN {
                said.kept_back += 1;
                return None;
            }
            said.at = now;
            return Some(std::mem::take(&mut said.kept_back));
        }
        if all.len() >= DIFFERENT_MAX {
            all.retain(|_, said| now < said.at + AGAIN);
        }
        if all.len() >= DIFFERENT_MAX {
            return None;
        }
        all.insert(what.into(), Said { at: now, kept_back: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_and_counted() {
        let mut complaints = Complaints::default();
        let later = Moment(0) + AGAIN;
        assert_eq!(complaints.due("kind", "no", Moment(0)), Some(0));
        assert_eq!(complaints.due("kind", "no", Moment(1)), None);
        assert_eq!(complaints.due("kind", "never", Moment(1)), Some(0));
        assert_eq!(complaints.due("kind", "no", later), Some(1));
        assert_eq!(complaints.due("kind", "no", later), None);
    }

    /// Protects from memory and logs that strangers fill.
    #[test]
    fn a_flood_of_different_things_is_cut() {
        let mut complaints = Complaints::default();
        let said = |complaints: &mut Complaints, now: Moment| {
            let what = |it: &i32| format!("{now:?} {it}");
            (0..1000).filter(|it| complaints.due("flood", &what(it), now).is_some()).count()
        };
        assert_eq!(said(&mut complaints, Moment(0)), DIFFERENT_MAX);
        assert_eq!(said(&mut complaints, Moment(1)), 0);
        assert_eq!(complaints.due("other", "hidden?", Moment(1)), Some(0), "what else is wrong");
        assert_eq!(said(&mut complaints, Moment(0) + AGAIN), DIFFERENT_MAX);
        assert!(complaints.kinds.values().all(|said| said.len() <= DIFFERENT_MAX));
    }
}
