//! Dropping a map frees what it alone has: all of it, once, and nothing that another still reads.
use std::collections::BTreeSet;

use super::forest::{Forest, Met};
use super::*;
use crate::snapshot::Floor;
use crate::units::Extent;
use crate::volume::MapRoot;

/// The sectors of some extents, none of which may come twice.
pub fn each_once(freed: &[Extent]) -> BTreeSet<u64> {
    let mut sectors = BTreeSet::new();
    for sector in freed.iter().flat_map(|extent| extent.start.0..extent.end().0) {
        assert!(sectors.insert(sector), "sector {sector} is freed twice");
    }
    sectors
}

/// A map that is dropped, beside those that go on from it.
pub struct Drop<'a> {
    pub map: MapRoot,
    pub others: &'a [MapRoot],
    pub floor: Floor,
}

impl Forest {
    /// One step of dropping, as a checkpoint does it: where it stopped, if it did.
    pub fn drop_step(
        &mut self,
        Drop { map, others, floor }: &Drop<'_>,
        from: Granule,
        mut budget: u64,
        freed: &mut Vec<Extent>,
    ) -> Option<Granule> {
        let (page, asked) = (1, budget);
        let mut walk = Walk::new(*map, others, from);
        loop {
            let advanced = walk.passed > 0;
            let budget = &mut budget;
            let mut guide = Dropping { floor: *floor, freed, page, budget, advanced };
            let (pages, device) = (&mut self.shelf.pages, &mut self.shelf.device);
            let stopped = match guide.step(&mut walk, &mut WalkContext { pages, device }) {
                WalkStep::Done => None,
                WalkStep::Stopped(at) => Some(at),
                WalkStep::Bad(problem) => panic!("a good map is {problem}"),
                WalkStep::Wait => {
                    assert!(self.shelf.device.under_way() > 0, "it waits for nothing");
                    self.shelf.settle();
                    continue;
                }
            };
            // The pages down to the first that can be freed are entered in any case.
            assert!(walk.pages <= asked.max(map.height.into()), "{} pages entered", walk.pages);
            return stopped;
        }
    }

    /// Drops a map in steps; each gets on.
    pub fn drop_all(&mut self, drop: &Drop<'_>, budgets: &[u64]) -> Vec<Extent> {
        let (mut freed, mut from) = (Vec::new(), Granule(0));
        for budget in budgets.iter().cycle() {
            match self.drop_step(drop, from, *budget, &mut freed) {
                None => break,
                Some(at) => {
                    assert!(at > from, "a step gets on, however small its budget is");
                    from = at;
                }
            }
        }
        freed
    }

    /// Three maps, each going on from the one before, of births 1 to 3.
    fn line(&mut self) -> [MapRoot; 3] {
        let older = self.descendant(MapRoot::EMPTY, 1);
        let map = self.descendant(older, 2);
        let younger = self.descendant(map, 3);
        [older, map, younger]
    }
}

/// Protects from space that is lost when a snapshot goes, and from freeing what the snapshot
/// before it or whoever goes on from it still has.
#[test]
fn what_a_map_alone_has_is_freed() {
    let mut freed_something = 0;
    for seed in 0..150 {
        let mut forest = Forest::new(seed);
        let [older, map, younger] = forest.line();
        let floor = Floor::flat(Birth(1));
        let drop = Drop { map, others: &[younger], floor };
        let freed = each_once(&forest.drop_all(&drop, &[u64::MAX]));
        let kept = &forest.sectors(older) | &forest.sectors(younger);
        assert_eq!(freed, &forest.sectors(map) - &kept, "seed {seed}");
        freed_something += u32::from(!freed.is_empty());

        let last = Drop { map, others: &[], floor };
        let freed = each_once(&forest.drop_all(&last, &[u64::MAX]));
        assert_eq!(freed, &forest.sectors(map) - &forest.sectors(older), "seed {seed}, no child");

        let alone = Drop { map, others: &[], floor: Floor::default() };
        let freed = each_once(&forest.drop_all(&alone, &[u64::MAX]));
        assert_eq!(freed, forest.sectors(map), "seed {seed}, nobody else");
    }
    assert!(freed_something > 100, "{freed_something} maps had something of their own");
}

/// Protects from a crash between two steps that frees something twice, or never.
#[test]
fn dropping_in_steps_frees_the_same_as_at_once() {
    for seed in 0..100 {
        let mut forest = Forest::new(seed);
        let [_, map, younger] = forest.line();
        let drop = Drop { map, others: &[younger], floor: Floor::flat(Birth(1)) };
        let whole = each_once(&forest.drop_all(&drop, &[u64::MAX]));
        for budgets in [&[0][..], &[1], &[2], &[3], &[5], &[0, 7, 1]] {
            let steps = each_once(&forest.drop_all(&drop, budgets));
            assert_eq!(steps, whole, "seed {seed}, budgets {budgets:?}");
        }
    }
}

/// Protects from a page that is given out again while the next step still has to read it.
#[test]
fn a_page_is_freed_only_when_all_of_it_was_dropped() {
    for seed in 0..60 {
        let mut forest = Forest::new(seed);
        let [_, map, younger] = forest.line();
        let drop = Drop { map, others: &[younger], floor: Floor::flat(Birth(1)) };
        let (mut freed, mut from) = (Vec::new(), Granule(0));
        while let Some(stopped) = forest.drop_step(&drop, from, 1, &mut freed) {
            let freed = each_once(&freed);
            for met in forest.list(map) {
                match met {
                    Met::Page { ptr, span, .. } if span.end > stopped.0 => {
                        let is_freed = ptr.places.iter().any(|place| freed.contains(&place.0));
                        assert!(!is_freed, "seed {seed}: {span:?} is needed from {stopped} on");
                    }
                    Met::Entry { at, entry: Entry::Block(block), .. } if at >= stopped.0 => {
                        assert!(!freed.contains(&block.place.0), "seed {seed}: granule {at}");
                    }
                    _ => {}
                }
            }
            from = stopped;
        }
    }
}

/// Protects from whoever goes on from a half-dropped snapshot and goes too: below the cut it is
/// the only owner of what both had, above it the snapshot still is.
#[test]
fn a_half_dropped_snapshot_and_its_child_free_everything_between_them_once() {
    let mut halves = 0;
    for seed in 0..250 {
        let mut forest = Forest::new(seed);
        let [older, map, younger] = forest.line();
        let first = Drop { map, others: &[younger], floor: Floor::flat(Birth(1)) };
        let budget = forest.rng.below(4);
        let mut freed = Vec::new();
        let Some(cut) = forest.drop_step(&first, Granule(0), budget, &mut freed) else { continue };
        halves += 1;
        // The child goes while the snapshot is half gone; then the rest of the snapshot.
        let floor = Floor { below: Birth(1), cut, above: Birth(2) };
        freed.extend(forest.drop_all(&Drop { map: younger, others: &[], floor }, &[2]));
        let rest = Drop { map, others: &[], floor: Floor::flat(Birth(1)) };
        assert_eq!(forest.drop_step(&rest, cut, u64::MAX, &mut freed), None);
        let all = &forest.sectors(map) | &forest.sectors(younger);
        assert_eq!(each_once(&freed), &all - &forest.sectors(older), "seed {seed}");
    }
    assert!(halves > 50, "{halves} maps were half dropped");
}

/// Protects from telling a user that space comes back with a snapshot which others have as well.
#[test]
fn what_is_told_to_be_unique_is_what_dropping_would_free_of_blocks() {
    for seed in 0..80 {
        let mut forest = Forest::new(seed);
        let [older, map, younger] = forest.line();
        let clone = forest.descendant(map, 4);
        let blocks = |forest: &Forest, map: MapRoot| -> BTreeSet<u64> {
            let look = forest.look(map);
            look.blocks().flat_map(|b| (b.place.0..).take(b.sectors.into())).collect()
        };
        for others in [&[younger][..], &[clone, younger], &[]] {
            let mut kept = blocks(&forest, older);
            others.iter().for_each(|other| kept.extend(blocks(&forest, *other)));
            let expected = &blocks(&forest, map) - &kept;
            let mut unique = Unique { floor: Floor::flat(Birth(1)), sectors: 0 };
            assert_eq!(forest.walk(map, others, 0, &mut unique), None);
            assert_eq!(unique.sectors, expected.len() as u64, "seed {seed}");
        }
    }
}
