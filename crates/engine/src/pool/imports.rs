//! Imports: a hidden volume takes what arrives, step by step and over any number of restarts,
//! and then becomes the content of the volume that it is for, all or nothing.
use block::{ByteLen, ByteOffset, Disk, Position, Seq};

use crate::error::OpError;
use crate::limits::{SEQ_MAX, WRITE_MAX};
use crate::pool::admit::check_state;
use crate::pool::queue::{Content, Import, Kind};
use crate::pool::{Pool, Staged, Stamps};
use crate::units::{SnapshotId, VolumeId};
use crate::volume::{Staging, Volume};

impl<D: Disk> Pool<D> {
    /// A volume whose content may change by itself: it is not staging, and no import into it is
    /// under way.
    pub(super) fn unstaged(&self, id: VolumeId) -> Result<&Volume, OpError> {
        let volume = self.live(id)?;
        match volume.front.staged.is_some() || volume.kept.staging.is_some() {
            true => Err(OpError::Staging { volume: id }),
            false => Ok(volume),
        }
    }

    pub(super) fn accept_stage(&self, of: VolumeId, base: SnapshotId) -> Result<Kind, OpError> {
        self.unstaged(of)?;
        if self.shown(base)?.cut.volume != of {
            return Err(OpError::ForeignSnapshot { snapshot: base, volume: of });
        }
        Ok(Kind::Stage { volume: VolumeId(self.next_object), of, base })
    }

    pub(super) fn accept_staged(
        &self,
        id: VolumeId,
        changed: Seq,
        offset: ByteOffset,
        content: Staged,
        progress: u64,
    ) -> Result<Kind, OpError> {
        if self.live(id)?.kept.staging.is_none() {
            return Err(OpError::NotStaging { volume: id });
        }
        if changed.0 >= SEQ_MAX {
            let asked = Position { seq: changed, ..Position::default() };
            return Err(OpError::SeqTooHigh { asked });
        }
        let (len, content) = match content {
            Staged::Bytes(data) => (ByteLen(data.len() as u64), Content::Bytes(data)),
            Staged::Zeros(len) => (len, Content::Zeros),
        };
        if matches!(content, Content::Bytes(_)) && len.0 > WRITE_MAX {
            return Err(OpError::TooLong { len });
        }
        let position = self.live(id)?.front.position;
        let mut change = self.plan_change(id, position, offset, len, content)?;
        change.import = Some(Import { changed, progress });
        Ok(Kind::Change(Box::new(change)))
    }

    pub(super) fn accept_adopt(
        &self,
        id: VolumeId,
        staging: VolumeId,
        position: Position,
        stamps: Stamps,
        state: Option<Vec<u8>>,
    ) -> Result<Kind, OpError> {
        self.live(id)?;
        let is_for = self.live(staging)?.kept.staging.map(|staging| staging.of);
        if is_for != Some(id) {
            return Err(OpError::NotStaging { volume: staging });
        }
        // Not compared with the volume's own: what it has may be of a history that lost.
        if position.seq.0 >= SEQ_MAX {
            return Err(OpError::SeqTooHigh { asked: position });
        }
        check_state(state.as_deref().unwrap_or_default())?;
        let renew = stamps == Stamps::Renew;
        Ok(Kind::Adopt { volume: id, staging, position, renew, state })
    }

    /// Whether a volume still is what a snapshot of it has.
    fn is_at(&self, id: VolumeId, base: SnapshotId) -> bool {
        let (Some(volume), Some(snapshot)) = (self.volumes.get(&id), self.snapshots.get(&base))
        else {
            return false;
        };
        let (ours, theirs) = (volume.kept.map.root, snapshot.cut.map.root);
        volume.kept.parent == Some(base) && ours.ptr() == theirs.ptr()
    }

    /// Why a jump in front, or the beginning of an import, cannot be, now that everything before it is merged.
    pub(super) fn import_is_off(&mut self) -> Option<OpError> {
        match self.queue.front()?.kind {
            Kind::Stage { of, base, .. } => {
                let moved = OpError::BaseMoved { snapshot: base, volume: of };
                (!self.is_at(of, base)).then_some(moved)
            }
            Kind::Adopt { staging, position, .. } => {
                // Every stamp must be of the volume's own sequence, which is at `position`
                // afterwards: a higher one could not be told from a later change.
                let highest = self.volumes[&staging].kept.map.root.changed();
                let foreign = OpError::ForeignStamps { highest, at: position };
                (highest > position.seq).then_some(foreign)
            }
            Kind::Rollback { to, position, .. } => {
                // So it may be with a snapshot of a time that was undone since.
                let highest = self.snapshots[&to].cut.map.root.changed();
                let foreign = OpError::ForeignStamps { highest, at: position };
                (highest > position.seq).then_some(foreign)
            }
            _ => None,
        }
    }

    /// A hidden volume with the content of another, as its newest snapshot has it. The map is the
    /// volume's: a rollback may have stamped it since, which the snapshot does not know.
    pub(super) fn insert_staging(&mut self, id: VolumeId, of: VolumeId, base: SnapshotId) {
        let volume = self.volumes.get_mut(&of).expect("it was accepted");
        volume.front.staged = Some(id);
        let (header, map) = (volume.kept.header.clone(), volume.kept.map);
        self.insert_clone(id, base, header);
        let staging = self.volumes.get_mut(&id).expect("inserted above");
        staging.kept.map = map;
        staging.kept.staging = Some(Staging { of, progress: 0 });
    }

    /// The volume takes over the content of its staging volume, which is gone.
    pub(super) fn adopt(
        &mut self,
        id: VolumeId,
        staging: VolumeId,
        position: Position,
        renew: bool,
        state: Option<Vec<u8>>,
    ) {
        let kept = &self.volumes[&staging].kept;
        let (map, parent) = (kept.map, kept.parent);
        self.jump(id, map, parent, renew.then_some(position));
        let volume = self.volumes.get_mut(&id).expect("it was accepted");
        volume.front.staged = None;
        if let Some(state) = state {
            volume.kept.state = state;
        }
        // Nothing of the map is left to be dropped with it.
        let gone = self.volumes.get_mut(&staging).expect("looked at above");
        gone.kept.map = crate::volume::MapRoot::EMPTY;
        gone.kept.staging = None;
        gone.kept.header.name.clear();
        self.mark_deleting(staging, false);
    }
}
