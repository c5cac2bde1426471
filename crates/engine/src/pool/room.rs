//! Does an operation fit? Space that a checkpoint will need for map pages is set aside when an
//! operation is sealed, so a checkpoint never finds the pool full.
use block::{ByteLen, Disk};

use crate::error::OpError;
use crate::pool::queue::{Content, Kind};
use crate::pool::Pool;
use crate::units::VolumeId;

/// Pages beside the counted ones: new roots of maps and directory.
const SPARE_PAGES: u64 = 8;

impl<D: Disk> Pool<D> {
    /// Updates that may be indexed before a checkpoint has to take them.
    pub(super) fn overlay_max(&self) -> usize {
        self.limits.overlay_entries.min(usize::try_from(self.ring.carried_max()).unwrap_or(usize::MAX))
    }

    /// Sectors that the running and the next checkpoint may still write.
    pub(super) fn checkpoint_need(&self) -> u64 {
        let dirty = self.volumes.values().filter(|volume| volume.dirty || volume.kept.deleting);
        let levels = u64::from(self.superblock.directory_height) + 2;
        let deleting = dirty.clone().filter(|volume| volume.kept.deleting);
        let delete_nodes: u64 = deleting.map(|volume| u64::from(volume.kept.height)).sum();
        let next = self.active.nodes() + dirty.count() as u64 * levels + delete_nodes;
        let running = self.job.as_ref().map_or(0, |job| job.pages_left());
        (next + running + 2 * SPARE_PAGES) * 2 * self.space.layout.page()
    }

    /// Whether a checkpoint could give space back.
    pub(super) fn can_gain_space(&self) -> bool {
        self.space.pending() > 0
            || self.job.is_some()
            || !self.active.is_empty()
            || self.volumes.values().any(|volume| volume.kept.deleting)
    }

    /// Whether the operation in front fits. `false`: after a checkpoint it may.
    pub(super) fn fits(&mut self) -> Result<bool, OpError> {
        if self.active.entries() >= self.overlay_max() {
            return Ok(false);
        }
        let free = self.space.free();
        let spent = self.checkpoint_need();
        let Some(front) = self.queue.front() else { return Ok(true) };
        let levels = u64::from(self.superblock.directory_height) + 2;
        let (volume, stored, on_reserve, range) = match &front.kind {
            Kind::Change(change) => {
                let granule = self.volumes[&change.volume].granule();
                let found: u64 = change.space.iter().map(|extent| extent.sectors).sum();
                let stored = change.stored_granules() * self.space.layout.per(granule) - found;
                let zeros = matches!(change.content, Content::Zeros);
                let count = change.end.0 - change.first.0;
                (change.volume, stored, zeros, Some((change.first, count)))
            }
            // A new volume takes space for good.
            Kind::Create { volume, .. } => (*volume, 0, false, None),
            Kind::Mark { volume, .. }
            | Kind::SetState { volume, .. }
            | Kind::Grow { volume, .. }
            | Kind::Delete { volume } => (*volume, 0, true, None),
            Kind::Flush => return Ok(true),
        };
        let nodes = levels + self.nodes_of(volume, range, on_reserve);
        let reserve = if on_reserve { 0 } else { self.superblock.reserve };
        let needed = spent + nodes * 2 * self.space.layout.page() + stored + reserve;
        if needed <= free {
            return Ok(true);
        }
        if self.can_gain_space() {
            return Ok(false);
        }
        let needed = ByteLen((needed - free) * self.space.layout.sector.bytes());
        Err(OpError::NoSpace { needed })
    }

    fn nodes_of(
        &self,
        volume: VolumeId,
        range: Option<(crate::units::Granule, u64)>,
        zeros: bool,
    ) -> u64 {
        let height = self.volumes[&volume].height();
        match range {
            // Of zeros only the two ends are rewritten; what lies between is emptied.
            Some(_) if zeros => 2 * u64::from(height),
            Some((first, count)) => self.active.nodes_for(volume, height, first, count),
            None => u64::from(height),
        }
    }

    /// An operation that was accepted is not done after all: later ones are judged without it.
    pub(super) fn undo_accepted(&mut self, kind: &Kind) {
        match kind {
            Kind::Create { volume, spec } => {
                self.names.remove(&spec.name);
                self.volumes.remove(volume);
            }
            other => {
                let Some((id, _)) = other.position() else { return };
                let last = self.queue.last_position(id);
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.front.position = last.unwrap_or(volume.kept.position);
                }
            }
        }
    }
}
