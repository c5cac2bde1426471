//! What changed: one mechanism for catching up, mirrors, reports and tools.
//!
//! Entries carry the seq of their last change, holes too, and interior entries the highest below
//! them; so only what changed later is looked into. With a base, all that differs from it is named.
use std::ops::Range;

use block::Seq;

use crate::format::{Child, Entry, PagePtr};
use crate::map::walk::{Enter, Guide, Seen, is_block};
use crate::pool::Runs;

/// A run of granules that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedRun {
    pub first: u64,
    pub end: u64,
    pub is_data: bool,
    pub changed: Seq,
}

pub struct Changed {
    /// Only what changed later; `None`: whenever it changed.
    pub since: Option<Seq>,
    /// Whether holes are named as well, or only what is allocated.
    pub holes: bool,
    pub from: u64,
    /// Granules of the content, or of the part of it that was asked for; nothing beyond is named.
    pub granules: u64,
    pub by: Runs,
    pub runs: Vec<ChangedRun>,
    pub max: usize,
    /// So many may still be looked into.
    pub pages: usize,
}

impl Changed {
    /// Takes a run. `false`: there is no room for another one.
    fn add(&mut self, span: &Range<u64>, is_data: bool, changed: Seq) -> bool {
        let (first, end) = (span.start.max(self.from), span.end.min(self.granules));
        if first >= end {
            return true;
        }
        let full = self.runs.len() == self.max;
        match self.runs.last_mut() {
            Some(last)
                if last.end == first
                    && last.is_data == is_data
                    && (self.by == Runs::Joined || last.changed == changed) =>
            {
                last.end = end;
                last.changed = last.changed.max(changed);
            }
            _ if full => return false,
            _ => self.runs.push(ChangedRun { first, end, is_data, changed }),
        }
        true
    }

    fn is_later(&self, changed: Seq) -> bool {
        self.since.is_none_or(|since| changed > since)
    }
}

impl Guide for Changed {
    fn enter(&mut self, ptr: PagePtr, seen: &Seen<'_, Child>) -> Enter {
        let same = seen.others.iter().any(|other| other.ptr() == Some(ptr));
        let inside = seen.span.start < self.granules;
        if !inside || !self.is_later(seen.changed) || same {
            return Enter::No;
        }
        match self.pages.checked_sub(1) {
            None => Enter::Stop,
            Some(left) => {
                self.pages = left;
                Enter::Yes
            }
        }
    }

    fn hole(&mut self, seen: &Seen<'_, Child>) -> bool {
        // Zeros in both are no difference, whatever happened in between.
        let zeros = seen.others.iter().any(|other| matches!(other, Child::Hole { .. }));
        if !self.holes || !self.is_later(seen.changed) || zeros {
            return true;
        }
        self.add(&seen.span, false, seen.changed)
    }

    fn entry(&mut self, entry: Entry, seen: &Seen<'_, Entry>) -> bool {
        if !self.is_later(seen.changed) {
            return true;
        }
        let same = |other: &Entry| match &entry {
            Entry::Block(block) => is_block(other, block),
            Entry::Hole { .. } => matches!(other, Entry::Hole { .. }),
        };
        if seen.others.iter().any(same) {
            return true;
        }
        match entry {
            Entry::Hole { .. } if !self.holes => true,
            Entry::Hole { .. } => self.add(&seen.span, false, seen.changed),
            Entry::Block(_) => self.add(&seen.span, true, seen.changed),
        }
    }
}
