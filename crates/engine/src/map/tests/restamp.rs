//! After a jump, everything that differs has the stamp of the jump, and nothing else changed.
use std::collections::BTreeSet;

use super::forest::Forest;
use super::writing::{Machine, V, Written};
use super::*;
use crate::snapshot::Floor;
use crate::volume::MapRoot;

const BUDGETS: [u64; 4] = [0, 1, 2, u64::MAX];
const STAMP: Seq = Seq(1000);
const BIRTH: Birth = Birth(9);

impl Forest {
    fn restamp(&mut self, new: MapRoot, old: MapRoot, budget: u64, floor: Floor) -> Written {
        let restamp = Restamp::new(V, new, old, STAMP, budget, 1 << 35);
        self.run(Machine::Restamp(Box::new(restamp)), BIRTH, floor)
    }

    /// Two maps of one family: what a volume becomes, and what it was. Neither need be the older.
    fn jump(&mut self) -> (MapRoot, MapRoot) {
        let base = match self.rng.below(5) {
            0 => MapRoot::EMPTY,
            _ => self.descendant(MapRoot::EMPTY, 1),
        };
        let a = self.descendant(base, 2);
        let b = self.descendant(a, 3);
        match self.rng.below(6) {
            0 => (base, a),
            1 => (a, base),
            2 => (a, b),
            3 => (b, a),
            4 => (base, b),
            _ => (self.descendant(base, 4), b),
        }
    }
}

/// Protects from a delta after a rollback that misses what the rollback changed.
#[test]
fn whatever_differs_from_before_has_the_new_stamp() {
    let mut heights = BTreeSet::new();
    for seed in 0..300 {
        let mut forest = Forest::new(seed);
        let (new, old) = forest.jump();
        heights.insert(new.height.cmp(&old.height));
        for budget in BUDGETS {
            let written = forest.restamp(new, old, budget, Floor::default());
            assert_eq!(written.map.height, new.height.max(old.height));
            forest.verify(written.map);
            let [was, is, stamped] = [old, new, written.map].map(|map| forest.look(map));
            for granule in &(&was.granules() | &is.granules()) | &stamped.granules() {
                let why = format!("seed {seed}, budget {budget}, granule {granule}");
                let (block, stamp) = stamped.at(granule);
                let place = block.map(|block| block.place);
                assert_eq!(place, is.place(granule), "{why}: the content is another");
                // Also where both have the same: it may have been something else in between.
                let least = is.at(granule).1.max(was.at(granule).1);
                assert!(stamp >= least, "{why}: a stamp went back to {stamp:?}");
                let differs = was.place(granule) != is.place(granule);
                assert!(stamp >= STAMP || !differs, "{why}: stamped {stamp:?}");
            }
        }
    }
    assert_eq!(heights.len(), 3, "lower, equal and higher maps: {heights:?}");
}

/// Protects from a rollback after which everything is copied: with enough pages to write, only
/// leaves that differ are stamped.
#[test]
fn with_a_large_budget_leaves_that_both_have_keep_their_stamps() {
    for seed in 0..150 {
        let mut forest = Forest::new(seed);
        let base = forest.full(3, Birth(1), Seq(10));
        let (new, old) = (forest.descendant(base, 2), forest.descendant(base, 3));
        let written = forest.restamp(new, old, u64::MAX, Floor::default());
        let [is, stamped] = [new, written.map].map(|map| forest.look(map));
        for granule in &is.granules() | &stamped.granules() {
            let leaf = |map| forest.child_at(map, 0, granule / 128).ptr();
            if leaf(new).is_some() && leaf(new) == leaf(old) {
                assert!(stamped.at(granule).1 < STAMP, "seed {seed}, granule {granule}");
            }
        }
    }
}

/// Protects from a checkpoint that finds the pool full: the pages of a jump are set aside.
#[test]
fn no_more_pages_are_written_than_the_budget_allows() {
    for seed in 0..150 {
        let mut forest = Forest::new(seed);
        let (new, old) = forest.jump();
        for budget in [0, 1, 2, 5] {
            let raised = u64::from(old.height.saturating_sub(new.height));
            let pages = forest.restamp(new, old, budget, Floor::default()).pages;
            assert!(pages <= budget + raised, "seed {seed}: {pages} of {budget} + {raised} pages");
        }
    }
}

/// Protects from freeing pages of the snapshot that the volume jumped to, and from losing pages
/// that were written anew.
#[test]
fn pages_that_are_replaced_are_freed_if_no_snapshot_has_them() {
    for seed in 0..150 {
        let mut forest = Forest::new(seed);
        let (new, old) = forest.jump();
        for budget in BUDGETS {
            let written = forest.restamp(new, old, budget, Floor::default());
            let had = &forest.sectors(new) | &written.taken;
            let has = forest.sectors(written.map);
            assert_eq!(written.freed, &had - &has, "seed {seed}: all of it is the volume's own");

            let floor = Floor::flat(Birth(BIRTH.0 - 1));
            let written = forest.restamp(new, old, budget, floor);
            let lost = &written.taken - &forest.sectors(written.map);
            assert_eq!(written.freed, lost, "seed {seed}: all of it is a snapshot's");
        }
    }
}

/// Protects from rewriting a map that became what it was already.
#[test]
fn a_jump_to_the_same_map_writes_and_reads_nothing() {
    let mut forest = Forest::new(2);
    let map = forest.full(3, Birth(1), Seq(1));
    let written = forest.restamp(map, map, u64::MAX, Floor::default());
    assert_eq!((written.map, written.pages), (map, 0));
    assert_eq!(forest.shelf.device.disk.reads, 0);
}

/// Protects from a volume that was emptied and jumps to an empty snapshot: whoever has what was in
/// between must hear of its end.
#[test]
fn an_empty_map_that_takes_the_place_of_another_keeps_the_later_stamp() {
    let empty = |height, stamp| MapRoot { root: Child::Hole { changed: Seq(stamp) }, height };
    for (new, old) in [(1, 1), (1, 3), (3, 1)] {
        for (a, b) in [(10, 50), (50, 10)] {
            let mut forest = Forest::new(1);
            let written = forest.restamp(empty(new, a), empty(old, b), 0, Floor::default());
            assert_eq!(written.map, empty(new.max(old), 50), "heights {new} and {old}");
            assert_eq!(written.pages, 0);
        }
    }
}
