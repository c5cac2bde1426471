//! What becomes free when a map goes: everything in it that is its own, and that the map which
//! goes on from it does not have.
use block::Disk;

use crate::format::{Child, Entry, PagePtr};
use crate::map::merge::{free_block, free_page};
use crate::map::walk::{Enter, Guide, Seen, is_block};
use crate::map::{Walk, WalkContext, WalkStep};
use crate::snapshot::Floor;
use crate::units::Extent;

pub struct Dropping<'a> {
    pub floor: Floor,
    pub freed: &'a mut Vec<Extent>,
    /// Sectors of a page.
    pub page: u64,
    /// Pages that may still be entered in this step.
    pub budget: &'a mut u64,
    /// Whether anything was passed: a step gets on, however small the budget is.
    pub advanced: bool,
}

impl Guide for Dropping<'_> {
    fn enter(&mut self, ptr: PagePtr, seen: &Seen<'_, Child>) -> Enter {
        let shared = seen.others.iter().any(|other| other.ptr() == Some(ptr));
        if !self.floor.owns_page(ptr, seen.span.end) || shared {
            return Enter::No;
        }
        if *self.budget == 0 && self.advanced {
            return Enter::Stop;
        }
        *self.budget = self.budget.saturating_sub(1);
        Enter::Yes
    }

    fn entry(&mut self, entry: Entry, seen: &Seen<'_, Entry>) -> bool {
        if let Entry::Block(block) = entry
            && self.floor.owns(block.born, seen.span.end)
            && !seen.others.iter().any(|other| is_block(other, &block))
        {
            free_block(&block, self.freed);
        }
        true
    }

    fn left(&mut self, ptr: PagePtr) {
        free_page(ptr, self.page, self.freed);
        self.advanced = true;
    }
}

impl Dropping<'_> {
    pub fn step<D: Disk>(&mut self, walk: &mut Walk, cx: &mut WalkContext<'_, D>) -> WalkStep {
        walk.step(self, cx)
    }
}

/// Sectors that only one map has.
pub struct Unique {
    pub floor: Floor,
    pub sectors: u64,
}

impl Guide for Unique {
    fn enter(&mut self, ptr: PagePtr, seen: &Seen<'_, Child>) -> Enter {
        let shared = seen.others.iter().any(|other| other.ptr() == Some(ptr));
        if self.floor.owns_page(ptr, seen.span.end) && !shared { Enter::Yes } else { Enter::No }
    }

    fn entry(&mut self, entry: Entry, seen: &Seen<'_, Entry>) -> bool {
        if let Entry::Block(block) = entry
            && self.floor.owns(block.born, seen.span.end)
            && !seen.others.iter().any(|other| is_block(other, &block))
        {
            self.sectors += u64::from(block.sectors);
        }
        true
    }
}
