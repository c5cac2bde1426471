//! After a jump: what a map has differently from the one before it gets a new stamp.
//!
//! Only pages above the leaves are looked at. A leaf that differs is stamped in the entry above
//! it, which then stands for all of it; so is a whole subtree when the budget is used up. That
//! names more than what differs, never less.
use std::sync::Arc;

use block::{Buf, Disk, Seq};

use crate::error::CheckpointError;
use crate::format::{Child, FAN_OUT, PageId, PageKind, PagePtr, child, set_child};
use crate::limits::MAP_PAGE;
use crate::map::merge::{free_page, push_down, slots_within, summary};
use crate::map::{Got, MergeContext, Waiter};
use crate::units::{VolumeId, to_usize};
use crate::volume::MapRoot;

struct Frame {
    level: u8,
    index: u64,
    ptr: PagePtr,
    page: Buf,
    old: Buf,
    next: usize,
    dirty: bool,
}

/// A page that is being entered; what arrived stays until both are there.
struct Entering {
    level: u8,
    index: u64,
    new: Side,
    old: Side,
}

struct Side {
    ptr: PagePtr,
    /// The stamp above the page, which may stand for all of it.
    changed: Seq,
    page: Option<Arc<[u8]>>,
}

impl Side {
    /// The page with the stamps that its entries really have.
    fn stamped(&self, level: u8, slots: usize) -> Option<Buf> {
        let mut page = Buf::zeroed(MAP_PAGE);
        page.copy_from_slice(self.page.as_ref()?);
        push_down(&mut page, level, self.changed, slots);
        Some(page)
    }
}

pub struct Restamp {
    volume: VolumeId,
    stamp: Seq,
    map: MapRoot,
    old: MapRoot,
    stack: Vec<Frame>,
    entering: Option<Entering>,
    begun: bool,
    budget: u64,
    /// Those of the volume: what lies behind is not there, and is not stamped.
    granules: u64,
}

impl Restamp {
    pub fn new(
        volume: VolumeId,
        map: MapRoot,
        old: MapRoot,
        stamp: Seq,
        budget: u64,
        granules: u64,
    ) -> Restamp {
        let (stack, entering, begun) = (Vec::new(), None, false);
        Restamp { volume, stamp, map, old, stack, entering, begun, budget, granules }
    }

    /// The stamped map, or `None` while something is being read.
    pub fn step<D: Disk>(
        &mut self,
        cx: &mut MergeContext<'_, D>,
    ) -> Result<Option<MapRoot>, CheckpointError> {
        while self.map.height < self.old.height {
            match cx.raise(self.volume, self.map)? {
                Some(higher) => self.map = higher,
                None => return Ok(None),
            }
        }
        if !self.begun {
            self.begun = true;
            let (new, old) = (self.map.root, self.old.root);
            if self.old.height == self.map.height && self.map.height > 0 {
                self.map.root = self.compare(new, old, self.map.height - 1, 0);
            } else {
                // A lower map that was there before: all of it is taken to differ, unless there is
                // nothing in either.
                let nothing = new.ptr().is_none() && old.ptr().is_none();
                let old = old.changed().min(self.stamp);
                self.map.root = new.stamped(if nothing { old } else { self.stamp });
            }
        }
        loop {
            if self.entering.is_some() && !self.load(cx)? {
                return Ok(None);
            }
            let Some(top) = self.stack.last_mut() else { return Ok(Some(self.map)) };
            if top.next == FAN_OUT {
                if !self.finish(cx)? {
                    return Ok(None);
                }
                continue;
            }
            let within = top.next;
            top.next += 1;
            let (new, old) = (child(&top.page, within), child(&top.old, within));
            let (level, index) = (top.level - 1, top.index * FAN_OUT as u64 + within as u64);
            let stamped = self.compare(new, old, level, index);
            if stamped != new {
                let top = self.stack.last_mut().expect("looked at above");
                set_child(&mut top.page, within, stamped);
                top.dirty = true;
            }
        }
    }

    /// What becomes of a child whose page is of `level`; it may have to be entered first.
    fn compare(&mut self, new: Child, old: Child, level: u8, index: u64) -> Child {
        match (new, old) {
            // The same, but it may have been something else in between: the stamp of that stays.
            // But no stamp is above the volume's position, which a jump may have lowered.
            (Child::Hole { .. }, Child::Hole { .. }) => new.stamped(old.changed().min(self.stamp)),
            (Child::Page { ptr: a, .. }, Child::Page { ptr: b, .. }) if a == b => {
                new.stamped(old.changed().min(self.stamp))
            }
            (Child::Page { ptr: a, .. }, Child::Page { ptr: b, .. })
                if level > 0 && self.budget > 0 =>
            {
                self.budget -= 1;
                self.entering = Some(Entering {
                    level,
                    index,
                    new: Side { ptr: a, changed: new.changed(), page: None },
                    old: Side { ptr: b, changed: old.changed(), page: None },
                });
                new
            }
            _ => new.stamped(self.stamp),
        }
    }

    fn load<D: Disk>(&mut self, cx: &mut MergeContext<'_, D>) -> Result<bool, CheckpointError> {
        let entering = self.entering.as_mut().expect("called with one");
        let (level, index) = (entering.level, entering.index);
        for side in [&mut entering.new, &mut entering.old] {
            if side.page.is_some() {
                continue;
            }
            let id = PageId { kind: PageKind::Map, level, index, born: side.ptr.born };
            side.page = match cx.pages.want(side.ptr, id, Waiter::Pump, cx.device) {
                Got::Page(found) => Some(found),
                Got::Wait => None,
                Got::Bad(problem) => {
                    return Err(CheckpointError::PageDamaged { what: "volume map", problem });
                }
            };
        }
        let slots = slots_within(level, index, self.granules);
        let sides = (entering.new.stamped(level, slots), entering.old.stamped(level, slots));
        let (Some(page), Some(old)) = sides else {
            return Ok(false);
        };
        let ptr = entering.new.ptr;
        self.entering = None;
        self.stack.push(Frame { level, index, ptr, page, old, next: 0, dirty: false });
        Ok(true)
    }

    fn finish<D: Disk>(&mut self, cx: &mut MergeContext<'_, D>) -> Result<bool, CheckpointError> {
        let mut top = self.stack.pop().expect("called with a page");
        if !top.dirty {
            return Ok(true);
        }
        let sum = summary(&top.page, top.level).checked(top.level)?;
        let Some(ptr) = cx.write(self.volume, &mut top.page, top.level, top.index)? else {
            self.stack.push(top);
            return Ok(false);
        };
        let end = (top.index + 1) << (7 * (u32::from(top.level) + 1));
        if cx.floor.owns_page(top.ptr, end) {
            free_page(top.ptr, cx.space.layout.page(), cx.freed);
        }
        let new = Child::Page { ptr, changed: sum.changed, held: sum.held };
        match self.stack.last_mut() {
            Some(parent) => {
                set_child(&mut parent.page, to_usize(top.index) % FAN_OUT, new);
                parent.dirty = true;
            }
            None => self.map.root = new,
        }
        Ok(true)
    }
}
