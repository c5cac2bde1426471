//! Space that is set aside for this stream (Q7): asked for once, spent by entries at their worst
//! case, and asked for anew when half of it is spent. A store that has less gives less, and is
//! asked anew when half of that is spent, so that the last of a pool is written as fast as the
//! first; only one that has nothing to give is left in peace for a while.
//!
//! `StoreOp::Credit` says how much is to be there from now on, whatever was left of it before.
use block::{ByteLen, Seq};

use crate::entry::Change;
use crate::replica::asked::Purpose;
use crate::replica::{Output, Replica};
use crate::store::{StoreError, StoreOp};
use crate::words::{Moment, Span};

/// What a replica sets aside unless told otherwise: eight of the largest writes.
pub const CREDIT: ByteLen = ByteLen(8 << 20);

/// How long a store that had less than was wanted is not asked for all of it.
const TRY_EVERY: Span = Span::secs(1);

/// Bytes, from a point of the sequence on.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    bytes: u64,
    /// Entries behind this one spend from it.
    behind: Seq,
    spent: u64,
}

impl Given {
    fn spend(&mut self, seq: Seq, cost: u64) {
        if seq > self.behind {
            self.spent = self.spent.saturating_add(cost);
        }
    }

    fn left(&self) -> u64 {
        self.bytes.saturating_sub(self.spent)
    }
}

#[derive(Debug)]
pub struct Credit {
    wanted: u64,
    given: Given,
    asking: Option<Given>,
    /// When less than this is left, as much as there was is asked for, at once.
    low: u64,
    /// All that is wanted is not asked for before, after the store had less.
    all_from: Moment,
}

impl Credit {
    pub fn new(wanted: ByteLen) -> Credit {
        Credit {
            wanted: wanted.0,
            given: Given::default(),
            asking: None,
            low: 0,
            all_from: Moment::default(),
        }
    }

    /// For entries above those that are held.
    pub fn headroom(&self) -> ByteLen {
        ByteLen(self.given.left())
    }

    pub fn spend(&mut self, seq: Seq, cost: u64) {
        self.given.spend(seq, cost);
        if let Some(asking) = &mut self.asking {
            asking.spend(seq, cost);
        }
    }

    /// An import moved the volume: what is left is not known, and seqs may have gone back.
    pub fn restart(&mut self, at: Seq) {
        self.given = Given { behind: at, ..Given::default() };
        (self.low, self.all_from) = (0, Moment::default());
        if let Some(asking) = &mut self.asking {
            *asking = Given { behind: at, bytes: 0, spent: 0 };
        }
    }

    /// How much is to be asked for now, if it is time.
    fn due(&self, now: Moment) -> Option<u64> {
        let left = self.given.left();
        let all = now >= self.all_from && left < self.wanted.div_ceil(2);
        let again = (left < self.low).then_some(self.low.saturating_mul(2));
        all.then_some(self.wanted).or(again).filter(|_| self.asking.is_none())
    }

    /// The store has no more than what is left. It is asked again when half of that is spent, and
    /// for all of it after a pause: with nothing left, only the pause counts.
    fn refused(&mut self, now: Moment) {
        self.low = self.given.left() / 2;
        self.all_from = now + TRY_EVERY;
    }
}

impl Replica {
    /// What an entry that is held took from the pool, at the most.
    pub(super) fn spend_on(&mut self, seq: Seq, change: &Change) {
        let cost = self.shape.costs.of(change);
        self.credit.spend(seq, cost);
    }

    pub(super) fn top_up(&mut self, now: Moment, out: &mut Vec<Output>) {
        if let Some(bytes) = self.credit.due(now) {
            self.ask_credit(bytes, out);
        }
    }

    fn ask_credit(&mut self, bytes: u64, out: &mut Vec<Output>) {
        let behind = self.apply.front.seq;
        self.credit.asking = Some(Given { bytes, behind, spent: 0 });
        self.ask(Purpose::Credit, StoreOp::Credit { bytes: ByteLen(bytes) }, out);
    }

    /// More than there is, and enough for a write.
    fn is_worth_asking(&self, bytes: u64) -> bool {
        let least = self.shape.costs.per_granule.0 + self.shape.costs.per_write.0;
        bytes >= least && bytes > self.credit.given.left()
    }

    pub(super) fn credit_answered(
        &mut self,
        now: Moment,
        result: Result<(), StoreError>,
        out: &mut Vec<Output>,
    ) {
        let asking = self.credit.asking.take().expect("an answer has its question");
        match result {
            // Asked before an import moved the volume: asked once more.
            Ok(()) if asking.bytes == 0 => {}
            Ok(()) => {
                self.credit.given = asking;
                self.credit.low = asking.bytes / 2;
                if asking.bytes < self.credit.wanted {
                    self.credit.all_from = now + TRY_EVERY;
                }
            }
            Err(StoreError::NoSpace) if self.is_worth_asking(asking.bytes / 2) => {
                self.ask_credit(asking.bytes / 2, out);
            }
            Err(StoreError::NoSpace) => {
                self.credit.refused(now);
                self.thaw();
            }
            Err(_) => self.credit.refused(now),
        }
    }
}
