//! Does an operation fit? Space that a checkpoint will need for map pages is set aside when an
//! operation is sealed, so a checkpoint never finds the pool full.
use block::{ByteLen, Disk};

use crate::error::OpError;
use crate::map::{CARRIED_MAX, CARRIED_STEPS};
use crate::pool::Pool;
use crate::pool::queue::{Content, Kind};
use crate::units::VolumeId;
use crate::volume::Volume;

/// Pages beside the counted ones: new roots of maps and directory.
const SPARE_PAGES: u64 = 8;

/// Levels of the map of the largest volume.
const HEIGHT_MAX: u64 = 5;

impl<D: Disk> Pool<D> {
    /// Sectors that the running and the next checkpoint may still write.
    pub(super) fn checkpoint_need(&self) -> u64 {
        let levels = self.record_nodes();
        let dirty = self.dirty.iter().map(|id| levels + growth(&self.volumes[id]));
        let next = self.active.nodes() + dirty.sum::<u64>() + self.hole_nodes();
        let running = self.job.as_ref().map_or(0, |job| job.pages_left());
        (next + running + 2 * SPARE_PAGES) * 2 * self.space.layout.page()
    }

    /// Pages that writing one volume's record takes: its own, and those of the directory above.
    fn record_nodes(&self) -> u64 {
        u64::from(self.superblock.directory_height) + 2
    }

    /// Pages that going on with deletions and large holes takes: the two ends of each, the
    /// growth of its map, and its record.
    fn hole_nodes(&self) -> u64 {
        let unfinished = self.unfinished_holes() > 0 || !self.deleting.is_empty();
        let each = 4 * HEIGHT_MAX + self.record_nodes();
        if unfinished { CARRIED_STEPS as u64 * each } else { 0 }
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
            || !self.deleting.is_empty()
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
        let (volume, stored, on_reserve, range) = match &front.kind {
            Kind::Change(change) => {
                let granule = self.volumes[&change.volume].granule();
                let found: u64 = change.space.iter().map(|extent| extent.sectors).sum();
                let stored = change.stored * self.space.layout.per(granule) - found;
                let zeros = matches!(change.content, Content::Zeros) || change.stored == 0;
                if change.is_large_hole() && unfinished >= CARRIED_MAX {
                    return Ok(false);
                }
                let count = change.end.0 - change.first.0;
                (change.volume, stored, zeros, Some((change.first, count)))
            }
            // A new volume takes space for good.
            Kind::Create { volume, .. } => (*volume, 0, false, None),
            // So does a map that becomes higher.
            Kind::Grow { volume, size, .. } => {
                let kept = &self.volumes[volume].kept;
                let higher = kept.height_of(size.0) > kept.height && kept.height > 0;
                (*volume, 0, !higher, None)
            }
            Kind::Mark { volume, .. } | Kind::SetState { volume, .. } | Kind::Delete { volume } => {
                (*volume, 0, true, None)
            }
            Kind::Flush => return Ok(true),
        };
        let nodes = match (&front.kind, range) {
            (Kind::Grow { .. }, _) => 2 * HEIGHT_MAX,
            (Kind::Delete { .. }, _) => CARRIED_STEPS as u64 * 4 * HEIGHT_MAX,
            _ => self.nodes_of(volume, range, on_reserve),
        };
        let nodes = nodes + self.record_nodes() + growth(&self.volumes[&volume]);
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
}

/// Pages that a map takes to become higher: a new root for each level, and the same again when
/// the first update below it is merged.
fn growth(volume: &Volume) -> u64 {
    2 * u64::from(volume.kept.needed_height() - volume.kept.height)
}
