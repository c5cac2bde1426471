//! Snapshots, clones, rollbacks, and volumes that somebody uses.
use block::{ByteLen, ByteOffset};
use engine::{CloneSpec, Op, SnapshotId, SnapshotSpec, VolumeId};

use super::super::change::Change;
use super::super::history::SECTOR;
use super::answers::{Asked, Frozen};
use super::{Driver, Front, Outcome};

/// More would only fill the pool.
const SNAPSHOTS_MAX: usize = 12;

impl Driver {
    /// One of the snapshots that are there for sure.
    pub(super) fn live_snapshot(&mut self) -> Option<SnapshotId> {
        let live = self.history.live_snapshots();
        (!live.is_empty()).then(|| *self.rng.pick(&live))
    }

    /// Whether the next operation may be submitted while this one is under way. A full pool
    /// refuses, and the next one is chosen in view of that.
    fn goes_on(&mut self) -> bool {
        !self.mix.fill && self.rng.chance(1, 2)
    }

    pub(super) fn snapshot(&mut self) {
        if self.history.live_snapshots().len() >= SNAPSHOTS_MAX {
            return self.delete_snapshot();
        }
        let (volume, _) = self.volume();
        let position = self.some_position(volume);
        let (op, change) = self.snapshot_of(volume, position);
        self.ask_change(op, change, position);
        if !self.goes_on() {
            let _ = self.settle();
        }
    }

    /// A snapshot with a name that others had before it, where that is possible.
    pub(super) fn snapshot_of(
        &mut self,
        volume: VolumeId,
        position: Option<block::Position>,
    ) -> (Op, Change) {
        let (mut name, uid) = self.fresh_name("snapshot");
        let again = format!("again-{}", self.rng.below(4));
        if self.rng.chance(1, 2) && !self.history.names_taken(volume).contains(&again) {
            name = again;
        }
        let (internal, created) = (self.rng.chance(1, 8), self.rng.below(1 << 40));
        let spec = SnapshotSpec { name: name.clone(), uid, internal, created };
        let snapshot = SnapshotId(self.history.unanswered());
        let change = Change::Snapshot { volume, snapshot, name, uid, internal, created };
        (Op::Snapshot { volume, position, spec }, change)
    }

    /// A snapshot with nothing else under way.
    pub(super) fn snapshot_alone(
        &mut self,
        volume: VolumeId,
        position: Option<block::Position>,
    ) -> Option<SnapshotId> {
        if self.settle() == Outcome::Stopped {
            return None;
        }
        let (op, change) = self.snapshot_of(volume, position);
        let index = self.change_alone(op, change, position)?;
        match self.history.entries[index].change {
            Change::Snapshot { snapshot, .. } => Some(snapshot),
            _ => None,
        }
    }

    pub(super) fn delete_snapshot(&mut self) {
        let Some(snapshot) = self.live_snapshot() else { return };
        self.note_place(snapshot);
        let volume = self.history.settled().snapshots[&snapshot].volume;
        let change = Change::DeleteSnapshot { volume, snapshot };
        self.ask_change(Op::DeleteSnapshot { snapshot }, change, None);
        if self.mix.fill {
            let _ = self.settle();
        }
    }

    fn note_place(&mut self, snapshot: SnapshotId) {
        let state = self.history.settled();
        let line = state.visible_of(state.snapshots[&snapshot].volume);
        let at = line.iter().position(|(id, _)| *id == snapshot).expect("it is visible");
        let (several, last) = (line.len() > 1, at + 1 == line.len());
        let has_clones = state.volumes.values().any(|volume| volume.origin == Some(snapshot));
        let paths = [
            ("snapshot deleted with newer ones", !last),
            ("oldest snapshot deleted", several && at == 0),
            ("newest snapshot deleted", several && last),
            ("snapshot deleted with clones", has_clones),
        ];
        for (name, taken) in paths {
            self.paths.add(name, u64::from(taken));
        }
    }

    pub(super) fn clone_snapshot(&mut self) {
        let many = self.volumes.len() >= self.mix.volumes_max + 3;
        if many || self.settle() == Outcome::Stopped {
            return;
        }
        let Some(snapshot) = self.live_snapshot() else { return };
        let (name, uid) = self.fresh_name("clone");
        let from = self.history.settled().snapshots[&snapshot].frozen.clone();
        let more = self.rng.chance(1, 4).then(|| self.rng.below(100) * from.block_size);
        let size = from.size + more.unwrap_or(0);
        let spec = CloneSpec { name: name.clone(), uid, size: more.map(|_| ByteLen(size)) };
        let volume = VolumeId(self.history.unanswered());
        let change = Change::Clone { volume, snapshot, name, uid, size };
        let Some(index) = self.change_alone(Op::Clone { snapshot, spec }, change, None) else {
            return;
        };
        let id = self.history.entries[index].change.volume();
        let front = Front { size: size / SECTOR, block: from.block_size, attached: false };
        self.volumes.insert(id, front);
        self.paths.add("clone of clone", u64::from(from.origin.is_some()));
    }

    pub(super) fn roll_back(&mut self) {
        let (volume, _) = self.volume();
        let live = self.history.live_snapshots();
        let state = self.history.settled();
        let of: Vec<SnapshotId> =
            live.into_iter().filter(|id| state.snapshots[id].volume == volume).collect();
        if of.is_empty() {
            return;
        }
        let to = *self.rng.pick(&of);
        let line = self.history.settled().visible_of(volume);
        let newest = line.last().is_some_and(|(id, _)| *id == to);
        let path = if newest {
            "rollback without newer snapshots"
        } else {
            "rollback with newer snapshots"
        };
        self.paths.add(path, 1);
        let position = self.position(volume);
        let force = self.volumes[&volume].attached || self.rng.chance(1, 2);
        let op = Op::Rollback { volume, position, to, force };
        self.ask_change(op, Change::Rollback { volume, to }, Some(position));
        if !self.goes_on() {
            let _ = self.settle();
        }
    }

    /// Somebody begins to use a volume, or is done with it.
    pub(super) fn attach(&mut self) {
        let (volume, _) = self.volume();
        let front = self.volumes.get_mut(&volume).expect("it was chosen");
        front.attached = !front.attached;
        let attached = front.attached;
        let change = Change::Attach { volume, attached };
        self.ask_change(Op::Attach { volume, attached }, change, None);
    }

    pub(super) fn read_snapshot(&mut self) {
        let Some(snapshot) = self.live_snapshot() else { return };
        let size = self.history.settled().snapshots[&snapshot].frozen.size / SECTOR;
        let (first, count) = self.range(size, self.mix.write_max.min(512));
        self.read_frozen(snapshot, first, count);
    }

    pub(super) fn read_frozen(&mut self, snapshot: SnapshotId, first: u64, count: u64) {
        let content = self.history.settled().snapshots[&snapshot].content().clone();
        let (offset, len) = (ByteOffset(first * SECTOR), ByteLen(count * SECTOR));
        let op = Op::ReadSnapshot { snapshot, offset, len };
        self.ask(op, Asked::ReadSnapshot(Frozen { snapshot, first, content }));
        self.frozen_extents_beside(snapshot, first, count);
    }

    /// Counts writes into holes that were made after the newest snapshot, which has blocks there:
    /// three generations of one granule.
    pub(super) fn note_refill(&mut self, volume: VolumeId, first: u64, count: u64) {
        if !self.mix.snapshots {
            return;
        }
        let state = self.history.settled();
        let Some(now) = state.volumes.get(&volume) else { return };
        let line = state.visible_of(volume);
        let Some((_, newest)) = line.last() else { return };
        let granules = first / now.per()..(first + count).div_ceil(now.per());
        let mut frozen = newest.content().blocks().range(granules);
        let refilled = frozen.any(|(granule, _)| !now.content.blocks().contains_key(granule));
        self.paths.add("hole refilled after a snapshot", u64::from(refilled));
    }
}
