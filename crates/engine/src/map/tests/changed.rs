//! What changed, against looking at every granule.
use super::forest::{Forest, Met, span};
use super::*;
use crate::pool::Runs;
use crate::volume::MapRoot;

#[derive(Clone, Copy)]
struct Asked {
    map: MapRoot,
    base: Option<MapRoot>,
    since: Option<Seq>,
    from: u64,
    granules: u64,
    runs: Runs,
}

impl Asked {
    /// Of all that is allocated, holes are not asked for.
    fn holes(&self) -> bool {
        self.since.is_some() || self.base.is_some()
    }
}

impl Forest {
    /// The runs of one answer, and where the next one begins.
    fn changed(&mut self, asked: Asked, from: u64, max: usize) -> (Vec<ChangedRun>, Option<u64>) {
        self.changed_within(asked, from, max, usize::MAX)
    }

    /// The same with so many pages.
    fn changed_within(
        &mut self,
        asked: Asked,
        from: u64,
        max: usize,
        pages: usize,
    ) -> (Vec<ChangedRun>, Option<u64>) {
        let Asked { map, base, since, granules, runs: by, .. } = asked;
        let holes = asked.holes();
        let mut guide = Changed { since, holes, from, granules, by, runs: Vec::new(), max, pages };
        let others: Vec<MapRoot> = base.into_iter().collect();
        let next = self.walk(map, &others, from, &mut guide);
        assert!(guide.runs.len() <= max, "{} runs", guide.runs.len());
        (guide.runs, next)
    }

    /// The same, from a look at everything.
    fn really_changed(&self, asked: Asked) -> Vec<ChangedRun> {
        let Asked { map, base, since, from, granules, runs: by } = asked;
        let base = base.unwrap_or(MapRoot::EMPTY);
        let look = self.look(base);
        let mut runs: Vec<ChangedRun> = Vec::new();
        for met in self.list(map) {
            let (at, is_data, changed, same) = match met {
                Met::Hole { span: at, changed } => {
                    let level = (0..9).find(|level| span(*level, 0).end == at.end - at.start);
                    let index = at.start / (at.end - at.start);
                    // Of a page in the base it is not known whether it holds anything at a
                    // granule: all of it is taken to have changed.
                    let of_base = self.child_at(base, level.unwrap(), index);
                    let same = asked.base.is_some() && of_base.ptr().is_none();
                    (at, false, changed, same)
                }
                Met::Entry { at, entry, changed } => {
                    let of_base = look.place(at);
                    let (is_data, same) = match entry {
                        Entry::Hole { .. } => (false, asked.base.is_some() && of_base.is_none()),
                        Entry::Block(block) => (true, of_base == Some(block.place)),
                    };
                    (at..at + 1, is_data, changed, same)
                }
                Met::Page { .. } | Met::Left { .. } => continue,
            };
            let later = since.is_none_or(|since| changed > since);
            let (first, end) = (at.start.max(from), at.end.min(granules));
            if first >= end || same || !later || !asked.holes() && !is_data {
                continue;
            }
            match runs.last_mut() {
                Some(last)
                    if last.end == first
                        && last.is_data == is_data
                        && (by == Runs::Joined || last.changed == changed) =>
                {
                    last.end = end;
                    last.changed = last.changed.max(changed);
                }
                _ => runs.push(ChangedRun { first, end, is_data, changed }),
            }
        }
        runs
    }

    /// A snapshot and an older one of the same volume, and what can be asked about them.
    fn question(&mut self) -> Asked {
        let base = self.descendant(MapRoot::EMPTY, 1);
        let map = self.descendant(base, 2);
        let since = match self.rng.below(4) {
            0 => None,
            1 => Some(Seq(0)),
            2 => Some(Seq(10 + self.rng.below(13))),
            _ => Some(Seq(19)),
        };
        let base = if self.rng.below(2) == 0 { Some(base) } else { None };
        let from = if self.rng.below(2) == 0 { 0 } else { self.rng.granule(map.height) };
        let granules = match self.rng.below(3) {
            0 => map.end(),
            // The map may be shorter than the volume, which grew, and longer: it is a power.
            1 => map.end() * 128,
            _ => self.rng.granule(map.height) + 1,
        };
        let runs = if self.rng.below(2) == 0 { Runs::Joined } else { Runs::ByStamp };
        Asked { map, base, since, from, granules, runs }
    }
}

/// Protects from a delta that leaves out what changed, discards included.
#[test]
fn what_is_told_to_have_changed_is_what_a_look_at_everything_finds() {
    let mut found = [0; 2];
    for seed in 0..300 {
        let mut forest = Forest::new(seed);
        let asked = forest.question();
        let (runs, next) = forest.changed(asked, asked.from, usize::MAX);
        assert_eq!(next, None, "seed {seed}");
        assert_eq!(runs, forest.really_changed(asked), "seed {seed}");
        for run in runs {
            found[usize::from(run.is_data)] += 1;
        }
    }
    assert!(found.iter().all(|runs| *runs > 300), "holes and data: {found:?}");
}

/// Protects from a block that lies between two pages of an answer, or in both.
#[test]
fn an_answer_in_parts_is_the_same_as_one() {
    for seed in 0..200 {
        let mut forest = Forest::new(seed);
        let asked = forest.question();
        let (whole, _) = forest.changed(asked, asked.from, usize::MAX);
        for max in 1..=4 {
            let (mut parts, mut next) = (Vec::new(), Some(asked.from));
            while let Some(from) = next {
                let (runs, further) = forest.changed(asked, from, max);
                assert!(further.is_none_or(|further| further > from), "seed {seed}: no progress");
                assert!(further.is_none() || runs.len() == max, "seed {seed}: stopped too early");
                parts.extend(runs);
                next = further;
            }
            assert_eq!(parts, whole, "seed {seed}, {max} at a time");
        }
    }
}

/// Protects from an answer that takes as long as the map is large, and from one that never gets on.
#[test]
fn an_answer_of_a_few_pages_gets_on_and_leaves_nothing_out() {
    let mut stops = 0;
    for seed in 0..200 {
        let mut forest = Forest::new(seed);
        let asked = forest.question();
        let (whole, _) = forest.changed(asked, asked.from, usize::MAX);
        for more in 1..=3 {
            let pages = usize::from(asked.map.height) + more;
            let (mut parts, mut next) = (Vec::<ChangedRun>::new(), Some(asked.from));
            while let Some(from) = next {
                let (runs, further) = forest.changed_within(asked, from, usize::MAX, pages);
                assert!(further.is_none_or(|further| further > from), "seed {seed}: no progress");
                for run in runs {
                    match parts.last_mut() {
                        // It was cut where the answer ended.
                        Some(last)
                            if (last.end, last.is_data) == (run.first, run.is_data)
                                && (asked.runs == Runs::Joined || last.changed == run.changed) =>
                        {
                            last.end = run.end;
                            last.changed = last.changed.max(run.changed);
                        }
                        _ => parts.push(run),
                    }
                }
                stops += usize::from(further.is_some());
                next = further;
            }
            assert_eq!(parts, whole, "seed {seed}, {pages} pages at a time");
        }
    }
    assert!(stops > 300, "{stops} answers ended early");
}

/// Protects from a delta that misses a block: it is taken from a snapshot and laid over its base,
/// and must give the snapshot.
#[test]
fn a_base_with_what_changed_is_the_map() {
    for seed in 0..150 {
        let mut forest = Forest::new(seed);
        let base = forest.descendant(MapRoot::EMPTY, 1);
        let map = forest.descendant(base, 2);
        let (since, granules) = (Some(Seq(19)), map.end());
        for other in [None, Some(base)] {
            let asked = Asked { map, base: other, since, from: 0, granules, runs: Runs::Joined };
            let (runs, _) = forest.changed(asked, 0, usize::MAX);
            let (old, new) = (forest.look(base), forest.look(map));
            for granule in &old.granules() | &new.granules() {
                let told = runs.iter().find(|run| (run.first..run.end).contains(&granule));
                let (has, had) = (new.place(granule), old.place(granule));
                match told {
                    Some(run) => assert_eq!(run.is_data, has.is_some(), "seed {seed}"),
                    None => assert_eq!(has, had, "seed {seed}, granule {granule}"),
                }
            }
        }
    }
}

/// Protects from a small difference that costs a look at the whole map.
#[test]
fn what_did_not_change_is_not_read() {
    let mut forest = Forest::new(9);
    let map = forest.full(3, Birth(1), Seq(5));
    for (since, base) in [(Some(Seq(5)), None), (Some(Seq(0)), Some(map))] {
        let asked = Asked { map, base, since, from: 0, granules: map.end(), runs: Runs::Joined };
        assert_eq!(forest.changed(asked, 0, 1), (Vec::new(), None));
    }
    assert_eq!(forest.shelf.device.disk.reads, 0);
}
