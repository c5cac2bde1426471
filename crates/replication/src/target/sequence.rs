//! The sequence of a reign: entries with their numbers, and how far a quorum has them.
//!
//! Invariants: `first - 1 <= settled <= committed <= last` in every book that is true; entries are
//! dense; nothing above `settled` is ever dropped, and neither is what a replica in the stream or
//! a round still needs.
use std::collections::VecDeque;

use block::{ByteLen, ByteOffset, Position, Seq, Term};

use crate::entry::{Change, Entry};
use crate::words::ClientId;

#[derive(Debug)]
struct Logged {
    entry: Entry,
    /// Bytes of all entries up to this one.
    bytes: u64,
    /// Worst cost in a pool of all entries up to this one.
    cost: u64,
    client: Option<ClientId>,
}

#[derive(Debug, Default)]
pub struct Sequence {
    term: Term,
    /// Where the chosen history ended.
    chosen: Position,
    entries: VecDeque<Logged>,
    /// The seq before the first entry that is kept.
    base: Seq,
    base_bytes: u64,
    base_cost: u64,
    /// A quorum holds everything up to here, as its books say now.
    pub committed: Seq,
    /// The highest that `committed` ever was: acknowledged.
    pub acked: Seq,
    /// A quorum has everything up to here durably.
    pub settled: Seq,
}

impl Sequence {
    pub fn on_top_of(chosen: Position, term: Term) -> Sequence {
        let base = chosen.seq;
        Sequence { term, chosen, base, acked: base, committed: base, ..Sequence::default() }
    }

    pub fn last(&self) -> Seq {
        Seq(self.base.0 + self.entries.len() as u64)
    }

    pub fn last_position(&self) -> Position {
        match self.entries.is_empty() && self.base == self.chosen.seq {
            true => self.chosen,
            false => Position { term: self.term, seq: self.last() },
        }
    }

    pub fn barrier(&self) -> Seq {
        Seq(self.chosen.seq.0 + 1)
    }

    pub fn push(&mut self, change: Change, cost: u64, client: Option<ClientId>) -> Seq {
        let seq = Seq(self.last().0 + 1);
        let bytes = self.bytes_at(self.last()) + change.bytes();
        let cost = self.cost_at(self.last()) + cost;
        self.entries.push_back(Logged { entry: Entry { seq, change }, bytes, cost, client });
        seq
    }

    /// Whether everything above a seq is still here.
    pub fn has_all_above(&self, seq: Seq) -> bool {
        seq >= self.base && seq <= self.last()
    }

    fn at(&self, seq: Seq) -> Option<&Logged> {
        let index = seq.0.checked_sub(self.base.0 + 1)?;
        self.entries.get(usize::try_from(index).ok()?)
    }

    fn bytes_at(&self, seq: Seq) -> u64 {
        self.at(seq).map_or(self.base_bytes, |logged| logged.bytes)
    }

    fn cost_at(&self, seq: Seq) -> u64 {
        self.at(seq).map_or(self.base_cost, |logged| logged.cost)
    }

    /// Bytes of the entries above a seq.
    pub fn bytes_above(&self, seq: Seq) -> u64 {
        self.bytes_at(self.last()) - self.bytes_at(seq)
    }

    pub fn bytes_between(&self, low: Seq, high: Seq) -> u64 {
        self.bytes_at(high).saturating_sub(self.bytes_at(low))
    }

    /// What the entries above a seq can take at the most.
    pub fn cost_above(&self, seq: Seq) -> u64 {
        self.cost_at(self.last()) - self.cost_at(seq)
    }

    /// Entries behind `seq`, as many as a batch may have.
    pub fn batch(&self, seq: Seq, max: usize, max_bytes: u64) -> Vec<Entry> {
        let behind = usize::try_from(self.last().0.saturating_sub(seq.0)).unwrap_or(max);
        let mut batch = Vec::with_capacity(behind.min(max));
        let mut bytes = 0;
        let mut next = Seq(seq.0 + 1);
        while let Some(logged) = self.at(next)
            && batch.len() < max
            && (batch.is_empty() || bytes + logged.entry.change.bytes() <= max_bytes)
        {
            bytes += logged.entry.change.bytes();
            batch.push(logged.entry.clone());
            next = Seq(next.0 + 1);
        }
        batch
    }

    /// The newest entry up to `newest` that touches a range and is not committed.
    pub fn unsafe_overlap(&self, offset: ByteOffset, len: ByteLen, newest: Seq) -> Option<Seq> {
        let mut seq = newest;
        while seq > self.committed {
            let logged = self.at(seq)?;
            if let Some((start, length)) = logged.entry.change.range()
                && start.0 < offset.0.saturating_add(len.0)
                && offset.0 < start.0.saturating_add(length.0)
            {
                return Some(seq);
            }
            seq = Seq(seq.0 - 1);
        }
        None
    }

    /// The newest entry of a client that is not committed.
    pub fn newest_of(&self, client: ClientId) -> Option<Seq> {
        let open = self.entries.iter().rev().take_while(|logged| logged.entry.seq > self.committed);
        let mut own = open.filter(|logged| logged.client == Some(client));
        own.next().map(|logged| logged.entry.seq)
    }

    pub fn is_flush(&self, seq: Seq) -> bool {
        self.at(seq).is_some_and(|logged| logged.entry.change.is_flushed())
    }

    /// Entries that ask for durability, above one seq and up to another.
    pub fn flushes_between(&self, low: Seq, high: Seq) -> u64 {
        let open = self.entries.iter().rev().skip_while(|logged| logged.entry.seq > high);
        let open = open.take_while(|logged| logged.entry.seq > low);
        open.filter(|logged| logged.entry.change.is_flushed()).count() as u64
    }

    /// Nobody needs entries up to here.
    pub fn forget(&mut self, through: Seq) {
        while self.base < through.min(self.settled)
            && let Some(logged) = self.entries.pop_front()
        {
            self.base = logged.entry.seq;
            self.base_bytes = logged.bytes;
            self.base_cost = logged.cost;
        }
    }

    /// Entries that are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes that are kept.
    pub fn kept(&self) -> u64 {
        self.bytes_at(self.last()) - self.base_bytes
    }
}

#[cfg(test)]
mod tests {
    use block::Data;

    use super::*;

    fn write(offset: u64, len: usize) -> Change {
        let data = Data::copy_of(&vec![1; len]);
        Change::write(ByteLen(4096), ByteOffset(offset), data)
    }

    fn of_three() -> Sequence {
        let mut sequence = Sequence::on_top_of(Position::new(3, 10), Term(5));
        sequence.push(Change::Flush, 0, None);
        sequence.push(write(0, 4096), 100, Some(ClientId(1)));
        sequence.push(write(8192, 512), 50, Some(ClientId(2)));
        sequence
    }

    #[test]
    fn numbers_go_on_where_the_chosen_history_ended() {
        let sequence = of_three();
        assert_eq!((sequence.barrier(), sequence.last()), (Seq(11), Seq(13)));
        assert_eq!(sequence.last_position(), Position::new(5, 13));
        let empty = Sequence::on_top_of(Position::new(3, 10), Term(5));
        assert_eq!(empty.last_position(), Position::new(3, 10));
    }

    /// Protects from losing what a quorum does not have durably: it could not be replayed.
    #[test]
    fn nothing_above_settled_is_forgotten() {
        let mut sequence = of_three();
        sequence.settled = Seq(12);
        sequence.forget(Seq(13));
        assert!(sequence.has_all_above(Seq(12)));
        assert!(!sequence.has_all_above(Seq(11)));
        assert_eq!(sequence.batch(Seq(12), 10, 1 << 20).len(), 1);
        assert_eq!(sequence.cost_above(Seq(12)), 50);
    }

    /// Protects from reads of what can still vanish, and from reads that wait for nothing.
    #[test]
    fn only_entries_that_touch_and_are_not_committed_make_a_read_wait() {
        let mut sequence = of_three();
        sequence.committed = Seq(11);
        let open = |at, newest| sequence.unsafe_overlap(ByteOffset(at), ByteLen(512), Seq(newest));
        assert_eq!(open(0, 13), Some(Seq(12)));
        assert_eq!(open(4096, 13), None);
        assert_eq!(open(8192, 13), Some(Seq(13)));
        assert_eq!(open(8192, 12), None, "it came after the read");
        sequence.committed = Seq(13);
        assert_eq!(sequence.unsafe_overlap(ByteOffset(0), ByteLen(512), Seq(13)), None);
    }

    #[test]
    fn a_clients_open_work_is_found() {
        let mut sequence = of_three();
        sequence.committed = Seq(12);
        assert_eq!(sequence.newest_of(ClientId(1)), None);
        assert_eq!(sequence.newest_of(ClientId(2)), Some(Seq(13)));
    }
}
