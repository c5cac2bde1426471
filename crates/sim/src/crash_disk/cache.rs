//! The device behind the queue: what is durable, what is only in its cache, and what is on the way.
use std::collections::BTreeMap;
use std::sync::Arc;

use block::{ByteLen, ByteOffset, SectorSize};

use crate::Rng;

use super::image::{
    Image, PAGE_BYTES, SLOT_BYTES, SLOT_LEN, pages_of, place, sector_masks, slots, slots_within,
};
use super::write::{Content, Write};

/// What one write says about one page, as long as that is not durable.
#[derive(Clone)]
pub(super) struct Version {
    pub(super) write: Arc<Write>,
    /// The slots of the page that it is about.
    pub(super) mask: u8,
    /// The clock when the write completed; without meaning before.
    done_at: u64,
    /// A flush that covered it failed, so that no later flush makes it durable: the system has
    /// reported the loss once and does not try again.
    stranded: bool,
}

/// Everything about one page that a power cut may undo.
#[derive(Clone, Default)]
pub(super) struct History {
    /// Oldest first, by the order in which the device took them.
    pub(super) completed: Vec<Version>,
    /// In the order of submission.
    pub(super) in_flight: Vec<Version>,
}

/// What becomes of the sectors of a write which ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Landing {
    Whole,
    /// Each sector either way: what a failed write leaves.
    EitherWay,
}

#[derive(Clone)]
pub(super) struct Cache {
    durable: Image,
    /// The durable content with all completed writes over it: what a read sees.
    visible: Image,
    /// Ordered, so that choices which are drawn page by page depend on nothing but the seed.
    histories: BTreeMap<u64, History>,
    clock: u64,
    accepted: u64,
}

impl Cache {
    pub(super) fn new(image: Image) -> Cache {
        Cache {
            durable: image.clone(),
            visible: image,
            histories: BTreeMap::new(),
            clock: 0,
            accepted: 0,
        }
    }

    pub(super) fn durable(&self) -> &Image {
        &self.durable
    }

    pub(super) fn visible(&self) -> &Image {
        &self.visible
    }

    pub(super) fn histories(&self) -> impl Iterator<Item = (u64, &History)> {
        self.histories.iter().map(|(&page, history)| (page, history))
    }

    /// The moment now: a flush that is submitted at it covers what completed until then.
    pub(super) fn clock(&self) -> u64 {
        self.clock
    }

    pub(super) fn grow(&mut self, size: ByteLen) {
        self.durable.grow(size);
        self.visible.grow(size);
    }

    pub(super) fn set_physical_sector(&mut self, physical: SectorSize) {
        self.durable.set_physical_sector(physical);
        self.visible.set_physical_sector(physical);
    }

    fn next_write(&mut self, at: u64, len: u64, content: Content) -> Arc<Write> {
        self.accepted += 1;
        Arc::new(Write { no: self.accepted, at, len, kicked_at: self.clock, content })
    }

    /// Takes a write from the queue: from here on any part of it may be on the medium.
    pub(super) fn accept_write(&mut self, at: u64, bytes: &[u8]) -> Arc<Write> {
        let write = self.next_write(at, bytes.len() as u64, Content::Bytes(bytes.into()));
        for page in write.pages() {
            let mask = slots_within(page, at, write.len);
            let history = self.histories.entry(page).or_default();
            history.in_flight.push(Version::new(&write, mask));
        }
        write
    }

    /// Takes a trim, which is a write of nothing in particular to some of its sectors. Sectors
    /// that were never written stay as they are, so that trimming a vast disk stays cheap.
    pub(super) fn accept_trim(&mut self, at: u64, len: u64, rng: &mut Rng) -> Arc<Write> {
        let salt = rng.next_u64();
        let write = self.next_write(at, len, Content::Trimmed { salt });
        let mut pages: Vec<u64> = self.histories.range(write.pages()).map(|(&p, _)| p).collect();
        pages.extend(self.visible.pages_within(write.pages()).map(|(p, _)| p));
        pages.sort_unstable();
        pages.dedup();
        for page in pages {
            let mask = some_sectors(slots_within(page, at, len), self.visible.sector(), rng);
            if mask != 0 {
                let history = self.histories.entry(page).or_default();
                history.in_flight.push(Version::new(&write, mask));
            }
        }
        write
    }

    /// Ends a write: it becomes visible, and from now on a flush can cover it.
    pub(super) fn land(&mut self, write: &Write, landing: Landing, rng: &mut Rng) {
        self.clock += 1;
        let sector = self.visible.sector();
        for (&page, history) in self.histories.range_mut(write.pages()) {
            let is_it = |version: &Version| version.write.no == write.no;
            let Some(at) = history.in_flight.iter().position(is_it) else {
                continue;
            };
            let mut version = history.in_flight.remove(at);
            if landing == Landing::EitherWay {
                version.mask = some_sectors(version.mask, sector, rng);
            }
            version.done_at = self.clock;
            let seen = history.complete(version, sector, rng);
            if seen != 0 {
                self.visible.apply(page, seen, write);
            }
        }
    }

    /// A flush succeeded: what had completed when it was submitted is durable.
    pub(super) fn settle(&mut self, covers: u64) {
        let (durable, visible) = (&mut self.durable, &self.visible);
        self.histories.retain(|&page, history| {
            history.settle(page, covers, durable, visible);
            !(history.completed.is_empty() && history.in_flight.is_empty())
        });
    }

    /// A flush failed: what it covered may be lost, whatever later flushes say.
    pub(super) fn strand(&mut self, covers: u64) {
        for history in self.histories.values_mut() {
            for version in &mut history.completed {
                version.stranded |= version.done_at <= covers;
            }
        }
    }

    /// Reads the newest completed bytes; a sector with writes in flight may show any of them.
    pub(super) fn read(&self, at: u64, bytes: &mut [u8], rng: &mut Rng) {
        self.visible.read(at, bytes);
        let len = bytes.len() as u64;
        for (&page, history) in self.histories.range(pages_of(at, len)) {
            if history.in_flight.is_empty() {
                continue;
            }
            let asked = slots_within(page, at, len);
            for version in history.some_in_flight(self.visible.sector(), rng) {
                for slot in slots(version.mask & asked) {
                    let slot_at = page * PAGE_BYTES + slot as u64 * SLOT_BYTES;
                    let from = place(slot_at - at);
                    let part = &mut bytes[from..from + SLOT_LEN];
                    version.write.copy_slot(page, slot, part);
                }
            }
        }
    }

    /// Ends every write in flight, each sector either way: their owner is gone, the power is not.
    pub(super) fn abandon(&mut self, rng: &mut Rng) {
        self.clock += 1;
        let sector = self.visible.sector();
        for (&page, history) in &mut self.histories {
            for mut version in std::mem::take(&mut history.in_flight) {
                version.mask = some_sectors(version.mask, sector, rng);
                version.done_at = self.clock;
                let write = Arc::clone(&version.write);
                let seen = history.complete(version, sector, rng);
                if seen != 0 {
                    self.visible.apply(page, seen, &write);
                }
            }
        }
    }

    /// Rots a byte wherever the device holds it, but not in writes that are still on the way.
    pub(super) fn flip(&mut self, at: ByteOffset, mask: u8) {
        self.durable.flip(at, mask);
        self.visible.flip(at, mask);
        let page = at.0 / PAGE_BYTES;
        let slot = slots_within(page, at.0 - at.0 % SLOT_BYTES, SLOT_BYTES);
        if let Some(history) = self.histories.get_mut(&page) {
            let about_it = |version: &&mut Version| version.mask & slot != 0;
            for version in history.completed.iter_mut().filter(about_it) {
                Arc::make_mut(&mut version.write).flip(at.0, mask);
            }
        }
    }
}

impl Version {
    fn new(write: &Arc<Write>, mask: u8) -> Version {
        Version { write: Arc::clone(write), mask, done_at: 0, stranded: false }
    }
}

impl History {
    /// Adds a version whose write has completed; returns the slots in which it is now the newest.
    ///
    /// Where two writes were in flight together, the one that completed last need not be the one
    /// that the device took last: such sectors go either way.
    fn complete(&mut self, version: Version, sector: SectorSize, rng: &mut Rng) -> u8 {
        let overlaps = |other: &Version| other.mask & version.mask != 0;
        let before = |other: &Version| overlaps(other) && other.done_at <= version.write.kicked_at;
        let first = self.completed.iter().rposition(before).map_or(0, |i| i + 1);
        let raced = self.completed[first..].iter().fold(0, |m, v| m | v.mask) & version.mask;
        let beneath = some_sectors(raced, sector, rng);
        let seen = version.mask & !beneath;
        if beneath != 0 {
            let mask = beneath;
            self.completed.insert(first, Version { mask, ..version.clone() });
        }
        if seen != 0 {
            self.completed.push(Version { mask: seen, ..version });
        }
        seen
    }

    fn settle(&mut self, page: u64, covers: u64, durable: &mut Image, visible: &Image) {
        let covered = |version: &Version| version.done_at <= covers && !version.stranded;
        if self.completed.is_empty() {
            return;
        }
        if self.completed.iter().all(covered) {
            self.completed.clear();
            durable.share_page(page, visible);
            return;
        }
        // From the newest to the oldest: whatever lies beneath a covered version of the same slot
        // can never come back.
        let mut settled = 0;
        for at in (0..self.completed.len()).rev() {
            let version = &mut self.completed[at];
            version.mask &= !settled;
            if covered(version) && version.mask != 0 {
                settled |= version.mask;
                durable.apply(page, version.mask, &version.write);
                version.mask = 0;
            }
        }
        self.completed.retain(|version| version.mask != 0);
    }

    /// A choice, sector by sector, of at most one of the versions that are in flight.
    pub(super) fn some_in_flight(&self, sector: SectorSize, rng: &mut Rng) -> Vec<Version> {
        let mut chosen = Vec::new();
        for &mask in sector_masks(sector) {
            let about_it = |version: &&Version| version.mask & mask != 0;
            let versions: Vec<_> = self.in_flight.iter().filter(about_it).collect();
            // One more than there are: the sector may be as it was.
            if let Some(version) = versions.get(rng.index(versions.len() + 1)) {
                chosen.push(Version { mask: version.mask & mask, ..(*version).clone() });
            }
        }
        chosen
    }
}

/// A part of a set of slots, chosen by whole sectors.
fn some_sectors(mask: u8, sector: SectorSize, rng: &mut Rng) -> u8 {
    if mask == 0 {
        return 0;
    }
    let chosen = sector_masks(sector).iter().filter(|_| rng.chance(1, 2));
    chosen.fold(0, |all, one| all | one) & mask
}
