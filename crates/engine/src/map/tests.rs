//! Pages in memory: the bound of the cache, its second chances, and walks through it. What works
//! on whole maps has files of its own.
mod changed;
mod dropping;
mod family;
mod forest;
mod merge;
mod restamp;
mod walk;
mod writing;

use std::collections::{HashMap, VecDeque};

use block::{
    Buf, ByteLen, Completion, Disk, DiskError, DiskErrorKind, Done, Geometry, Io, IoId, IoMode,
    SectorSize, Seq,
};

use super::*;
use crate::format::{
    Block, Child, Encoding, Entry, FAN_OUT, Held, PageId, PageKind, PageProblem, PagePtr, child,
    seal_page, set_child, set_entry,
};
use crate::limits::MAP_PAGE;
use crate::pool::{Device, Purpose, ReadKey};
use crate::units::{Birth, Checksum, Epoch, Granule, Sector};

const POOL: u64 = 5;
const BORN: Birth = Birth(3);
const READ: ReadKey = ReadKey(0);
/// The least that a cache can be made to hold.
const CACHE_MIN: usize = 16;

/// A disk of pages, each of which is a sector; what is not there cannot be read.
#[derive(Default)]
struct PageDisk {
    pages: HashMap<u64, Buf>,
    done: VecDeque<Completion>,
    reads: usize,
}

impl Disk for PageDisk {
    fn geometry(&self) -> Geometry {
        let (size, sector) = (ByteLen(1 << 40), SectorSize::B4096);
        Geometry { size, sector, physical_sector: sector, mode: IoMode::Direct }
    }

    fn submit(&mut self, id: IoId, io: Io) {
        let result = match io {
            Io::Read { at, buf } => {
                self.reads += 1;
                match self.pages.get(&(at.0 / MAP_PAGE as u64)) {
                    Some(page) => Ok(Done::Read(Buf::copy_of(page))),
                    None => {
                        let (len, kind) = (ByteLen(buf.len() as u64), DiskErrorKind::System(5));
                        Err(DiskError { operation: "read", at, len, kind })
                    }
                }
            }
            Io::Write { at, data } => {
                for (place, page) in (at.0 / MAP_PAGE as u64..).zip(data.chunks(MAP_PAGE)) {
                    self.pages.insert(place, Buf::copy_of(page));
                }
                Ok(Done::Written)
            }
            other => panic!("pages are read and written, not {other:?}"),
        };
        self.done.push_back(Completion { id, result });
    }

    fn kick(&mut self) {}

    fn complete(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }
}

struct Shelf {
    pages: Pages,
    device: Device<PageDisk>,
}

fn map_page(level: u8, index: u64) -> PageId {
    PageId { kind: PageKind::Map, level, index, born: BORN }
}

/// The two places of a page; the second lies far behind the first.
fn at(place: u64) -> PagePtr {
    PagePtr { places: [Sector(place), Sector(place + 1_000_000)], born: BORN }
}

impl Shelf {
    fn new(max: usize) -> Shelf {
        let device = Device::new(PageDisk::default(), SectorSize::B4096, 0);
        Shelf { pages: Pages::new(POOL, max), device }
    }

    /// Stores a page in both of its places.
    fn store(&mut self, ptr: PagePtr, id: PageId, mut page: Buf) {
        seal_page(&mut page, POOL, 1, id);
        for place in ptr.places {
            self.device.disk.pages.insert(place.0, Buf::copy_of(&page));
        }
    }

    /// Leaves with nothing in them, one at each place.
    fn store_leaves(&mut self, places: std::ops::Range<u64>) {
        places.for_each(|place| self.store(at(place), map_page(0, place), Buf::zeroed(MAP_PAGE)));
    }

    fn want(&mut self, place: u64, waiter: Waiter) -> Got {
        self.pages.want(at(place), map_page(0, place), waiter, &mut self.device)
    }

    fn has(&mut self, place: u64) -> bool {
        let reads = self.device.disk.reads;
        let got = matches!(self.want(place, Waiter::Read(READ)), Got::Page(_));
        self.settle();
        got && self.device.disk.reads == reads
    }

    /// Lets everything arrive that is under way, and says who waited for it.
    fn settle(&mut self) -> Vec<ReadKey> {
        let mut woken = Vec::new();
        while let Some((purpose, result)) = self.device.complete() {
            match purpose {
                Purpose::Page(key) => {
                    let read = result.ok().flatten();
                    let (waited, _) = self.pages.arrived(key, read, &mut self.device);
                    woken.extend(waited);
                }
                Purpose::Checkpoint => assert!(result.is_ok(), "a page could not be written"),
                other => panic!("pages are read and written, not {other:?}"),
            }
        }
        woken
    }

    fn damage(&mut self, place: Sector) {
        self.device.disk.pages.get_mut(&place.0).unwrap()[100] ^= 1;
    }
}

/// Protects from memory that grows with the pool.
#[test]
fn the_cache_never_holds_more_than_its_bound() {
    let mut shelf = Shelf::new(20);
    shelf.store_leaves(0..200);
    for place in 0..200 {
        assert!(matches!(shelf.want(place, Waiter::Read(READ)), Got::Wait));
        shelf.settle();
        assert!(shelf.pages.cached() <= 20);
        assert!(shelf.has(place), "what just came is there");
    }
    assert_eq!(shelf.pages.cached(), 20);
    assert!(!shelf.has(0), "what came first is gone");
}

/// Protects from interior pages that are read again for every leaf.
#[test]
fn a_page_in_use_outlives_pages_that_pass_by() {
    let mut shelf = Shelf::new(CACHE_MIN);
    shelf.store_leaves(0..100);
    let _ = shelf.want(0, Waiter::Read(READ));
    shelf.settle();
    for passing in 1..100 {
        assert!(shelf.has(0), "it was dropped when {passing} pages had passed");
        let _ = shelf.want(passing, Waiter::Read(READ));
        shelf.settle();
    }
}

/// Protects from a page that is read twice, and from a reader that is never woken.
#[test]
fn everybody_who_waits_for_a_page_is_woken_by_one_read() {
    let mut shelf = Shelf::new(CACHE_MIN);
    shelf.store_leaves(0..1);
    for reader in [7, 8, 9] {
        assert!(matches!(shelf.want(0, Waiter::Read(ReadKey(reader))), Got::Wait));
    }
    assert_eq!(shelf.device.disk.reads, 1);
    assert_eq!(shelf.settle(), [7, 8, 9].map(ReadKey));
}

/// Protects from giving up, or from waking readers too early, while the second copy can answer.
#[test]
fn the_second_copy_answers_where_the_first_is_bad() {
    let mut shelf = Shelf::new(CACHE_MIN);
    shelf.store_leaves(0..2);
    shelf.damage(at(0).places[0]);
    shelf.device.disk.pages.remove(&at(1).places[0].0);
    for place in [0, 1] {
        let _ = shelf.want(place, Waiter::Read(READ));
        assert_eq!(shelf.settle(), [READ]);
        assert!(shelf.has(place));
    }
    assert_eq!(shelf.pages.second_copies, 2);
}

/// Protects from a read that waits for ever, or asks the device for ever, for a lost page.
#[test]
fn a_page_that_is_bad_in_both_places_is_said_to_be_so() {
    let mut shelf = Shelf::new(CACHE_MIN);
    shelf.store_leaves(0..1);
    at(0).places.into_iter().for_each(|place| shelf.damage(place));
    let _ = shelf.want(0, Waiter::Read(READ));
    assert_eq!(shelf.settle(), [READ], "whoever waited hears of it");
    let reads = shelf.device.disk.reads;
    assert!(matches!(shelf.want(0, Waiter::Read(READ)), Got::Bad(PageProblem::Checksum)));
    assert!(matches!(shelf.want(0, Waiter::Pump), Got::Bad(PageProblem::Checksum)));
    assert_eq!(shelf.device.disk.reads, reads, "it is not read again and again");
    let _ = shelf.want(1, Waiter::Read(READ));
    shelf.settle();
    assert!(matches!(shelf.want(1, Waiter::Read(READ)), Got::Bad(PageProblem::Unreadable)));
}

/// Protects from an older page at the same place.
#[test]
fn a_page_of_another_birth_is_another_page() {
    let mut shelf = Shelf::new(CACHE_MIN);
    shelf.store_leaves(0..1);
    assert!(!shelf.has(0));
    assert!(shelf.has(0));
    let later = PagePtr { born: Birth(BORN.0 + 1), ..at(0) };
    let id = PageId { born: later.born, ..map_page(0, 0) };
    let got = shelf.pages.want(later, id, Waiter::Pump, &mut shelf.device);
    assert!(matches!(got, Got::Wait));
    shelf.settle();
    let got = shelf.pages.want(later, id, Waiter::Pump, &mut shelf.device);
    assert!(matches!(got, Got::Bad(PageProblem::Identity)));
}

/// Protects from reading ahead so far that it throws out what is needed first.
#[test]
fn reading_ahead_leaves_most_of_the_cache_alone() {
    let mut shelf = Shelf::new(40);
    shelf.store_leaves(0..100);
    for place in 0..100 {
        shelf.pages.prefetch(at(place), map_page(0, place), &mut shelf.device);
    }
    assert_eq!(shelf.device.disk.reads, 10);
    assert_eq!(shelf.settle(), [], "nobody waits for what is read ahead");
    assert!((0..10).all(|place| shelf.has(place)));
}

/// Protects from a checkpoint that asks for a page, and finds it gone whenever it came.
#[test]
fn what_a_checkpoint_waited_for_is_there_when_it_asks_again() {
    let mut shelf = Shelf::new(CACHE_MIN);
    shelf.store_leaves(0..100);
    assert!(matches!(shelf.want(0, Waiter::Pump), Got::Wait));
    for place in 1..100 {
        let _ = shelf.want(place, Waiter::Read(READ));
    }
    shelf.settle();
    assert!(matches!(shelf.want(0, Waiter::Pump), Got::Page(_)));
}

// Looking up.

const BLOCK: Block = Block {
    place: Sector(77),
    sectors: 8,
    encoding: Encoding::Raw,
    checksum: Checksum(1),
    born: BORN,
    changed: Seq(9),
};

/// A map of two levels: a block at granule 130, a leaf of holes changed at 4, nothing else.
fn two_levels(shelf: &mut Shelf) -> Tree {
    let mut leaf = Buf::zeroed(MAP_PAGE);
    set_entry(&mut leaf, 2, Entry::Block(BLOCK));
    set_entry(&mut leaf, 3, Entry::Hole { changed: Seq(6) });
    shelf.store(at(10), map_page(0, 1), leaf);
    let held = Held { blocks: 1, stored: 8 };
    let mut root = Buf::zeroed(MAP_PAGE);
    set_child(&mut root, 1, Child::Page { ptr: at(10), changed: Seq(9), held });
    set_child(&mut root, 2, Child::Hole { changed: Seq(4) });
    shelf.store(at(11), map_page(1, 0), root);
    Tree { root: Child::Page { ptr: at(11), changed: Seq(9), held }, height: 2, epoch: Epoch(4) }
}

fn look_up(shelf: &mut Shelf, tree: Tree, granule: u64, cursor: &mut Cursor) -> Entry {
    for _ in 0..=tree.height {
        let (pages, device) = (&mut shelf.pages, &mut shelf.device);
        match lookup(tree, Granule(granule), cursor, READ, pages, device) {
            Found::Entry(entry) => return entry,
            Found::Wait => shelf.settle(),
            Found::Bad(problem) => panic!("a good map is {problem}"),
        };
    }
    panic!("granule {granule} needs more pages than the map has levels");
}

/// Protects from a walk that ends at the wrong entry, or loses when a hole became one.
#[test]
fn a_granule_is_found_with_its_stamp_wherever_the_walk_ends() {
    let mut shelf = Shelf::new(CACHE_MIN);
    let tree = two_levels(&mut shelf);
    let expected = [
        (130, Entry::Block(BLOCK)),
        (131, Entry::Hole { changed: Seq(6) }),
        (132, Entry::Hole { changed: Seq(0) }),
        (2 * 128, Entry::Hole { changed: Seq(4) }),
        (2 * 128 + 127, Entry::Hole { changed: Seq(4) }),
        (0, Entry::Hole { changed: Seq(0) }),
        (128 * 128 - 1, Entry::Hole { changed: Seq(0) }),
        // Beyond what the map reaches: the volume grew, and no checkpoint came yet.
        (128 * 128, Entry::Hole { changed: Seq(0) }),
        (u64::MAX, Entry::Hole { changed: Seq(0) }),
    ];
    let mut cursor = Cursor::default();
    for (granule, entry) in expected.iter().chain(expected.iter().rev()) {
        assert_eq!(look_up(&mut shelf, tree, *granule, &mut cursor), *entry, "granule {granule}");
        let fresh = &mut Cursor::default();
        assert_eq!(look_up(&mut shelf, tree, *granule, fresh), *entry, "granule {granule}");
    }
    let never = Tree { root: Child::NEVER, height: 0, epoch: Epoch(4) };
    assert_eq!(
        look_up(&mut shelf, never, 0, &mut cursor),
        Entry::Hole { changed: Seq(0) },
        "a volume that was never written"
    );
}

/// Protects from a read that goes on in the map of an earlier checkpoint.
#[test]
fn a_walk_begins_anew_when_a_checkpoint_made_a_new_map() {
    let mut shelf = Shelf::new(CACHE_MIN);
    let tree = two_levels(&mut shelf);
    let mut cursor = Cursor::default();
    assert_eq!(look_up(&mut shelf, tree, 130, &mut cursor), Entry::Block(BLOCK));
    let emptied = Tree { root: Child::Hole { changed: Seq(12) }, epoch: Epoch(5), ..tree };
    let hole = Entry::Hole { changed: Seq(12) };
    assert_eq!(look_up(&mut shelf, emptied, 130, &mut cursor), hole);
}

/// Protects from reading a leaf as an interior page, or the other way round.
#[test]
fn interior_pages_and_leaves_differ_by_level() {
    let mut shelf = Shelf::new(CACHE_MIN);
    let tree = two_levels(&mut shelf);
    let wrong = Tree { height: 1, ..tree };
    let (pages, device) = (&mut shelf.pages, &mut shelf.device);
    let cursor = &mut Cursor::default();
    assert!(matches!(lookup(wrong, Granule(1), cursor, READ, pages, device), Found::Wait));
    shelf.settle();
    let (pages, device) = (&mut shelf.pages, &mut shelf.device);
    let found = lookup(wrong, Granule(1), cursor, READ, pages, device);
    assert!(matches!(found, Found::Bad(PageProblem::Identity)));
    let root = &shelf.device.disk.pages[&11];
    assert!((3..FAN_OUT).all(|within| child(root, within) == Child::NEVER));
}
