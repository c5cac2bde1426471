//! Space below a file that is sparse: taken in steps, ahead of use.
//!
//! A sparse file has no blocks where nothing was written, and a full file system refuses them in the middle
//! of a write, which would be a device that fails. So the pool gives space out only below an end up to which
//! the file has its blocks, and what lies behind that end is not free yet: credits, the reserve and every
//! operation are measured by what is there. The end moves in steps. A step that is refused makes the pool
//! full, no more, and whoever finds no space asks for the next one again.
//!
//! Invariant: nothing at or behind the end is in use. So the end is not stored: an opening looks for the last
//! sector in use, and takes the space up to the end of its step, which the file has already.
use block::{ByteLen, ByteOffset, Disk, DiskError, Wait};

use crate::error::{CheckpointError, OpenError};
use crate::format::{PageId, PageKind, SPACE_FAN_OUT, SpaceEntry, Superblock, space_entry};
use crate::pool::open::read_page;
use crate::pool::room::kept_for_borrowing;
use crate::pool::{Pool, Purpose, blocking};
use crate::space::{Layout, OpenRegion};
use crate::units::{Birth, Epoch, Extent, Region, Sector, to_usize};

/// What is taken at a time: small beside a pool that is worth having, large beside what one call costs.
pub(super) const STEP: u64 = 16 << 20;

#[derive(Debug, Default)]
pub struct Backing {
    /// The end of the step that is asked for, in sectors.
    asked: Option<u64>,
    /// There was no space for the last step, so none is asked for ahead of use.
    refused: bool,
    /// The operation in front, by its number, for which there was none. Each has one answer of its own:
    /// what the file system said before is not held against it.
    refused_front: Option<u64>,
}

/// The end of the step that the sector before `sector` is in, or of the pool. A step that ends within the
/// heads of a region takes them whole: whatever is given out of a region, its page is written to both.
pub(super) fn step_up(layout: &Layout, sector: u64) -> u64 {
    let end = sector.next_multiple_of(layout.per(STEP)).min(layout.sectors);
    layout.cut_heads(end).map_or(end, |region| layout.region_heads(region)[1].end().0)
}

impl<D: Disk> Pool<D> {
    /// Takes space before it is needed, so that operations seldom wait for it.
    pub(super) fn run_backing(&mut self) {
        let idle = self.backing.as_ref().is_some_and(|it| it.asked.is_none() && !it.refused);
        if !idle || !self.is_serving() || self.space.end() >= self.space.layout.sectors {
            return;
        }
        let ahead = self.space.layout.per(STEP);
        let kept = self.superblock.reserve.saturating_add(self.credits_beside(None));
        if self.space.free() < kept.saturating_add(ahead) {
            self.ask_backing(1);
        }
    }

    /// Whether more space may come for the operation in front, which lacks so many sectors.
    pub(super) fn back_front(&mut self, missing: u64) -> bool {
        let front = self.queue.front_number();
        let Some(backing) = &self.backing else { return false };
        let left = self.space.end() < self.space.layout.sectors;
        if !left || backing.refused_front == Some(front) {
            return false;
        }
        if backing.asked.is_none() {
            self.ask_backing(missing.max(1));
        }
        true
    }

    /// Asks for the next step, or for as many as so many sectors need.
    fn ask_backing(&mut self, missing: u64) {
        let (end, layout) = (self.space.end(), &self.space.layout);
        let Some(backing) = &mut self.backing else { return };
        let next = step_up(layout, end.saturating_add(missing));
        backing.asked = Some(next);
        let (at, len) = (layout.offset(Sector(end)), layout.bytes(next - end));
        self.device.allocate(at, len, Purpose::Backing);
    }

    /// A step was taken, or there is no space for it. Whatever the reason, nothing is lost by that.
    pub(super) fn backed(&mut self, result: Result<(), DiskError>) {
        let Some(backing) = &mut self.backing else { return };
        let Some(end) = backing.asked.take() else { return };
        backing.refused = result.is_err();
        let waits = result.is_err() && self.queue.len() > 0;
        backing.refused_front = waits.then_some(self.queue.front_number());
        if result.is_ok() {
            self.space.limit(end);
        }
    }

    /// There may be space by now: it is asked for ahead of use again.
    pub(super) fn hope_for_backing(&mut self) {
        if let Some(backing) = &mut self.backing {
            backing.refused = false;
        }
    }
}

impl<D: Wait> Pool<D> {
    /// Finds out how far a sparse file has its blocks, and takes what opening needs beyond that. Before this
    /// nothing is written.
    pub(super) fn begin_backing(&mut self) -> Result<(), OpenError> {
        let layout = self.space.layout.clone();
        let recorded = last_used(&mut self.device.disk, &self.superblock)?;
        let replayed = self.space.taken.iter().map(|extent| extent.end()).max();
        let used = recorded.max(replayed.unwrap_or_default());
        let mut end = step_up(&layout, used.max(layout.first_home_end()).0);
        let full = |error: DiskError, missing: u64| match error.is_full() {
            true => OpenError::NoSpace { needed: layout.bytes(missing) },
            false => OpenError::Device(error),
        };
        allocate(&mut self.device.disk, &layout, Sector(0), end)
            .map_err(|error| full(error, end))?;
        self.space.limit(end);
        self.backing = Some(Backing::default());
        let kept = self.superblock.reserve.saturating_add(self.credits_beside(None));
        let wanted = self.checkpoint_need().saturating_add(kept);
        while self.space.free() < wanted && end < layout.sectors {
            let next = step_up(&layout, end + 1);
            match allocate(&mut self.device.disk, &layout, Sector(end), next) {
                Ok(()) => end = next,
                Err(error) if error.is_full() => break,
                Err(error) => return Err(error.into()),
            }
            self.space.limit(end);
        }
        self.lower_stamping();
        let missing = self.checkpoint_need().saturating_sub(self.space.free());
        match missing {
            0 => Ok(()),
            missing => Err(OpenError::NoSpace { needed: layout.bytes(missing) }),
        }
    }

    /// Replay reckoned what stamping may write with space that the file may not have. It makes do with less:
    /// its stamps are coarser then.
    fn lower_stamping(&mut self) {
        let kept = kept_for_borrowing(self.superblock.reserve) + self.credits_beside(None);
        let needed = self.checkpoint_need().saturating_add(kept);
        let missing = needed.saturating_sub(self.space.free());
        let mut pages = missing.div_ceil(2 * self.space.layout.page());
        for jump in self.volumes.values_mut().filter_map(|volume| volume.jump.as_mut()) {
            let less = pages.min(jump.budget);
            jump.budget -= less;
            pages -= less;
        }
    }

    /// A pool that grows writes the space page of the region that it ended with, and those above it, which
    /// may lie behind the end of what a sparse file has.
    pub(super) fn back_homes_of_last_region(&mut self) -> Result<(), CheckpointError> {
        if self.backing.is_none() {
            return Ok(());
        }
        let layout = self.space.layout.clone();
        let (last, fan) = (layout.regions() - 1, SPACE_FAN_OUT as u64);
        for region in [last, last / fan * fan, last / (fan * fan) * (fan * fan)] {
            for Extent { start, sectors } in layout.region_heads(Region(region)) {
                allocate(&mut self.device.disk, &layout, start, start.0 + sectors)?;
            }
        }
        Ok(())
    }
}

fn allocate<D: Wait>(
    disk: &mut D,
    layout: &Layout,
    from: Sector,
    end: u64,
) -> Result<(), DiskError> {
    let at: ByteOffset = layout.offset(from);
    let len: ByteLen = layout.bytes(end - from.0);
    blocking::allocate(disk, at, len)
}

/// The end of the last sector in use, as the space pages tell; the start of the regions if there is none.
fn last_used<D: Wait>(disk: &mut D, superblock: &Superblock) -> Result<Sector, OpenError> {
    let layout = Layout::of(superblock);
    let mut read = |level: u8, index: u64, entry: SpaceEntry| {
        let ptr = layout.space_page(level, index, entry);
        let id = PageId { kind: PageKind::Space, level, index, born: Birth(entry.epoch.0) };
        read_page(disk, &layout, superblock.pool(), ptr, id, "space map")
    };
    let children = |page: &[u8], level: u8, index: u64| -> Vec<(u64, SpaceEntry)> {
        let all = (0..SPACE_FAN_OUT as u64).rev();
        let all = all.map(|child| (index * SPACE_FAN_OUT as u64 + child, child));
        let found = all.map(|(index, child)| (index, space_entry(page, to_usize(child))));
        // One that was written and is free again need not be looked into.
        let used = |(index, entry): &(u64, SpaceEntry)| {
            entry.epoch != Epoch(0) && entry.free < layout.virgin_free_below(level - 1, *index)
        };
        found.filter(used).collect()
    };
    for (index, root) in superblock.space.iter().enumerate().rev() {
        if root.epoch == Epoch(0) {
            continue;
        }
        let entry = SpaceEntry { epoch: root.epoch, home: root.home, free: 0 };
        let top = read(2, index as u64, entry)?;
        for (index, entry) in children(&top, 2, index as u64) {
            let upper = read(1, index, entry)?;
            for (region, entry) in children(&upper, 1, index) {
                let page = read(0, region, entry)?;
                let open = OpenRegion::from_page(&layout, Region(region), &page);
                if let Some(last) = open.last_used(&layout) {
                    return Ok(Sector(last.0 + 1));
                }
            }
        }
    }
    Ok(layout.regions_at)
}

#[cfg(test)]
mod tests;
