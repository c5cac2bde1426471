//! Where things lie on the device. Pure arithmetic, fixed when the pool is made (but its end).
use block::{ByteLen, ByteOffset, SectorSize};

use crate::format::{PagePtr, SPACE_FAN_OUT, SPACE_SPAN, SpaceEntry, Superblock};
use crate::limits::{COPY_GAP, JOURNAL_BLOCK, MAP_PAGE, REGION_MIN};
use crate::units::{Birth, Epoch, Extent, Region, Sector, Slot};

/// Pages at the head of a region, and again [`COPY_GAP`] behind: two homes for each of three
/// levels of space pages, and two to spare.
const HEAD_PAGES: u64 = 8;

#[derive(Clone, Debug)]
pub struct Layout {
    pub sector: SectorSize,
    pub sectors: u64,
    pub regions_at: Sector,
    pub journal_at: Sector,
    pub journal_blocks: u64,
}

impl Layout {
    pub fn of(superblock: &Superblock) -> Layout {
        Layout {
            sector: superblock.sector,
            sectors: superblock.sectors,
            regions_at: superblock.regions_at,
            journal_at: superblock.journal_at,
            journal_blocks: superblock.journal_blocks,
        }
    }

    pub fn per(&self, bytes: u64) -> u64 {
        bytes / self.sector.bytes()
    }

    /// Sectors of a page.
    pub fn page(&self) -> u64 {
        self.per(MAP_PAGE as u64)
    }

    pub fn offset(&self, sector: Sector) -> ByteOffset {
        ByteOffset(sector.0 * self.sector.bytes())
    }

    pub fn bytes(&self, sectors: u64) -> ByteLen {
        ByteLen(sectors * self.sector.bytes())
    }

    /// Where the superblock of an epoch lies: copy 0 or 1.
    pub fn superblock(epoch: Epoch, copy: u64) -> ByteOffset {
        ByteOffset(epoch.0 % 2 * MAP_PAGE as u64 + copy * COPY_GAP)
    }

    pub fn slot(&self, slot: Slot) -> ByteOffset {
        let block = slot.0 % self.journal_blocks;
        ByteOffset(self.offset(self.journal_at).0 + block * JOURNAL_BLOCK as u64)
    }

    pub fn regions(&self) -> u64 {
        let inside = self.sectors - self.regions_at.0;
        inside / SPACE_SPAN + u64::from(inside % SPACE_SPAN >= self.per(REGION_MIN))
    }

    /// Top space pages, which the superblock names.
    pub fn roots(&self) -> u64 {
        self.regions().div_ceil((SPACE_FAN_OUT * SPACE_FAN_OUT) as u64)
    }

    pub fn region_start(&self, region: Region) -> Sector {
        Sector(self.regions_at.0 + region.0 * SPACE_SPAN)
    }

    pub fn region_of(&self, sector: Sector) -> Region {
        Region((sector.0 - self.regions_at.0) / SPACE_SPAN)
    }

    /// Sectors of a region that lie within the pool.
    pub fn region_len(&self, region: Region) -> u64 {
        (self.sectors - self.region_start(region).0).min(SPACE_SPAN)
    }

    /// The parts of a region that belong to space pages.
    pub fn region_heads(&self, region: Region) -> [Extent; 2] {
        let start = self.region_start(region);
        let sectors = HEAD_PAGES * self.page();
        [Extent { start, sectors }, Extent { start: Sector(start.0 + self.per(COPY_GAP)), sectors }]
    }

    /// The region that begins before an end and has a head, or a part of one, behind it.
    pub fn cut_heads(&self, end: u64) -> Option<Region> {
        let region = self.region_of(Sector(end.checked_sub(1)?.max(self.regions_at.0)));
        let begun = region.0 < self.regions() && self.region_start(region).0 < end;
        (begun && end < self.region_heads(region)[1].end().0).then_some(region)
    }

    /// Free sectors of a region that was never written.
    pub fn virgin_free(&self, region: Region) -> u64 {
        self.region_len(region) - 2 * HEAD_PAGES * self.page()
    }

    /// Free sectors of a region at or behind a sector, if nothing there was ever written.
    pub fn virgin_free_behind(&self, region: Region, sector: u64) -> u64 {
        let behind = |start: u64, end: u64| end.saturating_sub(start.max(sector));
        let start = self.region_start(region).0;
        let heads = self.region_heads(region).map(|head| behind(head.start.0, head.end().0));
        behind(start, start + self.region_len(region)) - heads.iter().sum::<u64>()
    }

    /// The same of all regions.
    pub fn virgin_free_from(&self, sector: u64) -> u64 {
        let first = sector.saturating_sub(self.regions_at.0) / SPACE_SPAN;
        let regions = self.regions();
        if first >= regions {
            return 0;
        }
        let full = SPACE_SPAN - 2 * HEAD_PAGES * self.page();
        let rest = match regions - first - 1 {
            0 => 0,
            more => (more - 1) * full + self.virgin_free(Region(regions - 1)),
        };
        self.virgin_free_behind(Region(first), sector) + rest
    }

    /// The end of the homes of the first region: what every pool writes in place.
    pub fn first_home_end(&self) -> Sector {
        self.region_heads(Region(0))[1].end()
    }

    /// Free sectors below an upper space page that was never written.
    pub fn virgin_free_below(&self, level: u8, index: u64) -> u64 {
        let span = (SPACE_FAN_OUT as u64).pow(u32::from(level));
        let first = index * span;
        let end = (first + span).min(self.regions());
        if first >= end {
            return 0;
        }
        let full = SPACE_SPAN - 2 * HEAD_PAGES * self.page();
        (end - first - 1) * full + self.virgin_free(Region(end - 1))
    }

    /// Space pages of a level.
    pub fn space_pages(&self, level: u8) -> u64 {
        self.regions().div_ceil((SPACE_FAN_OUT as u64).pow(u32::from(level)))
    }

    /// Where one home of a space page lies.
    pub fn space_page(&self, level: u8, index: u64, entry: SpaceEntry) -> PagePtr {
        let region = Region(index * (SPACE_FAN_OUT as u64).pow(u32::from(level)));
        let within = (2 * u64::from(level) + u64::from(entry.home)) * self.page();
        let first = self.region_start(region).0 + within;
        let places = [Sector(first), Sector(first + self.per(COPY_GAP))];
        PagePtr { places, born: Birth(entry.epoch.0) }
    }

    /// Whether a stored extent is where stored extents can be: within one region, behind its head.
    pub fn holds(&self, extent: Extent) -> bool {
        let Some(end) = extent.start.0.checked_add(extent.sectors) else { return false };
        if extent.sectors == 0 || extent.start < self.regions_at || end > self.sectors {
            return false;
        }
        let region = self.region_of(extent.start);
        let apart = |head: &Extent| end <= head.start.0 || head.end() <= extent.start;
        region.0 < self.regions()
            && self.region_of(Sector(end - 1)) == region
            && self.region_heads(region).iter().all(apart)
    }
}
