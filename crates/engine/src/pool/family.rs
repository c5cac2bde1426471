//! Who goes on from whom: volumes and snapshots as trees, and what of them can be dropped.
use block::Disk;

use crate::pool::Pool;
use crate::pool::maps::Work;
use crate::snapshot::{Floor, Object};
use crate::units::{Granule, ObjectId, SnapshotId, VolumeId};
use crate::volume::MapRoot;

impl<D: Disk> Pool<D> {
    /// An object as the next checkpoint would write it.
    pub(super) fn object(&self, id: ObjectId) -> Object {
        if let Some(volume) = self.volumes.get(&VolumeId(id.0)) {
            return Object::Volume(volume.kept.clone());
        }
        if let Some(snapshot) = self.snapshots.get(&SnapshotId(id.0)) {
            return Object::Snapshot(snapshot.cut.clone());
        }
        Object::Orphan(self.orphans.get(&id).expect("an object that is known").clone())
    }

    /// Volumes and snapshots that go on from a snapshot.
    pub(super) fn children(&self, of: SnapshotId) -> Vec<ObjectId> {
        let of = Some(of);
        let volumes = self.volumes.iter().filter(|(_, v)| v.kept.parent == of);
        let snapshots = self.snapshots.iter().filter(|(_, s)| s.cut.parent == of);
        volumes
            .map(|(id, _)| ObjectId::from(*id))
            .chain(snapshots.map(|(id, _)| ObjectId::from(*id)))
            .collect()
    }

    /// What a map that goes on from `parent` shares with it, as of the last checkpoint.
    pub(super) fn floor(&self, parent: Option<SnapshotId>) -> Floor {
        Floor::over(parent, |id| self.snapshots.get(&id).map(|snapshot| &snapshot.cut))
    }

    /// The map of an object as of the last checkpoint.
    pub(super) fn map_of(&self, id: ObjectId) -> MapRoot {
        match self.snapshots.get(&SnapshotId(id.0)) {
            // Not settled yet: as of the last checkpoint it was what its volume was.
            Some(snapshot) if !snapshot.settled => {
                self.volumes.get(&snapshot.cut.volume).map_or(MapRoot::EMPTY, |v| v.kept.map)
            }
            _ => self.object(id).map(),
        }
    }

    /// The deleted snapshot that a checkpoint goes on dropping, with the one that goes on from it.
    /// One at a time: a neighbour must not be half gone while it is compared with.
    pub(super) fn next_drop(&self) -> Option<Work> {
        let begun = |id: &&SnapshotId| self.snapshots[id].cut.dropped > Granule(0);
        let first = self.deleted_snapshots.iter().find(begun);
        first.into_iter().chain(&self.deleted_snapshots).find_map(|id| {
            let children = self.children(*id);
            if children.len() > 1 && !self.faulty_origin() {
                return None;
            }
            let sealed_now = |id: &SnapshotId| self.snapshots[id].settled || self.is_sealed(*id);
            let child = children.first().copied();
            let ready = sealed_now(id)
                && child.is_none_or(|child| {
                    let child = SnapshotId(child.0);
                    !self.snapshots.contains_key(&child) || sealed_now(&child)
                });
            ready.then_some(Work::DropSnapshot { snapshot: *id, child })
        })
    }

    /// Whether the next checkpoint will settle a snapshot.
    fn is_sealed(&self, id: SnapshotId) -> bool {
        let volume = self.snapshots[&id].cut.volume;
        (0..)
            .map_while(|at| self.active.layer(volume, at))
            .any(|(snapshot, _)| snapshot == Some(id))
    }

    /// Whether checkpoints have more to do than what clients ask for.
    pub(super) fn has_unfinished(&self) -> bool {
        !self.deleting.is_empty() || !self.orphans.is_empty() || self.next_drop().is_some()
    }

    /// Takes over what a checkpoint made of an object.
    pub(super) fn settle_object(&mut self, id: ObjectId, record: Option<Object>) {
        match record {
            Some(Object::Volume(record)) => {
                let volume = self.volumes.get_mut(&VolumeId(id.0));
                volume.expect("only a checkpoint removes one").kept.map = record.map;
            }
            Some(Object::Snapshot(record)) => {
                let snapshot = self.snapshots.get_mut(&SnapshotId(id.0));
                let snapshot = snapshot.expect("only a checkpoint removes one");
                snapshot.cut.map = record.map;
                snapshot.cut.birth = record.birth;
                snapshot.cut.dropped = record.dropped;
                snapshot.settled = true;
            }
            Some(Object::Orphan(orphan)) => {
                self.orphans.insert(id, orphan);
            }
            None => {
                self.volumes.remove(&VolumeId(id.0));
                self.deleting.remove(&VolumeId(id.0));
                self.snapshots.remove(&SnapshotId(id.0));
                self.deleted_snapshots.remove(&SnapshotId(id.0));
                self.orphans.remove(&id);
            }
        }
    }

    /// A snapshot is gone: what went on from it goes on from the one before.
    pub(super) fn goes_on_from(&mut self, gone: SnapshotId, older: Option<SnapshotId>) {
        for volume in self.volumes.values_mut().filter(|v| v.kept.parent == Some(gone)) {
            volume.kept.parent = older;
        }
        for snapshot in self.snapshots.values_mut().filter(|s| s.cut.parent == Some(gone)) {
            snapshot.cut.parent = older;
        }
    }

    fn faulty_origin(&self) -> bool {
        #[cfg(feature = "faults")]
        return self.has_fault(crate::Fault::OriginFreed);
        #[cfg(not(feature = "faults"))]
        false
    }
}
