//! Memory for reads under way, of each login and of the node.
//!
//! [`SMALL`] bytes of each login are its own: small reads go on whatever others do. What logins have under
//! way beyond that is shared, and at most [`NODE_MAX`]. A login may have [`LOGIN_MAX`] bytes under way, and no
//! more than a quarter of what is free: whoever comes later finds something left. Only a login that has
//! nothing under way may take all that is free.
//!
//! If that is too little, it waits in line, and nobody takes anything of what is shared before the first in line
//! has what it needs. So what the others have under way is given back and gathers, and no read waits for ever.
//!
//! What does not fit waits for reads under way, never for a client.
use std::collections::VecDeque;

use super::Shard;
use super::asks::Asker;

/// Bytes of reads that all logins of a node have under way, beyond [`SMALL`] of each.
const NODE_MAX: u64 = 256 << 20;

/// Bytes of reads that a login has under way: a busy disk's queue of 128 KiB each.
const LOGIN_MAX: u64 = 16 << 20;

/// A read that is never kept waiting by others: as long as a request to a target may be.
const SMALL: u64 = replication::constants::REQUEST_MAX;

#[derive(Debug, Default)]
pub struct Reads {
    /// What all logins have under way of what is shared.
    under_way: u64,
    /// Logins that wait until others make room, in order. Nothing of theirs is under way.
    blocked: VecDeque<Asker>,
    /// The turn of the first of them came while its connection was taken out.
    is_turn_missed: bool,
}

impl Reads {
    /// Whether a read of so many bytes may begin, beside the `own` bytes that the login has under way.
    pub fn has_room(&self, asker: Asker, own: u64, bytes: u64) -> bool {
        let free = NODE_MAX.saturating_sub(self.under_way);
        match own {
            own if own + bytes <= SMALL => true,
            0 => {
                // What is larger than all that is shared goes alone.
                let fits = shared(bytes) <= free || self.under_way == 0;
                fits && self.blocked.front().is_none_or(|first| *first == asker)
            }
            own => self.blocked.is_empty() && own + bytes <= LOGIN_MAX.min(free / 4),
        }
    }

    /// A login that has `own` bytes under way begins a read.
    pub fn take(&mut self, asker: Asker, own: u64, bytes: u64) {
        self.under_way += shared(own + bytes) - shared(own);
        if bytes > 0 {
            self.leave_line(asker);
        }
    }

    /// So many of the `own` bytes that a login has under way are done with.
    pub fn release(&mut self, own: u64, bytes: u64) {
        let given_back = shared(own) - shared(own - bytes);
        assert!(given_back <= self.under_way, "more memory of reads is given back than was taken");
        self.under_way -= given_back;
    }

    /// It has to wait for others: nothing of its own is under way.
    pub fn block(&mut self, asker: Asker) {
        if !self.blocked.contains(&asker) {
            self.blocked.push_back(asker);
        }
    }

    /// It waits no longer.
    pub fn leave_line(&mut self, asker: Asker) {
        self.blocked.retain(|waiting| *waiting != asker);
    }

    /// It cannot be asked now whether it still waits: as soon as a connection is back, it is.
    pub fn miss_turn(&mut self) {
        self.is_turn_missed = true;
    }

    pub fn take_missed_turn(&mut self) -> bool {
        std::mem::take(&mut self.is_turn_missed)
    }
}

/// What a login takes of what is shared, if it has so many bytes under way.
fn shared(own: u64) -> u64 {
    own.saturating_sub(SMALL)
}

impl Shard {
    /// Memory of reads was given back: those that wait for it have their turns, until the first of them needs more.
    pub(super) fn unblock_reads(&mut self) {
        while let Some(asker) = self.reads.blocked.front().copied() {
            let is_blocked = match asker {
                Asker::Iscsi { nexus } => self.iscsi_asks(nexus),
                Asker::Nbd { line } => self.nbd_unblocked(line),
            };
            if is_blocked {
                return;
            }
            self.reads.leave_line(asker);
        }
    }
}

#[cfg(test)]
mod tests {
    use block::{ByteLen, ByteOffset};
    use frontend::ask::{Ask, AskId};
    use replication::client::{IoError, RequestId};

    use super::super::asks::Splitter;
    use super::*;

    const SOMEBODY: Asker = Asker::Nbd { line: 0 };
    const ANOTHER: Asker = Asker::Nbd { line: 1 };

    /// Protects the node's memory from its clients, and each client from the others.
    #[test]
    fn reads_are_bounded_and_none_is_kept_out() {
        let mut reads = Reads::default();
        let mut logins = vec![0_u64; 200];
        for _ in 0..64 {
            for own in &mut logins {
                if reads.has_room(SOMEBODY, *own, SMALL) {
                    reads.take(SOMEBODY, *own, SMALL);
                    *own += SMALL;
                }
            }
        }
        assert!(logins.iter().all(|own| (SMALL..=LOGIN_MAX).contains(own)), "{logins:?}");
        let most = NODE_MAX + SMALL * logins.len() as u64;
        let all: u64 = logins.iter().sum();
        assert!(all <= most, "{all} bytes");
        assert!(reads.has_room(SOMEBODY, 0, SMALL), "one that comes now");
        logins.into_iter().for_each(|own| reads.release(own, own));
        assert_eq!(reads.under_way, 0, "everything was given back");
        assert!(reads.has_room(SOMEBODY, 0, 64 << 20), "the largest, with all that is made of it");
        assert!(reads.has_room(SOMEBODY, 0, 2 * NODE_MAX), "and what is larger than all");
        assert!(!reads.has_room(SOMEBODY, SMALL, LOGIN_MAX), "but not beside others");
    }

    /// Protects a large read from starving beside many logins that are never idle.
    #[test]
    fn what_is_given_back_gathers_for_a_login_that_waits() {
        let mut reads = Reads::default();
        let mut own = NODE_MAX + SMALL;
        reads.take(ANOTHER, 0, own);
        let large = 64 << 20;
        assert!(!reads.has_room(SOMEBODY, 0, large));
        reads.block(SOMEBODY);
        for _ in 0..large / SMALL {
            reads.release(own, SMALL);
            own -= SMALL;
            assert!(!reads.has_room(ANOTHER, own, SMALL), "a busy login does not take it");
            assert!(!reads.has_room(ANOTHER, 0, 2 * SMALL), "nor one that was idle");
            assert!(reads.has_room(ANOTHER, 0, SMALL), "but small reads go on");
        }
        assert!(reads.has_room(SOMEBODY, 0, large));
    }

    /// Protects a large read from a crowd whose small reads alone would take everything, again and again.
    #[test]
    fn a_large_read_is_asked_beside_a_crowd_of_small_ones() {
        let mut reads = Reads::default();
        let small = || Ask::Read { offset: ByteOffset(0), len: ByteLen(SMALL) };
        let mut crowd: Vec<(Asker, Splitter)> =
            (0..300).map(|line| (Asker::Nbd { line }, Splitter::default())).collect();
        for (asker, splitter) in &mut crowd {
            (0..4).for_each(|id| splitter.submit(AskId(id), small()));
            splitter.ask(*asker, &mut reads, |_, _| {});
        }
        let (asker, mut splitter) = (Asker::Nbd { line: 300 }, Splitter::default());
        splitter.submit(AskId(0), Ask::Read { offset: ByteOffset(0), len: ByteLen(32 << 20) });
        let mut parts = 0;
        if splitter.ask(asker, &mut reads, |_, _| parts += 1) {
            reads.block(asker);
        }
        for id in 0..3 {
            for (other, busy) in &mut crowd {
                busy.answered(RequestId(id), Err(IoError::NoSpace), &mut reads);
                splitter.ask(asker, &mut reads, |_, _| parts += 1);
                busy.ask(*other, &mut reads, |_, _| {});
            }
        }
        assert_eq!(parts, 32, "it is asked");
    }
}
