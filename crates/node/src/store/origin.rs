//! What a replica begins as: nothing, or a snapshot that another replica in the pool has.
use std::collections::BTreeMap;

use block::{ByteLen, Disk, Position};
use engine::{CloneSpec, Op, Pool, SnapshotId, SnapshotInfo, VolumeId, VolumeInfo, VolumeSpec};
use replication::state::{Origin, ReplicaState, SharedState};
use replication::store::StoreError;
use replication::words::{Incarnation, SnapshotUid, VolumeUid};

use super::Host;
use super::place::Place;

/// What a replica is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begins {
    pub incarnation: Incarnation,
    /// `None`: it begins empty.
    pub origin: Option<Origin>,
}

/// What a replica is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct First {
    /// Of the volume; the copy may be larger.
    pub size: ByteLen,
    /// Makes a volume a replica. Of a clone it is known before that is made: its origin may go
    /// meanwhile.
    pub state: Vec<u8>,
}

/// Clones that were made and have no state yet, and where they began. When their origin goes, the
/// engine does not tell that any more.
#[derive(Debug, Default)]
pub struct Left(BTreeMap<VolumeId, Position>);

/// A snapshot of a replica, with what was kept beside it.
#[derive(Clone, Debug)]
pub struct Cut {
    pub position: Position,
    /// As of the snapshot.
    pub shared: SharedState,
    pub(super) id: SnapshotId,
    volume: VolumeId,
    /// Of the copy.
    size: ByteLen,
}

/// What has the uid of a replica that is to be made.
pub enum Found {
    Nothing,
    /// Nothing ever happened to it: a creation that a crash cut short.
    Untouched(VolumeId),
    Used,
}

impl<D: Disk> Host<D> {
    /// A user's snapshot of a replica that is here.
    pub fn snapshot(&self, volume: VolumeUid, snapshot: SnapshotUid) -> Result<Cut, StoreError> {
        let place = self.places.get(&volume);
        let id = place.and_then(|place| place.snapshots.get(&snapshot)).copied();
        let own = place.and_then(Place::volume).zip(id);
        let (volume, id) = own.ok_or(StoreError::UnknownSnapshot)?;
        let found = self.pool.snapshot(id).filter(|found| !found.internal);
        let found = found.ok_or(StoreError::UnknownSnapshot)?;
        let state = ReplicaState::decode(&found.state)
            .map_err(|malformed| StoreError::Refused { reason: malformed.to_string() })?;
        let SnapshotInfo { position, size, .. } = found;
        Ok(Cut { position, shared: state.shared, id, volume, size })
    }

    /// The snapshot that a replica is to begin as.
    fn cut_of(&self, origin: Origin) -> Result<Cut, StoreError> {
        let cut = self.snapshot(origin.volume, origin.snapshot)?;
        match cut.position == origin.at {
            true => Ok(cut),
            false => Err(StoreError::UnknownSnapshot),
        }
    }

    /// What the engine is asked to make, and what of it is there already.
    pub(super) fn wanted(
        &self,
        uid: VolumeUid,
        spec: VolumeSpec,
        begins: Begins,
    ) -> Result<(Found, Op, First), StoreError> {
        let Begins { incarnation, origin } = begins;
        let size = spec.size;
        let Some(origin) = origin else {
            let found = of_same_uid(&self.pool, uid, &spec, None);
            let state = ReplicaState::fresh(incarnation, size).encode();
            return Ok((found, Op::Create { spec }, First { size, state }));
        };
        let cut = self.cut_of(origin)?;
        self.must_fit(&spec, &cut)?;
        let state = ReplicaState::cloned(incarnation, &cut.shared, cut.position, size).encode();
        let first = First { size, state };
        let spec = VolumeSpec { size: spec.size.max(cut.size), ..spec };
        let found = of_same_uid(&self.pool, uid, &spec, Some(&cut));
        let VolumeSpec { name, uid, size, .. } = spec;
        let spec = CloneSpec { name, uid, size: Some(size) };
        Ok((found, Op::Clone { snapshot: cut.id, spec }, first))
    }

    /// Block size and compression come with the snapshot.
    fn must_fit(&self, spec: &VolumeSpec, cut: &Cut) -> Result<(), StoreError> {
        let refused = |reason: String| Err(StoreError::Refused { reason });
        if spec.size < cut.shared.size {
            return refused(format!("the snapshot has {}, and a clone no less", cut.shared.size));
        }
        let source = self.pool.volume(cut.volume).ok_or(StoreError::UnknownSnapshot)?;
        match (source.block_size, source.compression) == (spec.block_size, spec.compression) {
            true => Ok(()),
            false => refused("a clone has the block size and the compression of its origin".into()),
        }
    }

    /// A volume of this uid that never became a replica: what a crash left of a creation. One to which
    /// anything happened is somebody else's.
    pub(super) fn half_made(&self, uid: VolumeUid) -> Option<VolumeId> {
        let found = self.pool.volumes_of(uid.0).find(is_unused)?;
        let snapshots = self.pool.snapshots();
        let begun = self.left.0.get(&found.id).copied().or_else(|| begins(&found, &snapshots));
        let own = snapshots.iter().any(|it| it.volume == found.id);
        (begun == Some(found.held) && !own).then_some(found.id)
    }
}

impl Left {
    /// Those that can be told now.
    pub fn note<D: Disk>(&mut self, pool: &Pool<D>) {
        let snapshots = pool.snapshots();
        let is_one = |found: &VolumeInfo| is_unused(found) && found.parent.is_some();
        let begun = |found: VolumeInfo| begins(&found, &snapshots).map(|at| (found.id, at));
        self.0.extend(pool.volumes().into_iter().filter(is_one).filter_map(begun));
    }
}

/// Where a volume was when it was made: at the snapshot of another that it goes on from, or at the
/// beginning.
fn begins(volume: &VolumeInfo, snapshots: &[SnapshotInfo]) -> Option<Position> {
    let Some(of) = volume.parent else { return Some(Position::default()) };
    let parent = snapshots.iter().find(|it| it.id == of && it.volume != volume.id);
    parent.map(|parent| parent.position)
}

/// Neither a replica nor anybody's who uses it.
fn is_unused(volume: &VolumeInfo) -> bool {
    volume.state.is_empty() && volume.staging.is_none() && !volume.attached
}

/// A volume that has the uid already, compared with what is asked for.
fn of_same_uid<D: Disk>(
    pool: &Pool<D>,
    uid: VolumeUid,
    spec: &VolumeSpec,
    cut: Option<&Cut>,
) -> Found {
    let Some(found) = pool.volumes_of(uid.0).next() else { return Found::Nothing };
    let same = found.name == spec.name
        && found.size == spec.size
        && found.block_size == spec.block_size
        && found.compression == spec.compression;
    let untouched = is_unused(&found)
        && found.held == cut.map_or_else(Position::default, |cut| cut.position)
        && found.parent == cut.map(|cut| cut.id)
        && !pool.snapshots().iter().any(|snapshot| snapshot.volume == found.id);
    if same && untouched { Found::Untouched(found.id) } else { Found::Used }
}
