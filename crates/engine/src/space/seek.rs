//! Fresh space: three streams, each writing near-sequentially into a region of its own.
use std::collections::HashMap;

use block::Disk;

use crate::error::CheckpointError;
use crate::format::{SPACE_FAN_OUT, SPACE_SPAN, SpaceEntry, SpaceRoot};
use crate::map::{Pages, space_entry_of};
use crate::pool::Device;
use crate::space::{Contradiction, Layout, OpenRegion, space_page};
use crate::units::{Epoch, Extent, Region, to_usize};

/// Writes that are worth a checkpoint even on a nearly full pool.
const CHECKPOINT_WORTH: u64 = 1 << 20;

/// Regions among which the emptiest is chosen: their free space stands in one upper page, mostly.
const CHOICE: u64 = 128;

/// Who asks for space. Data and the two copies of map pages are kept apart, so that each is
/// sequential and no damaged track takes both copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Data = 0,
    PageA = 1,
    PageB = 2,
}

#[derive(Debug)]
pub enum Alloc {
    Run(Extent),
    /// A space page is being read; ask again.
    Wait,
    /// No run of the wanted length is left.
    Full,
}

/// Allocation since the last checkpoint, on top of what the space pages say.
#[derive(Debug)]
pub struct Space {
    pub layout: Layout,
    /// As of the last checkpoint that counted.
    pub roots: Vec<SpaceRoot>,
    open: [Option<OpenRegion>; 3],
    /// Taken until the freeze of the running checkpoint and by itself, and since then by others.
    pub frozen: Vec<Extent>,
    pub taken: Vec<Extent>,
    taken_sectors: u64,
    /// Found for the operation in front, which has no slot yet: a checkpoint that begins now must
    /// not record it, since only the slot says whose it is.
    unsealed: Vec<Extent>,
    taken_in: HashMap<Region, u64>,
    /// Given back since the last freeze; not to be reused before a checkpoint covers it.
    pub freed: Vec<Extent>,
    freed_sectors: u64,
    free: u64,
    /// Space is given out before this sector only, and so many free sectors are behind it: a sparse device
    /// may have no space for them.
    end: u64,
    hidden: u64,
    sparse: bool,
    seek: [u64; 3],
    /// No region is worth choosing by its free share until the next checkpoint.
    dense: bool,
    /// Regions in a row that were opened and had no run of the wanted length.
    fruitless: u64,
    fruitless_for: u64,
    /// A run of this length was looked for everywhere and not found.
    full_for: u64,
    #[cfg(feature = "faults")]
    reusable: Vec<Extent>,
}

impl Space {
    pub fn new(layout: Layout, roots: Vec<SpaceRoot>) -> Space {
        let mut space = Space {
            end: layout.sectors,
            hidden: 0,
            sparse: false,
            layout,
            roots,
            open: [None, None, None],
            frozen: Vec::new(),
            taken: Vec::new(),
            taken_sectors: 0,
            unsealed: Vec::new(),
            taken_in: HashMap::new(),
            freed: Vec::new(),
            freed_sectors: 0,
            free: 0,
            seek: [0; 3],
            dense: false,
            fruitless: 0,
            fruitless_for: 0,
            full_for: u64::MAX,
            #[cfg(feature = "faults")]
            reusable: Vec::new(),
        };
        space.free = space.recorded_free();
        let regions = space.layout.regions();
        // Start the streams apart; with a single region they share it.
        space.seek = [0, regions / 3, regions * 2 / 3];
        space
    }

    /// Free sectors according to the space pages.
    fn recorded_free(&self) -> u64 {
        self.roots.iter().enumerate().map(|(i, root)| self.root_free(i as u64, root)).sum()
    }

    fn root_free(&self, index: u64, root: &SpaceRoot) -> u64 {
        if root.epoch == Epoch(0) { self.layout.virgin_free_below(2, index) } else { root.free }
    }

    /// Sectors that can be given out now.
    pub fn free(&self) -> u64 {
        self.free.saturating_sub(self.hidden)
    }

    /// Sectors that are free, but which a sparse device has no space for yet.
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Space is given out before this sector only.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// A sparse device has space before this sector. Nothing at or behind it may be in use.
    pub fn limit(&mut self, end: u64) {
        self.end = self.whole_regions(end);
        self.hidden = self.layout.virgin_free_from(end);
        self.sparse = true;
        self.read_anew();
    }

    /// Nothing is given out of a region whose page could not be written. Steps end behind the heads of a
    /// region, so this is one that was too short to be a region before the pool grew.
    fn whole_regions(&self, end: u64) -> u64 {
        let cut = self.layout.cut_heads(end);
        cut.map_or(end, |region| self.layout.region_start(region).0)
    }

    /// Open regions are not what they were.
    fn read_anew(&mut self) {
        self.open = [None, None, None];
        self.full_for = u64::MAX;
        self.fruitless = 0;
        self.dense = false;
    }

    /// Whether so much was taken since the last freeze that what it replaced should come back
    /// now: waiting until nothing is free would stop all writes for a whole checkpoint.
    pub fn wants_checkpoint(&self) -> bool {
        self.taken_sectors > (self.free / 2).max(self.layout.per(CHECKPOINT_WORTH))
    }

    /// Sectors that the next checkpoints will give back.
    pub fn pending(&self) -> u64 {
        self.freed_sectors
    }

    /// Extents that are remembered beside the space pages.
    pub fn extents(&self) -> usize {
        self.taken.len() + self.unsealed.len() + self.frozen.len() + self.freed.len()
    }

    /// Records that an extent is in use, without looking for it: replay.
    pub fn claim(&mut self, extent: Extent) -> Result<(), Contradiction> {
        self.note_taken(Stream::Data, extent)?;
        self.sealed();
        Ok(())
    }

    /// Pages are taken by the running checkpoint, which has to record them itself; data belongs
    /// to slots that the next one covers.
    fn note_taken(&mut self, stream: Stream, extent: Extent) -> Result<(), Contradiction> {
        self.free = self.free.checked_sub(extent.sectors).ok_or(Contradiction::Free)?;
        *self.taken_in.entry(self.layout.region_of(extent.start)).or_default() += extent.sectors;
        let list = if stream == Stream::Data { &mut self.unsealed } else { &mut self.frozen };
        match list.last_mut() {
            Some(last) if last.end() == extent.start => last.sectors += extent.sectors,
            _ => list.push(extent),
        }
        Ok(())
    }

    /// The operation that space was found for has its slot.
    pub fn sealed(&mut self) {
        for extent in self.unsealed.drain(..) {
            self.taken_sectors += extent.sectors;
            match self.taken.last_mut() {
                Some(last) if last.end() == extent.start => last.sectors += extent.sectors,
                _ => self.taken.push(extent),
            }
        }
    }

    /// Gives an extent back; it is reused when a checkpoint has covered this.
    pub fn give_back(&mut self, extent: Extent) {
        self.freed_sectors += extent.sectors;
        match self.freed.last_mut() {
            Some(last) if last.end() == extent.start => last.sectors += extent.sectors,
            _ => self.freed.push(extent),
        }
    }

    /// Planted: gives an extent out again before any checkpoint. The books stay right, since it
    /// is in use as before; only a crash can show the harm.
    #[cfg(feature = "faults")]
    pub fn reuse_at_once(&mut self, extent: Extent) {
        self.reusable.push(extent);
    }

    /// What a checkpoint has to record: taken and given back until now.
    pub fn freeze(&mut self) -> Vec<Extent> {
        assert!(self.frozen.is_empty(), "one checkpoint at a time");
        #[cfg(feature = "faults")]
        for extent in std::mem::take(&mut self.reusable) {
            self.give_back(extent);
        }
        self.taken_sectors = 0;
        self.frozen = std::mem::take(&mut self.taken);
        std::mem::take(&mut self.freed)
    }

    /// A checkpoint counts: its frees may be reused, its roots are the truth.
    pub fn commit(
        &mut self,
        roots: Vec<SpaceRoot>,
        freed: &[Extent],
        grown: bool,
    ) -> Result<(), Contradiction> {
        self.roots = roots;
        self.frozen.clear();
        self.taken_in.clear();
        for extent in self.taken.iter().chain(&self.unsealed) {
            *self.taken_in.entry(self.layout.region_of(extent.start)).or_default() +=
                extent.sectors;
        }
        let given: u64 = freed.iter().map(|extent| extent.sectors).sum();
        for extent in freed {
            let region = self.layout.region_of(extent.start);
            for open in self.open.iter_mut().flatten().filter(|open| open.region == region) {
                // What came back behind the stream's place is taken when its turn comes again:
                // going back for it would break up what could be written in one piece.
                open.release(*extent)?;
            }
        }
        self.freed_sectors = self.freed.iter().map(|extent| extent.sectors).sum();
        self.free += given;
        self.dense = false;
        self.full_for = u64::MAX;
        self.fruitless = 0;
        let taken: u64 = self.taken.iter().chain(&self.unsealed).map(|extent| extent.sectors).sum();
        let counted = self.recorded_free().checked_sub(taken).ok_or(Contradiction::Free)?;
        if self.free != counted && !grown {
            return Err(Contradiction::Free);
        }
        self.free = counted;
        Ok(())
    }

    /// The pool grew. The open regions may be of the old end, so they are read anew.
    pub fn grown(&mut self, sectors: u64) {
        self.layout.sectors = sectors;
        match self.sparse {
            true => {
                self.end = self.whole_regions(self.end);
                self.hidden = self.layout.virgin_free_from(self.end);
            }
            false => self.end = sectors,
        }
        self.read_anew();
    }

    /// Regions from which space can be given out, in part at least.
    fn usable_regions(&self) -> u64 {
        let inside = self.end.saturating_sub(self.layout.regions_at.0);
        inside.div_ceil(SPACE_SPAN).min(self.layout.regions())
    }

    /// Up to `max` units of `unit` sectors in one run.
    pub fn alloc<D: Disk>(
        &mut self,
        stream: Stream,
        unit: u64,
        max: u64,
        pages: &mut Pages,
        device: &mut Device<D>,
    ) -> Result<Alloc, CheckpointError> {
        #[cfg(feature = "faults")]
        if stream == Stream::Data
            && let Some(at) = self.reusable.iter().position(|extent| extent.sectors == unit)
        {
            return Ok(Alloc::Run(self.reusable.swap_remove(at)));
        }
        let align = self.layout.page().min(unit);
        loop {
            if let Some(open) = &mut self.open[stream as usize]
                && let Some(extent) = open.take(unit, max, align)
            {
                self.note_taken(stream, extent)?;
                self.fruitless = 0;
                return Ok(Alloc::Run(extent));
            }
            // Enough sectors may be free in every region, and nowhere enough of them in a row.
            if self.fruitless_for != unit {
                (self.fruitless_for, self.fruitless) = (unit, 0);
            }
            if self.fruitless > self.layout.regions() {
                self.full_for = self.full_for.min(unit);
                self.fruitless = 0;
            }
            if unit >= self.full_for {
                return Ok(self.alloc_anywhere(stream, unit, max, align)?);
            }
            match self.next_region(stream, unit, pages, device)? {
                Some(true) => self.fruitless += 1,
                Some(false) => {
                    self.full_for = unit;
                }
                None => return Ok(Alloc::Wait),
            }
        }
    }

    /// Nearly full: whatever region is open will do, from its start.
    fn alloc_anywhere(
        &mut self,
        stream: Stream,
        unit: u64,
        max: u64,
        align: u64,
    ) -> Result<Alloc, Contradiction> {
        for at in 0..self.open.len() {
            let Some(open) = &mut self.open[at] else {
                continue;
            };
            if let Some(extent) = open.take_anywhere(unit, max, align, at == stream as usize) {
                self.note_taken(stream, extent)?;
                return Ok(Alloc::Run(extent));
            }
        }
        Ok(Alloc::Full)
    }

    /// Opens another region for a stream. `None`: a page is being read; `false`: there is none.
    fn next_region<D: Disk>(
        &mut self,
        stream: Stream,
        unit: u64,
        pages: &mut Pages,
        device: &mut Device<D>,
    ) -> Result<Option<bool>, CheckpointError> {
        let regions = self.usable_regions();
        if regions == 0 {
            return Ok(Some(false));
        }
        let start = self.seek[stream as usize] % regions;
        for pass in u64::from(self.dense)..2 {
            let wanted = if pass == 0 { (SPACE_SPAN / 4).max(unit) } else { unit };
            let Some(found) = self.emptiest(start, wanted, pages, device)? else {
                return Ok(None);
            };
            if let Some((region, entry)) = found {
                let Some(open) = self.load(Region(region), entry, pages, device)? else {
                    return Ok(None);
                };
                self.seek[stream as usize] = (region + 1) % regions;
                self.open[stream as usize] = Some(open);
                return Ok(Some(true));
            }
            self.dense = true;
        }
        Ok(Some(false))
    }

    /// The emptiest of the next regions that have this much free: on an old pool that is where
    /// free space is least broken up. `None` while a page is being read.
    fn emptiest<D: Disk>(
        &self,
        start: u64,
        wanted: u64,
        pages: &mut Pages,
        device: &mut Device<D>,
    ) -> Result<Option<Option<(u64, SpaceEntry)>>, CheckpointError> {
        let regions = self.usable_regions();
        let mut best: Option<(u64, u64, SpaceEntry)> = None;
        let (mut looked, mut until) = (0, regions);
        while looked < until {
            let region = (start + looked) % regions;
            let Some((entry, step)) = self.entry(region, pages, device)? else {
                return Ok(None);
            };
            looked += step.max(1);
            let Some(entry) = entry else { continue };
            let free = self.effective_free(Region(region), entry);
            let is_open = self.open.iter().flatten().any(|open| open.region.0 == region);
            if free < wanted || is_open {
                continue;
            }
            if best.is_none() {
                // After one that had no run of the wanted length, every other gets its turn.
                let choice = if self.fruitless > 0 { 0 } else { CHOICE };
                until = regions.min(looked + choice);
            }
            if best.is_none_or(|(most, ..)| free > most) {
                best = Some((free, region, entry));
            }
            // Nothing can be emptier, and streams stay sequential over a fresh pool.
            if free >= self.layout.virgin_free(Region(region)) {
                break;
            }
        }
        Ok(Some(best.map(|(_, region, entry)| (region, entry))))
    }

    fn effective_free(&self, region: Region, entry: SpaceEntry) -> u64 {
        let recorded =
            if entry.epoch == Epoch(0) { self.layout.virgin_free(region) } else { entry.free };
        let hidden = match self.end < self.layout.sectors {
            true => self.layout.virgin_free_behind(region, self.end),
            false => 0,
        };
        recorded.saturating_sub(self.taken_in.get(&region).copied().unwrap_or(0) + hidden)
    }

    /// What the upper pages say of a region; or how many regions can be passed over together,
    /// since nothing below their upper page is free.
    fn entry<D: Disk>(
        &self,
        region: u64,
        pages: &mut Pages,
        device: &mut Device<D>,
    ) -> Result<Option<(Option<SpaceEntry>, u64)>, CheckpointError> {
        let fan = SPACE_FAN_OUT as u64;
        let (l1, l2) = (region / fan, region / (fan * fan));
        let root = self.roots[to_usize(l2)];
        if root.epoch != Epoch(0) && root.free == 0 {
            return Ok(Some((None, fan * fan - region % (fan * fan))));
        }
        let root = SpaceEntry { epoch: root.epoch, home: root.home, free: 0 };
        let Some(upper) = self.child(2, l2, root, l1 % fan, pages, device)? else {
            return Ok(None);
        };
        if upper.epoch != Epoch(0) && upper.free == 0 {
            return Ok(Some((None, fan - region % fan)));
        }
        Ok(self.child(1, l1, upper, region % fan, pages, device)?.map(|entry| (Some(entry), 1)))
    }

    /// What is said of a space page by the one above it; `None` while that is being read.
    pub fn page_entry<D: Disk>(
        &self,
        level: u8,
        index: u64,
        pages: &mut Pages,
        device: &mut Device<D>,
    ) -> Result<Option<SpaceEntry>, CheckpointError> {
        let fan = SPACE_FAN_OUT as u64;
        if level == 2 {
            let root = self.roots[to_usize(index)];
            return Ok(Some(SpaceEntry { epoch: root.epoch, home: root.home, free: 0 }));
        }
        match self.page_entry(level + 1, index / fan, pages, device)? {
            Some(upper) => self.child(level + 1, index / fan, upper, index % fan, pages, device),
            None => Ok(None),
        }
    }

    fn child<D: Disk>(
        &self,
        level: u8,
        index: u64,
        entry: SpaceEntry,
        child: u64,
        pages: &mut Pages,
        device: &mut Device<D>,
    ) -> Result<Option<SpaceEntry>, CheckpointError> {
        if entry.epoch == Epoch(0) {
            return Ok(Some(SpaceEntry::default()));
        }
        let page = space_page(&self.layout, level, index, entry, pages, device)?;
        Ok(page.map(|page| space_entry_of(&page, to_usize(child))))
    }

    fn load<D: Disk>(
        &self,
        region: Region,
        entry: SpaceEntry,
        pages: &mut Pages,
        device: &mut Device<D>,
    ) -> Result<Option<OpenRegion>, CheckpointError> {
        let mut open = if entry.epoch == Epoch(0) {
            OpenRegion::virgin(&self.layout, region)
        } else {
            match space_page(&self.layout, 0, region.0, entry, pages, device)? {
                Some(page) => OpenRegion::from_page(&self.layout, region, &page),
                None => return Ok(None),
            }
        };
        for extent in self.frozen.iter().chain(&self.taken).chain(&self.unsealed) {
            if self.layout.region_of(extent.start) == region {
                open.mark(*extent)?;
            }
        }
        if self.end < self.layout.sectors {
            open.hide_from(self.end);
        }
        Ok(Some(open))
    }
}
