//! What a replica begins as: nothing, or a snapshot that another replica in the pool has.
use block::{ByteLen, Disk, Position};
use engine::{CloneSpec, Op, Pool, SnapshotId, SnapshotInfo, VolumeId, VolumeInfo, VolumeSpec};
use replication::state::{Origin, ReplicaState, SharedState};
use replication::store::StoreError;
use replication::words::{Incarnation, SnapshotUid, VolumeUid};

use super::Host;
use super::place::Place;

/// What a replica is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    pub incarnation: Incarnation,
    /// Of the volume; the copy may be larger.
    pub size: ByteLen,
    /// `None`: it begins empty.
    pub origin: Option<Origin>,
}

/// A snapshot of a replica, with what was kept beside it.
#[derive(Clone, Debug)]
pub struct Cut {
    pub position: Position,
    /// As of the snapshot.
    pub shared: SharedState,
    id: SnapshotId,
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
        let is_it = |found: &SnapshotInfo| found.id == id && !found.internal;
        let found = self.pool.snapshots().into_iter().find(is_it);
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
        origin: Option<Origin>,
    ) -> Result<(Found, Op), StoreError> {
        let Some(origin) = origin else {
            let found = of_same_uid(&self.pool, uid, &spec, None);
            return Ok((found, Op::Create { spec }));
        };
        let cut = self.cut_of(origin)?;
        self.must_fit(&spec, &cut)?;
        let spec = VolumeSpec { size: spec.size.max(cut.size), ..spec };
        let found = of_same_uid(&self.pool, uid, &spec, Some(&cut));
        let VolumeSpec { name, uid, size, .. } = spec;
        let spec = CloneSpec { name, uid, size: Some(size) };
        Ok((found, Op::Clone { snapshot: cut.id, spec }))
    }

    /// Block size and compression come with the snapshot.
    fn must_fit(&self, spec: &VolumeSpec, cut: &Cut) -> Result<(), StoreError> {
        let refused = |reason: String| Err(StoreError::Refused { reason });
        if spec.size < cut.shared.size {
            return refused(format!("the snapshot has {}, and a clone no less", cut.shared.size));
        }
        let source = self.pool.volumes().into_iter().find(|volume| volume.id == cut.volume);
        let source = source.ok_or(StoreError::UnknownSnapshot)?;
        match (source.block_size, source.compression) == (spec.block_size, spec.compression) {
            true => Ok(()),
            false => refused("a clone has the block size and the compression of its origin".into()),
        }
    }

    /// The state that makes a volume a replica.
    pub(super) fn first_state(&self, first: First) -> Result<ReplicaState, StoreError> {
        let First { incarnation, size, origin } = first;
        Ok(match origin {
            None => ReplicaState::fresh(incarnation, size),
            Some(origin) => {
                let cut = self.cut_of(origin)?;
                ReplicaState::cloned(incarnation, &cut.shared, cut.position, size)
            }
        })
    }

    /// A volume of this uid that never became a replica: what a crash left of a creation. One to which
    /// anything happened is somebody else's.
    pub(super) fn half_made(&self, uid: VolumeUid) -> Option<VolumeId> {
        let mut volumes = self.pool.volumes().into_iter();
        let found = volumes.find(|found| VolumeUid(found.uid) == uid && is_unused(found))?;
        let snapshots = self.pool.snapshots();
        let begins = match found.parent {
            None => Some(Position::default()),
            Some(of) => {
                let parent = snapshots.iter().find(|it| it.id == of && it.volume != found.id);
                parent.map(|parent| parent.position)
            }
        };
        let own = snapshots.iter().any(|it| it.volume == found.id);
        (begins == Some(found.held) && !own).then_some(found.id)
    }
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
    let volumes = pool.volumes();
    let Some(found) = volumes.iter().find(|volume| VolumeUid(volume.uid) == uid) else {
        return Found::Nothing;
    };
    let same = found.name == spec.name
        && found.size == spec.size
        && found.block_size == spec.block_size
        && found.compression == spec.compression;
    let untouched = is_unused(found)
        && found.held == cut.map_or_else(Position::default, |cut| cut.position)
        && found.parent == cut.map(|cut| cut.id)
        && !pool.snapshots().iter().any(|snapshot| snapshot.volume == found.id);
    if same && untouched { Found::Untouched(found.id) } else { Found::Used }
}
