//! Snapshots, clones and rollbacks: what is legal, and what memory and journal get to know.
use block::{ByteLen, Disk, Position};

use crate::error::OpError;
use crate::format::Record;
use crate::overlay::Displaced;
use crate::pool::queue::Kind;
use crate::pool::{Pool, SnapshotsOfDeleted};
use crate::snapshot::{Cut, Jump, Snapshot};
use crate::units::{Birth, Granule, SnapshotId, VolumeId};
use crate::volume::{
    CloneSpec, Durable, Header, MapRoot, SnapshotSpec, Volume, check_name, check_size,
};

impl<D: Disk> Pool<D> {
    /// A snapshot that exists for users.
    pub(super) fn shown(&self, id: SnapshotId) -> Result<&Snapshot, OpError> {
        self.snapshots
            .get(&id)
            .filter(|snapshot| !snapshot.front_deleted)
            .ok_or(OpError::UnknownSnapshot { snapshot: id })
    }

    /// The snapshots of a volume that users see.
    pub(super) fn shown_of(&self, volume: VolumeId) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.values().filter(move |s| s.cut.volume == volume && !s.front_deleted)
    }

    pub(super) fn accept_delete(
        &self,
        id: VolumeId,
        snapshots: SnapshotsOfDeleted,
    ) -> Result<Kind, OpError> {
        let volume = self.live(id)?;
        if volume.front.attached {
            return Err(OpError::Attached { volume: id });
        }
        if volume.front.staged.is_some() {
            return Err(OpError::Staging { volume: id });
        }
        let count = self.shown_of(id).count() + self.queue.snapshots_of(id);
        match snapshots {
            SnapshotsOfDeleted::Refuse if count > 0 => {
                Err(OpError::HasSnapshots { volume: id, count })
            }
            SnapshotsOfDeleted::Refuse | SnapshotsOfDeleted::Keep => {
                Ok(Kind::Delete { volume: id, snapshots: false })
            }
            SnapshotsOfDeleted::Delete => Ok(Kind::Delete { volume: id, snapshots: true }),
        }
    }

    pub(super) fn accept_snapshot(
        &self,
        volume: VolumeId,
        position: Option<Position>,
        spec: SnapshotSpec,
    ) -> Result<Kind, OpError> {
        check_name(&spec.name)?;
        self.unstaged(volume)?;
        self.check_place(volume, position)?;
        let known = self.shown_of(volume).any(|snapshot| snapshot.cut.header.name == spec.name);
        if known || self.queue.names_snapshot(volume, &spec.name) {
            return Err(OpError::DuplicateName { name: spec.name });
        }
        Ok(Kind::Snapshot { volume, position, snapshot: SnapshotId(self.next_object), spec })
    }

    pub(super) fn accept_clone(&self, id: SnapshotId, spec: CloneSpec) -> Result<Kind, OpError> {
        let cut = &self.shown(id)?.cut;
        check_name(&spec.name)?;
        if self.names.contains_key(&spec.name) {
            return Err(OpError::DuplicateName { name: spec.name });
        }
        let has = ByteLen(cut.header.size);
        let size = spec.size.unwrap_or(has);
        check_size(size, cut.header.block_size)?;
        if size < has {
            return Err(OpError::Shrink { has, asked: size });
        }
        let header = Header { name: spec.name, uid: spec.uid, size: size.0, ..cut.header.clone() };
        let volume = VolumeId(self.next_object);
        Ok(Kind::Clone { volume, snapshot: id, header: Box::new(header) })
    }

    pub(super) fn accept_rollback(
        &self,
        id: VolumeId,
        position: Position,
        to: SnapshotId,
        force: bool,
    ) -> Result<Kind, OpError> {
        let volume = self.unstaged(id)?;
        if volume.front.attached && !force {
            return Err(OpError::Attached { volume: id });
        }
        if self.shown(to)?.cut.volume != id {
            return Err(OpError::ForeignSnapshot { snapshot: to, volume: id });
        }
        self.check_position(id, position)?;
        Ok(Kind::Rollback { volume: id, position, to })
    }

    /// Whether a snapshot has its map, and the volume nothing that a checkpoint did not merge: a
    /// volume can then become something else as a whole.
    pub(super) fn can_jump(&self, volume: VolumeId, to: Option<SnapshotId>) -> bool {
        let settled = to.is_none_or(|to| self.snapshots.get(&to).is_some_and(|s| s.settled));
        let jumping = self.volumes.get(&volume).is_some_and(|v| v.jump.is_some());
        self.job.is_none() && settled && !jumping && !self.active.has(volume)
    }

    pub(super) fn apply_snapshot(
        &mut self,
        volume: VolumeId,
        position: Position,
        id: SnapshotId,
        spec: SnapshotSpec,
    ) -> Record {
        let SnapshotSpec { name, uid, internal, created } = spec;
        let header = Header { name, uid, ..self.touch(volume).header.clone() };
        self.insert_snapshot(id, volume, position, header.clone(), internal, created);
        let header = Box::new(header);
        Record::Snapshot { volume, position, snapshot: id, internal, created, header }
    }

    /// A snapshot of everything that the volume has now.
    pub(super) fn insert_snapshot(
        &mut self,
        id: SnapshotId,
        volume: VolumeId,
        position: Position,
        header: Header,
        internal: bool,
        created: u64,
    ) {
        let kept = self.touch(volume);
        let (parent, state) = (kept.parent.replace(id), kept.state.clone());
        let cut = Cut {
            volume,
            header,
            map: MapRoot::EMPTY,
            position,
            parent,
            birth: Birth(0),
            created,
            internal,
            deleted: false,
            dropped: Granule(0),
            state,
        };
        self.dirty.insert(id.into());
        self.active.seal(volume, id);
        let snapshot = Snapshot { id, cut, settled: false, front_deleted: false };
        self.snapshots.insert(id, snapshot);
    }

    /// The snapshot is gone for users; checkpoints drop it.
    pub(super) fn mark_deleted(&mut self, id: SnapshotId) {
        let Some(snapshot) = self.snapshots.get_mut(&id) else { return };
        snapshot.cut.deleted = true;
        snapshot.front_deleted = true;
        self.deleted_snapshots.insert(id);
        self.dirty.insert(id.into());
        self.checkpoint_wanted = true;
    }

    /// The volume is gone; a checkpoint leaves its map to be dropped.
    pub(super) fn mark_deleting(&mut self, id: VolumeId, snapshots: bool) {
        self.touch(id);
        let volume = self.volumes.get_mut(&id).expect("it was accepted");
        volume.deleting = true;
        volume.front.deleted = true;
        match volume.kept.staging.map(|staging| staging.of) {
            None => {
                self.names.remove(&volume.kept.header.name);
            }
            Some(of) => {
                // Another import may have been accepted since this one was given up.
                if let Some(of) = self.volumes.get_mut(&of)
                    && of.front.staged == Some(id)
                {
                    of.front.staged = None;
                }
            }
        }
        self.deleting.insert(id);
        self.checkpoint_wanted = true;
        let mut displaced = Displaced::new();
        self.active.remove(id, &mut displaced);
        self.free_displaced(displaced);
        if snapshots {
            // Also one that something behind this was accepted to delete: replay knows nothing of
            // what only waited.
            let own = self.snapshots.values().filter(|s| s.cut.volume == id && !s.cut.deleted);
            let all: Vec<SnapshotId> = own.map(|snapshot| snapshot.id).collect();
            all.into_iter().for_each(|snapshot| self.mark_deleted(snapshot));
        }
    }

    /// A volume that goes on from a snapshot, with its content.
    pub(super) fn insert_clone(&mut self, id: VolumeId, from: SnapshotId, header: Header) {
        let cut = &self.snapshots[&from].cut;
        let kept = Durable {
            map: cut.map,
            position: cut.position,
            parent: Some(from),
            ..Durable::with_header(header)
        };
        self.volumes.insert(id, Volume::new(id, kept));
        self.dirty.insert(id.into());
    }

    /// The volume has the content of a snapshot.
    pub(super) fn roll_back(&mut self, id: VolumeId, position: Position, to: SnapshotId) {
        let map = self.snapshots[&to].cut.map;
        self.jump(id, map, Some(to), Some(position));
    }

    /// The volume becomes another map as a whole. The next checkpoint stamps what differs.
    pub(super) fn jump(
        &mut self,
        id: VolumeId,
        map: MapRoot,
        parent: Option<SnapshotId>,
        stamp: Option<Position>,
    ) {
        let (budget, slot) = (self.stamping_budget(id), self.ring.next());
        let kept = self.touch(id);
        let old = std::mem::replace(&mut kept.map, map);
        let old_parent = std::mem::replace(&mut kept.parent, parent);
        let stamp = stamp.map(|position| position.seq);
        let volume = self.volumes.get_mut(&id).expect("it was accepted");
        volume.jump = Some(Jump { old, old_parent, parent, stamp, budget, slot });
        self.checkpoint_wanted = true;
    }
}
