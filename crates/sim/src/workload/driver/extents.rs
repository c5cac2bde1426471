//! Questions for what is allocated: a hole is zeros, and what has data is not.
use block::{ByteLen, ByteOffset};
use engine::{Extent, Op, OpError, Reply, SnapshotId, Subject, VolumeId};

use super::super::history::{SECTOR, View};
use super::Driver;
use super::answers::{Asked, Frozen};

/// What was asked, in sectors.
#[derive(Clone, Copy)]
pub(super) struct Range {
    first: u64,
    count: u64,
    /// Sectors of a granule.
    per: u64,
}

impl Range {
    fn op(self, of: Subject) -> Op {
        let (offset, len) = (ByteOffset(self.first * SECTOR), ByteLen(self.count * SECTOR));
        Op::Extents { of, offset, len }
    }

    /// Every granule of the range, as far as it lies within, with what was said of it.
    fn said(self, extents: &[Extent]) -> Vec<(std::ops::Range<u64>, bool)> {
        let covered: u64 = extents.iter().map(|extent| extent.len.0 / SECTOR).sum();
        assert_eq!(covered, self.count, "all of it is told: {extents:?}");
        let differ = extents.windows(2).all(|pair| pair[0].has_data != pair[1].has_data);
        assert!(differ, "neighbours differ: {extents:?}");
        let mut said = Vec::new();
        let mut at = self.first;
        for extent in extents {
            let end = at + extent.len.0 / SECTOR;
            while at < end {
                let next = (at / self.per + 1) * self.per;
                assert!(
                    next <= end || end == self.first + self.count,
                    "{extents:?} cuts a granule"
                );
                said.push((at..next.min(end), extent.has_data));
                at = next.min(end);
            }
        }
        said
    }
}

impl Driver {
    /// Beside every third read, by its number: not drawn from the seed, so that older seeds, which
    /// have no snapshots, tell the same story.
    fn asks_extents(&self) -> bool {
        self.mix.snapshots && self.next_id.is_multiple_of(3)
    }

    pub(super) fn extents_beside(&mut self, volume: VolumeId, first: u64, count: u64) {
        let known = self.history.settled().volumes.get(&volume).map(|it| (it.per(), it.size));
        let Some((per, size)) = known.filter(|_| self.asks_extents()) else { return };
        let range = Range { first, count, per };
        // Whole granules: one has data if any of its sectors has.
        let from = first / per * per;
        let to = (first + count).next_multiple_of(per).min(size / SECTOR).max(first + count);
        let view = self.history.view(volume, from, to - from);
        self.ask(range.op(Subject::Volume(volume)), Asked::Extents(range, view));
    }

    pub(super) fn frozen_extents_beside(&mut self, snapshot: SnapshotId, first: u64, count: u64) {
        if !self.asks_extents() {
            return;
        }
        let found = &self.history.settled().snapshots[&snapshot];
        let (content, per) = (found.content().clone(), found.frozen.per());
        let range = Range { first, count, per };
        let frozen = Frozen { snapshot, first, content };
        self.ask(range.op(Subject::Snapshot(snapshot)), Asked::FrozenExtents(range, frozen));
    }

    pub(super) fn compare_extents(
        &mut self,
        range: Range,
        view: &View,
        result: Result<Reply, OpError>,
    ) {
        let extents = match result {
            Ok(Reply::Extents(extents)) => extents,
            // Deleted under the question.
            Err(OpError::UnknownVolume { .. } | OpError::Busy) => return,
            other => panic!("a question for extents on a healthy disk ended as {other:?}"),
        };
        self.paths.add("extents", 1);
        for (sectors, has_data) in range.said(&extents) {
            self.paths.add(if has_data { "granule with data" } else { "hole" }, 1);
            let granule = sectors.start / range.per;
            let (start, end) = (granule * range.per, (granule + 1) * range.per);
            let mut whole = (start..end).filter(|sector| view.sectors().contains(sector));
            let may_be = |sector: u64, data: bool| {
                self.history.allowed(view, sector).iter().any(|number| (*number != 0) == data)
            };
            let right = match has_data {
                true => whole.any(|sector| may_be(sector, true)),
                false => whole.all(|sector| may_be(sector, false)),
            };
            assert!(
                right,
                "volume {} granule {granule} has data: {has_data}; its first sector was touched by \
                 {:#?}",
                view.volume,
                self.history.touching(view.volume, sectors.start)
            );
        }
    }

    pub(super) fn compare_frozen_extents(
        &mut self,
        range: Range,
        frozen: &Frozen,
        result: Result<Reply, OpError>,
    ) {
        let extents = match result {
            Ok(Reply::Extents(extents)) => extents,
            Err(error) => return self.explain(&[frozen.snapshot], error),
            other => panic!("a question for extents ended as {other:?}"),
        };
        self.paths.add("extents of a snapshot", 1);
        for (sectors, has_data) in range.said(&extents) {
            let granule = sectors.start / range.per;
            let expected = frozen.content.blocks().contains_key(&granule);
            assert_eq!(has_data, expected, "snapshot {} granule {granule}", frozen.snapshot);
        }
    }
}
