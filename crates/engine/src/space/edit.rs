//! A checkpoint's change of the space pages: what was taken and what was given back, merged in
//! order of place, so that memory does not grow with the pool.
use block::{Buf, Disk};

use crate::error::CheckpointError;
use crate::format::{
    PageId, PageKind, SPACE_FAN_OUT, SpaceEntry, SpaceRoot, blank_page, seal_page, set_space_entry,
    space_entry,
};
use crate::limits::{CHECKPOINT_IO_MAX, MAP_PAGE};
use crate::map::Pages;
use crate::pool::{Device, Purpose};
use crate::space::{Contradiction, Layout, OpenRegion, space_page};
use crate::units::{Birth, Epoch, Extent, Region, Sector, to_usize};

/// An upper space page that is being rewritten.
struct Upper {
    level: u8,
    index: u64,
    /// What was there: decides the home of the new version.
    old: SpaceEntry,
    page: Buf,
}

pub struct SpaceEdit {
    layout: Layout,
    pool: u64,
    epoch: Epoch,
    taken: Vec<Extent>,
    freed: Vec<Extent>,
    /// The end of the pool before it grew: that region is written anew.
    old_end: Option<u64>,
    regions: Vec<Region>,
    at: usize,
    /// Level 2 first, level 1 behind it.
    uppers: Vec<Upper>,
    roots: Vec<SpaceRoot>,
}

pub enum SpaceStep {
    Wait,
    Done(Vec<SpaceRoot>),
}

impl SpaceEdit {
    pub fn new(
        layout: Layout,
        pool: u64,
        epoch: Epoch,
        mut taken: Vec<Extent>,
        mut freed: Vec<Extent>,
        old_end: Option<u64>,
        roots: Vec<SpaceRoot>,
    ) -> Result<SpaceEdit, Contradiction> {
        if let Some(stray) = taken.iter().chain(&freed).find(|extent| !layout.holds(**extent)) {
            return Err(Contradiction::Outside { sector: stray.start.0 });
        }
        taken.sort_unstable();
        freed.sort_unstable();
        let touched = taken.iter().chain(&freed).map(|extent| extent.start);
        let mut regions: Vec<Region> = touched.map(|start| layout.region_of(start)).collect();
        if let Some(end) = old_end {
            let last = layout.region_of(Sector(end - 1));
            if last.0 < layout.regions() {
                regions.push(last);
            }
        }
        regions.sort_unstable();
        regions.dedup();
        Ok(SpaceEdit {
            layout,
            pool,
            epoch,
            taken,
            freed,
            old_end,
            regions,
            at: 0,
            uppers: Vec::new(),
            roots,
        })
    }

    pub fn step<D: Disk>(
        &mut self,
        pages: &mut Pages,
        device: &mut Device<D>,
    ) -> Result<SpaceStep, CheckpointError> {
        while self.at < self.regions.len() {
            if device.checkpoint_ios() >= CHECKPOINT_IO_MAX {
                return Ok(SpaceStep::Wait);
            }
            let region = self.regions[self.at];
            let fan = SPACE_FAN_OUT as u64;
            let (l1, l2) = (region.0 / fan, region.0 / (fan * fan));
            if !self.enter(2, l2, pages, device)? || !self.enter(1, l1, pages, device)? {
                return Ok(SpaceStep::Wait);
            }
            self.prefetch(pages, device);
            let upper = self.uppers.last_mut().expect("both levels were entered");
            let old = space_entry(&upper.page, to_usize(region.0 % fan));
            let Some(new) = self.rewrite(region, old, pages, device)? else {
                return Ok(SpaceStep::Wait);
            };
            let upper = self.uppers.last_mut().expect("both levels were entered");
            set_space_entry(&mut upper.page, to_usize(region.0 % fan), new);
            self.at += 1;
        }
        while !self.uppers.is_empty() {
            self.leave(device)?;
        }
        Ok(SpaceStep::Done(self.roots.clone()))
    }

    /// Makes `index` the page of its level that is being rewritten. `false`: it is being read.
    fn enter<D: Disk>(
        &mut self,
        level: u8,
        index: u64,
        pages: &mut Pages,
        device: &mut Device<D>,
    ) -> Result<bool, CheckpointError> {
        let depth = usize::from(2 - level);
        if self.uppers.get(depth).is_some_and(|upper| upper.index == index) {
            return Ok(true);
        }
        while self.uppers.len() > depth {
            self.leave(device)?;
        }
        let old = match self.uppers.last() {
            Some(parent) => space_entry(&parent.page, to_usize(index % SPACE_FAN_OUT as u64)),
            None => {
                let root = self.roots[to_usize(index)];
                SpaceEntry { epoch: root.epoch, home: root.home, free: 0 }
            }
        };
        let mut page = Buf::zeroed(MAP_PAGE);
        if old.epoch == Epoch(0) {
            blank_page(&mut page);
        } else {
            match space_page(&self.layout, level, index, old, pages, device)? {
                Some(found) => page.copy_from_slice(&found),
                None => return Ok(false),
            }
        }
        self.uppers.push(Upper { level, index, old, page });
        Ok(true)
    }

    /// Writes the innermost upper page and tells its parent.
    fn leave<D: Disk>(&mut self, device: &mut Device<D>) -> Result<(), Contradiction> {
        let mut upper = self.uppers.pop().expect("called with a page to leave");
        let fan = SPACE_FAN_OUT as u64;
        let free = (0..fan)
            .map(|child| {
                let entry = space_entry(&upper.page, to_usize(child));
                match entry.epoch {
                    Epoch(0) => {
                        let index = upper.index * fan + child;
                        self.layout.virgin_free_below(upper.level - 1, index)
                    }
                    _ => entry.free,
                }
            })
            .sum();
        if free > self.layout.virgin_free_below(upper.level, upper.index) {
            return Err(Contradiction::Free);
        }
        let new = self.write(upper.level, upper.index, upper.old, &mut upper.page, device);
        match self.uppers.last_mut() {
            Some(parent) => {
                let entry = SpaceEntry { free, ..new };
                set_space_entry(&mut parent.page, to_usize(upper.index % fan), entry);
            }
            None => {
                self.roots[to_usize(upper.index)] =
                    SpaceRoot { epoch: new.epoch, home: new.home, free };
            }
        }
        Ok(())
    }

    /// Asks for the pages of the next regions, so that their reads overlap.
    fn prefetch<D: Disk>(&self, pages: &mut Pages, device: &mut Device<D>) {
        let Some(upper) = self.uppers.last() else {
            return;
        };
        let fan = SPACE_FAN_OUT as u64;
        let ahead = self.regions[self.at..].iter().take(CHECKPOINT_IO_MAX / 2);
        for region in ahead.take_while(|region| region.0 / fan == upper.index) {
            let entry = space_entry(&upper.page, to_usize(region.0 % fan));
            if entry.epoch != Epoch(0) {
                let ptr = self.layout.space_page(0, region.0, entry);
                let id = PageId {
                    kind: PageKind::Space,
                    level: 0,
                    index: region.0,
                    born: Birth(entry.epoch.0),
                };
                pages.prefetch(ptr, id, device);
            }
        }
    }

    fn rewrite<D: Disk>(
        &mut self,
        region: Region,
        old: SpaceEntry,
        pages: &mut Pages,
        device: &mut Device<D>,
    ) -> Result<Option<SpaceEntry>, CheckpointError> {
        let mut bits = if old.epoch == Epoch(0) {
            OpenRegion::virgin(&self.layout, region)
        } else {
            let Some(page) = space_page(&self.layout, 0, region.0, old, pages, device)? else {
                return Ok(None);
            };
            let mut bits = OpenRegion::from_page(&self.layout, region, &page);
            self.extend_to_new_end(&mut bits)?;
            bits
        };
        for extent in of_region(&self.layout, &self.taken, region) {
            bits.mark(*extent)?;
        }
        for extent in of_region(&self.layout, &self.freed, region) {
            bits.release(*extent)?;
        }
        let mut page = Buf::zeroed(MAP_PAGE);
        bits.to_page(&mut page);
        let new = self.write(0, region.0, old, &mut page, device);
        Ok(Some(SpaceEntry { free: bits.free(), ..new }))
    }

    /// Sectors beyond the old end of the pool were marked as used; now they are free.
    fn extend_to_new_end(&self, bits: &mut OpenRegion) -> Result<(), Contradiction> {
        let Some(end) = self.old_end else {
            return Ok(());
        };
        let start = self.layout.region_start(bits.region);
        let new_end = start.0 + self.layout.region_len(bits.region);
        if start.0 < end && end < new_end {
            bits.release(Extent { start: Sector(end), sectors: new_end - end })?;
        }
        Ok(())
    }

    /// Writes a space page into the home that the last checkpoint does not use.
    fn write<D: Disk>(
        &self,
        level: u8,
        index: u64,
        old: SpaceEntry,
        page: &mut Buf,
        device: &mut Device<D>,
    ) -> SpaceEntry {
        let new = SpaceEntry { epoch: self.epoch, home: 1 - old.home, free: 0 };
        let id = PageId { kind: PageKind::Space, level, index, born: Birth(self.epoch.0) };
        seal_page(page, self.pool, 0, id);
        let data = Buf::copy_of(page).into_data();
        for place in self.layout.space_page(level, index, new).places {
            device.write(self.layout.offset(place), data.clone(), Purpose::Checkpoint);
        }
        new
    }
}

/// The extents of one region, of a list in order of place.
fn of_region<'a>(
    layout: &Layout,
    extents: &'a [Extent],
    region: Region,
) -> impl Iterator<Item = &'a Extent> {
    let start = layout.region_start(region);
    let end = layout.region_start(Region(region.0 + 1));
    let from = extents.partition_point(|extent| extent.start < start);
    extents[from..].iter().take_while(move |extent| extent.start < end)
}
