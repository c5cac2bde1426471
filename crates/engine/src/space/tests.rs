//! Where things lie, and that no sector is given out twice.
use std::sync::mpsc;
use std::time::Duration;

use block::{Completion, Disk, Geometry, Io, IoId, SectorSize};

use super::*;
use crate::format::{PAGE_HEADER, SPACE_FAN_OUT, SPACE_SPAN, SpaceEntry, SpaceRoot};
use crate::limits::{COPY_GAP, JOURNAL_AT, JOURNAL_BLOCK, JOURNAL_MIN, MAP_PAGE, REGION_MIN};
use crate::map::Pages;
use crate::pool::Device;
use crate::units::{Epoch, Extent, Region, Sector, Slot};

const SECTOR_SIZES: [SectorSize; 2] = [SectorSize::B512, SectorSize::B4096];

/// A layout with this many sectors behind the journal.
fn layout(sector: SectorSize, inside: u64) -> Layout {
    let per = |bytes: u64| bytes / sector.bytes();
    let regions_at = per(JOURNAL_AT + JOURNAL_MIN);
    Layout {
        sector,
        sectors: regions_at + inside,
        regions_at: Sector(regions_at),
        journal_at: Sector(per(JOURNAL_AT)),
        journal_blocks: JOURNAL_MIN / JOURNAL_BLOCK as u64,
    }
}

fn overlap(a: Extent, b: Extent) -> bool {
    a.start < b.end() && b.start < a.end()
}

/// Protects from a space page that lies where data lies, or on another space page.
#[test]
fn every_space_page_has_homes_of_its_own_in_the_heads_of_its_region() {
    let fan = SPACE_FAN_OUT as u64;
    for sector in SECTOR_SIZES {
        let layout = layout(sector, (fan * fan + 2) * SPACE_SPAN);
        let page = layout.page();
        // The first region has pages of three levels, the others of one or two.
        for region in [0, 1, fan, fan + 1, fan * fan, fan * fan + 1] {
            let mut levels = vec![(0, region)];
            levels.extend(region.is_multiple_of(fan).then_some((1, region / fan)));
            levels.extend(region.is_multiple_of(fan * fan).then_some((2, region / fan / fan)));
            let mut pages: Vec<Extent> = Vec::new();
            for (level, index) in levels {
                for home in [0, 1] {
                    let entry = SpaceEntry { epoch: Epoch(1), home, free: 0 };
                    let ptr = layout.space_page(level, index, entry);
                    pages.extend(ptr.places.map(|start| Extent { start, sectors: page }));
                }
            }
            let heads = layout.region_heads(Region(region));
            assert!(!overlap(heads[0], heads[1]));
            assert_eq!(heads[1].start.0 - heads[0].start.0, COPY_GAP / sector.bytes());
            for (at, one) in pages.iter().enumerate() {
                let head = heads[at % 2];
                assert!(head.start <= one.start && one.end() <= head.end(), "{one:?}");
                assert!(pages[at + 1..].iter().all(|other| !overlap(*one, *other)), "{one:?}");
            }
        }
    }
}

/// Protects from regions that overlap, or sectors that no region has.
#[test]
fn regions_follow_one_another_and_each_sector_knows_its_own() {
    for sector in SECTOR_SIZES {
        let layout = layout(sector, 3 * SPACE_SPAN + SPACE_SPAN / 2);
        assert_eq!(layout.regions(), 4);
        let mut at = layout.regions_at.0;
        for region in (0..4).map(Region) {
            assert_eq!(layout.region_start(region), Sector(at));
            assert_eq!(layout.region_of(Sector(at)), region);
            at += layout.region_len(region);
            assert_eq!(layout.region_of(Sector(at - 1)), region);
            assert!(layout.region_heads(region)[1].end().0 <= at);
        }
        assert_eq!(at, layout.sectors);
    }
}

/// Protects from a last region that is too short for its own pages, or reaches beyond the pool.
#[test]
fn a_short_end_of_the_device_is_a_region_only_if_it_is_worth_one() {
    for sector in SECTOR_SIZES {
        let least = REGION_MIN / sector.bytes();
        assert_eq!(layout(sector, SPACE_SPAN + least - 1).regions(), 1);
        let layout = layout(sector, SPACE_SPAN + least);
        assert_eq!(layout.regions(), 2);
        let last = Region(1);
        assert_eq!(layout.region_len(last), least);
        let open = OpenRegion::virgin(&layout, last);
        assert_eq!(open.free(), layout.virgin_free(last));
        assert!(open.free() > 0);
        assert!(!open.is_used(Sector(layout.sectors - 1)));
        assert!(open.is_used(Sector(layout.sectors)), "what lies beyond the pool is never free");
    }
}

/// Protects from a count of free space that jumps when a space page is written for the first time.
#[test]
fn free_space_below_a_page_that_was_never_written_is_the_sum_of_its_regions() {
    let fan = SPACE_FAN_OUT as u64;
    let least = REGION_MIN / 512;
    let sizes = [1, 2, fan - 1, fan, fan + 1, 3 * fan + 7, fan * fan, fan * fan + fan + 1];
    for regions in sizes {
        for tail in [0, least - 1, least, SPACE_SPAN - 1] {
            let layout = layout(SectorSize::B512, regions * SPACE_SPAN + tail);
            let all = layout.regions();
            let sum = |from: u64, to: u64| {
                (from..to.min(all)).map(|region| layout.virgin_free(Region(region))).sum::<u64>()
            };
            for index in [0, all - 1, all] {
                assert_eq!(layout.virgin_free_below(0, index), sum(index, index + 1));
            }
            for index in [0, 1, all / fan, all / fan + 1] {
                let (from, to) = (index * fan, (index + 1) * fan);
                assert_eq!(layout.virgin_free_below(1, index), sum(from, to), "{index} of {all}");
            }
            let tops: u64 = (0..layout.roots()).map(|i| layout.virgin_free_below(2, i)).sum();
            assert_eq!(tops, sum(0, all), "{all} regions");
            assert_eq!(layout.virgin_free_below(2, layout.roots()), 0);
        }
    }
}

/// Protects from superblocks and slots that lie on one another.
#[test]
fn superblocks_journal_and_regions_do_not_overlap() {
    let mut superblocks = Vec::new();
    for epoch in [6, 7, 8] {
        superblocks.push([0, 1].map(|copy| Layout::superblock(Epoch(epoch), copy).0));
    }
    assert_eq!(superblocks[0], superblocks[2], "an epoch takes the place of the last but one");
    assert_eq!(superblocks[..2].concat(), [0, COPY_GAP, 4096, COPY_GAP + 4096]);
    for sector in SECTOR_SIZES {
        let layout = layout(sector, SPACE_SPAN);
        let (blocks, block) = (layout.journal_blocks, JOURNAL_BLOCK as u64);
        assert_eq!(layout.slot(Slot(0)).0, JOURNAL_AT);
        assert_eq!(layout.slot(Slot(7 * blocks + 3)).0, JOURNAL_AT + 3 * block);
        let end = layout.slot(Slot(blocks - 1)).0 + block;
        assert_eq!(end, layout.offset(layout.regions_at).0);
    }
}

/// Protects from a record that claims sectors outside of the pool.
#[test]
fn an_extent_outside_of_the_regions_is_not_held() {
    let layout = layout(SectorSize::B512, SPACE_SPAN + 100);
    let held = |start: u64, sectors: u64| layout.holds(Extent { start: Sector(start), sectors });
    let (from, end) = (layout.regions_at.0, layout.regions_at.0 + SPACE_SPAN);
    assert!(held(from + 100, 8));
    assert!(!held(from + 100, 0), "nothing is nowhere");
    assert!(!held(from - 8, 8), "the journal");
    assert!(!held(end, 8), "the end that is no region");
    assert!(!held(layout.sectors - 4, 8), "beyond the pool");
    assert!(!held(u64::MAX - 4, 8), "beyond all numbers");
}

/// Protects the space pages of a region from a record that claims them, and a region's count from an extent that is partly
/// of the next one.
#[test]
fn an_extent_over_a_head_or_two_regions_is_not_held() {
    let layout = layout(SectorSize::B512, 3 * SPACE_SPAN);
    let held = |start: u64, sectors: u64| layout.holds(Extent { start: Sector(start), sectors });
    let next = layout.region_start(Region(1)).0;
    assert!(held(next - 8, 8), "the last of a region");
    assert!(!held(next - 8, 16), "two regions");
    for head in layout.region_heads(Region(1)) {
        assert!(!held(head.start.0, 1), "{head:?}");
        assert!(!held(head.end().0 - 1, 2), "{head:?}");
        assert!(held(head.end().0, 1), "behind {head:?}");
    }
}

fn open(region: u64) -> (Layout, OpenRegion) {
    let layout = layout(SectorSize::B512, 5 * SPACE_SPAN);
    let open = OpenRegion::virgin(&layout, Region(region));
    (layout, open)
}

/// Protects from sectors that are given twice, of a head, unaligned, or never.
#[test]
fn a_region_gives_each_of_its_sectors_once_in_ascending_order() {
    for (unit, max, align) in [(1, 1, 1), (8, 1, 8), (8, 257, 8), (256, 3, 8), (3, 5, 1)] {
        let (layout, mut open) = open(2);
        let heads = layout.region_heads(Region(2));
        let (mut at, mut taken) = (layout.region_start(Region(2)), 0);
        while let Some(extent) = open.take(unit, max, align) {
            assert!(extent.start >= at, "{extent:?} lies before {at}");
            assert!(extent.sectors <= unit * max && extent.sectors.is_multiple_of(unit));
            assert!((extent.start.0 - layout.region_start(Region(2)).0).is_multiple_of(align));
            assert!(heads.iter().all(|head| !overlap(*head, extent)), "{extent:?} is in a head");
            (at, taken) = (extent.end(), taken + extent.sectors);
            assert_eq!(open.free(), layout.virgin_free(Region(2)) - taken);
        }
        assert!(at <= layout.region_start(Region(3)));
        // Two gaps between and behind the heads: each may lose less than a unit at its end.
        assert!(open.free() < 2 * (unit + align), "{} sectors were never given", open.free());
    }
}

/// Protects from a run that is longer than the free sectors there.
#[test]
fn a_run_ends_where_something_is_in_use() {
    let (_, mut open) = open(0);
    let first = open.take(8, 10, 8).unwrap();
    assert_eq!(first.sectors, 80);
    let next = first.end().0;
    open.mark(Extent { start: Sector(next + 20), sectors: 4 }).unwrap();
    let short = open.take(8, 10, 8).unwrap();
    assert_eq!(short, Extent { start: Sector(next), sectors: 16 }, "two units fit before it");
    let behind = open.take(8, 1, 8).unwrap();
    assert_eq!(behind.start.0, next + 24, "the rest of a page is passed over");
}

/// Protects from space that comes back and is never found again.
#[test]
fn what_was_given_back_is_found_from_the_start() {
    let (_, mut open) = open(0);
    let first = open.take(8, 1, 8).unwrap();
    let second = open.take(8, 1, 8).unwrap();
    open.release(first).unwrap();
    assert!(open.take(8, 1, 8).unwrap().start > second.start, "the hand goes forward");
    assert_eq!(open.take_anywhere(8, 1, 8, false), Some(first));
    let next = open.take(8, 1, 8).unwrap();
    assert!(next.start > second.start, "another stream does not move the hand");
    open.release(first).unwrap();
    assert_eq!(open.take_anywhere(8, 1, 8, true), Some(first));
}

/// Protects from a bitmap that is read back shifted.
#[test]
fn a_region_is_read_from_its_page_as_it_was_written() {
    let (layout, mut open) = open(3);
    while let (Some(_), Some(gap)) = (open.take(24, 1, 8), open.take(8, 1, 8)) {
        open.release(gap).unwrap();
    }
    let mut page = vec![0; MAP_PAGE];
    open.to_page(&mut page);
    assert_eq!(page[..PAGE_HEADER], [0; PAGE_HEADER]);
    let mut again = OpenRegion::from_page(&layout, Region(3), &page);
    assert_eq!(again.free(), open.free());
    let start = layout.region_start(Region(3)).0;
    for sector in (start..start + SPACE_SPAN).map(Sector) {
        assert_eq!(again.is_used(sector), open.is_used(sector), "sector {sector}");
    }
    assert_eq!(again.take(8, 1, 8), open.take_anywhere(8, 1, 8, true));
}

#[test]
fn a_sector_in_use_is_never_taken_again() {
    let (_, mut open) = open(0);
    let extent = open.take(8, 1, 8).unwrap();
    let again = open.mark(Extent { start: extent.start, sectors: 1 });
    assert_eq!(again, Err(Contradiction::GivenTwice { sector: extent.start.0 }));
}

#[test]
fn a_free_sector_is_never_given_back_again() {
    let (_, mut open) = open(0);
    let extent = open.take(8, 1, 8).unwrap();
    open.release(extent).unwrap();
    let again = open.release(Extent { start: extent.start, sectors: 1 });
    assert_eq!(again, Err(Contradiction::FreedTwice { sector: extent.start.0 }));
}

/// A device for what needs none: regions that were never written are known without reading.
struct NoDisk;

impl Disk for NoDisk {
    fn geometry(&self) -> Geometry {
        panic!("nobody asks for the geometry")
    }

    fn submit(&mut self, _: IoId, io: Io) {
        panic!("no IO is needed, not {io:?}")
    }

    fn kick(&mut self) {}

    fn complete(&mut self) -> Option<Completion> {
        None
    }
}

struct Fixture {
    space: Space,
    pages: Pages,
    device: Device<NoDisk>,
}

impl Fixture {
    fn new(regions: u64) -> Fixture {
        let layout = layout(SectorSize::B512, regions * SPACE_SPAN);
        let roots = vec![SpaceRoot::default(); usize::try_from(layout.roots()).unwrap()];
        Fixture {
            space: Space::new(layout, roots),
            pages: Pages::new(0, 16),
            device: Device::new(NoDisk, SectorSize::B512, 0),
        }
    }

    fn alloc(&mut self, stream: Stream, unit: u64, max: u64) -> Option<Extent> {
        match self.space.alloc(stream, unit, max, &mut self.pages, &mut self.device).unwrap() {
            Alloc::Run(extent) => Some(extent),
            Alloc::Full => None,
            Alloc::Wait => panic!("nothing is read"),
        }
    }
}

/// Protects from two streams that are given the same sectors, and from a full pool that has some.
#[test]
fn three_streams_share_a_pool_to_its_last_page() {
    for regions in [1, 2, 3, 7] {
        let mut pool = Fixture::new(regions);
        let free = pool.space.free();
        assert_eq!(free, pool.space.layout.virgin_free_below(2, 0));
        let mut given: Vec<Extent> = Vec::new();
        let mut streams = [Stream::Data, Stream::PageA, Stream::PageB].into_iter().cycle();
        while let Some(extent) = pool.alloc(streams.next().unwrap(), 8, 3) {
            assert!(pool.space.layout.holds(extent));
            given.push(extent);
        }
        let sum: u64 = given.iter().map(|extent| extent.sectors).sum();
        assert_eq!(pool.space.free(), free - sum);
        assert_eq!(pool.space.free(), 0, "of {regions} regions");
        given.sort_unstable();
        assert!(given.windows(2).all(|pair| pair[0].end() <= pair[1].start), "given twice");
    }
}

/// Protects from overwriting what a replay after a crash would still have to read.
#[test]
fn what_is_given_back_is_not_given_out_before_a_checkpoint() {
    let mut pool = Fixture::new(1);
    let mut given = Vec::new();
    while let Some(extent) = pool.alloc(Stream::Data, 8, 1) {
        given.push(extent);
    }
    for extent in &given[..10] {
        pool.space.give_back(*extent);
    }
    assert_eq!(pool.space.pending(), 80);
    assert_eq!(pool.space.free(), 0);
    assert_eq!(pool.alloc(Stream::Data, 8, 1), None);
    let freed = pool.space.freeze();
    assert_eq!(pool.alloc(Stream::Data, 8, 1), None, "a checkpoint that began does not count");
    assert_eq!(freed.iter().map(|extent| extent.sectors).sum::<u64>(), 80);
}

/// Protects from a count of free sectors that a forged superblock made smaller than what is free.
#[test]
fn more_than_is_said_to_be_free_is_never_given() {
    let mut pool = Fixture::new(1);
    let first = pool.alloc(Stream::Data, 8, 1).unwrap();
    while pool.space.claim(first).is_ok() {}
    assert!(pool.space.free() < 8);
    let (pages, device) = (&mut pool.pages, &mut pool.device);
    for stream in [Stream::Data, Stream::PageA] {
        let given = pool.space.alloc(stream, 8, 1, pages, device);
        assert!(matches!(given, Err(CheckpointError::Contradiction(_))), "{given:?}");
    }
}

/// Protects from a search that goes round for ever: every region has enough free sectors, none
/// has enough of them in a row.
#[test]
fn a_run_that_no_region_has_is_not_looked_for_without_end() {
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let mut pool = Fixture::new(6);
        let layout = pool.space.layout.clone();
        for region in (0..6).map(Region) {
            let (start, heads) = (layout.region_start(region).0, layout.region_heads(region));
            for at in (start..start + SPACE_SPAN).step_by(16) {
                let extent = Extent { start: Sector(at), sectors: 8 };
                if heads.iter().all(|head| !overlap(*head, extent)) {
                    pool.space.claim(extent).unwrap();
                }
            }
        }
        let _ = done.send(pool.alloc(Stream::Data, 256, 1));
    });
    let found = finished.recv_timeout(Duration::from_secs(20));
    assert_eq!(found.expect("the search ends"), None);
}

/// Protects from a region that a pool gets by growing, of which a sparse file has the start only.
#[test]
fn a_tail_that_becomes_a_region_is_given_out_when_its_heads_are_there() {
    for sector in SECTOR_SIZES {
        for tail in [0, 1, COPY_GAP / sector.bytes(), REGION_MIN / sector.bytes() - 1] {
            let small = layout(sector, SPACE_SPAN + tail);
            let large = layout(sector, 3 * SPACE_SPAN);
            let start = large.region_start(Region(1)).0;
            let whole = large.region_heads(Region(1))[1].end().0 <= small.sectors;
            let end = if whole { small.sectors } else { start };
            let mut space = Space::new(small.clone(), vec![SpaceRoot::default()]);
            space.limit(small.sectors);
            assert_eq!((space.end(), space.hidden()), (small.sectors, 0));
            space.grown(large.sectors);
            assert_eq!(space.end(), end);
            assert_eq!(space.hidden(), large.virgin_free_from(end));
            // A step that was asked for before the pool grew.
            space.limit(small.sectors);
            assert_eq!(space.end(), end);
        }
    }
}
