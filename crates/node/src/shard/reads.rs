//! Memory for reads under way, of each login and of the node.
//!
//! A login may have [`LOGIN_MAX`] bytes under way, and no more than a quarter of what the node has free:
//! whoever comes later finds something left. A login that has nothing under way may take all that is
//! free, and [`SMALL`] always, so that small reads go on whatever others do. So reads of a node take
//! at most [`NODE_MAX`], and [`SMALL`] for each login beyond it.
//!
//! What does not fit waits for reads under way, never for a client.
use std::collections::VecDeque;

use super::Shard;
use super::asks::Asker;

/// Bytes of reads that all logins of a node have under way.
const NODE_MAX: u64 = 256 << 20;

/// Bytes of reads that a login has under way: a busy disk's queue of 128 KiB each.
const LOGIN_MAX: u64 = 16 << 20;

/// A read that is never kept waiting by others: as long as a request to a target may be.
const SMALL: u64 = replication::constants::REQUEST_MAX;

#[derive(Debug, Default)]
pub struct Reads {
    under_way: u64,
    /// Those who wait until others make room.
    blocked: VecDeque<Asker>,
}

impl Reads {
    /// Whether a read of so many bytes may begin, beside those that the login has under way.
    pub fn has_room(&self, own: u64, bytes: u64) -> bool {
        let free = NODE_MAX.saturating_sub(self.under_way);
        match own {
            0 => bytes <= free.max(SMALL),
            // Logins that wait with nothing under way come first: what is given back gathers for them.
            own => self.blocked.is_empty() && own + bytes <= LOGIN_MAX.min(free / 4),
        }
    }

    pub fn take(&mut self, bytes: u64) {
        self.under_way += bytes;
    }

    pub fn release(&mut self, bytes: u64) {
        assert!(bytes <= self.under_way, "more memory of reads is given back than was taken");
        self.under_way -= bytes;
    }

    /// It has to wait for others: nothing of its own is under way.
    pub fn block(&mut self, asker: Asker) {
        if !self.blocked.contains(&asker) {
            self.blocked.push_back(asker);
        }
    }
}

impl Shard {
    /// Memory of reads was given back: those that wait for it try again, each once.
    pub(super) fn unblock_reads(&mut self) {
        for _ in 0..self.reads.blocked.len() {
            let Some(asker) = self.reads.blocked.pop_front() else { return };
            match asker {
                Asker::Iscsi { nexus } => self.iscsi_asks(nexus),
                Asker::Nbd { line } => self.nbd_unblocked(line),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the node's memory from its clients, and each client from the others.
    #[test]
    fn reads_are_bounded_and_none_is_kept_out() {
        let mut reads = Reads::default();
        let mut logins = vec![0_u64; 200];
        for _ in 0..64 {
            for own in &mut logins {
                if reads.has_room(*own, SMALL) {
                    reads.take(SMALL);
                    *own += SMALL;
                }
            }
        }
        assert!(logins.iter().all(|own| (SMALL..=LOGIN_MAX).contains(own)), "{logins:?}");
        let most = NODE_MAX + SMALL * logins.len() as u64;
        assert!(reads.under_way <= most, "{} bytes", reads.under_way);
        assert!(reads.has_room(0, SMALL), "one that comes now");
        reads.release(reads.under_way);
        assert!(reads.has_room(0, 64 << 20), "the largest, with all that is made of it");
        assert!(!reads.has_room(SMALL, LOGIN_MAX), "but not beside others");
    }

    /// Protects a large read from starving beside many logins that are never idle.
    #[test]
    fn what_is_given_back_gathers_for_a_login_that_waits() {
        let mut reads = Reads::default();
        reads.take(NODE_MAX);
        let large = 64 << 20;
        assert!(!reads.has_room(0, large));
        reads.block(Asker::Nbd { line: 7 });
        for _ in 0..large / SMALL {
            reads.release(SMALL);
            assert!(!reads.has_room(SMALL, SMALL), "a busy login does not take it");
        }
        assert!(reads.has_room(0, large));
    }
}
