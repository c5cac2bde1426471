//! Checking a pool that nobody has open: every page, every block, and every sector counted.
//!
//! Nothing is written. The journal is not replayed: what it holds is counted as it stands, and a
//! pool that was not closed is checked as of its last checkpoint.
use std::collections::BTreeMap;

use block::Wait;

use crate::compress;
use crate::error::OpenError;
use crate::format::{
    Block, Child, Entry, FAN_OUT, PageId, PageKind, PagePtr, SPACE_FAN_OUT, SPACE_SPAN, SpaceEntry,
    Superblock, child, entry, space_entry,
};
use crate::journal::replay;
use crate::limits::MAP_PAGE;
use crate::map::summary;
use crate::pool::{
    OpenOptions, blocking_read, blocking_reads, newest_superblock, read_directory, read_page,
};
use crate::snapshot::{Floor, Object};
use crate::space::{Layout, OpenRegion};
use crate::units::{
    Birth, Checksum, Epoch, Extent, Granule, ObjectId, Region, Sector, SnapshotId, to_usize,
};
use crate::volume::MapRoot;

/// How much to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Maps, directory and space.
    Structure,
    /// The stored bytes of every block as well.
    Data,
}

/// What a check found. No problem means: everything is readable, and the space pages say exactly
/// what the maps use.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub volumes: u64,
    /// Also those that are deleted and not dropped yet.
    pub snapshots: u64,
    pub map_pages: u64,
    pub blocks: u64,
    pub used_sectors: u64,
    pub free_sectors: u64,
    /// Slots that opening would replay.
    pub journal_slots: u64,
    /// Copies of superblocks that are not whole. A power cut may leave one; opening mends it.
    pub superblocks_to_mend: u64,
    pub problems: Vec<String>,
    /// Problems beyond those that are listed.
    pub more_problems: u64,
}

/// Problems that are listed; a ruined pool has millions.
const PROBLEMS_MAX: usize = 100;
/// Sectors whose use is compared in one walk over the maps: 256 MiB of memory.
const WINDOW: u64 = 1 << 31;
const BATCH: usize = 64;

impl Report {
    fn problem(&mut self, text: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        } else {
            self.more_problems += 1;
        }
    }

    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Sectors in use within a window of the device, one bit each.
struct Used {
    from: u64,
    bits: Vec<u64>,
    /// What a map shares with the snapshot that it goes on from: somebody must own it.
    shared: Vec<u64>,
}

impl Used {
    fn mark(&mut self, extent: Extent, report: &mut Report, what: &str) {
        for sector in extent.start.0..extent.end().0 {
            let Some(bit) = sector.checked_sub(self.from) else {
                continue;
            };
            let Some(word) = self.bits.get_mut((bit / 64) as usize) else {
                continue;
            };
            if *word >> (bit % 64) & 1 == 1 {
                report.problem(format!("sector {sector} is used twice, once by {what}"));
            }
            *word |= 1 << (bit % 64);
        }
    }

    fn share(&mut self, extent: Extent) {
        for sector in extent.start.0..extent.end().0 {
            let Some(bit) = sector.checked_sub(self.from) else { continue };
            if let Some(word) = self.shared.get_mut(to_usize(bit / 64)) {
                *word |= 1 << (bit % 64);
            }
        }
    }

    fn has(&self, sector: u64) -> bool {
        let bit = sector - self.from;
        self.bits[to_usize(bit / 64)] >> (bit % 64) & 1 == 1
    }

    fn is_shared(&self, sector: u64) -> bool {
        let bit = sector - self.from;
        self.shared[to_usize(bit / 64)] >> (bit % 64) & 1 == 1
    }
}

struct Walk<'a, D> {
    disk: &'a mut D,
    superblock: Superblock,
    layout: Layout,
    depth: Depth,
    /// Only the first walk counts and verifies; later ones look at other sectors.
    first: bool,
    used: Used,
    report: Report,
    /// The upper space pages that were looked at last, by level.
    upper_seen: [u64; 3],
}

/// Checks a pool. An error means that it could not be looked at; what is wrong inside is in the
/// report.
pub fn check<D: Wait>(disk: &mut D, depth: Depth) -> Result<Report, OpenError> {
    let options = OpenOptions::default();
    let superblock = newest_superblock(disk, &options)?;
    let (objects, directory) = read_directory(disk, &superblock)?;
    let count =
        |is: fn(&Object) -> bool| objects.values().filter(|object| is(object)).count() as u64;
    let mut report = Report {
        volumes: count(|object| matches!(object, Object::Volume(_))),
        snapshots: count(|object| matches!(object, Object::Snapshot(_))),
        ..Report::default()
    };
    match replay(disk, &superblock, &options) {
        Ok(replayed) => report.journal_slots = replayed.slots.len() as u64,
        Err(error) => report.problem(error.to_string()),
    }
    let layout = Layout::of(&superblock);
    let end = layout.sectors;
    let mut from = layout.regions_at.0;
    let used = Used { from, bits: Vec::new(), shared: Vec::new() };
    let upper_seen = [u64::MAX; 3];
    let mut walk = Walk { disk, superblock, layout, depth, first: true, used, report, upper_seen };
    walk.superblocks()?;
    while from < end {
        // Windows are whole regions, so that each region is compared once.
        let regions = (WINDOW / SPACE_SPAN).min((end - from).div_ceil(SPACE_SPAN));
        let len = regions * SPACE_SPAN;
        let words = vec![0; to_usize(len.div_ceil(64))];
        walk.used = Used { from, bits: words.clone(), shared: words };
        walk.walk(&objects, &directory);
        let first = (from - walk.layout.regions_at.0) / SPACE_SPAN;
        walk.compare(first..first + regions)?;
        from += len;
        walk.first = false;
    }
    Ok(walk.report)
}

impl<D: Wait> Walk<'_, D> {
    fn walk(&mut self, objects: &BTreeMap<ObjectId, Object>, directory: &[(PagePtr, PageId)]) {
        for (ptr, id) in directory {
            self.mark_page(*ptr, "the directory");
            if self.first {
                self.look_at_copies("the directory", *ptr, *id);
            }
        }
        for (id, object) in objects {
            let (name, floor, from) = match object {
                Object::Volume(volume) => {
                    (format!("volume {id}"), floor(objects, volume.parent), Granule(0))
                }
                Object::Snapshot(cut) => {
                    (format!("snapshot {id}"), floor(objects, cut.parent), cut.dropped)
                }
                Object::Orphan(orphan) => {
                    (format!("orphaned map {id}"), orphan.floor, orphan.dropped)
                }
            };
            let granule = object.header().block_size.granule();
            self.walk_map(&name, granule, object.map(), floor, from.0);
        }
    }

    /// All four superblocks: the newest epoch, and the one before it.
    fn superblocks(&mut self) -> Result<(), OpenError> {
        let newest = self.superblock.epoch;
        for epoch in [newest, Epoch(newest.0.saturating_sub(1))] {
            for copy in 0..2 {
                let at = Layout::superblock(epoch, copy);
                let bytes = blocking_read(self.disk, at, MAP_PAGE)?;
                let found = Superblock::decode(&bytes).ok();
                let good = found.is_some_and(|found| found.epoch == epoch);
                self.report.superblocks_to_mend += u64::from(!good);
            }
        }
        Ok(())
    }

    fn mark_page(&mut self, ptr: PagePtr, what: &str) {
        for start in ptr.places {
            let extent = Extent { start, sectors: self.layout.page() };
            if self.layout.holds(extent) {
                self.used.mark(extent, &mut self.report, what);
            } else {
                self.report.problem(format!("a page of {what} lies outside of the pool"));
            }
        }
    }

    /// Walks what one map owns. What it shares is looked at where it is owned.
    fn walk_map(&mut self, name: &str, granule: u64, map: MapRoot, floor: Floor, from: u64) {
        let mut batch = Vec::new();
        let mut todo = vec![(map.root, map.height.saturating_sub(1), 0u64)];
        while let Some((above, level, index)) = todo.pop() {
            let Child::Page { ptr, changed, held } = above else { continue };
            let end = (index + 1) << (7 * (u32::from(level) + 1));
            if end <= from {
                continue;
            }
            if !floor.owns_page(ptr, end) {
                for start in ptr.places {
                    self.used.share(Extent { start, sectors: self.layout.page() });
                }
                continue;
            }
            self.mark_page(ptr, name);
            self.report.map_pages += u64::from(self.first);
            let Some(page) = self.map_page(name, ptr, level, index) else {
                continue;
            };
            let sum = summary(&page, level);
            if (sum.changed > changed || sum.held != held) && self.first {
                let (says, has) = ((changed, held), (sum.changed, sum.held));
                self.report
                    .problem(format!("{name}: a page has {has:?}, its parent says {says:?}"));
            }
            for within in 0..FAN_OUT {
                let below = index * FAN_OUT as u64 + within as u64;
                if level > 0 {
                    todo.push((child(&page, within), level - 1, below));
                } else if let Entry::Block(block) = entry(&page, within)
                    && below >= from
                {
                    let extent = Extent { start: block.place, sectors: block.sectors.into() };
                    match floor.owns(block.born, below + 1) {
                        true => self.block(name, granule, below, block, &mut batch),
                        false => self.used.share(extent),
                    }
                }
            }
        }
        self.verify(name, granule, &mut batch);
    }

    fn map_page(&mut self, name: &str, ptr: PagePtr, level: u8, index: u64) -> Option<block::Buf> {
        let id = PageId { kind: PageKind::Map, level, index, born: ptr.born };
        let pool = self.superblock.pool();
        if self.first {
            self.look_at_copies(name, ptr, id);
        }
        match read_page(self.disk, &self.layout, pool, ptr, id, "volume map") {
            Ok(page) => Some(page),
            Err(error) => {
                self.report.problem(format!("{name}: {error}"));
                None
            }
        }
    }

    /// A page serves with one good copy, but the other one is missing then.
    fn look_at_copies(&mut self, name: &str, ptr: PagePtr, id: PageId) {
        let ranges = ptr.places.map(|place| (self.layout.offset(place), MAP_PAGE)).into_iter();
        let Ok(copies) = blocking_reads(self.disk, ranges) else {
            return;
        };
        for (copy, bytes) in copies.iter().enumerate() {
            let pool = self.superblock.pool();
            let problem = match bytes {
                None => Some(crate::format::PageProblem::Unreadable),
                Some(bytes) => crate::format::verify_page(bytes, pool, id).err(),
            };
            if let Some(problem) = problem {
                let copy = copy + 1;
                self.report.problem(format!("{name}: copy {copy} of a page: {problem}"));
            }
        }
    }

    fn block(
        &mut self,
        name: &str,
        granule: u64,
        at: u64,
        block: Block,
        batch: &mut Vec<(u64, Block)>,
    ) {
        let extent = Extent { start: block.place, sectors: u64::from(block.sectors) };
        if !self.layout.holds(extent) {
            self.report.problem(format!("{name}: granule {at} lies outside of the pool"));
            return;
        }
        self.used.mark(extent, &mut self.report, name);
        if self.first {
            self.report.blocks += 1;
            let (whole, page) = (self.layout.per(granule), self.layout.page());
            if !compress::can_be(block.encoding, extent.sectors, whole, page) {
                self.report.problem(format!("{name}: granule {at} is stored as none can be"));
            } else if self.depth == Depth::Data {
                batch.push((at, block));
            }
        }
        if batch.len() == BATCH {
            self.verify(name, granule, batch);
        }
    }

    fn verify(&mut self, name: &str, granule: u64, batch: &mut Vec<(u64, Block)>) {
        let layout = &self.layout;
        let ranges = batch.iter().map(|(_, block)| {
            let len = layout.bytes(u64::from(block.sectors)).0;
            (layout.offset(block.place), usize::try_from(len).expect("a granule is small"))
        });
        let found = match blocking_reads(self.disk, ranges) {
            Ok(found) => found,
            Err(error) => return self.report.problem(format!("{name}: {error}")),
        };
        let mut plain = vec![0; to_usize(granule)];
        for ((at, block), bytes) in batch.drain(..).zip(found) {
            let good = bytes.filter(|bytes| Checksum::of(bytes) == block.checksum);
            let Some(bytes) = good else {
                self.report.problem(format!("{name}: granule {at} is damaged"));
                continue;
            };
            if let Err(problem) = compress::decode(block.encoding, &bytes, &mut plain) {
                self.report.problem(format!("{name}: granule {at} is damaged: {problem}"));
            }
        }
    }

    /// The space pages of some regions against what the maps use there.
    fn compare(&mut self, regions: std::ops::Range<u64>) -> Result<(), OpenError> {
        for region in regions.start..regions.end.min(self.layout.regions()) {
            let region = Region(region);
            let entry = self.space_entry_of(region)?;
            let bits = if entry.epoch == Epoch(0) {
                OpenRegion::virgin(&self.layout, region)
            } else {
                let page = self.space_page(0, region.0, entry)?;
                OpenRegion::from_page(&self.layout, region, &page)
            };
            if entry.epoch != Epoch(0) && entry.free != bits.free() {
                let (says, has) = (entry.free, bits.free());
                self.report.problem(format!("region {region}: {has} sectors free, not {says}"));
            }
            self.compare_region(region, &bits);
        }
        Ok(())
    }

    fn compare_region(&mut self, region: Region, bits: &OpenRegion) {
        let start = self.layout.region_start(region).0;
        for head in self.layout.region_heads(region) {
            self.used.mark(head, &mut self.report, "space pages");
        }
        for sector in start..start + self.layout.region_len(region) {
            let (says, is) = (bits.is_used(Sector(sector)), self.used.has(sector));
            self.report.used_sectors += u64::from(says);
            self.report.free_sectors += u64::from(!says);
            match (says, is) {
                (true, false) => {
                    self.report.problem(format!("sector {sector} is lost: nobody uses it"))
                }
                (false, true) => {
                    self.report.problem(format!("sector {sector} is in use, but said to be free"));
                }
                _ => {}
            }
            if self.used.is_shared(sector) && !is {
                self.report.problem(format!("sector {sector} is shared, but nobody owns it"));
            }
        }
    }

    fn space_page(
        &mut self,
        level: u8,
        index: u64,
        e: SpaceEntry,
    ) -> Result<block::Buf, OpenError> {
        let id = PageId { kind: PageKind::Space, level, index, born: Birth(e.epoch.0) };
        let ptr = self.layout.space_page(level, index, e);
        if level == 0 || index != self.upper_seen[usize::from(level)] {
            // Upper pages are read again for every region, but looked at once.
            self.upper_seen[usize::from(level)] = index;
            self.look_at_copies("the space map", ptr, id);
        }
        read_page(self.disk, &self.layout, self.superblock.pool(), ptr, id, "space map")
    }

    fn space_entry_of(&mut self, region: Region) -> Result<SpaceEntry, OpenError> {
        let fan = SPACE_FAN_OUT as u64;
        let (l1, l2) = (region.0 / fan, region.0 / (fan * fan));
        let root = self.superblock.space[to_usize(l2)];
        let mut at = SpaceEntry { epoch: root.epoch, home: root.home, free: 0 };
        for (level, index, within) in [(2, l2, l1 % fan), (1, l1, region.0 % fan)] {
            if at.epoch == Epoch(0) {
                return Ok(SpaceEntry::default());
            }
            at = space_entry(&self.space_page(level, index, at)?, to_usize(within));
        }
        Ok(at)
    }
}

/// What a map that goes on from `parent` shares with it.
fn floor(objects: &BTreeMap<ObjectId, Object>, parent: Option<SnapshotId>) -> Floor {
    let cut = |id: SnapshotId| match objects.get(&id.into()) {
        Some(Object::Snapshot(cut)) => Some(cut),
        _ => None,
    };
    Floor::over(parent, cut)
}
