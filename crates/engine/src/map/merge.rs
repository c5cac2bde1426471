//! Merging the updates of one volume into its map, in order of address.
//!
//! The merge holds one page per level. It is a machine: `step` goes on until a page has to be
//! read, and is called again when one arrived. The old tree stays as it is; every page that
//! changes is written to a fresh place, and its old places are given back.
use block::{Buf, Disk, Seq};

use crate::error::CheckpointError;
use crate::format::{
    Block, Child, Entry, FAN_OUT, PageId, PageKind, PagePtr, blank_page, child, entry, set_child,
    set_entry,
};
use crate::limits::{CHECKPOINT_IO_MAX, MAP_PAGE, SEQ_MAX};
use crate::map::writer::Wrote;
use crate::map::{Carried, Got, Hole, PageWriter, Pages, SMALL_HOLE_LEAVES, Waiter};
use crate::overlay::{Update, VolumeOverlay};
use crate::pool::Device;
use crate::space::Space;
use crate::units::{Epoch, Extent, Granule, Slot, VolumeId, to_usize};

/// Turns of a merge before clients are served again, as long as an IO is under way whose end
/// will bring the merge back: some hundred microseconds.
const TURNS_MAX: usize = 64;

/// The parts of the pool that a merge works with.
pub struct MergeContext<'a, D: Disk> {
    pub epoch: Epoch,
    pub pages: &'a mut Pages,
    pub device: &'a mut Device<D>,
    pub space: &'a mut Space,
    pub writer: &'a mut PageWriter,
    pub freed: &'a mut Vec<Extent>,
    /// Leaves that may still be emptied for large holes in this checkpoint.
    pub budget: &'a mut u64,
    /// Takes what the budget does not reach.
    pub carried: &'a mut Carried,
}

/// Where updates come from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    Overlay(&'a VolumeOverlay),
    /// A hole below everything newer, as far as the budget goes.
    Hole {
        hole: Hole,
        changed: Seq,
    },
}

impl Source<'_> {
    /// All of a volume that is deleted: nothing in it is newer.
    pub fn delete(height: u8) -> Source<'static> {
        let end = Granule(1 << (7 * u32::from(height)).min(63));
        Source::Hole { hole: Hole { first: Granule(0), end }, changed: Seq(SEQ_MAX) }
    }
}

struct Frame {
    level: u8,
    index: u64,
    page: Buf,
    old: Option<PagePtr>,
    dirty: bool,
}

impl Frame {
    fn first(&self) -> u64 {
        self.index << (7 * (u32::from(self.level) + 1))
    }

    fn end(&self) -> u64 {
        (self.index + 1) << (7 * (u32::from(self.level) + 1))
    }
}

pub struct Merge {
    volume: VolumeId,
    height: u8,
    root: Child,
    old_height: u8,
    stack: Vec<Frame>,
    cursor: u64,
    stored: i64,
    /// Where a hole stopped at its budget.
    stopped: Option<Granule>,
}

pub enum MergeStep {
    Wait,
    /// `left`: from where on a hole still has to be emptied.
    Done {
        root: Child,
        height: u8,
        stored: i64,
        left: Option<Granule>,
    },
}

impl Merge {
    pub fn new(volume: VolumeId, root: Child, old_height: u8, height: u8) -> Merge {
        Merge {
            volume,
            height,
            root,
            old_height,
            stack: Vec::new(),
            cursor: 0,
            stored: 0,
            stopped: None,
        }
    }

    pub fn step<D: Disk>(
        &mut self,
        source: Source<'_>,
        cx: &mut MergeContext<'_, D>,
    ) -> Result<MergeStep, CheckpointError> {
        while self.old_height < self.height {
            if !self.raise(cx)? {
                return Ok(MergeStep::Wait);
            }
        }
        let mut turns = 0;
        loop {
            turns += 1;
            let long = turns > TURNS_MAX && cx.device.under_way() > 0;
            if long || cx.device.checkpoint_ios() >= CHECKPOINT_IO_MAX {
                return Ok(MergeStep::Wait);
            }
            let next = self.next(source, cx);
            let done = match (self.stack.last(), next) {
                (None, None) => {
                    let (root, height) = (self.root, self.height);
                    let (stored, left) = (self.stored, self.stopped);
                    return Ok(MergeStep::Done { root, height, stored, left });
                }
                (None, Some(_)) => self.descend(None, next, source, cx)?,
                (Some(top), Some((at, _))) if at < top.end() => {
                    if top.level == 0 {
                        self.apply(next, cx);
                        self.apply_blocks(source, cx);
                        true
                    } else {
                        let within = to_usize(at >> (7 * u32::from(top.level))) % FAN_OUT;
                        self.descend(Some(within), next, source, cx)?
                    }
                }
                (Some(_), _) => self.finish(cx)?,
            };
            if !done {
                return Ok(MergeStep::Wait);
            }
        }
    }

    /// The next update at or behind the cursor, clipped to it: where it begins, and what it is.
    fn next<D: Disk>(
        &mut self,
        source: Source<'_>,
        cx: &mut MergeContext<'_, D>,
    ) -> Option<(u64, Update)> {
        loop {
            let (start, update) = match source {
                Source::Overlay(overlay) => overlay.next_from(self.cursor)?,
                Source::Hole { hole, changed } => {
                    let at = self.cursor.max(hole.first.0);
                    if at >= hole.end.0 || self.stopped.is_some() {
                        return None;
                    }
                    (at, Update::Hole { count: hole.end.0 - at, changed, slot: Slot(0) })
                }
            };
            let Update::Hole { count, changed, slot } = update else {
                return Some((start, update));
            };
            let at = start.max(self.cursor);
            let count = start + count - at;
            // Small holes are bounded by their number; only what reaches over several leaves
            // draws on the budget.
            if *cx.budget > 0 || at / 128 + SMALL_HOLE_LEAVES >= (at + count - 1) / 128 {
                return Some((at, Update::Hole { count, changed, slot }));
            }
            self.cursor = at + count;
            match source {
                Source::Hole { .. } => self.stopped = Some(Granule(at)),
                Source::Overlay(_) => {
                    let part = Hole { first: Granule(at), end: Granule(at + count) };
                    cx.carried.add(self.volume, changed, part);
                }
            }
        }
    }

    /// Puts a new root above the old one: the volume grew.
    fn raise<D: Disk>(&mut self, cx: &mut MergeContext<'_, D>) -> Result<bool, CheckpointError> {
        let level = self.old_height;
        if let Child::Page { .. } = self.root {
            let mut page = Buf::zeroed(MAP_PAGE);
            blank_page(&mut page);
            set_child(&mut page, 0, self.root);
            let changed = self.root.changed();
            match self.write(&mut page, level, 0, cx)? {
                Some(ptr) => self.root = Child::Page { ptr, changed },
                None => return Ok(false),
            }
        }
        // A root that is a hole now stands for the new part too. Its stamp is then a superset of what
        // changed, which a delta may be.
        self.old_height += 1;
        Ok(true)
    }

    /// Loads the page below the top (or the root), or skips it where there is nothing to do.
    fn descend<D: Disk>(
        &mut self,
        within: Option<usize>,
        next: Option<(u64, Update)>,
        source: Source<'_>,
        cx: &mut MergeContext<'_, D>,
    ) -> Result<bool, CheckpointError> {
        let (at, update) = next.expect("there is an update to descend for");
        let (level, below) = match (within, self.stack.last()) {
            (Some(within), Some(top)) => (top.level - 1, child(&top.page, within)),
            _ => (self.height - 1, self.root),
        };
        let index = at >> (7 * (u32::from(level) + 1)).min(63);
        let mut page = Buf::zeroed(MAP_PAGE);
        let old = match below {
            Child::Page { ptr, .. } => {
                let id = PageId { kind: PageKind::Map, level, index, epoch: ptr.born };
                self.prefetch(source, cx);
                match cx.pages.want(ptr, id, Waiter::Pump, cx.device) {
                    Got::Page(found) => page.copy_from_slice(&found),
                    Got::Wait => return Ok(false),
                    Got::Bad(problem) => {
                        return Err(CheckpointError::PageDamaged { what: "volume map", problem });
                    }
                }
                Some(ptr)
            }
            Child::Hole { changed } => {
                if let Update::Hole { count, .. } = update {
                    // Zeros over zeros change nothing, so they leave no stamp either.
                    self.cursor = (at + count).min((index + 1) << (7 * (u32::from(level) + 1)));
                    return Ok(true);
                }
                fill_with_holes(&mut page, level, changed);
                None
            }
        };
        self.stack.push(Frame { level, index, page, old, dirty: false });
        Ok(true)
    }

    /// Asks for the pages of the next updates below every page that is held.
    fn prefetch<D: Disk>(&self, source: Source<'_>, cx: &mut MergeContext<'_, D>) {
        let Source::Overlay(overlay) = source else {
            return;
        };
        for frame in self.stack.iter().rev().filter(|frame| frame.level > 0) {
            let level = frame.level - 1;
            let mut last = u64::MAX;
            for (at, _) in overlay.from(self.cursor).take(CHECKPOINT_IO_MAX) {
                if at >= frame.end() || at < frame.first() {
                    break;
                }
                let index = at >> (7 * u32::from(frame.level));
                if index != last
                    && let Child::Page { ptr, .. } = child(&frame.page, to_usize(index) % FAN_OUT)
                {
                    let id = PageId { kind: PageKind::Map, level, index, epoch: ptr.born };
                    cx.pages.prefetch(ptr, id, cx.device);
                }
                last = index;
            }
        }
    }

    /// Applies an update to the leaf on top.
    fn apply<D: Disk>(&mut self, next: Option<(u64, Update)>, cx: &mut MergeContext<'_, D>) {
        let (at, update) = next.expect("there is an update to apply");
        let top = self.stack.last_mut().expect("a leaf is on top");
        match update {
            Update::Block { block, changed, .. } => {
                let new = Entry::Block(Block {
                    place: block.place,
                    sectors: block.sectors,
                    encoding: block.encoding,
                    checksum: block.checksum,
                    born: cx.epoch,
                    changed,
                });
                self.stored += i64::from(block.sectors);
                self.stored -= replace(top, (at % 128) as usize, new, cx.freed);
                self.cursor = at + 1;
            }
            Update::Hole { count, changed, .. } => {
                let end = (at + count).min(top.end());
                if at + count > top.end() {
                    *cx.budget = cx.budget.saturating_sub(1);
                }
                for granule in at..end {
                    let within = (granule % 128) as usize;
                    if let Entry::Block(old) = entry(&top.page, within)
                        && old.changed < changed
                    {
                        let hole = Entry::Hole { changed };
                        self.stored -= replace(top, within, hole, cx.freed);
                    }
                }
                self.cursor = end;
            }
        }
    }

    /// Applies the blocks that follow in the same leaf, without looking for each of them.
    fn apply_blocks<D: Disk>(&mut self, source: Source<'_>, cx: &mut MergeContext<'_, D>) {
        let Source::Overlay(overlay) = source else { return };
        let end = self.stack.last().expect("a leaf is on top").end();
        for (at, update) in overlay.from(self.cursor) {
            if at >= end || !matches!(update, Update::Block { .. }) {
                return;
            }
            self.apply(Some((at, update)), cx);
        }
    }

    /// Writes the page on top, or drops it where nothing is left in it, and tells its parent.
    fn finish<D: Disk>(&mut self, cx: &mut MergeContext<'_, D>) -> Result<bool, CheckpointError> {
        let top = self.stack.last().expect("a page is on top");
        let (level, index, old, dirty) = (top.level, top.index, top.old, top.dirty);
        let (empty, changed) = summary(top);
        let new = if !dirty {
            None
        } else if empty {
            Some(Child::Hole { changed })
        } else {
            let mut top = self.stack.pop().expect("looked at above");
            let wrote = self.write(&mut top.page, level, index, cx);
            self.stack.push(top);
            match wrote? {
                Some(ptr) => Some(Child::Page { ptr, changed }),
                None => return Ok(false),
            }
        };
        self.stack.pop();
        if let Some(new) = new {
            if let Some(old) = old {
                free_page(old, cx.space.layout.page(), cx.freed);
            }
            match self.stack.last_mut() {
                Some(parent) => {
                    set_child(&mut parent.page, to_usize(index) % FAN_OUT, new);
                    parent.dirty = true;
                }
                None => self.root = new,
            }
        }
        Ok(true)
    }

    fn write<D: Disk>(
        &self,
        page: &mut Buf,
        level: u8,
        index: u64,
        cx: &mut MergeContext<'_, D>,
    ) -> Result<Option<PagePtr>, CheckpointError> {
        let id = PageId { kind: PageKind::Map, level, index, epoch: cx.epoch };
        let wrote =
            cx.writer.write(page, self.volume.0, id, true, cx.space, cx.pages, cx.device)?;
        Ok(match wrote {
            Wrote::At(ptr) => Some(ptr),
            Wrote::Wait => None,
        })
    }
}

/// Sets an entry, gives the old block back, and says how many sectors that was.
fn replace(top: &mut Frame, within: usize, new: Entry, freed: &mut Vec<Extent>) -> i64 {
    let old = entry(&top.page, within);
    set_entry(&mut top.page, within, new);
    top.dirty = true;
    match old {
        Entry::Hole { .. } => 0,
        Entry::Block(block) => {
            let extent = Extent { start: block.place, sectors: u64::from(block.sectors) };
            match freed.last_mut() {
                // What was written in order is freed in order: one extent for all of it.
                Some(last) if last.end() == extent.start => last.sectors += extent.sectors,
                _ => freed.push(extent),
            }
            i64::from(block.sectors)
        }
    }
}

pub fn free_page(ptr: PagePtr, sectors: u64, freed: &mut Vec<Extent>) {
    freed.extend(ptr.places.map(|start| Extent { start, sectors }));
}

fn fill_with_holes(page: &mut Buf, level: u8, changed: Seq) {
    blank_page(page);
    if changed == Seq(0) {
        return;
    }
    for within in 0..FAN_OUT {
        match level {
            0 => set_entry(page, within, Entry::Hole { changed }),
            _ => set_child(page, within, Child::Hole { changed }),
        }
    }
}

/// Whether a page holds nothing but holes, and the highest stamp in it.
fn summary(frame: &Frame) -> (bool, Seq) {
    let mut empty = true;
    let mut changed = Seq(0);
    for within in 0..FAN_OUT {
        let (hole, stamp) = match frame.level {
            0 => {
                let entry = entry(&frame.page, within);
                (matches!(entry, Entry::Hole { .. }), entry.changed())
            }
            _ => {
                let child = child(&frame.page, within);
                (matches!(child, Child::Hole { .. }), child.changed())
            }
        };
        empty &= hole;
        changed = changed.max(stamp);
    }
    (empty, changed)
}
