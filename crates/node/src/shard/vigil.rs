//! Whether to look for the next event for a moment before going to sleep.
//!
//! Who asks for one thing at a time waits for two processors to fall asleep and wake up again: that
//! takes longer than all the work, and its processor time counts as well. So while one client's
//! requests come shortly behind their answers, the loop stays awake for as long as the next is likely to
//! take. One that does not come ends it, and only sleeps that were short bring it back: an idle node
//! never looks in vain. Nor does one that waits for a disk or for another node, which may need this
//! very processor for their answer.
use std::time::Duration;

/// Shorter than this, a sleep was not worth it. A round trip on one machine takes 20 to 80 µs.
pub const SHORT: Duration = Duration::from_micros(60);

/// As many short sleeps behind one another are no accident.
const ENOUGH: u32 = 16;

#[derive(Debug, Default)]
pub struct Vigil {
    /// Short waits behind one another, each for a client.
    short: u32,
}

impl Vigil {
    pub fn is_kept(&self) -> bool {
        self.short >= ENOUGH
    }

    /// How long the loop waited, asleep or not, and whether it was a client that ended it.
    pub fn waited(&mut self, took: Duration, for_client: bool) {
        match took < SHORT && for_client {
            true => self.short = self.short.saturating_add(1),
            false => self.short = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRIEF: Duration = Duration::from_micros(20);

    fn kept() -> Vigil {
        let mut vigil = Vigil::default();
        (0..ENOUGH).for_each(|_| vigil.waited(BRIEF, true));
        vigil
    }

    #[test]
    fn requests_shortly_behind_their_answers_are_waited_for_awake() {
        let mut vigil = Vigil::default();
        for _ in 0..ENOUGH {
            assert!(!vigil.is_kept());
            vigil.waited(BRIEF, true);
        }
        assert!(vigil.is_kept());
    }

    /// Protects from an idle node that burns a processor, and from one that takes it away from those
    /// for whom it waits.
    #[test]
    fn one_long_wait_or_another_cause_ends_it() {
        for (took, for_client) in [(SHORT, true), (BRIEF, false)] {
            let mut vigil = kept();
            vigil.waited(took, for_client);
            assert!(!vigil.is_kept(), "{took:?} {for_client}");
        }
    }
}
