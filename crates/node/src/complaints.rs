//! What the log is told of others: everything once, and no flood of it.
use std::collections::HashMap;

use replication::words::{Moment, Span};

/// The same is said again after so long.
const AGAIN: Span = Span::secs(30);

/// Different things within that time. Whoever brings more is not worth a line each.
const DIFFERENT_MAX: usize = 64;

#[derive(Debug)]
struct Said {
    at: Moment,
    /// How often it was kept back since.
    kept_back: u64,
}

#[derive(Debug, Default)]
pub struct Complaints {
    said: HashMap<String, Said>,
}

impl Complaints {
    /// Whether it is to be said now, and how often it was not said before.
    pub fn due(&mut self, what: &str, now: Moment) -> Option<u64> {
        if let Some(said) = self.said.get_mut(what) {
            if now < said.at + AGAIN {
                said.kept_back += 1;
                return None;
            }
            said.at = now;
            return Some(std::mem::take(&mut said.kept_back));
        }
        if self.said.len() >= DIFFERENT_MAX {
            self.said.retain(|_, said| now < said.at + AGAIN);
        }
        if self.said.len() >= DIFFERENT_MAX {
            return None;
        }
        self.said.insert(what.into(), Said { at: now, kept_back: 0 });
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
        assert_eq!(complaints.due("no", Moment(0)), Some(0));
        assert_eq!(complaints.due("no", Moment(1)), None);
        assert_eq!(complaints.due("never", Moment(1)), Some(0));
        assert_eq!(complaints.due("no", later), Some(1));
        assert_eq!(complaints.due("no", later), None);
    }

    /// Protects from memory and logs that strangers fill.
    #[test]
    fn a_flood_of_different_things_is_cut() {
        let mut complaints = Complaints::default();
        let said = |complaints: &mut Complaints, now: Moment| {
            (0..1000).filter(|it| complaints.due(&format!("{now:?} {it}"), now).is_some()).count()
        };
        assert_eq!(said(&mut complaints, Moment(0)), DIFFERENT_MAX);
        assert_eq!(said(&mut complaints, Moment(1)), 0);
        assert_eq!(said(&mut complaints, Moment(0) + AGAIN), DIFFERENT_MAX);
        assert!(complaints.said.len() <= DIFFERENT_MAX);
    }
}
