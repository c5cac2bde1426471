//! A merge changes what its layer says and nothing else, and knows to whom everything belongs
//! that it displaces.
use std::collections::BTreeSet;

use block::{ByteOffset, Data};

use super::dropping::{Drop, each_once};
use super::forest::{Forest, Met};
use super::writing::{Checkpoint, Layer, Machine, V, Written};
use super::*;
use crate::limits::CHECKPOINT_IO_MAX;
use crate::map::merge::Summary;
use crate::overlay::Update;
use crate::snapshot::Floor;
use crate::volume::MapRoot;

/// A map that goes on from a snapshot of birth 1 and has things of births 2 and 3 as well; and a
/// layer of birth 4 that is merged into it.
struct Case {
    forest: Forest,
    snapshot: MapRoot,
    old: MapRoot,
    layer: Layer,
}

const BIRTH: Birth = Birth(4);

impl Case {
    fn new(seed: u64) -> Case {
        let mut forest = Forest::new(seed);
        let snapshot = match forest.rng.below(6) {
            0 => MapRoot::EMPTY,
            _ => forest.descendant(MapRoot::EMPTY, 1),
        };
        let old = match forest.rng.below(6) {
            0 => snapshot,
            _ => (2..4).fold(snapshot, |map, born| forest.descendant(map, born)),
        };
        let grown = u8::from(forest.rng.below(4) == 0);
        let height = (old.height + grown).clamp(1, 3);
        let layer = Layer::random(&mut forest, height, 100);
        Case { forest, snapshot, old, layer }
    }

    fn merge(&mut self, floor: Floor) -> Written {
        self.forest.merge(self.old, &self.layer, BIRTH, floor)
    }
}

/// Protects from an update that is lost or reaches too far, from a stamp that a rewritten page
/// loses to the entry above it, and from counts that do not fit what is there.
#[test]
fn a_merge_changes_what_its_layer_says_and_nothing_else() {
    for seed in 0..400 {
        let mut case = Case::new(seed);
        let written = case.merge(Floor::default());
        let Case { forest, old, layer, .. } = &case;
        assert_eq!(written.map.height, layer.height.max(old.height));
        forest.verify(written.map);
        let (before, after) = (forest.look(*old), forest.look(written.map));
        let mut granules = &before.granules() | &after.granules();
        let (_, updates) = layer.overlay.layer(V, 0).unwrap();
        for (at, update) in updates.from(0) {
            let count = if let Update::Hole { count, .. } = update { count } else { 1 };
            granules.extend([at.saturating_sub(1), at, at + count - 1, at + count]);
        }
        for granule in granules {
            let ((had, old_stamp), (has, stamp)) = (before.at(granule), after.at(granule));
            let why = format!("seed {seed}, granule {granule}");
            match layer.overlay.get(V, Granule(granule)) {
                Some(Update::Block { block, changed, .. }) => {
                    let has = has.unwrap();
                    assert_eq!((has.place, has.sectors), (block.place, block.sectors), "{why}");
                    assert_eq!((has.born, stamp), (BIRTH, changed), "{why}");
                }
                Some(Update::Hole { changed, .. }) => {
                    assert_eq!(has, None, "{why}");
                    // Zeros over zeros too: a block in between may never have reached the map.
                    assert!(stamp >= changed.max(old_stamp), "{why}: a hole of {stamp:?}");
                }
                None => {
                    let place = |block: Option<Block>| block.map(|b| (b.place, b.born));
                    assert_eq!(place(has), place(had), "{why}");
                    // A page of holes becomes one hole, with the highest of their stamps.
                    let right = if has.is_some() { stamp == old_stamp } else { stamp >= old_stamp };
                    assert!(right, "{why}: {stamp:?}, not {old_stamp:?}");
                }
            }
        }
    }
}

/// Protects from space that is lost, or freed while the map still has it: what was there, and what
/// came, is in the new map, or cut off, or freed.
#[test]
fn everything_that_was_there_stays_is_cut_off_or_is_freed() {
    let mut cut_off = 0;
    for seed in 0..400 {
        let mut case = Case::new(seed);
        let written = case.merge(Floor::default());
        let forest = &case.forest;
        let stays = forest.sectors(written.map);
        let cut = written.cut.map_or_else(BTreeSet::new, |cut| forest.sectors(cut));
        assert_eq!(&stays & &cut, BTreeSet::new(), "seed {seed}: cut off, but still there");
        assert_eq!(&stays & &written.freed, BTreeSet::new(), "seed {seed}: freed, but still there");
        assert_eq!(&cut & &written.freed, BTreeSet::new(), "seed {seed}: freed, but cut off");
        let had = &(&forest.sectors(case.old) | &case.layer.stored) | &written.taken;
        assert_eq!(&(&stays | &cut) | &written.freed, had, "seed {seed}");
        if let Some(cut) = written.cut {
            forest.verify(cut);
            cut_off += 1;
        }
    }
    assert!(cut_off > 50, "{cut_off} merges cut something off");
}

/// Protects from freeing what a snapshot still has; and from losing the rest of what was cut off.
#[test]
fn what_the_snapshot_has_is_not_freed_and_the_rest_is_once_the_cut_is_dropped() {
    let mut shared = 0;
    for seed in 0..400 {
        let mut case = Case::new(seed);
        let floor = Floor::flat(Birth(1));
        let written = case.merge(floor);
        let kept = case.forest.sectors(case.snapshot);
        assert_eq!(&kept & &written.freed, BTreeSet::new(), "seed {seed}");
        let mut freed = written.freed.clone();
        if let Some(map) = written.cut {
            assert!(floor.owns_page(map.root.ptr().unwrap(), map.end()));
            let drop = Drop { map, others: &[], floor };
            let dropped = each_once(&case.forest.drop_all(&drop, &[1, 3]));
            assert_eq!(&dropped & &freed, BTreeSet::new(), "seed {seed}: freed twice");
            freed.extend(dropped);
        }
        let forest = &case.forest;
        let had = &(&forest.sectors(case.old) | &case.layer.stored) | &written.taken;
        let stays = &forest.sectors(written.map) | &kept;
        assert_eq!(freed, &had - &stays, "seed {seed}");
        shared += u32::from(!(&had & &kept).is_empty());
    }
    assert!(shared > 200, "{shared} maps shared something");
}

/// Protects from losing, or freeing twice, what a snapshot left behind that is half dropped while
/// its volume goes on writing.
#[test]
fn beside_a_half_dropped_snapshot_everything_is_freed_once() {
    let mut halves = 0;
    for seed in 0..500 {
        let mut forest = Forest::new(seed);
        let older = forest.descendant(MapRoot::EMPTY, 1);
        let snapshot = forest.descendant(older, 2);
        let volume = forest.descendant(snapshot, 3);
        let dropping = Drop { map: snapshot, others: &[volume], floor: Floor::flat(Birth(1)) };
        let (budget, mut freed) = (forest.rng.below(4), Vec::new());
        let Some(cut) = forest.drop_step(&dropping, Granule(0), budget, &mut freed) else {
            continue;
        };
        halves += 1;
        let layer = Layer::random(&mut forest, volume.height, 100);
        let floor = Floor { below: Birth(1), cut, above: Birth(2) };
        let written = forest.merge(volume, &layer, BIRTH, floor);
        let dropping = Drop { others: &[written.map], ..dropping };
        assert_eq!(forest.drop_step(&dropping, cut, u64::MAX, &mut freed), None);
        if let Some(map) = written.cut {
            freed.extend(forest.drop_all(&Drop { map, others: &[], floor }, &[1]));
        }
        let freed = each_once(&freed);
        assert_eq!(&freed & &written.freed, BTreeSet::new(), "seed {seed}: freed twice");
        let came = &layer.stored | &written.taken;
        let had = &(&forest.sectors(snapshot) | &forest.sectors(volume)) | &came;
        let kept = &forest.sectors(older) | &forest.sectors(written.map);
        assert_eq!(&freed | &written.freed, &had - &kept, "seed {seed}");
    }
    assert!(halves > 100, "{halves} snapshots were half dropped");
}

/// Protects from a checkpoint that finds the pool full: what an overlay says it will write is set
/// aside when operations are sealed.
#[test]
fn a_merge_writes_no_more_pages_than_its_layer_said() {
    for seed in 0..600 {
        let mut case = Case::new(seed);
        let raised = u64::from(case.layer.height.saturating_sub(case.old.height));
        let written = case.merge(Floor::default());
        // A map that becomes higher takes a new root for each level.
        let most = case.layer.overlay.nodes() + raised;
        assert!(written.pages <= most, "seed {seed}: {} pages, not {most}", written.pages);
    }
}

/// Protects from reading a whole volume to discard it.
#[test]
fn a_large_hole_cuts_off_subtrees_unread() {
    let mut forest = Forest::new(5);
    let mut old = forest.full(3, Birth(1), Seq(1));
    for born in 2..9 {
        old = forest.vary(old, 3, Birth(born), Seq(born));
    }
    let mut layer = Layer::new(3);
    layer.hole(0, old.end(), 20);
    let reads = forest.shelf.device.disk.reads;
    let written = forest.merge(old, &layer, Birth(9), Floor::default());
    assert_eq!(forest.shelf.device.disk.reads, reads, "all of it: not even the root is read");
    assert_eq!(written.map.root, Child::Hole { changed: Seq(20) });
    assert_eq!((written.cut, written.pages), (Some(old), 0));
    assert_eq!(written.freed, BTreeSet::new());

    // All but the first and the last granule: the pages above these two, and nothing between.
    let mut layer = Layer::new(3);
    layer.hole(1, old.end() - 2, 20);
    let written = forest.merge(old, &layer, Birth(9), Floor::default());
    let reads = forest.shelf.device.disk.reads - reads;
    let is_page = |met: &Met| matches!(met, Met::Page { .. });
    let pages = forest.list(old).into_iter().filter(is_page).count();
    assert!(reads <= 8 && pages > 20, "{reads} of {pages} pages were read");
    forest.verify(written.map);
    forest.verify(written.cut.unwrap());
}

/// Protects from a checkpoint that fails because it reads a page which it has not sent yet: a map
/// that becomes higher has such pages, and the cache may drop them while the merge waits.
#[test]
fn a_map_that_becomes_higher_is_merged_however_small_the_cache_is() {
    let mut forest = Forest::new(8);
    let old = forest.full(1, Birth(1), Seq(1));
    let mut layer = Layer::new(3);
    layer.blocks(&mut forest, 5, 1, 20);
    let (_, updates) = layer.overlay.layer(V, 0).unwrap();
    let mut machine = Machine::Merge(Box::new(Merge::new(V, old, 3, 1 << 21)), updates);
    let mut checkpoint = Checkpoint::new(BIRTH, Floor::default());
    // As much under way as may be: the merge waits when it has made the map higher.
    for page in 0..CHECKPOINT_IO_MAX as u64 {
        let at = ByteOffset(((1 << 25) + page) * MAP_PAGE as u64);
        forest.shelf.device.write(at, Data::copy_of(&[0; MAP_PAGE]), Purpose::Checkpoint);
    }
    assert!(forest.step(&mut machine, &mut checkpoint).is_none());
    assert!(checkpoint.writer.written > 0, "it is higher by now");
    forest.shelf.settle();
    forest.shelf.store_leaves(0..3 * CACHE_MIN as u64);
    for place in 0..3 * CACHE_MIN as u64 {
        let _ = forest.shelf.want(place, Waiter::Read(READ));
        forest.shelf.settle();
    }
    let (map, cut) = loop {
        if let Some(done) = forest.step(&mut machine, &mut checkpoint) {
            break done;
        }
        forest.shelf.settle();
    };
    checkpoint.writer.send(&mut forest.shelf.device, &forest.space);
    forest.shelf.settle();
    forest.verify(map);
    assert!(cut.is_none() && forest.look(map).place(5).is_some());
}

/// Protects from cutting off what the snapshot has as if it were the volume's own.
#[test]
fn a_large_hole_over_what_a_snapshot_has_cuts_nothing_off() {
    let mut forest = Forest::new(6);
    let old = forest.full(3, Birth(1), Seq(1));
    for (first, count) in [(0, old.end()), (128, old.end() - 256)] {
        let mut layer = Layer::new(3);
        layer.hole(first, count, 20);
        let written = forest.merge(old, &layer, Birth(2), Floor::flat(Birth(1)));
        assert!(written.cut.is_none() && written.freed.is_empty());
        assert!(forest.look(written.map).blocks().count() < forest.look(old).blocks().count());
    }
}

/// Protects from a page behind a good checksum whose counts fit no field of the page above it.
#[test]
fn a_page_that_holds_more_than_it_has_room_for_is_a_contradiction() {
    for level in 0..5 {
        let room = 1 << (7 * (u32::from(level) + 1));
        let sound = |blocks, stored| {
            let held = Held { blocks, stored };
            let is = Summary { changed: Seq(1), held }.checked(level).is_ok();
            if is && level < 4 {
                let ptr = at(1);
                set_child(
                    &mut Buf::zeroed(MAP_PAGE),
                    0,
                    Child::Page { ptr, changed: Seq(1), held },
                );
            }
            is
        };
        assert!(sound(0, 0) && sound(room, room) && sound(room, 256 * room));
        assert!(!sound(room + 1, room) && !sound(room, 256 * room + 1) && !sound(0, 1));
    }
}
