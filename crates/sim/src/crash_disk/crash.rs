//! What a power cut may leave: every subset of what is not durable, or a sample of the subsets.
use std::collections::{BTreeMap, BTreeSet};

use block::{ByteLen, ByteOffset, SectorSize};

use crate::Rng;

use super::cache::{Cache, History, Version};
use super::image::{Image, PAGE_BYTES, SLOT_BYTES, place, sector_masks};
use super::write::Content;

/// How many images of a crash are worth their time.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Up to this many outstanding sectors every combination is tried ...
    pub every_up_to: usize,
    /// ... if there are no more combinations than this.
    pub combinations: u64,
    /// Otherwise, this many samples.
    pub samples: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { every_up_to: 8, combinations: 4096, samples: 64 }
    }
}

/// A write (or trim) that reached the device and of which some part is not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutstandingWrite {
    /// Its place in the order of submission.
    pub no: u64,
    pub at: ByteOffset,
    pub len: ByteLen,
    pub completed: bool,
    pub trim: bool,
}

/// A sector of which the device holds versions that are not durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutstandingSector {
    pub at: ByteOffset,
    /// The writes that the versions come from: completed ones first, then those in flight.
    pub writes: Vec<u64>,
}

/// The moment of a power cut: what is durable, and what may or may not be. It keeps its own hold
/// of everything, so that the disk may go on.
#[derive(Clone)]
pub struct Outstanding {
    durable: Image,
    pages: Vec<Held>,
}

#[derive(Clone)]
struct Held {
    page: u64,
    /// Completed ones first, oldest first; then those in flight.
    versions: Vec<Version>,
    completed: usize,
}

impl Outstanding {
    pub(super) fn of(cache: &Cache) -> Outstanding {
        let held = |(page, history): (u64, &History)| Held {
            page,
            versions: [&history.completed[..], &history.in_flight[..]].concat(),
            completed: history.completed.len(),
        };
        Outstanding {
            durable: cache.durable().clone(),
            pages: cache.histories().map(held).collect(),
        }
    }

    /// Whether a power cut would change nothing.
    pub fn is_empty(&self) -> bool {
        self.pages.iter().all(|held| held.versions.is_empty())
    }

    /// The writes that are not durable, in the order of submission.
    pub fn writes(&self) -> Vec<OutstandingWrite> {
        let mut writes = BTreeMap::new();
        for held in &self.pages {
            for (i, version) in held.versions.iter().enumerate() {
                let write = &version.write;
                writes.entry(write.no).or_insert(OutstandingWrite {
                    no: write.no,
                    at: ByteOffset(write.at),
                    len: ByteLen(write.len),
                    completed: i < held.completed,
                    trim: matches!(write.content, Content::Trimmed { .. }),
                });
            }
        }
        writes.into_values().collect()
    }

    /// The sectors that are not durable, in units of what the device writes without tearing.
    pub fn sectors(&self, tear: SectorSize) -> Vec<OutstandingSector> {
        let described = |unit: Unit| OutstandingSector {
            at: ByteOffset(
                unit.page * PAGE_BYTES + u64::from(unit.mask.trailing_zeros()) * SLOT_BYTES,
            ),
            writes: unit.versions.iter().map(|v| v.write.no).collect(),
        };
        self.units(tear).into_iter().map(described).collect()
    }

    fn units(&self, tear: SectorSize) -> Vec<Unit> {
        let mut units = Vec::new();
        for held in &self.pages {
            for &mask in sector_masks(tear) {
                let about_it = |version: &&Version| version.mask & mask != 0;
                let (completed, _) = held.versions.split_at(held.completed);
                let versions: Vec<_> = held.versions.iter().filter(about_it).cloned().collect();
                if !versions.is_empty() {
                    units.push(Unit {
                        page: held.page,
                        mask,
                        versions,
                        completed: completed.iter().filter(about_it).count(),
                    });
                }
            }
        }
        units
    }

    /// What the power cut may leave on the medium.
    pub fn images(&self, tear: SectorSize, budget: Budget, rng: &mut Rng) -> CrashImages {
        let units = self.units(tear);
        let combinations = units
            .iter()
            .try_fold(1u64, |product, unit| product.checked_mul(unit.outcomes() as u64));
        let every =
            combinations.filter(|&n| units.len() <= budget.every_up_to && n <= budget.combinations);
        CrashImages {
            durable: self.durable.clone(),
            writes: self.writes().iter().map(|write| write.no).collect(),
            units,
            exhaustive: every.is_some(),
            total: every.unwrap_or(budget.samples),
            next: 0,
            tried: BTreeSet::new(),
            rng: rng.fork(),
        }
    }
}

/// One sector as the device tears, with its versions.
struct Unit {
    page: u64,
    mask: u8,
    versions: Vec<Version>,
    completed: usize,
}

impl Unit {
    fn in_flight(&self) -> usize {
        self.versions.len() - self.completed
    }

    /// Writes smaller than the unit can be in it side by side.
    fn is_shared(&self) -> bool {
        let whole = |version: &Version| version.mask & self.mask == self.mask;
        self.in_flight() > 1 && !self.versions[self.completed..].iter().all(whole)
    }

    /// How many states of the sector a power cut may leave.
    fn outcomes(&self) -> usize {
        1 + self.versions.len() + usize::from(self.is_shared())
    }

    /// The versions that make up one of the states, to be applied in order: none; the completed
    /// ones up to one of them; all completed ones and one in flight; all.
    fn outcome(&self, state: usize) -> impl Iterator<Item = &Version> {
        let (completed, in_flight) = self.versions.split_at(self.completed);
        let flying = match state.checked_sub(self.completed + 1) {
            None => &[],
            Some(one) if one < in_flight.len() => &in_flight[one..=one],
            Some(_) => in_flight,
        };
        completed.iter().take(state).chain(flying)
    }
}

/// One way in which the power cut may have gone.
enum Choice {
    /// A state for each sector.
    States(Vec<usize>),
    /// Whole writes, and one that is torn.
    Writes { landed: BTreeSet<u64>, torn: Option<u64> },
}

/// The images that a power cut may leave, one after the other.
pub struct CrashImages {
    durable: Image,
    units: Vec<Unit>,
    writes: Vec<u64>,
    exhaustive: bool,
    total: u64,
    next: u64,
    /// The sets of whole writes that were sampled.
    tried: BTreeSet<BTreeSet<u64>>,
    rng: Rng,
}

impl CrashImages {
    /// Whether the images are all that there can be, rather than a sample.
    pub fn is_exhaustive(&self) -> bool {
        self.exhaustive
    }

    fn state_by_number(&self, no: u64) -> Choice {
        let mut rest = no;
        let digit = |unit: &Unit| {
            let outcomes = unit.outcomes() as u64;
            let state = rest % outcomes;
            rest /= outcomes;
            place(state)
        };
        Choice::States(self.units.iter().map(digit).collect())
    }

    /// The plainest two first, then kinds of mishap by turns.
    fn sample(&mut self, no: u64) -> Choice {
        let all = || self.writes.iter().copied();
        let (landed, torn) = match no {
            0 => (BTreeSet::new(), None),
            1 => (all().collect(), None),
            _ => match no % 4 {
                0 => return self.sectors_apart(),
                1 => {
                    let percent = *self.rng.pick(&[10, 50, 90]);
                    let rng = &mut self.rng;
                    (all().filter(|_| rng.chance(percent, 100)).collect(), None)
                }
                2 => {
                    let cut = self.rng.index(self.writes.len() + 1);
                    let landed = self.writes[..cut].iter().copied().collect();
                    (landed, self.writes.get(cut).copied())
                }
                _ => {
                    let one = *self.rng.pick(&self.writes);
                    let only = self.rng.chance(1, 2);
                    (all().filter(|&no| (no == one) == only).collect(), None)
                }
            },
        };
        // With few writes the same ones are soon drawn again: then sectors are the better use.
        match torn.is_some() || self.tried.insert(landed.clone()) {
            true => Choice::Writes { landed, torn },
            false => self.sectors_apart(),
        }
    }

    fn sectors_apart(&mut self) -> Choice {
        // Where no sector has a choice of versions, all of them is one image, and it is had.
        let versions = self.units.iter().any(|unit| unit.versions.len() > 1);
        let percents = &[10, 50, 90, 100][..3 + usize::from(versions)];
        let percent = *self.rng.pick(percents);
        let rng = &mut self.rng;
        let state = |unit: &Unit| match rng.chance(percent, 100) {
            true => 1 + rng.index(unit.outcomes() - 1),
            false => 0,
        };
        Choice::States(self.units.iter().map(state).collect())
    }

    fn image(&mut self, choice: &Choice) -> Image {
        let mut image = self.durable.clone();
        for (i, unit) in self.units.iter().enumerate() {
            let mut apply = |version: &Version| {
                image.apply(unit.page, version.mask & unit.mask, &version.write);
            };
            match choice {
                Choice::States(states) => unit.outcome(states[i]).for_each(apply),
                Choice::Writes { landed, torn } => {
                    for version in &unit.versions {
                        let no = version.write.no;
                        let half = *torn == Some(no) && self.rng.chance(1, 2);
                        if half || landed.contains(&no) {
                            apply(version);
                        }
                    }
                }
            }
        }
        image
    }
}

impl Iterator for CrashImages {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        if self.next == self.total {
            return None;
        }
        let choice = match self.exhaustive {
            true => self.state_by_number(self.next),
            false => self.sample(self.next),
        };
        self.next += 1;
        Some(self.image(&choice))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = place(self.total - self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for CrashImages {}
