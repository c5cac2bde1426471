//! What does not come by itself: requests that have waited too long, and targets that do not say that they moved.
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::pending::Failure;
use super::{Shared, State, locked};

const EVERY: Duration = Duration::from_millis(250);
/// A reply that takes longer makes one wonder whether somebody else serves the volume by now. Well above what a
/// busy disk needs, and below what makes a file system complain.
const WONDER_AFTER: Duration = Duration::from_secs(2);
/// Between two questions of that kind: the site is asked by every machine that waits.
const WONDER_EVERY: Duration = Duration::from_secs(1);

impl Shared {
    pub(super) fn watch(&self) {
        let mut asked = Instant::now();
        while !self.stopping.load(Ordering::SeqCst) {
            if let State::Ended { .. } = *locked(&self.state) {
                return;
            }
            let now = Instant::now();
            let late = locked(&self.pending).take_late(now);
            late.into_iter().for_each(|answer| answer(Err(Failure::TooLate)));
            if now.saturating_duration_since(asked) > WONDER_EVERY && self.waits_since(now) {
                asked = now;
                self.look_elsewhere();
            }
            self.rest(EVERY);
        }
    }

    fn waits_since(&self, now: Instant) -> bool {
        let oldest = locked(&self.pending).oldest();
        oldest.is_some_and(|since| now.saturating_duration_since(since) > WONDER_AFTER)
    }

    /// A target that was stopped in the middle keeps its connections, and says nothing.
    fn look_elsewhere(&self) {
        let State::Up { target } = locked(&self.state).clone() else { return };
        let Ok(found) = self.plan.whereabouts.find() else { return };
        // The site took its time: somebody else may be connected by now.
        if found.nbd != target && *locked(&self.state) == (State::Up { target }) {
            self.cut();
        }
    }
}
