//! A walk meets everything once, in order, with what other maps have there, and stops and goes on
//! anywhere.
use std::collections::BTreeMap;

use super::forest::{Forest, Met, span};
use super::*;
use crate::map::walk::{Enter, Guide, Seen};
use crate::volume::MapRoot;

impl Forest {
    /// Walks to the end, or to where the guide stops.
    pub fn walk(
        &mut self,
        map: MapRoot,
        others: &[MapRoot],
        from: u64,
        guide: &mut impl Guide,
    ) -> Option<u64> {
        let mut walk = Walk::new(map, others, Granule(from));
        loop {
            let (pages, device) = (&mut self.shelf.pages, &mut self.shelf.device);
            match walk.step(guide, &mut WalkContext { pages, device }) {
                WalkStep::Done => return None,
                WalkStep::Stopped(at) => return Some(at.0),
                WalkStep::Bad(problem) => panic!("a good map is {problem}"),
                WalkStep::Wait => {
                    assert!(self.shelf.device.under_way() > 0, "it waits for nothing");
                    self.shelf.settle();
                }
            }
        }
    }

    /// A map with something in it.
    pub fn full(&mut self, height: u8, born: Birth, stamp: Seq) -> MapRoot {
        loop {
            let map = self.vary(MapRoot::EMPTY, height, born, stamp);
            if map.root.ptr().is_some() {
                return map;
            }
        }
    }

    /// A map of a random height that shares nothing; it may have nothing either.
    fn some_map(&mut self, born: u64) -> MapRoot {
        if self.rng.below(8) == 0 { MapRoot::EMPTY } else { self.descendant(MapRoot::EMPTY, born) }
    }

    /// A map that goes on from another, in a few steps, maybe higher than it.
    pub fn descendant(&mut self, of: MapRoot, born: u64) -> MapRoot {
        let higher = match of.height {
            0 => 1 + self.rng.below(3),
            _ => u64::from(self.rng.below(4) == 0),
        };
        let height = (of.height + u8::try_from(higher).unwrap()).min(3);
        let steps = 0..1 + self.rng.below(3);
        steps.fold(of, |map, step| self.vary(map, height, Birth(born), Seq(10 * born + step)))
    }
}

/// Writes down everything, and what the others have there; stops when it was told to.
#[derive(Default)]
struct Recorder {
    met: Vec<Met>,
    others: Vec<Vec<Child>>,
    entries_of_others: Vec<Vec<Entry>>,
    /// Things to take before it stops.
    left: Option<usize>,
}

impl Recorder {
    fn takes(&mut self) -> bool {
        match &mut self.left {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }
}

impl Guide for Recorder {
    fn enter(&mut self, ptr: PagePtr, seen: &Seen<'_, Child>) -> Enter {
        if !self.takes() {
            return Enter::Stop;
        }
        self.met.push(Met::Page { ptr, span: seen.span.clone(), changed: seen.changed });
        self.others.push(seen.others.to_vec());
        Enter::Yes
    }

    fn hole(&mut self, seen: &Seen<'_, Child>) -> bool {
        let takes = self.takes();
        if takes {
            self.met.push(Met::Hole { span: seen.span.clone(), changed: seen.changed });
            self.others.push(seen.others.to_vec());
        }
        takes
    }

    fn entry(&mut self, entry: Entry, seen: &Seen<'_, Entry>) -> bool {
        let takes = self.takes();
        if takes {
            let at = seen.span.start;
            assert_eq!(seen.span, at..at + 1);
            self.met.push(Met::Entry { at, entry, changed: seen.changed });
            self.entries_of_others.push(seen.others.to_vec());
        }
        takes
    }

    fn left(&mut self, ptr: PagePtr) {
        self.met.push(Met::Left { ptr });
    }
}

/// Whether any of it lies at or behind a granule, so that a walk from there meets it.
fn reaches(met: &Met, from: u64) -> bool {
    match met {
        Met::Page { span, .. } | Met::Hole { span, .. } => span.end > from,
        Met::Entry { at, .. } => *at >= from,
        Met::Left { .. } => true,
    }
}

/// What a walk from a granule meets: pages that lie before it are not even left.
fn list_from(forest: &Forest, map: MapRoot, from: u64) -> Vec<Met> {
    let mut list = forest.list(map);
    let before = |met: &Met| match met {
        Met::Page { ptr, span, .. } if span.end <= from => Some(*ptr),
        _ => None,
    };
    let passed: Vec<PagePtr> = list.iter().filter_map(before).collect();
    list.retain(|met| match met {
        Met::Left { ptr } => !passed.contains(ptr),
        met => reaches(met, from),
    });
    list
}

/// Protects from a block that a delta, a drop or a report passes over, or counts twice.
#[test]
fn a_walk_meets_everything_in_order_from_any_granule_on() {
    for seed in 0..60 {
        let mut forest = Forest::new(seed);
        let base = forest.some_map(1);
        let map = forest.descendant(base, 2);
        let mut starts: Vec<u64> = vec![0, 1, map.end() - 1, map.end(), u64::MAX];
        starts.extend((0..8).map(|_| forest.rng.granule(map.height)));
        for from in starts {
            let mut all = Recorder::default();
            assert_eq!(forest.walk(map, &[], from, &mut all), None);
            let expected =
                if from < map.end() { list_from(&forest, map, from) } else { Vec::new() };
            assert_eq!(all.met, expected, "seed {seed} from {from}");
        }
    }
}

/// Protects from reading pages of others for a map that has none.
#[test]
fn a_map_without_anything_is_behind_at_once() {
    let mut forest = Forest::new(1);
    let other = forest.full(3, Birth(1), Seq(1));
    let mut all = Recorder::default();
    assert_eq!(forest.walk(MapRoot::EMPTY, &[other], 0, &mut all), None);
    assert_eq!(all.met, []);
    assert_eq!(forest.shelf.device.disk.reads, 0);
}

/// Protects from comparing a page with another map's page of another address or level.
#[test]
fn a_walk_sees_what_other_maps_have_at_the_same_address_whatever_their_heights() {
    let mut heights = BTreeMap::new();
    for seed in 0..150 {
        let mut forest = Forest::new(seed);
        let base = forest.some_map(1);
        let map = forest.descendant(base, 2);
        let kin = forest.descendant(base, 3);
        let stranger = forest.some_map(4);
        let others = [base, kin, stranger, map];
        for other in others {
            *heights.entry(other.height.cmp(&map.height)).or_insert(0) += 1;
        }
        let from = if forest.rng.below(2) == 0 { 0 } else { forest.rng.granule(map.height) };
        let mut all = Recorder::default();
        assert_eq!(forest.walk(map, &others, from, &mut all), None);
        let looks = others.map(|other| forest.look(other));
        let (mut children, mut entries) = (all.others.iter(), all.entries_of_others.iter());
        for met in &all.met {
            match met {
                Met::Page { span: at, .. } | Met::Hole { span: at, .. } => {
                    let level = (0..9).find(|level| span(*level, 0).end == at.end - at.start);
                    let (level, seen) = (level.unwrap(), children.next().unwrap());
                    let index = at.start / (at.end - at.start);
                    let expected = others.map(|other| forest.child_at(other, level, index).ptr());
                    let seen: Vec<_> = seen.iter().map(|child| child.ptr()).collect();
                    assert_eq!(seen, expected, "seed {seed}, page {index} of level {level}");
                }
                Met::Entry { at, .. } => {
                    let seen = entries.next().unwrap().iter().map(|entry| match entry {
                        Entry::Hole { .. } => None,
                        Entry::Block(block) => Some(block.place),
                    });
                    let expected = looks.each_ref().map(|look| look.place(*at));
                    assert_eq!(seen.collect::<Vec<_>>(), expected, "seed {seed}, granule {at}");
                }
                Met::Left { .. } => {}
            }
        }
    }
    let often = heights.values().filter(|times| **times > 50).count();
    assert_eq!(often, 3, "lower, equal and higher maps: {heights:?}");
}

/// Protects from a paged answer, or a drop in steps, that leaves something out or names it twice.
#[test]
fn a_walk_that_is_stopped_anywhere_goes_on_exactly_there() {
    let is_content = |met: &Met| matches!(met, Met::Hole { .. } | Met::Entry { .. });
    let content = |list: Vec<Met>| list.into_iter().filter(is_content).collect::<Vec<_>>();
    for seed in 0..60 {
        let mut forest = Forest::new(seed);
        let base = forest.some_map(1);
        let map = forest.descendant(base, 2);
        let whole = content(forest.list(map));
        let most = 1 + forest.rng.below(200);
        let (mut parts, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            // Pages above are met again; one thing more has to fit.
            let more = usize::try_from(forest.rng.below(most)).unwrap();
            let left = usize::from(map.height) + 1 + more;
            let mut part = Recorder { left: Some(left), ..Recorder::default() };
            from = forest.walk(map, &[base], at, &mut part);
            assert!(part.met.iter().any(is_content), "seed {seed}: nothing behind {at}");
            parts.extend(content(part.met));
            if let Some(next) = from {
                assert!(next > at, "seed {seed}: it goes back from {at} to {next}");
                let behind = match parts.last().unwrap() {
                    Met::Hole { span, .. } => span.end,
                    Met::Entry { at, .. } => at + 1,
                    _ => unreachable!("only content was kept"),
                };
                assert_eq!(next, behind, "seed {seed}: the first that was not taken");
            }
        }
        assert_eq!(parts, whole, "seed {seed}");
    }
}

/// Protects from a walk that is stopped above where it began, and then goes back.
#[test]
fn a_walk_says_what_it_did_not_take() {
    for seed in 0..60 {
        let mut forest = Forest::new(seed);
        let map = forest.descendant(MapRoot::EMPTY, 1);
        for _ in 0..20 {
            let from = forest.rng.granule(map.height);
            let mut things = list_from(&forest, map, from);
            things.retain(|met| !matches!(met, Met::Left { .. }));
            let left = usize::try_from(forest.rng.below(20)).unwrap().min(things.len() - 1);
            let mut part = Recorder { left: Some(left), ..Recorder::default() };
            let start = match &things[left] {
                Met::Page { span, .. } | Met::Hole { span, .. } => span.start,
                Met::Entry { at, .. } => *at,
                Met::Left { .. } => unreachable!("taken out above"),
            };
            let stopped = forest.walk(map, &[], from, &mut part);
            assert_eq!(stopped, Some(start.max(from)), "seed {seed}: {left} behind {from}");
        }
    }
}

/// Protects from a guide that is told that it left a page of which a part is still to come.
#[test]
fn a_page_is_left_when_all_of_it_is_behind() {
    for seed in 0..40 {
        let mut forest = Forest::new(seed);
        let map = forest.descendant(MapRoot::EMPTY, 1);
        let things = forest.list(map).len();
        let left = usize::try_from(forest.rng.below(things as u64)).unwrap();
        let mut part = Recorder { left: Some(left), ..Recorder::default() };
        let Some(stopped) = forest.walk(map, &[], 0, &mut part) else { continue };
        let pages = forest.list(map).into_iter().filter_map(|met| match met {
            Met::Page { ptr, span, .. } => Some((ptr, span)),
            _ => None,
        });
        for (ptr, span) in pages {
            let is_left = part.met.contains(&Met::Left { ptr });
            assert_eq!(is_left, span.end <= stopped, "seed {seed}: {span:?} at {stopped}");
        }
    }
}

/// Protects from a delta that misses what a rollback changed: it stamps only above the leaves.
#[test]
fn a_stamp_above_a_page_stands_for_all_of_it() {
    let mut forest = Forest::new(3);
    let map = forest.full(3, Birth(1), Seq(5));
    let stamps = |forest: &mut Forest, root: Child| {
        let mut all = Recorder::default();
        forest.walk(MapRoot { root, ..map }, &[], 0, &mut all);
        let stamp = |met: &Met| match met {
            Met::Hole { changed, .. } | Met::Entry { changed, .. } | Met::Page { changed, .. } => {
                Some(*changed)
            }
            Met::Left { .. } => None,
        };
        all.met.iter().filter_map(stamp).collect::<Vec<_>>()
    };
    let own = stamps(&mut forest, map.root);
    assert!(own.contains(&Seq(0)) && own.contains(&Seq(5)), "what never changed has no stamp");
    assert_eq!(stamps(&mut forest, map.root.stamped(Seq(5))), own, "not higher than all in it");
    let stamped = stamps(&mut forest, map.root.stamped(Seq(6)));
    assert_eq!(stamped, vec![Seq(6); own.len()], "higher than all in it");
}
