//! Callers that were turned away, as lines for whoever runs the catalog; not more than it can read.
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use certs::Refused;

/// Between two lines. A stranger who keeps trying must not fill a disk with them.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Refusals {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    untold: u64,
}

impl Refusals {
    /// The line to write now, if one is due.
    pub fn line(&self, now: Instant, from: Option<SocketAddr>, why: &Refused) -> Option<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now < last + PAUSE) {
            state.untold += 1;
            return None;
        }
        state.last = Some(now);
        let more = match std::mem::take(&mut state.untold) {
            0 => String::new(),
            untold => format!(" ({untold} more before it)"),
        };
        let from = from.map_or("a caller".to_string(), |address| address.to_string());
        Some(format!("{from} was refused{more}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_a_line_a_second() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let line = |after: u64| {
            let now = now + Duration::from_millis(after);
            refusals.line(now, None, &Refused::TooSlow)
        };
        assert!(line(0).is_some());
        assert_eq!((line(10), line(999)), (None, None));
        assert!(line(1000).is_some_and(|line| line.contains("(2 more")));
    }
}
