//! Large holes that a checkpoint did not finish, and the next ones go on with.
//!
//! Emptying a large part of a volume takes as many page reads as it has leaves, so a checkpoint
//! does a bounded part of it. What is left lies below everything newer: a block in its range is
//! gone exactly if its `changed` is older than the hole. So a hole needs no pieces: it is one
//! range, however much is written into it meanwhile.
use std::collections::BTreeMap;

use block::Seq;

use crate::units::{Granule, VolumeId};

/// Leaves behind its first that a hole may touch and still be finished at once. A write of zeros
/// reaches no further, so only discards and zeroings are ever carried.
pub const SMALL_HOLE_LEAVES: u64 = 2;

/// Holes that may be unfinished at once. Each is a record in the journal after every checkpoint.
pub const CARRIED_MAX: usize = 256;

/// Holes that one checkpoint goes on with: each may rewrite the pages at its two ends.
pub const CARRIED_STEPS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    pub first: Granule,
    /// The granule behind the last.
    pub end: Granule,
}

#[derive(Clone, Debug, Default)]
pub struct Carried {
    holes: BTreeMap<(VolumeId, Seq), Hole>,
}

impl Carried {
    pub fn len(&self) -> usize {
        self.holes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.holes.is_empty()
    }

    /// Adds a part of a hole. Parts of one operation join: what lies between them was written
    /// later, and is newer than the hole.
    pub fn add(&mut self, volume: VolumeId, changed: Seq, part: Hole) {
        let hole = self.holes.entry((volume, changed)).or_insert(part);
        hole.first = hole.first.min(part.first);
        hole.end = hole.end.max(part.end);
    }

    /// A hole was emptied up to `from`.
    pub fn advance(&mut self, volume: VolumeId, changed: Seq, from: Option<Granule>) {
        match from {
            None => {
                self.holes.remove(&(volume, changed));
            }
            Some(from) => {
                let hole = self.holes.get_mut(&(volume, changed)).expect("a hole that is known");
                hole.first = hole.first.max(from);
            }
        }
    }

    pub fn remove(&mut self, volume: VolumeId) {
        self.holes.retain(|(id, _), _| *id != volume);
    }

    pub fn of(&self, volume: VolumeId) -> impl Iterator<Item = (Seq, Hole)> {
        let all = (volume, Seq(0))..=(volume, Seq(u64::MAX));
        self.holes.range(all).map(|((_, changed), hole)| (*changed, *hole))
    }

    pub fn iter(&self) -> impl Iterator<Item = (VolumeId, Seq, Hole)> {
        self.holes.iter().map(|((volume, changed), hole)| (*volume, *changed, *hole))
    }

    /// Whether a block of this age is gone.
    pub fn hides(&self, volume: VolumeId, granule: Granule, changed: Seq) -> bool {
        !self.holes.is_empty()
            && self.of(volume).any(|(hole_changed, hole)| {
                changed < hole_changed && (hole.first..hole.end).contains(&granule)
            })
    }
}
