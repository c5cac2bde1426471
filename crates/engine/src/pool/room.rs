//! Does an operation fit? Space that a checkpoint will need for map pages is set aside when an
//! operation is sealed, so a checkpoint never finds the pool full.
use block::{ByteLen, Disk};

use crate::error::OpError;
use crate::map::{CARRIED_MAX, CARRIED_STEPS};
use crate::pool::Pool;
use crate::pool::queue::{Content, Kind};
use crate::units::VolumeId;

/// Pages beside the counted ones: new roots of maps and directory.
const SPARE_PAGES: u64 = 8;

/// Levels of the map of the largest volume.
const HEIGHT_MAX: u64 = 5;

impl<D: Disk> Pool<D> {
    /// Sectors that the running and the next checkpoint may still write.
    pub(super) fn checkpoint_need(&self) -> u64 {
        let dirty = self.volumes.values().filter(|volume| volume.dirty || volume.kept.deleting);
        let levels = u64::from(self.superblock.directory_height) + 2;
        let next = self.active.nodes() + dirty.count() as u64 * levels + self.hole_nodes();
        let running = self.job.as_ref().map_or(0, |job| job.pages_left());
        (next + running + 2 * SPARE_PAGES) * 2 * self.space.layout.page()
    }

    /// Pages that going on with deletions and large holes rewrites: the two ends of each.
    fn hole_nodes(&self) -> u64 {
        let deleting = self.volumes.values().filter(|volume| volume.kept.deleting);
        let holes = self.carried.iter().filter_map(|(id, _, _)| self.volumes.get(&id));
        let heights = deleting.chain(holes).map(|volume| 2 * u64::from(volume.height()));
        let large = (self.large_holes > 0).then_some(2 * HEIGHT_MAX);
        heights.chain(large).max().unwrap_or(0) * CARRIED_STEPS as u64
    }

    fn unfinished_holes(&self) -> usize {
        let running = self.job.as_ref().map_or(0, |job| job.large_holes);
        self.carried.len() + self.large_holes + running
    }

    /// Whether a checkpoint could give space back.
    pub(super) fn can_gain_space(&self) -> bool {
        self.space.pending() > 0
            || self.job.is_some()
            || !self.active.is_empty()
            || !self.carried.is_empty()
            || self.volumes.values().any(|volume| volume.kept.deleting)
    }

    /// Whether the operation in front fits. `false`: after a checkpoint it may.
    pub(super) fn fits(&mut self) -> Result<bool, OpError> {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.entries());
        if self.active.entries() + frozen >= self.limits.overlay_entries {
            return Ok(false);
        }
        let free = self.space.free();
        let (spent, unfinished) = (self.checkpoint_need(), self.unfinished_holes());
        let Some(front) = self.queue.front() else {
            return Ok(true);
        };
        let levels = u64::from(self.superblock.directory_height) + 2;
        let (volume, stored, on_reserve, range) = match &front.kind {
            Kind::Change(change) => {
                let granule = self.volumes[&change.volume].granule();
                let found: u64 = change.space.iter().map(|extent| extent.sectors).sum();
                let stored = change.stored_granules() * self.space.layout.per(granule) - found;
                let zeros = matches!(change.content, Content::Zeros);
                if change.is_large_hole() && unfinished >= CARRIED_MAX {
                    return Ok(false);
                }
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
                let Some((id, _)) = other.position() else {
                    return;
                };
                let last = self.queue.last_position(id);
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.front.position = last.unwrap_or(volume.kept.position);
                }
            }
        }
    }
}
