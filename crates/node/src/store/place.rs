//! What a volume has in a pool, and what of it waits for its turn.
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use block::ByteLen;
use engine::{SnapshotId, VolumeId, VolumeSpec};
use replication::store::{StoreOp, StoreTag};
use replication::words::SnapshotUid;

use super::origin::Begins;

/// What is asked of a place.
pub enum Wanted {
    Create { spec: VolumeSpec, begins: Begins },
    Delete,
    Op(StoreOp),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Absent,
    /// It is being created; nothing else begins.
    Making,
    Ready(VolumeId),
    /// It is being deleted; nothing else begins.
    Going,
}

/// An import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Staging {
    #[default]
    None,
    /// Its volume is not known yet: what names it waits.
    Beginning,
    Open(VolumeId),
    /// It is adopted or thrown away. Until then the engine lets nothing change the volume, so
    /// everything waits.
    Ending,
}

#[derive(Default)]
pub struct Place {
    pub phase: Phase,
    /// Those that exist when everything that the engine was given is done.
    pub snapshots: BTreeMap<SnapshotUid, SnapshotId>,
    /// Those whose id is not known yet: what names them waits.
    pub making: BTreeSet<SnapshotUid>,
    /// How many look at a snapshot: it is not deleted under them.
    pub looking: BTreeMap<SnapshotUid, usize>,
    pub staging: Staging,
    /// The size when everything that the engine was given is done.
    pub size: ByteLen,
    /// How many operations the engine has of it. It is not deleted under them.
    pub under_way: usize,
    /// In order; the first waits for an answer, the others for the first.
    pub waiting: VecDeque<(StoreTag, Wanted)>,
}

impl Place {
    pub fn ready(volume: VolumeId, size: ByteLen) -> Place {
        Place { phase: Phase::Ready(volume), size, ..Place::default() }
    }

    pub fn volume(&self) -> Option<VolumeId> {
        match self.phase {
            Phase::Ready(volume) => Some(volume),
            Phase::Absent | Phase::Making | Phase::Going => None,
        }
    }

    pub fn is_gone(&self) -> bool {
        self.phase == Phase::Absent && self.waiting.is_empty() && self.under_way == 0
    }

    /// What can begin now.
    pub fn next(&mut self) -> Option<(StoreTag, Wanted)> {
        let (_, wanted) = self.waiting.front()?;
        if self.must_wait(wanted) { None } else { self.waiting.pop_front() }
    }

    pub fn look_at(&mut self, snapshot: SnapshotUid) {
        *self.looking.entry(snapshot).or_default() += 1;
    }

    pub fn looked_at(&mut self, snapshot: SnapshotUid) {
        if let Entry::Occupied(mut looking) = self.looking.entry(snapshot) {
            *looking.get_mut() -= 1;
            if *looking.get() == 0 {
                looking.remove();
            }
        }
    }

    pub fn must_wait(&self, wanted: &Wanted) -> bool {
        match self.phase {
            Phase::Making | Phase::Going => return true,
            Phase::Absent => return false,
            Phase::Ready(_) if self.staging == Staging::Ending => return true,
            Phase::Ready(_) => {}
        }
        let op = match wanted {
            Wanted::Create { .. } => return false,
            // Answers must find their place, and the engine deletes only what it knows.
            Wanted::Delete => return self.under_way > 0,
            Wanted::Op(op) => op,
        };
        if let StoreOp::DeleteSnapshot { snapshot } = op
            && self.looking.contains_key(snapshot)
        {
            return true;
        }
        let unnamed = snapshot_of(op).is_some_and(|uid| self.making.contains(&uid));
        unnamed || (needs_import(op) && self.staging == Staging::Beginning)
    }
}

/// The snapshot that an operation names.
fn snapshot_of(op: &StoreOp) -> Option<SnapshotUid> {
    match op {
        StoreOp::Snapshot { spec, .. } => Some(spec.uid),
        StoreOp::Rollback { to: snapshot, .. }
        | StoreOp::DeleteSnapshot { snapshot }
        | StoreOp::ReadSnapshot { snapshot, .. }
        | StoreOp::SnapshotState { snapshot }
        | StoreOp::Changed { snapshot, .. }
        | StoreOp::Stage { base: snapshot } => Some(*snapshot),
        StoreOp::Repair { snapshot, .. } => *snapshot,
        StoreOp::Write { .. }
        | StoreOp::Zero { .. }
        | StoreOp::Mark { .. }
        | StoreOp::SetState { .. }
        | StoreOp::Flush
        | StoreOp::Grow { .. }
        | StoreOp::Read { .. }
        | StoreOp::Extents { .. }
        | StoreOp::StageData { .. }
        | StoreOp::Adopt { .. }
        | StoreOp::Abandon
        | StoreOp::Credit { .. } => None,
    }
}

fn needs_import(op: &StoreOp) -> bool {
    matches!(
        op,
        StoreOp::Stage { .. }
            | StoreOp::StageData { .. }
            | StoreOp::Adopt { .. }
            | StoreOp::Abandon
    )
}
