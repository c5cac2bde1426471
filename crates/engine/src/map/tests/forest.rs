//! Maps that share pages, made by hand on a disk of pages; and what they hold, told by reading
//! every page of them, without any of the machines under test.
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::*;
use crate::format::{SPACE_SPAN, SpaceRoot, entry, verify_page};
use crate::space::{Layout, Space};
use crate::volume::MapRoot;

/// Splitmix64: the tests want many shapes, the same ones each time.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }

    /// A place within a page. A few of them come often, so that changes meet.
    pub fn within(&mut self) -> u64 {
        match self.below(4) {
            0 => 0,
            1 => 127,
            2 => self.below(4),
            _ => self.below(128),
        }
    }

    /// A granule of a map of this height.
    pub fn granule(&mut self, height: u8) -> u64 {
        (0..height).fold(0, |above, _| above * 128 + self.within())
    }
}

/// What a walk over a whole map meets, in its order. Stamps are those that count: where one above
/// a page is higher than all in it, it stands for everything below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Met {
    Page { ptr: PagePtr, span: Range<u64>, changed: Seq },
    Hole { span: Range<u64>, changed: Seq },
    Entry { at: u64, entry: Entry, changed: Seq },
    Left { ptr: PagePtr },
}

/// What a map holds.
pub struct Look {
    /// From each granule to the next one: the block, and the stamp that counts for it.
    runs: BTreeMap<u64, (u64, Option<Block>, Seq)>,
    /// Of pages and blocks.
    pub sectors: BTreeSet<u64>,
}

impl Look {
    pub fn at(&self, granule: u64) -> (Option<Block>, Seq) {
        match self.runs.range(..=granule).next_back() {
            Some((_, (end, block, changed))) if granule < *end => (*block, *changed),
            _ => (None, Seq(0)),
        }
    }

    /// Where something is stored at a granule.
    pub fn place(&self, granule: u64) -> Option<Sector> {
        self.at(granule).0.map(|block| block.place)
    }

    /// The first and the last granule of every run: where maps can differ.
    pub fn granules(&self) -> BTreeSet<u64> {
        self.runs.iter().flat_map(|(start, (end, ..))| [*start, end - 1]).collect()
    }

    pub fn blocks(&self) -> impl Iterator<Item = Block> {
        self.runs.values().filter_map(|(_, block, _)| *block)
    }
}

pub struct Forest {
    pub shelf: Shelf,
    pub space: Space,
    pub rng: Rng,
    /// The next place for a page or block that is made by hand.
    next: u64,
}

/// The granules below a page.
pub fn span(level: u8, index: u64) -> Range<u64> {
    let shift = 7 * (u32::from(level) + 1);
    index << shift..(index + 1) << shift
}

fn stamp_of(page: &[u8], level: u8, within: usize) -> Seq {
    if level == 0 { entry(page, within).changed() } else { child(page, within).changed() }
}

fn highest_stamp(page: &[u8], level: u8) -> Seq {
    (0..FAN_OUT).map(|within| stamp_of(page, level, within)).max().unwrap()
}

impl Forest {
    pub fn new(seed: u64) -> Forest {
        // Where machines write: places far below those of what is made by hand.
        let layout = Layout {
            sector: SectorSize::B4096,
            sectors: 1024 + 6 * SPACE_SPAN,
            regions_at: Sector(1024),
            journal_at: Sector(512),
            journal_blocks: 512,
        };
        let space = Space::new(layout, vec![SpaceRoot::default()]);
        // The smallest cache: pages are gone before they are asked for again.
        Forest { shelf: Shelf::new(CACHE_MIN), space, rng: Rng(seed), next: 1 << 30 }
    }

    pub fn fresh(&mut self, sectors: u64) -> Sector {
        self.next += sectors;
        Sector(self.next - sectors)
    }

    /// A page as it is in both of its places.
    pub fn page(&self, ptr: PagePtr, level: u8, index: u64) -> &[u8] {
        let id = PageId { kind: PageKind::Map, level, index, born: ptr.born };
        let [first, second] = ptr.places.map(|place| &self.shelf.device.disk.pages[&place.0]);
        assert_eq!(verify_page(first, POOL, id), Ok(()), "{ptr:?}");
        assert!(first[..] == second[..], "both places have the same bytes");
        first
    }

    // Making maps.

    /// A map that goes on from another: a part of it is new, the rest is shared.
    pub fn vary(&mut self, base: MapRoot, height: u8, born: Birth, stamp: Seq) -> MapRoot {
        let mut map = base;
        while map.height < height {
            if map.root.ptr().is_some() {
                let mut page = Buf::zeroed(MAP_PAGE);
                set_child(&mut page, 0, map.root);
                map.root = self.keep(page, map.height, 0, born);
            }
            map.height += 1;
        }
        map.root = self.vary_below(map.root, map.height - 1, 0, born, stamp);
        map
    }

    fn vary_below(&mut self, old: Child, level: u8, index: u64, born: Birth, stamp: Seq) -> Child {
        let mut page = self.content(old, level, index);
        let changes = if level == 0 { 1 + self.rng.below(20) } else { 2 + self.rng.below(3) };
        for _ in 0..changes {
            let place = self.rng.within();
            let within = usize::try_from(place).unwrap();
            if level == 0 {
                let new = self.some_entry(born, stamp);
                set_entry(&mut page, within, new);
                continue;
            }
            let old = child(&page, within);
            let new = match self.rng.below(8) {
                0 => Child::Hole { changed: stamp },
                1 => old.stamped(stamp),
                _ => self.vary_below(old, level - 1, index * 128 + place, born, stamp),
            };
            set_child(&mut page, within, new);
        }
        self.keep(page, level, index, born)
    }

    fn some_entry(&mut self, born: Birth, changed: Seq) -> Entry {
        if self.rng.below(4) == 0 {
            return Entry::Hole { changed };
        }
        let sectors = 1 + self.rng.below(3);
        let place = self.fresh(sectors);
        let (sectors, checksum) = (u16::try_from(sectors).unwrap(), Checksum(place.0));
        Entry::Block(Block { place, sectors, encoding: Encoding::Raw, checksum, born, changed })
    }

    /// What a page would hold if it were written anew.
    fn content(&self, old: Child, level: u8, index: u64) -> Buf {
        let mut page = Buf::zeroed(MAP_PAGE);
        let stamp = match old {
            Child::Hole { changed } => changed,
            Child::Page { ptr, changed, .. } => {
                page.copy_from_slice(self.page(ptr, level, index));
                if changed > highest_stamp(&page, level) { changed } else { Seq(0) }
            }
        };
        for within in 0..FAN_OUT {
            let changed = stamp_of(&page, level, within).max(stamp);
            if level > 0 {
                let stamped = child(&page, within).stamped(changed);
                set_child(&mut page, within, stamped);
                continue;
            }
            let stamped = match entry(&page, within) {
                Entry::Hole { .. } => Entry::Hole { changed },
                Entry::Block(block) => Entry::Block(Block { changed, ..block }),
            };
            set_entry(&mut page, within, stamped);
        }
        page
    }

    /// Stores a page, unless there is nothing in it.
    fn keep(&mut self, page: Buf, level: u8, index: u64, born: Birth) -> Child {
        let (changed, held) = (highest_stamp(&page, level), held_by(&page, level));
        if held.blocks == 0 {
            return Child::Hole { changed };
        }
        let first = self.fresh(1);
        let ptr = PagePtr { places: [first, Sector(first.0 + (1 << 40))], born };
        self.shelf.store(ptr, PageId { kind: PageKind::Map, level, index, born }, page);
        Child::Page { ptr, changed, held }
    }

    // Telling what they hold.

    pub fn list(&self, map: MapRoot) -> Vec<Met> {
        let mut list = Vec::new();
        if map.height > 0 {
            self.list_below(map.root, map.height - 1, 0, Seq(0), &mut list);
        }
        list
    }

    fn list_below(&self, below: Child, level: u8, index: u64, stamp: Seq, list: &mut Vec<Met>) {
        let (span, changed) = (span(level, index), below.changed().max(stamp));
        let Some(ptr) = below.ptr() else { return list.push(Met::Hole { span, changed }) };
        let page = self.page(ptr, level, index);
        list.push(Met::Page { ptr, span, changed });
        let stamp = if changed > highest_stamp(page, level) { changed } else { Seq(0) };
        for within in 0..FAN_OUT {
            let at = index * FAN_OUT as u64 + within as u64;
            if level > 0 {
                self.list_below(child(page, within), level - 1, at, stamp, list);
            } else {
                let entry = entry(page, within);
                list.push(Met::Entry { at, entry, changed: entry.changed().max(stamp) });
            }
        }
        list.push(Met::Left { ptr });
    }

    /// What is at the address of a page; where a map is lower, its root stands at the first one.
    pub fn child_at(&self, map: MapRoot, level: u8, index: u64) -> Child {
        if level >= map.height {
            return if index == 0 { map.root } else { Child::NEVER };
        }
        if span(level, index).start >= map.end() {
            return Child::NEVER;
        }
        let (mut at, mut height) = (map.root, map.height - 1);
        while height > level {
            let Some(ptr) = at.ptr() else { return Child::NEVER };
            let page = self.page(ptr, height, index >> (7 * u32::from(height - level)));
            let below = index >> (7 * u32::from(height - level - 1));
            at = child(page, usize::try_from(below % 128).unwrap());
            height -= 1;
        }
        at
    }

    pub fn look(&self, map: MapRoot) -> Look {
        let mut runs = BTreeMap::new();
        let mut sectors = BTreeSet::new();
        for met in self.list(map) {
            match met {
                Met::Hole { span, changed } => {
                    runs.insert(span.start, (span.end, None, changed));
                }
                Met::Entry { at, entry: Entry::Hole { .. }, changed } => {
                    runs.insert(at, (at + 1, None, changed));
                }
                Met::Entry { at, entry: Entry::Block(block), changed } => {
                    runs.insert(at, (at + 1, Some(block), changed));
                    sectors.extend((block.place.0..).take(block.sectors.into()));
                }
                Met::Page { ptr, .. } => sectors.extend(ptr.places.map(|place| place.0)),
                Met::Left { .. } => {}
            }
        }
        Look { runs, sectors }
    }

    /// Every sector that a map has.
    pub fn sectors(&self, map: MapRoot) -> BTreeSet<u64> {
        self.look(map).sectors
    }

    /// That every page is what its parent says: what it holds, and no stamp above the parent's.
    pub fn verify(&self, map: MapRoot) {
        if let Some(level) = map.height.checked_sub(1) {
            self.verify_below(map.root, level, 0);
        }
    }

    fn verify_below(&self, below: Child, level: u8, index: u64) {
        let Child::Page { ptr, changed, held } = below else { return };
        let page = self.page(ptr, level, index);
        assert_eq!(held, held_by(page, level), "page {index} of level {level}");
        assert!(held.blocks > 0, "an empty page is a hole");
        assert!(highest_stamp(page, level) <= changed, "page {index} of level {level}");
        for within in (0..FAN_OUT).filter(|_| level > 0) {
            let at = index * FAN_OUT as u64 + within as u64;
            self.verify_below(child(page, within), level - 1, at);
        }
    }
}

fn held_by(page: &[u8], level: u8) -> Held {
    let mut held = Held::default();
    for within in 0..FAN_OUT {
        if level > 0 {
            held.blocks += child(page, within).held().blocks;
            held.stored += child(page, within).held().stored;
        } else if let Entry::Block(block) = entry(page, within) {
            held.blocks += 1;
            held.stored += u64::from(block.sectors);
        }
    }
    held
}
