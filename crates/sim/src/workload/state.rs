//! What a pool holds after a part of the history: volumes, snapshots, and the space they take.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use block::{ByteLen, Position};
use engine::{SnapshotId, SnapshotsOfDeleted, StagingInfo, Stamps, Subject, Usage, VolumeId};

use super::change::Change;
use super::content::Content;
use super::history::SECTOR;

/// The pool gives the ids. Until it has answered, the model uses numbers of its own, from here on.
pub const UNANSWERED: u64 = 1 << 60;

#[derive(Clone, Debug, Default)]
pub struct VolumeState {
    pub name: String,
    pub uid: [u8; 16],
    pub size: u64,
    pub block_size: u64,
    /// Whether its blocks are stored as they are, so that their space is known exactly.
    pub raw: bool,
    pub position: Position,
    pub state: Vec<u8>,
    pub attached: bool,
    /// What it was cloned from.
    pub origin: Option<SnapshotId>,
    pub staging: Option<StagingInfo>,
    /// Whether it took stamps over from another volume: its own sequence does not tell any more
    /// when something changed.
    pub foreign_stamps: bool,
    pub content: Arc<Content>,
}

#[derive(Clone, Debug)]
pub struct SnapshotState {
    pub volume: VolumeId,
    pub name: String,
    pub uid: [u8; 16],
    pub internal: bool,
    pub created: u64,
    /// The volume as it was.
    pub frozen: VolumeState,
    /// Deleted; the pool may still need it.
    pub hidden: bool,
}

impl SnapshotState {
    pub fn position(&self) -> Position {
        self.frozen.position
    }

    pub fn seq(&self) -> u64 {
        self.frozen.position.seq.0
    }

    pub fn content(&self) -> &Arc<Content> {
        &self.frozen.content
    }
}

impl VolumeState {
    /// Bytes of a granule, the unit of the map.
    pub fn granule(&self) -> u64 {
        self.block_size.max(4096)
    }

    /// Sectors of a granule.
    pub fn per(&self) -> u64 {
        self.granule() / SECTOR
    }
}

#[derive(Clone, Debug, Default)]
pub struct State {
    pub volumes: BTreeMap<VolumeId, VolumeState>,
    /// Also those that were deleted.
    pub snapshots: BTreeMap<SnapshotId, SnapshotState>,
}

impl State {
    /// The snapshots that a user sees.
    pub fn visible(&self) -> impl Iterator<Item = (SnapshotId, &SnapshotState)> {
        let visible = self.snapshots.iter().filter(|(_, snapshot)| !snapshot.hidden);
        visible.map(|(id, snapshot)| (*id, snapshot))
    }

    /// Those of one volume, oldest first: a later one has a higher position, or the same and a
    /// higher number.
    pub fn visible_of(&self, volume: VolumeId) -> Vec<(SnapshotId, &SnapshotState)> {
        let mut found: Vec<_> =
            self.visible().filter(|(_, snapshot)| snapshot.volume == volume).collect();
        found.sort_by_key(|(_, snapshot)| snapshot.position());
        found
    }

    /// Does what operation `number` did.
    pub fn apply(&mut self, change: &Change, position: Option<Position>, number: u64) {
        match change {
            Change::Create { volume, name, uid, size, block_size, raw } => {
                let born = VolumeState {
                    name: name.clone(),
                    uid: *uid,
                    size: *size,
                    block_size: *block_size,
                    raw: *raw,
                    ..VolumeState::default()
                };
                self.volumes.insert(*volume, born);
            }
            Change::Clone { volume, snapshot, name, uid, size } => {
                let Some(from) = self.snapshots.get(snapshot) else { return };
                let clone = VolumeState {
                    name: name.clone(),
                    uid: *uid,
                    size: *size,
                    state: Vec::new(),
                    attached: false,
                    origin: Some(*snapshot),
                    ..from.frozen.clone()
                };
                self.volumes.insert(*volume, clone);
            }
            Change::Stage { staging, volume, .. } => {
                let Some(of) = self.volumes.get(volume) else { return };
                let begun = StagingInfo { of: *volume, progress: 0 };
                let hidden = VolumeState { staging: Some(begun), ..of.clone() };
                self.volumes.insert(*staging, hidden);
            }
            Change::Delete { volume, snapshots } => {
                self.volumes.remove(volume);
                let gone = self.snapshots.values_mut().filter(|snapshot| {
                    *snapshots == SnapshotsOfDeleted::Delete && snapshot.volume == *volume
                });
                gone.for_each(|snapshot| snapshot.hidden = true);
            }
            Change::DeleteSnapshot { snapshot, .. } => {
                let found = self.snapshots.get_mut(snapshot);
                found.into_iter().for_each(|snapshot| snapshot.hidden = true);
            }
            Change::Adopt { volume, staging, stamps, state } => {
                let Some(staged) = self.volumes.remove(staging) else { return };
                let Some(volume) = self.volumes.get_mut(volume) else { return };
                volume.content = staged.content;
                volume.foreign_stamps |= *stamps == Stamps::Keep;
                volume.position = position.expect("an adoption has a position");
                if let Some(state) = state {
                    volume.state.clone_from(state);
                }
            }
            Change::Rollback { volume, to } => {
                let Some(to) = self.snapshots.get(to) else { return };
                let Some(volume) = self.volumes.get_mut(volume) else { return };
                Arc::make_mut(&mut volume.content).roll_back(to.content());
                volume.position = position.expect("a rollback has a position");
            }
            Change::Snapshot { volume, snapshot, name, uid, internal, created } => {
                let Some(of) = self.volumes.get_mut(volume) else { return };
                of.position = position.unwrap_or(of.position);
                let taken = SnapshotState {
                    volume: *volume,
                    name: name.clone(),
                    uid: *uid,
                    internal: *internal,
                    created: *created,
                    frozen: of.clone(),
                    hidden: false,
                };
                self.snapshots.insert(*snapshot, taken);
            }
            within => {
                let Some(volume) = self.volumes.get_mut(&within.volume()) else { return };
                volume.apply(within, number);
                volume.position = position.unwrap_or(volume.position);
            }
        }
    }

    /// Remembers where an operation that was refused would have changed something.
    pub fn note_refused(&mut self, change: &Change) {
        let (Change::Write { first, count, .. }
        | Change::Zero { first, count, .. }
        | Change::StageData { first, count, .. }) = change
        else {
            return;
        };
        if let Some(volume) = self.volumes.get_mut(&change.volume()) {
            Arc::make_mut(&mut volume.content).note(*first, *count);
        }
    }

    /// Takes the ids that a pool really gave for those that it never got to tell.
    pub fn rename(&mut self, volumes: &[(VolumeId, VolumeId)], taken: &[(SnapshotId, SnapshotId)]) {
        for (ours, theirs) in volumes.iter().filter(|(ours, _)| ours.0 >= UNANSWERED) {
            let volume = self.volumes.remove(ours).expect("the model has it");
            self.volumes.insert(*theirs, volume);
        }
        for (ours, theirs) in taken.iter().filter(|(ours, _)| ours.0 >= UNANSWERED) {
            let snapshot = self.snapshots.remove(ours).expect("the model has it");
            self.snapshots.insert(*theirs, snapshot);
        }
    }

    /// The space of everything, where `kept` are the deleted snapshots that the pool still has.
    /// It holds for volumes whose blocks are stored as they are.
    pub fn usage(&self, kept: &BTreeSet<SnapshotId>) -> BTreeMap<Subject, Usage> {
        let volumes = self.volumes.iter().map(|(id, volume)| (Subject::Volume(*id), volume));
        let snapshots =
            self.snapshots.iter().filter(|(id, snapshot)| !snapshot.hidden || kept.contains(id));
        let snapshots = snapshots.map(|(id, found)| (Subject::Snapshot(*id), &found.frozen));
        let holders: Vec<(Subject, &VolumeState)> = volumes.chain(snapshots).collect();
        // An operation makes at most one block of a granule, so that the two name it.
        let mut held: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for (_, holder) in &holders {
            for (granule, number) in holder.content.blocks() {
                *held.entry((*granule, *number)).or_default() += 1;
            }
        }
        let figures = holders.into_iter().map(|(subject, holder)| {
            let blocks = holder.content.blocks();
            let alone = blocks.iter().filter(|(at, number)| held[&(**at, **number)] == 1).count();
            let bytes = |count: usize| ByteLen(count as u64 * holder.granule());
            let usage = Usage {
                logical: bytes(blocks.len()),
                stored: bytes(blocks.len()),
                unique: bytes(alone),
                shared: bytes(blocks.len() - alone),
            };
            (subject, usage)
        });
        figures.collect()
    }
}

impl VolumeState {
    /// What concerns this volume alone.
    fn apply(&mut self, change: &Change, number: u64) {
        let per = self.per();
        match change {
            Change::Write { first, count, .. } => {
                let values = (0..*count).map(|_| number);
                Arc::make_mut(&mut self.content).put(per, *first, values, number);
            }
            Change::Zero { first, count, .. } => {
                Arc::make_mut(&mut self.content).zero(per, *first, *count, number);
            }
            Change::StageData { first, count, values, progress, .. } => {
                let content = Arc::make_mut(&mut self.content);
                match values {
                    Some(values) => content.put(per, *first, values.iter().copied(), number),
                    None => content.zero(per, *first, *count, number),
                }
                let staging = self.staging.as_mut().expect("only imports are staged");
                staging.progress = *progress;
            }
            Change::Grow { size, .. } => self.size = *size,
            Change::SetState { state, .. } => self.state.clone_from(state),
            Change::Attach { attached, .. } => self.attached = *attached,
            Change::Mark { .. } | Change::Credit { .. } => {}
            other => unreachable!("{other:?} concerns more than a volume"),
        }
    }
}
