//! Imports: content that arrives bit by bit, and is the volume's all at once.
use block::{ByteLen, ByteOffset, Data, Position, Seq};
use engine::{Op, OpError, Reply, SnapshotId, SnapshotsOfDeleted, Staged, Stamps, VolumeId};

use super::super::change::{Change, Status};
use super::super::history::{SECTOR, content};
use super::answers::Frozen;
use super::deltas::Mirror;
use super::{Driver, Front, Outcome};

/// Sectors of one part, or a granule where that is more.
const PART_MAX: u64 = 256;

/// Within so many steps any import is through, unless it is refused again and again.
const STEPS_MAX: usize = 200;

/// A range that an import brings, in sectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub first: u64,
    pub count: u64,
    pub is_data: bool,
    pub changed: Seq,
}

/// Where the content comes from, and whose the volume is afterwards.
pub(super) enum Owner {
    /// From nowhere, into a volume of the random operations.
    Fresh(Front),
    /// From this snapshot, into a volume that follows another.
    Mirror(Mirror, SnapshotId),
}

pub(super) struct Import {
    pub volume: VolumeId,
    pub staging: VolumeId,
    parts: Vec<Part>,
    owner: Owner,
}

impl Driver {
    /// Begins an import, or goes on with one that was left.
    pub(super) fn import(&mut self) {
        if self.settle() == Outcome::Stopped {
            return;
        }
        let few = self.imports.len() < 2;
        if self.imports.is_empty() || (few && self.rng.chance(1, 3)) {
            return self.begin_fresh();
        }
        let at = self.rng.index(self.imports.len());
        let import = self.imports.swap_remove(at);
        self.go_on(import);
    }

    /// Goes on with the newest import until it is done, or nothing helps.
    pub(super) fn finish_import(&mut self) {
        for _ in 0..STEPS_MAX {
            let Some(import) = self.imports.pop() else { return };
            let staging = import.staging;
            self.go_on(import);
            let same = self.imports.last().is_some_and(|import| import.staging == staging);
            if !same || self.stopped() || self.mix.fill {
                return;
            }
        }
    }

    fn begin_fresh(&mut self) {
        let (volume, _) = self.volume();
        let front = self.volumes[&volume];
        if front.attached {
            return;
        }
        let position = self.position(volume);
        let Some(base) = self.snapshot_alone(volume, Some(position)) else { return };
        if self.rng.chance(1, 4) {
            // No change of its content, so that the snapshot still is the base.
            self.mark_of(volume);
        }
        let parts = self.fresh_parts(front);
        self.volumes.remove(&volume);
        self.begin_import(volume, base, parts, Owner::Fresh(front));
    }

    fn fresh_parts(&mut self, front: Front) -> Vec<Part> {
        let (size, per) = (front.size, front.per());
        let count = 1 + self.rng.below(6);
        let part = |driver: &mut Driver| {
            let is_data = driver.rng.chance(2, 3);
            let max = if is_data { PART_MAX.max(per) } else { size };
            let (first, count) = driver.range(size, max);
            // Whole granules, but for the last one of the volume.
            let (first, end) = (first / per * per, (first + count).next_multiple_of(per));
            let end = end.min(first + max.next_multiple_of(per)).min(size);
            Part { first, count: end - first, is_data, changed: Seq(1) }
        };
        (0..count).map(|_| part(self)).collect()
    }

    /// Parts for ranges of a snapshot, none of them too long for one operation.
    pub(super) fn parts_of(ranges: &[engine::ChangedRange], size: u64, granule: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        for range in ranges {
            let (start, len) = (range.offset.0 / SECTOR, range.len.0 / SECTOR);
            let end = (start + len).min(size / SECTOR);
            let step = if range.is_data { PART_MAX.max(granule / SECTOR) } else { end - start };
            let step = usize::try_from(step).expect("a 64-bit machine");
            parts.extend((start..end).step_by(step).map(|first| Part {
                first,
                count: (end - first).min(step as u64),
                is_data: range.is_data,
                changed: range.changed,
            }));
        }
        parts
    }

    pub(super) fn begin_import(
        &mut self,
        volume: VolumeId,
        base: SnapshotId,
        parts: Vec<Part>,
        owner: Owner,
    ) {
        let staging = VolumeId(self.history.unanswered());
        let change = Change::Stage { staging, volume };
        let begun = self.change_alone(Op::Stage { volume, base }, change, None);
        match begun.map(|index| &self.history.entries[index].change) {
            Some(Change::Stage { staging, .. }) => {
                self.imports.push(Import { volume, staging: *staging, parts, owner });
            }
            _ => self.give_back(volume, owner),
        }
    }

    fn give_back(&mut self, volume: VolumeId, owner: Owner) {
        match owner {
            Owner::Fresh(front) => {
                self.volumes.insert(volume, front);
            }
            Owner::Mirror(mirror, _) => self.mirrors.push(mirror),
        }
    }

    /// What the pool itself says of how far an import has come: all that a next owner would know.
    fn progress_of(&mut self, staging: VolumeId) -> usize {
        let volumes = self.pool().volumes();
        let found = volumes.iter().find(|info| info.id == staging).expect("the import is listed");
        let progress = found.staging.expect("it says of itself that it is one").progress;
        usize::try_from(progress).expect("a 64-bit machine")
    }

    fn go_on(&mut self, import: Import) {
        let progress = self.progress_of(import.staging);
        if self.rng.chance(1, 12) {
            return self.abandon(import);
        }
        if progress == import.parts.len() {
            return self.adopt(import);
        }
        let left = import.parts[progress..].iter().take(1 + self.rng.index(4));
        let mut loaded = Vec::new();
        for part in left {
            match self.load(&import, part) {
                Some(found) => loaded.push((*part, found)),
                None => return self.abandon(import),
            }
        }
        let from = self.history.entries.len();
        for (at, (part, found)) in (progress as u64 + 1..).zip(loaded) {
            self.stage(import.staging, part, found, at);
            if self.mix.fill && self.settle() == Outcome::Stopped {
                return;
            }
        }
        if self.rng.chance(1, 2) {
            self.look_at(&import);
        }
        if self.settle() == Outcome::Stopped {
            return;
        }
        let mut staged = self.history.entries[from..].iter();
        if staged.any(|entry| entry.status == Status::Refused) {
            return self.abandon(import);
        }
        self.imports.push(import);
    }

    /// The bytes of a part and whose they are, unless they are made when it is submitted.
    fn load(&mut self, import: &Import, part: &Part) -> Option<Option<(Data, Vec<u64>)>> {
        let snapshot = match &import.owner {
            Owner::Mirror(_, snapshot) if part.is_data => *snapshot,
            _ => return Some(None),
        };
        if self.settle() == Outcome::Stopped || !self.is_live(snapshot) {
            return None;
        }
        let source = self.history.settled().snapshots[&snapshot].content().clone();
        let (offset, len) = (ByteOffset(part.first * SECTOR), ByteLen(part.count * SECTOR));
        match self.call(Op::ReadSnapshot { snapshot, offset, len })? {
            Ok(Reply::Read(bytes)) => {
                let sectors = part.first..part.first + part.count;
                let values = sectors.map(|sector| source.value(sector)).collect();
                let frozen = Frozen { snapshot, first: part.first, content: source };
                self.compare_snapshot(&frozen, &bytes);
                Some(Some((bytes, values)))
            }
            Err(OpError::Busy) => None,
            other => panic!("a read of snapshot {snapshot} ended as {other:?}"),
        }
    }

    fn stage(
        &mut self,
        staging: VolumeId,
        part: Part,
        loaded: Option<(Data, Vec<u64>)>,
        progress: u64,
    ) {
        let Part { first, count, is_data, changed } = part;
        let number = self.history.number(self.history.entries.len());
        let fresh = || {
            let mut bytes = vec![0; usize::try_from(count * SECTOR).expect("a part is small")];
            for (sector, part) in (first..).zip(bytes.chunks_exact_mut(512)) {
                content(sector, number, part);
            }
            (Data::copy_of(&bytes), (0..count).map(|_| number).collect())
        };
        let loaded = is_data.then(|| loaded.unwrap_or_else(fresh));
        let (staged, values) = match loaded {
            Some((bytes, values)) => (Staged::Bytes(bytes), Some(values.into())),
            None => (Staged::Zeros(ByteLen(count * SECTOR)), None),
        };
        let offset = ByteOffset(first * SECTOR);
        let op = Op::StageData { staging, changed, offset, content: staged, progress };
        self.ask_change(op, Change::StageData { staging, first, count, values, progress }, None);
    }

    /// The volume is as it was while its import goes on, and stays so.
    fn look_at(&mut self, import: &Import) {
        let size = self.history.size_of(import.volume) / SECTOR;
        let (first, count) = self.range(size, 256);
        self.read_range(import.staging, first, count);
        self.read_range(import.volume, first, count);
        if let Owner::Fresh(_) = import.owner {
            match self.rng.below(3) {
                0 => self.mark_of(import.volume),
                1 => self.set_state_of(import.volume),
                _ => self.refused_while_staging(import.volume),
            }
        }
    }

    fn adopt(&mut self, import: Import) {
        let (volume, staging) = (import.volume, import.staging);
        let (position, stamps): (Position, Stamps) = match &import.owner {
            Owner::Fresh(_) => (self.position(volume), Stamps::Renew),
            Owner::Mirror(mirror, snapshot) => self.place_of_adoption(mirror, *snapshot),
        };
        let number = self.history.entries.len();
        let state = number.is_multiple_of(2).then(|| number.to_le_bytes().to_vec());
        self.paths.add("adopted with a state", u64::from(state.is_some()));
        let op = Op::Adopt { volume, staging, position, stamps, state: state.clone() };
        let change = Change::Adopt { volume, staging, stamps, state };
        if self.change_alone(op, change, Some(position)).is_none() {
            // There was no space: it may still be tried again, or abandoned.
            return self.imports.push(import);
        }
        match import.owner {
            Owner::Fresh(front) => {
                self.volumes.insert(volume, front);
            }
            Owner::Mirror(mirror, snapshot) => self.arrived(mirror, snapshot),
        }
    }

    fn abandon(&mut self, import: Import) {
        let (volume, snapshots) = (import.staging, SnapshotsOfDeleted::Refuse);
        let change = Change::Delete { volume, snapshots };
        if self.change_alone(Op::Delete { volume, snapshots }, change, None).is_none() {
            return self.imports.push(import);
        }
        self.paths.add("import abandoned", 1);
        self.give_back(import.volume, import.owner);
    }

    /// The pool is closed or killed while these are unfinished.
    pub(super) fn note_interrupted(&mut self) {
        if !self.imports.is_empty() {
            self.paths.add("import interrupted by reopening", self.imports.len() as u64);
        }
    }
}
