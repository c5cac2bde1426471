//! Writers wait for a replica that falls behind, for as long as that is cheaper than to lose it.
//!
//! A quorum needs no third replica, so the one that gets the least of a shared processor, disk or
//! wire falls behind without end. Beyond the backlog it would have to leave the stream and catch
//! up by delta, which costs more than it saves: its blocks are read again, and writers are slowed
//! anyway until it is there. So beyond half of the backlog new writes wait for it; those that
//! have a seq do not (P1).
//!
//! Only one that moves is waited for: what it lacks is never older than `PACE`. A replica that
//! hangs costs the writers that much once, and one that is slower than half a backlog in `PACE`
//! is left behind as before.
use block::Seq;

use crate::constants::PACE;
use crate::target::Target;
use crate::words::{Moment, ReplicaId};

/// How old what a replica lacks is at the most: the end of the sequence at some moment, and it has
/// not been reached yet. When it is, the next is the end as it is then.
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

    fn is_late(&self, now: Moment) -> bool {
        now >= self.since + PACE
    }
}

impl Target {
    /// A replica in the stream that is so far behind that new writes wait for it.
    pub(super) fn laggard(&self, now: Moment) -> Option<ReplicaId> {
        let sequence = &self.sequence;
        let lagging = self.peers.iter().find(|(_, peer)| {
            peer.is_in_stream()
                && sequence.bytes_between(peer.held, sequence.committed) > self.config.backlog / 2
                && !peer.milestone.is_late(now)
        });
        lagging.map(|(replica, _)| *replica)
    }
}
