//! A region whose bitmap is in memory: fresh space is taken from it in ascending order.
use thiserror::Error;

use crate::format::{PAGE_HEADER, SPACE_SPAN};
use crate::space::Layout;
use crate::units::{Extent, Region, Sector, to_usize};

/// Journal, maps and space pages do not agree about a sector. Never the result of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Contradiction {
    #[error("sector {sector} is given out a second time")]
    GivenTwice { sector: u64 },
    #[error("sector {sector} is freed a second time")]
    FreedTwice { sector: u64 },
    #[error("free space is not what the space pages say")]
    Free,
    #[error("no space is left for the pages of a checkpoint, though the reserve should hold them")]
    Reserve,
    #[error("a volume stores more, or less, than it says")]
    Stored,
    #[error("sector {sector} is not where it is said to be")]
    Outside { sector: u64 },
}

const WORDS: usize = (SPACE_SPAN / 64) as usize;

#[derive(Clone)]
pub struct OpenRegion {
    pub region: Region,
    start: Sector,
    /// A bit per sector, set where it is in use.
    used: [u64; WORDS],
    free: u64,
    cursor: u64,
}

impl std::fmt::Debug for OpenRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "region {} with {} free sectors", self.region, self.free)
    }
}

impl OpenRegion {
    /// A region that was never written: all free but its head and what lies beyond the pool.
    pub fn virgin(layout: &Layout, region: Region) -> OpenRegion {
        let mut open = OpenRegion {
            region,
            start: layout.region_start(region),
            used: [0; WORDS],
            free: SPACE_SPAN,
            cursor: 0,
        };
        for head in layout.region_heads(region) {
            open.mark(head).expect("a fresh region is free");
        }
        let len = layout.region_len(region);
        if len < SPACE_SPAN {
            let beyond = Extent { start: Sector(open.start.0 + len), sectors: SPACE_SPAN - len };
            open.mark(beyond).expect("a fresh region is free");
        }
        open
    }

    /// A region as its space page says.
    pub fn from_page(layout: &Layout, region: Region, page: &[u8]) -> OpenRegion {
        let mut used = [0; WORDS];
        for (word, bytes) in used.iter_mut().zip(page[PAGE_HEADER..].chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight"));
        }
        let taken: u64 = used.iter().map(|word| u64::from(word.count_ones())).sum();
        let start = layout.region_start(region);
        OpenRegion { region, start, used, free: SPACE_SPAN - taken, cursor: 0 }
    }

    pub fn to_page(&self, page: &mut [u8]) {
        for (bytes, word) in page[PAGE_HEADER..].chunks_exact_mut(8).zip(self.used) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    pub fn free(&self) -> u64 {
        self.free
    }

    pub fn is_used(&self, sector: Sector) -> bool {
        let bit = sector.0 - self.start.0;
        self.used[to_usize(bit) / 64] >> (bit % 64) & 1 == 1
    }

    /// The last sector of the pool that is in use here and not a part of the heads.
    pub fn last_used(&self, layout: &Layout) -> Option<Sector> {
        let heads = layout.region_heads(self.region);
        let mut sectors =
            (0..layout.region_len(self.region)).rev().map(|bit| Sector(self.start.0 + bit));
        sectors.find(|sector| {
            let in_head = heads.iter().any(|head| (head.start..head.end()).contains(sector));
            !in_head && self.is_used(*sector)
        })
    }

    /// Nothing is taken at or behind a sector.
    pub fn hide_from(&mut self, sector: u64) {
        for bit in sector.saturating_sub(self.start.0)..SPACE_SPAN {
            let (word, mask) = (to_usize(bit) / 64, 1 << (bit % 64));
            self.free -= u64::from(self.used[word] & mask == 0);
            self.used[word] |= mask;
        }
    }

    fn bits(&self, extent: Extent) -> Result<std::ops::Range<u64>, Contradiction> {
        let outside = Contradiction::Outside { sector: extent.start.0 };
        let first = extent.start.0.checked_sub(self.start.0).ok_or(outside)?;
        if first + extent.sectors > SPACE_SPAN {
            return Err(outside);
        }
        Ok(first..first + extent.sectors)
    }

    /// Takes sectors into use. Each must be free: a sector given twice is lost data.
    pub fn mark(&mut self, extent: Extent) -> Result<(), Contradiction> {
        for bit in self.bits(extent)? {
            let word = &mut self.used[to_usize(bit) / 64];
            if *word >> (bit % 64) & 1 == 1 {
                return Err(Contradiction::GivenTwice { sector: self.start.0 + bit });
            }
            *word |= 1 << (bit % 64);
        }
        self.free -= extent.sectors;
        Ok(())
    }

    /// Gives sectors back. Each must be in use.
    pub fn release(&mut self, extent: Extent) -> Result<(), Contradiction> {
        for bit in self.bits(extent)? {
            let word = &mut self.used[to_usize(bit) / 64];
            if *word >> (bit % 64) & 1 == 0 {
                return Err(Contradiction::FreedTwice { sector: self.start.0 + bit });
            }
            *word &= !(1 << (bit % 64));
        }
        self.free += extent.sectors;
        Ok(())
    }

    /// The first free sector from `bit` on, and the length of the free run there.
    fn next_run(&self, bit: u64, enough: u64) -> Option<(u64, u64)> {
        let start = self.scan(bit, false)?;
        let end = self.scan_until(start, enough);
        Some((start, end - start))
    }

    fn scan(&self, from: u64, used: bool) -> Option<u64> {
        let mut at = from;
        while at < SPACE_SPAN {
            let word = self.used[to_usize(at) / 64];
            let wanted = if used { word } else { !word } >> (at % 64);
            if wanted != 0 {
                return Some(at + u64::from(wanted.trailing_zeros()));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    fn scan_until(&self, start: u64, enough: u64) -> u64 {
        self.scan(start, true).unwrap_or(SPACE_SPAN).min(start + enough)
    }

    /// Takes up to `max` units of `unit` sectors in one run, aligned to `align`, at or behind the
    /// last one given; `None` when no unit fits there.
    pub fn take(&mut self, unit: u64, max: u64, align: u64) -> Option<Extent> {
        let mut at = self.cursor;
        while let Some((start, len)) = self.next_run(at, unit * max + align) {
            let aligned = start.next_multiple_of(align);
            let usable = (start + len).saturating_sub(aligned) / unit;
            if usable > 0 {
                let sectors = usable.min(max) * unit;
                let extent = Extent { start: Sector(self.start.0 + aligned), sectors };
                self.mark(extent).expect("the run was found free");
                self.cursor = aligned + sectors;
                return Some(extent);
            }
            at = start + len;
        }
        None
    }

    /// Like `take`, but from the start of the region. Whose region it is goes on from there if it
    /// is the one who asks, and otherwise where it was.
    pub fn take_anywhere(&mut self, unit: u64, max: u64, align: u64, own: bool) -> Option<Extent> {
        let kept = std::mem::take(&mut self.cursor);
        let found = self.take(unit, max, align);
        if !own {
            self.cursor = kept;
        }
        found
    }
}
