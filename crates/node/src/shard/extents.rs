//! What snapshots have, and how they differ: told in parts.
//!
//! Whoever asks gets a part of the answer for a bounded number of map pages, and where to go on. A pool
//! looks at one question at a time, and at some pages of its map; then everybody else has a turn. So nobody who
//! reads or writes waits for long.
use block::{ByteLen, ByteOffset};
use replication::store::{StoreError, StoreReply};
use replication::words::VolumeUid;

use super::Shard;
use super::orders::{Answer, Refusal};
use super::pools::OwnWork;
use crate::store::{Compared, Point};

/// Ranges that the engine is asked for at once. It looks into as many pages for them, which takes some
/// hundred microseconds.
const AT_ONCE: usize = 64;

/// How often the engine is asked for one answer.
const STEPS: usize = 64;

/// Questions that may wait in a pool.
const WAITING_MAX: usize = 64;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct ExtentsAsk {
    pub volume: VolumeUid,
    pub snapshot: Point,
    /// `None`: what is allocated is told.
    pub base: Option<Point>,
    pub from: ByteOffset,
    /// Extents of the answer, at the most.
    pub limit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub offset: ByteOffset,
    pub len: ByteLen,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Ascending; none touches another.
    pub found: Vec<Extent>,
    /// Of the volume at the snapshot.
    pub size: ByteLen,
    /// Where to go on, if this was not all.
    pub next: Option<ByteOffset>,
}

/// A question under way.
pub struct Asked {
    volume: VolumeUid,
    compared: Compared,
    limit: usize,
    steps: usize,
    /// So far; `next` is where the engine is asked to go on.
    extents: Extents,
    answer: Answer<Extents>,
}

impl Extents {
    /// Takes what lies behind everything else.
    fn add(&mut self, offset: ByteOffset, len: ByteLen) {
        let end = (offset.0 + len.0).min(self.size.0);
        if offset.0 >= end {
            return;
        }
        match self.found.last_mut() {
            Some(last) if last.offset.0 + last.len.0 == offset.0 => {
                last.len.0 = end - last.offset.0;
            }
            _ => self.found.push(Extent { offset, len: ByteLen(end - offset.0) }),
        }
    }
}

impl Asked {
    fn is_answered(&self) -> bool {
        let full = self.extents.found.len() >= self.limit || self.steps >= STEPS;
        full || self.extents.next.is_none()
    }
}

impl Shard {
    pub(super) fn extents(&mut self, ask: ExtentsAsk, answer: Answer<Extents>) {
        match self.begin_extents(&ask) {
            Err(refusal) => answer(Err(refusal)),
            Ok((pool, compared)) => {
                let size = compared.size;
                let next = (ask.from.0 < size.0).then_some(ask.from);
                let extents = Extents { found: Vec::new(), size, next };
                let (volume, limit) = (ask.volume, ask.limit.max(1));
                let asked = Asked { volume, compared, limit, steps: 0, extents, answer };
                self.pools[pool].looks.push_back(asked);
                self.look_on(pool);
            }
        }
    }

    fn begin_extents(&self, ask: &ExtentsAsk) -> Result<(usize, Compared), Refusal> {
        let number = self.volumes.known(ask.volume).ok_or(Refusal::NoReplica)?;
        let replica = self.volumes.get(number).replica.as_ref().ok_or(Refusal::NoReplica)?;
        let pool = &self.pools[replica.pool];
        if pool.looks.len() >= WAITING_MAX {
            return Err(Refusal::Store(StoreError::Busy));
        }
        let compared = pool.host.compared(ask.volume, ask.snapshot, ask.base);
        Ok((replica.pool, compared.map_err(Refusal::Missing)?))
    }

    /// Begins with the next question, if none is under way.
    fn look_on(&mut self, pool: usize) {
        let looks = |(_, work): &(_, OwnWork)| matches!(work, OwnWork::Look(_));
        while !self.pools[pool].own.iter().any(looks) {
            let Some(asked) = self.pools[pool].looks.pop_front() else { return };
            let Some(from) = asked.extents.next.filter(|_| !asked.is_answered()) else {
                (asked.answer)(Ok(asked.extents));
                continue;
            };
            let tag = self.own_tag();
            let max = (asked.limit - asked.extents.found.len()).min(AT_ONCE);
            let run = &mut self.pools[pool];
            run.asked = true;
            match run.host.compare(asked.volume, tag, &asked.compared, from, max) {
                Ok(()) => run.own.push((tag, OwnWork::Look(asked))),
                Err(error) => (asked.answer)(Err(Refusal::Store(error))),
            }
        }
    }

    pub(super) fn looked(
        &mut self,
        pool: usize,
        mut asked: Asked,
        result: Result<StoreReply, StoreError>,
    ) {
        match result {
            Ok(StoreReply::Changed { ranges, next }) => {
                ranges.iter().for_each(|it| asked.extents.add(it.offset, it.len));
                asked.extents.next = next.filter(|next| next.0 < asked.extents.size.0);
                asked.steps += 1;
                // Behind those that wait: a long answer holds up nobody.
                self.pools[pool].looks.push_back(asked);
            }
            Ok(_) => (asked.answer)(Err(Refusal::Store(StoreError::UnknownSnapshot))),
            Err(error) => (asked.answer)(Err(Refusal::Store(error))),
        }
        self.look_on(pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_is_one_and_nothing_is_beyond_the_end() {
        let mut extents = Extents { found: Vec::new(), size: ByteLen(20_480), next: None };
        for (offset, len) in [(0, 4096), (4096, 4096), (12_288, 131_072), (131_072, 4096)] {
            extents.add(ByteOffset(offset), ByteLen(len));
        }
        let extent = |offset, len| Extent { offset: ByteOffset(offset), len: ByteLen(len) };
        assert_eq!(extents.found, [extent(0, 8192), extent(12_288, 8192)]);
    }
}
