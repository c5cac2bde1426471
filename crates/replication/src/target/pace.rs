//! Writers wait for a replica that falls behind, for as long as that is cheaper than to lose it.
//!
//! A quorum needs no third replica, so the one that gets the least of a shared processor, disk or
//! wire falls behind without end. Beyond the backlog it would have to leave the stream and catch
//! up by delta, which costs more than it saves: its blocks are read again, and writers are slowed
//! anyway until it is there. So beyond half of the backlog new writes wait for it; those that
//! have a seq do not (P1).
//!
//! Only one that moves is waited for: what it lacks is younger than twice `PACE`. A replica that hangs
//! costs the writers that much, one that is slower than half a backlog in `PACE` is left behind as
//! before, and whoever was left behind is not waited for again for a while (`UNFORGIVEN`).
use block::Seq;

use crate::constants::{PACE, UNFORGIVEN};
use crate::target::Target;
use crate::words::{Moment, ReplicaId, Span};

/// How far behind in time a replica is: the end of the sequence at some moment, which it has not
/// reached yet. When it has, the next is the end as it is then.
#[derive(Clone, Copy, Debug, Default)]
pub struct Milestone {
    end: Seq,
    since: Moment,
}

impl Milestone {
    pub fn held(&mut self, held: Seq, last: Seq, now: Moment) {
        if held >= self.end {
            *self = Milestone { end: last, since: now };
        }
    }

    fn is_late(&self, now: Moment, pace: Span) -> bool {
        now >= self.since + pace
    }
}

impl Target {
    /// A replica in the stream that is so far behind that new writes wait for it.
    pub(super) fn laggard(&self, now: Moment) -> Option<ReplicaId> {
        let sequence = &self.sequence;
        // Whoever waits for a laggard must not fail for it.
        let pace = PACE.min(Span(self.config.hold_deadline.0 / 4));
        let lagging = self.peers.iter().find(|(_, peer)| {
            peer.is_in_stream()
                && sequence.bytes_between(peer.held, sequence.committed) > self.config.backlog / 2
                && !peer.milestone.is_late(now, pace)
                && peer.left_behind.is_none_or(|since| now >= since + UNFORGIVEN)
        });
        lagging.map(|(replica, _)| *replica)
    }
}
