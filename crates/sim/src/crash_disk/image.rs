//! What a disk holds at one moment: sparse pages, shared between images until one of them writes.
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use block::{ByteLen, ByteOffset, PAGE_LEN, SectorSize};

use super::write::Write;

pub(super) const PAGE_BYTES: u64 = PAGE_LEN as u64;
/// The finest thing that a disk may tear: a page has eight, so that a set of them is one byte.
pub(super) const SLOT_BYTES: u64 = 512;
pub(super) const SLOT_LEN: usize = 512;
const CHUNK_PAGES: usize = 32;

#[derive(Clone)]
pub(super) struct Page {
    pub(super) bytes: [u8; PAGE_LEN],
    /// The slots that were ever written, as bits.
    written: u8,
}

#[derive(Clone, Default)]
struct Chunk {
    pages: [Option<Arc<Page>>; CHUNK_PAGES],
}

/// The content of a disk. A clone costs a counter; the first write after it costs the page, its
/// chunk and the list of chunks.
#[derive(Clone)]
pub struct Image {
    size: u64,
    sector: SectorSize,
    physical_sector: SectorSize,
    chunks: Arc<BTreeMap<u64, Arc<Chunk>>>,
}

impl Image {
    /// A disk as it leaves the factory: zeros.
    pub fn new(size: ByteLen, sector: SectorSize) -> Image {
        assert!(
            size.0.is_multiple_of(sector.bytes()),
            "a disk of {size} has no whole number of sectors of {} bytes",
            sector.bytes()
        );
        Image { size: size.0, sector, physical_sector: sector, chunks: Arc::default() }
    }

    pub fn size(&self) -> ByteLen {
        ByteLen(self.size)
    }

    pub fn sector(&self) -> SectorSize {
        self.sector
    }

    pub fn physical_sector(&self) -> SectorSize {
        self.physical_sector
    }

    pub fn set_physical_sector(&mut self, physical: SectorSize) {
        self.physical_sector = physical;
    }

    pub(super) fn grow(&mut self, size: ByteLen) {
        let grown = Image::new(size, self.sector);
        assert!(grown.size >= self.size, "a disk of {} cannot grow to {size}", self.size());
        self.size = grown.size;
    }

    /// The bytes of a range, which must be within the disk.
    pub fn peek(&self, at: ByteOffset, len: usize) -> Vec<u8> {
        let end = at.end(ByteLen(len as u64));
        assert!(
            end.is_some_and(|end| end.0 <= self.size),
            "{len} bytes at {at} are not within a disk of {}",
            self.size()
        );
        let mut bytes = vec![0; len];
        self.read(at.0, &mut bytes);
        bytes
    }

    /// Rots one byte: its bits that are set in `mask` turn over.
    pub fn flip(&mut self, at: ByteOffset, mask: u8) {
        assert!(at.0 < self.size, "{at} is not within a disk of {}", self.size());
        self.page_mut(at.0 / PAGE_BYTES).bytes[within_page(at.0)] ^= mask;
    }

    /// Whether any part of the sector at this place was ever written (or trimmed).
    pub fn was_written(&self, at: ByteOffset) -> bool {
        let start = at.0 - at.0 % self.sector.bytes();
        let page = start / PAGE_BYTES;
        self.page(page)
            .is_some_and(|held| held.written & slots_within(page, start, self.sector.bytes()) != 0)
    }

    /// The sectors that were ever written, in ascending order.
    pub fn written_sectors(&self) -> impl Iterator<Item = ByteOffset> {
        self.pages_within(0..u64::MAX).flat_map(|(no, page)| {
            let start = no * PAGE_BYTES;
            let places = (start..).step_by(place(self.sector.bytes()));
            places
                .zip(sector_masks(self.sector))
                .filter(|&(_, mask)| page.written & mask != 0)
                .map(|(at, _)| ByteOffset(at))
        })
    }

    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) {
        let mut at = at;
        let mut rest = bytes;
        while !rest.is_empty() {
            let from = within_page(at);
            let (part, behind) = rest.split_at_mut(rest.len().min(PAGE_LEN - from));
            match self.page(at / PAGE_BYTES) {
                Some(page) => part.copy_from_slice(&page.bytes[from..from + part.len()]),
                None => part.fill(0),
            }
            at += part.len() as u64;
            rest = behind;
        }
    }

    /// Puts the slots in `mask` of a page to what a write says.
    pub(super) fn apply(&mut self, page: u64, mask: u8, write: &Write) {
        let held = self.page_mut(page);
        held.written |= mask;
        for slot in slots(mask) {
            let place = &mut held.bytes[slot * SLOT_LEN..(slot + 1) * SLOT_LEN];
            write.copy_slot(page, slot, place);
        }
    }

    /// Takes a page as another image has it, without copying its bytes.
    pub(super) fn share_page(&mut self, no: u64, from: &Image) {
        let (chunk, place) = chunk_of(no);
        let page = from.page(no).cloned();
        let chunk = Arc::make_mut(&mut self.chunks).entry(chunk).or_default();
        Arc::make_mut(chunk).pages[place] = page;
    }

    /// The pages that exist within a range of page numbers, ascending.
    pub(super) fn pages_within(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Page)> {
        let chunks = chunk_of(range.start).0..=chunk_of(range.end).0;
        self.chunks.range(chunks).flat_map(move |(&no, chunk)| {
            let range = range.clone();
            (no * CHUNK_PAGES as u64..)
                .zip(&chunk.pages)
                .filter_map(|(page, held)| Some((page, held.as_deref()?)))
                .filter(move |(page, _)| range.contains(page))
        })
    }

    fn page(&self, no: u64) -> Option<&Arc<Page>> {
        let (chunk, place) = chunk_of(no);
        self.chunks.get(&chunk)?.pages[place].as_ref()
    }

    fn page_mut(&mut self, no: u64) -> &mut Page {
        let (chunk, place) = chunk_of(no);
        let chunk = Arc::make_mut(&mut self.chunks).entry(chunk).or_default();
        let page = Arc::make_mut(chunk).pages[place]
            .get_or_insert_with(|| Arc::new(Page { bytes: [0; PAGE_LEN], written: 0 }));
        Arc::make_mut(page)
    }

    /// How many pages of this image are not the very same memory in the other.
    #[cfg(test)]
    pub(super) fn pages_apart_from(&self, other: &Image) -> usize {
        self.pages_within(0..u64::MAX)
            .filter(|&(no, page)| {
                !other.page(no).is_some_and(|same| std::ptr::eq(page, Arc::as_ptr(same)))
            })
            .count()
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = self.pages_within(0..u64::MAX).count();
        write!(f, "Image({}, {pages} pages)", self.size())
    }
}

fn chunk_of(page: u64) -> (u64, usize) {
    let chunk = page / CHUNK_PAGES as u64;
    (chunk, place(page % CHUNK_PAGES as u64))
}

fn within_page(at: u64) -> usize {
    place(at % PAGE_BYTES)
}

/// A place in something that is held in memory, and so is no larger than memory.
pub(super) fn place(n: u64) -> usize {
    usize::try_from(n).expect("a place in memory fits a word")
}

/// The pages that a range of bytes touches.
pub(super) fn pages_of(at: u64, len: u64) -> Range<u64> {
    at / PAGE_BYTES..(at + len).div_ceil(PAGE_BYTES)
}

/// The slots of a page that a range of bytes covers, as bits.
pub(super) fn slots_within(page: u64, at: u64, len: u64) -> u8 {
    let start = page * PAGE_BYTES;
    let covered = |&slot: &usize| {
        let slot_at = start + slot as u64 * SLOT_BYTES;
        slot_at >= at && slot_at + SLOT_BYTES <= at + len
    };
    (0..8).filter(covered).fold(0, |mask, slot| mask | 1 << slot)
}

/// The places of the bits that are set.
pub(super) fn slots(mask: u8) -> impl Iterator<Item = usize> {
    (0..8).filter(move |slot| mask >> slot & 1 == 1)
}

/// How sectors of a size divide the slots of a page.
pub(super) fn sector_masks(sector: SectorSize) -> &'static [u8] {
    match sector {
        SectorSize::B512 => &[1, 2, 4, 8, 16, 32, 64, 128],
        SectorSize::B4096 => &[255],
    }
}
