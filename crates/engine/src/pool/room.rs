//! Does an operation fit? Space that a checkpoint will need for map pages is set aside when an
//! operation is sealed, so a checkpoint never finds the pool full.
use block::{ByteLen, Disk};

use crate::compress::Compression;
use crate::error::OpError;
use crate::limits::ORPHANS_MAX;
use crate::pool::Pool;
use crate::pool::queue::{Content, Kind};
use crate::units::{Granule, SnapshotId, VolumeId};
use crate::volume::Volume;

/// Pages beside the counted ones: new roots of maps and directory.
const SPARE_PAGES: u64 = 8;

/// Levels of the map of the largest volume.
pub(super) const HEIGHT_MAX: u64 = 5;

/// Objects that going on with dropping rewrites: an orphan, a snapshot, and what goes on from it.
const DROP_RECORDS: u64 = 3;

/// What the operation in front takes.
struct Needs {
    /// Sectors of data that are still to be found, and those that were found already.
    stored: u64,
    found: u64,
    /// Map pages of the next checkpoint.
    nodes: u64,
    draw: Draw,
    /// Whose credit it uses.
    owner: Option<VolumeId>,
}

/// Whether an operation fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Now,
    /// A checkpoint may make room.
    AfterCheckpoint,
    /// A sparse device is asked for more space.
    AfterBacking,
}

/// How far an operation may draw on the reserve.
///
/// The reserve has three layers, so that what frees space never fails because of what takes it:
/// the first three eighths for operations that may take space for good though they are meant to
/// free some; the next three eighths for operations that only borrow it until the next checkpoint;
/// the last quarter for deletes. Of the smallest reserve (1 MiB) three eighths are 48 pages in two
/// copies: the most that one discard borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draw {
    /// Not at all, unless the volume's credit covers it: it takes space for good.
    Nothing,
    /// The first layer, beside the credits of other volumes: a discard or rollback of a volume with
    /// snapshots rewrites map pages that the snapshots keep, and the rest of a compressed block may
    /// be longer than all of it was.
    First,
    /// All but what is left to deletes: everything that it takes comes back with a checkpoint.
    Borrow,
    /// All of it: deleting always works.
    All,
}

/// What operations that take space for good leave of the reserve, whatever their credit.
pub(super) fn kept_for_borrowing(reserve: u64) -> u64 {
    reserve / 8 * 5
}

/// What operations that borrow leave of the reserve.
fn kept_for_deletes(reserve: u64) -> u64 {
    reserve / 4
}

impl<D: Disk> Pool<D> {
    /// Sectors that the running and the next checkpoint may still write.
    pub(super) fn checkpoint_need(&self) -> u64 {
        let levels = self.record_nodes();
        // A volume's updates may leave an orphan, which has a record of its own.
        let dirty = self.dirty.iter().map(|id| {
            let volume = self.volumes.get(&VolumeId(id.0));
            let jump = volume.and_then(|volume| volume.jump);
            let stamping = jump.map_or(0, |jump| jump.budget + 2 * HEIGHT_MAX);
            // Layers that were sealed before the volume grew were counted by its old height.
            let layers = self.active.layers_of(VolumeId(id.0)) as u64;
            2 * levels + volume.map_or(0, growth) * layers.max(1) + stamping
        });
        let next = self.active.nodes() + dirty.sum::<u64>() + self.drop_nodes();
        let running = self.job.as_ref().map_or(0, |job| job.pages_left());
        (next + running + 2 * SPARE_PAGES) * 2 * self.space.layout.page()
    }

    /// Pages that writing one object's record takes: its own, and those of the directory above.
    fn record_nodes(&self) -> u64 {
        u64::from(self.superblock.directory_height) + 2
    }

    /// Pages that going on with dropping takes.
    fn drop_nodes(&self) -> u64 {
        let unfinished = !self.orphans.is_empty()
            || !self.deleting.is_empty()
            || !self.deleted_snapshots.is_empty();
        if unfinished { DROP_RECORDS * self.record_nodes() } else { 0 }
    }

    /// Whether a checkpoint could give space back.
    pub(super) fn can_gain_space(&self) -> bool {
        self.space.pending() > 0
            || self.job.is_some()
            || !self.active.is_empty()
            // Their records are set aside until they are written.
            || !self.dirty.is_empty()
            || self.has_unfinished()
    }

    /// Pages that stamping what a jump changed may write: what is there beside everything else
    /// that has to be written, within a bound that keeps checkpoints short.
    pub(super) fn stamping_budget(&self, id: VolumeId) -> u64 {
        let size = self.volumes[&id].kept.header.size;
        let leaves = size.div_ceil(self.volumes[&id].granule()).div_ceil(128);
        // Above the leaves a map has hardly more than a 127th of their number.
        let pages = leaves.div_ceil(100) + HEIGHT_MAX;
        let kept = kept_for_borrowing(self.superblock.reserve) + self.credits_beside(None);
        let needed = self.checkpoint_need().saturating_add(kept);
        let spare = self.space.free().saturating_sub(needed);
        let affordable = spare / (8 * self.space.layout.page());
        pages.min(self.limits.stamped_pages).min(affordable)
    }

    /// Whether the operation in front fits.
    pub(super) fn fits(&mut self) -> Result<Room, OpError> {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.entries());
        if self.active.entries() + frozen >= self.limits.overlay_entries {
            return Ok(Room::AfterCheckpoint);
        }
        let (free, spent) = (self.space.free(), self.checkpoint_need());
        let Some(needs) = self.needs() else { return Ok(Room::AfterCheckpoint) };
        let nodes = needs.nodes * 2 * self.space.layout.page();
        let covered =
            needs.owner.is_some_and(|id| nodes + needs.stored + needs.found <= self.credit_of(id));
        let reserve = self.superblock.reserve;
        let left_free = match needs.draw {
            // What others may have taken from the first layer since the credit was given is not
            // missing here.
            Draw::Nothing if covered => {
                kept_for_borrowing(reserve) + self.credits_beside(needs.owner)
            }
            Draw::Nothing => reserve.saturating_add(self.credits_beside(needs.owner)),
            Draw::First => kept_for_borrowing(reserve) + self.credits_beside(needs.owner),
            Draw::Borrow => kept_for_deletes(reserve),
            Draw::All => 0,
        };
        let needed = (spent + nodes + left_free).saturating_add(needs.stored);
        if needed <= free {
            return Ok(Room::Now);
        }
        if self.back_front(needed - free) {
            return Ok(Room::AfterBacking);
        }
        if self.can_gain_space() {
            return Ok(Room::AfterCheckpoint);
        }
        let needed = (needed - free).saturating_mul(self.space.layout.sector.bytes());
        let needed = ByteLen(needed);
        Err(OpError::NoSpace { needed })
    }

    /// What the operation in front takes; `None`: its time has not come, a checkpoint is needed.
    fn needs(&mut self) -> Option<Needs> {
        let records = 2 * self.record_nodes();
        let needs = |nodes: u64, draw: Draw| {
            Some(Needs { stored: 0, found: 0, nodes: nodes + records, draw, owner: None })
        };
        // Only looked at here, but the queue gives it out for changing.
        let front = self.queue.front()?;
        match &front.kind {
            Kind::Flush => needs(0, Draw::All),
            Kind::Change(change) => {
                let (id, import, unpaid) = (change.volume, change.import.is_some(), change.unpaid);
                let (first, count) = (change.first, change.end.0 - change.first.0);
                let granule = self.volumes[&id].granule();
                let stored = change.missing(self.space.layout.per(granule));
                let found = change.space.iter().map(|extent| extent.sectors).sum();
                let zeros = matches!(change.content, Content::Zeros) || change.stored == 0;
                if change.is_large_hole() && self.orphans.len() >= ORPHANS_MAX {
                    return None;
                }
                let large = change.is_large_hole();
                let nodes = self.nodes_of(id, first, count, zeros, large);
                let nodes = nodes + records + growth(&self.volumes[&id]);
                let draw = match zeros && !import {
                    true if self.zeros_borrow(id, stored + found) => Draw::Borrow,
                    true => Draw::First,
                    false => Draw::Nothing,
                };
                let pays = draw != Draw::Borrow && !import && !unpaid;
                let owner = pays.then_some(id);
                Some(Needs { stored, found, nodes, draw, owner })
            }
            // A new object takes space for good.
            Kind::Create { .. } => needs(HEIGHT_MAX, Draw::Nothing),
            // One that a user asked for has its place in the stream, and so its credit.
            Kind::Snapshot { volume, spec, .. } => {
                let owner = (!spec.internal).then_some(*volume);
                let (nodes, draw) = (HEIGHT_MAX + records, Draw::Nothing);
                Some(Needs { stored: 0, found: 0, nodes, draw, owner })
            }
            Kind::Clone { snapshot, .. } => {
                let snapshot = *snapshot;
                if !self.is_settled(snapshot) { None } else { needs(0, Draw::Nothing) }
            }
            Kind::Stage { of, base, .. } => {
                let (of, base) = (*of, *base);
                if !self.can_jump(of, Some(base)) { None } else { needs(0, Draw::Nothing) }
            }
            // So does a map that becomes higher.
            Kind::Grow { volume, size, .. } => {
                let kept = &self.volumes[volume].kept;
                let higher = kept.height_of(size.0) > kept.map.height && kept.map.height > 0;
                let draw = if higher { Draw::Nothing } else { Draw::First };
                let (nodes, owner) = (2 * HEIGHT_MAX + records, Some(*volume));
                Some(Needs { stored: 0, found: 0, nodes, draw, owner })
            }
            Kind::Rollback { volume, to, .. } => {
                let (volume, to) = (*volume, *to);
                if !self.can_jump(volume, Some(to)) {
                    return None;
                }
                // Two of the levels are those that stamping sets aside beside its budget.
                let (nodes, draw, owner) = (6 * HEIGHT_MAX + records, Draw::First, Some(volume));
                Some(Needs { stored: 0, found: 0, nodes, draw, owner })
            }
            Kind::Adopt { volume, staging, .. } => {
                let (volume, staging) = (*volume, *staging);
                let ready = self.can_jump(volume, None) && self.can_jump(staging, None);
                if !ready { None } else { needs(4 * HEIGHT_MAX, Draw::Nothing) }
            }
            // The credit that it has is its own to keep.
            Kind::Credit { volume, sectors } => {
                let (volume, stored) = (*volume, *sectors);
                if stored <= self.credit_of(volume) {
                    return needs(0, Draw::All);
                }
                let (draw, owner) = (Draw::Nothing, Some(volume));
                Some(Needs { stored, found: 0, nodes: records, draw, owner })
            }
            Kind::Mark { volume, .. } | Kind::SetState { volume, .. } => {
                let height = u64::from(self.volumes[volume].height());
                needs(height + growth(&self.volumes[volume]), Draw::Borrow)
            }
            Kind::Attach { .. } | Kind::Delete { .. } | Kind::DeleteSnapshot { .. } => {
                needs(DROP_RECORDS * self.record_nodes() + HEIGHT_MAX, Draw::All)
            }
        }
    }

    /// What the operation in front takes of its volume's credit, now that it has its space.
    pub(super) fn spent_by_front(&mut self) -> Option<(VolumeId, u64)> {
        let volume = match &self.queue.front()?.kind {
            Kind::Change(change) => change.volume,
            Kind::Snapshot { volume, spec, .. } if !spec.internal => *volume,
            Kind::Grow { volume, .. } | Kind::Rollback { volume, .. } => *volume,
            _ => return None,
        };
        // Nearly all volumes have none, and need not be reckoned with twice.
        if self.credit_of(volume) == 0 {
            return None;
        }
        let needs = self.needs()?;
        let nodes = needs.nodes * 2 * self.space.layout.page();
        Some((needs.owner?, nodes + needs.stored + needs.found))
    }

    /// Whether zeros take nothing for good: no snapshot shares the volume's pages, so what they
    /// replace is freed, and no part of a compressed block is left that could have become longer.
    fn zeros_borrow(&self, id: VolumeId, sectors: u64) -> bool {
        let kept = &self.volumes[&id].kept;
        let grows = sectors > 0 && kept.header.compression != Compression::Off;
        kept.parent.is_none() && !grows
    }

    /// Whether a snapshot has its map, and no checkpoint is under way that does not know of what
    /// goes on from it.
    fn is_settled(&self, id: SnapshotId) -> bool {
        self.job.is_none() && self.snapshots.get(&id).is_some_and(|snapshot| snapshot.settled)
    }

    fn nodes_of(
        &self,
        volume: VolumeId,
        first: Granule,
        count: u64,
        zeros: bool,
        large: bool,
    ) -> u64 {
        let height = self.volumes[&volume].height();
        match zeros {
            // Of zeros only the two ends are rewritten; what lies between is emptied or cut off.
            true if large => 4 * u64::from(height),
            true => 2 * u64::from(height),
            false => self.active.nodes_for(volume, height, first, count),
        }
    }
}

/// Pages that a map takes to become higher: a new root for each level, and the same again when
/// the first update below it is merged.
fn growth(volume: &Volume) -> u64 {
    2 * u64::from(volume.kept.needed_height() - volume.kept.map.height)
}
