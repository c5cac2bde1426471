//! Merging one layer of updates into the map of a volume, in order of address.
//!
//! The merge holds one page per level. It is a machine: `step` goes on until a page has to be
//! read, and is called again when one arrived. The old tree stays as it is; every page that
//! changes is written to a fresh place, and its old places are given back if no snapshot has them.
//!
//! A large hole is not walked: subtrees that it covers are cut off whole, and gathered in a tree
//! of their own with the same addresses, which is dropped step by step by later checkpoints.
use block::{Buf, Disk, Seq};

use crate::error::CheckpointError;
use crate::format::{
    Block, Child, Entry, FAN_OUT, Held, PageId, PageKind, PagePtr, blank_page, child, entry,
    set_child, set_entry,
};
use crate::limits::{CHECKPOINT_IO_MAX, MAP_PAGE};
use crate::map::writer::Wrote;
use crate::map::{Got, PageWriter, Pages, Waiter};
use crate::overlay::{Update, VolumeOverlay, is_large};
use crate::pool::Device;
use crate::snapshot::Floor;
use crate::space::{Contradiction, Space};
use crate::units::{Birth, Extent, VolumeId, to_usize};
use crate::volume::MapRoot;

/// Turns of a merge before clients are served again, as long as an IO is under way whose end
/// will bring the merge back: some hundred microseconds.
const TURNS_MAX: usize = 64;

/// Sectors of a block at the most: 128 KiB of 512 B.
const SECTORS_MAX: u64 = 256;

/// The parts of the pool that a merge works with.
pub struct MergeContext<'a, D: Disk> {
    /// What the merge makes is born now.
    pub birth: Birth,
    /// What is older is not the volume's to give back.
    pub floor: Floor,
    pub pages: &'a mut Pages,
    pub device: &'a mut Device<D>,
    pub space: &'a mut Space,
    pub writer: &'a mut PageWriter,
    pub freed: &'a mut Vec<Extent>,
    /// Planted: what makes holes leave no stamp.
    pub stampless_holes: bool,
}

impl<D: Disk> MergeContext<'_, D> {
    /// Writes a page of a map; `None` while a space page is being read.
    pub fn write(
        &mut self,
        volume: VolumeId,
        page: &mut Buf,
        level: u8,
        index: u64,
    ) -> Result<Option<PagePtr>, CheckpointError> {
        let id = PageId { kind: PageKind::Map, level, index, born: self.birth };
        let (space, pages, device) = (&mut *self.space, &mut *self.pages, &mut *self.device);
        let wrote = self.writer.write(page, volume.0, id, true, space, pages, device)?;
        Ok(match wrote {
            Wrote::At(ptr) => Some(ptr),
            Wrote::Wait => None,
        })
    }

    /// The same map with a level more: the volume grew.
    pub fn raise(
        &mut self,
        volume: VolumeId,
        map: MapRoot,
    ) -> Result<Option<MapRoot>, CheckpointError> {
        let mut raised = MapRoot { height: map.height + 1, ..map };
        if let Child::Page { changed, held, .. } = map.root {
            let mut page = Buf::zeroed(MAP_PAGE);
            blank_page(&mut page);
            set_child(&mut page, 0, map.root);
            let Some(ptr) = self.write(volume, &mut page, map.height, 0)? else {
                return Ok(None);
            };
            self.pages.hold(ptr, &page);
            raised.root = Child::Page { ptr, changed, held };
        }
        // A root that is a hole now stands for the new part too. Its stamp is then a superset of
        // what changed, which a delta may be.
        Ok(Some(raised))
    }
}

struct Frame {
    level: u8,
    index: u64,
    page: Buf,
    old: Option<PagePtr>,
    dirty: bool,
    /// Subtrees that were cut off from this page.
    cut: Option<Buf>,
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
    /// Levels that the map is to have.
    height: u8,
    map: MapRoot,
    stack: Vec<Frame>,
    cursor: u64,
    /// The top of what was cut off.
    cut: Child,
    /// Those of the volume.
    granules: u64,
}

pub enum MergeStep {
    Wait,
    /// The new map, and what large holes cut off from it.
    Done {
        map: MapRoot,
        cut: Option<MapRoot>,
    },
}

impl Merge {
    pub fn new(volume: VolumeId, old: MapRoot, height: u8, granules: u64) -> Merge {
        let (stack, cut) = (Vec::new(), Child::NEVER);
        Merge { volume, height, map: old, stack, cursor: 0, cut, granules }
    }

    pub fn step<D: Disk>(
        &mut self,
        overlay: &VolumeOverlay,
        cx: &mut MergeContext<'_, D>,
    ) -> Result<MergeStep, CheckpointError> {
        while self.map.height < self.height {
            match cx.raise(self.volume, self.map)? {
                Some(higher) => self.map = higher,
                None => return Ok(MergeStep::Wait),
            }
        }
        let mut turns = 0;
        loop {
            turns += 1;
            let long = turns > TURNS_MAX && cx.device.under_way() > 0;
            if long || cx.device.checkpoint_ios() >= CHECKPOINT_IO_MAX {
                return Ok(MergeStep::Wait);
            }
            let next = self.next(overlay);
            let done = match (self.stack.last(), next) {
                (None, None) => {
                    let cut = self.cut.ptr().map(|_| MapRoot { root: self.cut, ..self.map });
                    return Ok(MergeStep::Done { map: self.map, cut });
                }
                (None, Some(next)) => self.descend(None, next, overlay, cx)?,
                (Some(top), Some(next)) if next.0 < top.end() => {
                    if top.level == 0 {
                        self.apply(next, cx);
                        self.apply_blocks(overlay, cx);
                        true
                    } else {
                        let within = to_usize(next.0 >> (7 * u32::from(top.level))) % FAN_OUT;
                        self.descend(Some(within), next, overlay, cx)?
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
    fn next(&self, overlay: &VolumeOverlay) -> Option<(u64, Update)> {
        let (start, update) = overlay.next_from(self.cursor)?;
        let Update::Hole { count, changed, slot } = update else {
            return Some((start, update));
        };
        let at = start.max(self.cursor);
        Some((at, Update::Hole { count: start + count - at, changed, slot }))
    }

    /// Loads the page below the top (or the root), or skips it where there is nothing to do.
    fn descend<D: Disk>(
        &mut self,
        within: Option<usize>,
        (at, update): (u64, Update),
        overlay: &VolumeOverlay,
        cx: &mut MergeContext<'_, D>,
    ) -> Result<bool, CheckpointError> {
        let (level, below) = match (within, self.stack.last()) {
            (Some(within), Some(top)) => (top.level - 1, child(&top.page, within)),
            _ => (self.height - 1, self.map.root),
        };
        let index = at >> (7 * (u32::from(level) + 1)).min(63);
        let start = index << (7 * (u32::from(level) + 1));
        let end = (index + 1) << (7 * (u32::from(level) + 1));
        let slots = slots_within(level, index, self.granules);
        let mut page = Buf::zeroed(MAP_PAGE);
        let old = match (below, update) {
            // Zeros over zeros leave a stamp as well: between the two there may have been a block
            // that never reached the map, and whoever has it must hear of its end.
            (Child::Hole { .. }, Update::Hole { count, changed, .. })
                if at == start && at + count >= end =>
            {
                self.stamp_hole(within, below, changed, cx);
                self.cursor = end;
                return Ok(true);
            }
            (Child::Hole { changed }, _) => {
                fill_with_holes(&mut page, level, changed, slots);
                None
            }
            (Child::Page { .. }, Update::Hole { count, changed, .. })
                if at == start && at + count >= end && is_large(at, count) =>
            {
                self.cut_off(within, below, changed, end, cx);
                self.cursor = end;
                return Ok(true);
            }
            (Child::Page { ptr, changed, .. }, _) => {
                let id = PageId { kind: PageKind::Map, level, index, born: ptr.born };
                self.prefetch(overlay, cx);
                match cx.pages.want(ptr, id, Waiter::Pump, cx.device) {
                    Got::Page(found) => page.copy_from_slice(&found),
                    Got::Wait => return Ok(false),
                    Got::Bad(problem) => {
                        return Err(CheckpointError::PageDamaged { what: "volume map", problem });
                    }
                }
                push_down(&mut page, level, changed, slots);
                Some(ptr)
            }
        };
        self.stack.push(Frame { level, index, page, old, dirty: false, cut: None });
        Ok(true)
    }

    /// A hole above the leaves became a hole once more.
    fn stamp_hole<D: Disk>(
        &mut self,
        within: Option<usize>,
        hole: Child,
        changed: Seq,
        cx: &mut MergeContext<'_, D>,
    ) {
        let stamped = if cx.stampless_holes { hole } else { Child::Hole { changed } };
        match (within, self.stack.last_mut()) {
            (Some(within), Some(top)) => {
                set_child(&mut top.page, within, stamped);
                top.dirty = true;
            }
            _ => self.map.root = stamped,
        }
    }

    /// A large hole covers a whole subtree: it leaves the map unread, and is dropped later unless
    /// all of it is older than the floor.
    fn cut_off<D: Disk>(
        &mut self,
        within: Option<usize>,
        below: Child,
        changed: Seq,
        end: u64,
        cx: &mut MergeContext<'_, D>,
    ) {
        let changed = if cx.stampless_holes { below.changed() } else { changed };
        let hole = Child::Hole { changed };
        let owned = below.ptr().is_some_and(|ptr| cx.floor.owns_page(ptr, end));
        let (Some(within), Some(top)) = (within, self.stack.last_mut()) else {
            self.map.root = hole;
            self.cut = if owned { below } else { Child::NEVER };
            return;
        };
        set_child(&mut top.page, within, hole);
        top.dirty = true;
        if owned {
            let cut = top.cut.get_or_insert_with(|| Buf::zeroed(MAP_PAGE));
            set_child(cut, within, below);
        }
    }

    /// Asks for the pages of the next updates below every page that is held.
    fn prefetch<D: Disk>(&self, overlay: &VolumeOverlay, cx: &mut MergeContext<'_, D>) {
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
                    let id = PageId { kind: PageKind::Map, level, index, born: ptr.born };
                    cx.pages.prefetch(ptr, id, cx.device);
                }
                last = index;
            }
        }
    }

    /// Applies an update to the leaf on top.
    fn apply<D: Disk>(&mut self, (at, update): (u64, Update), cx: &mut MergeContext<'_, D>) {
        let top = self.stack.last_mut().expect("a leaf is on top");
        match update {
            Update::Block { block, changed, .. } => {
                let new = Entry::Block(Block {
                    place: block.place,
                    sectors: block.sectors,
                    encoding: block.encoding,
                    checksum: block.checksum,
                    born: cx.birth,
                    changed,
                });
                replace(top, at, new, cx.floor, cx.freed);
                self.cursor = at + 1;
            }
            Update::Hole { count, changed, .. } => {
                let end = (at + count).min(top.end());
                for granule in at..end {
                    let old = entry(&top.page, to_usize(granule) % FAN_OUT).changed();
                    let changed = if cx.stampless_holes { old } else { changed };
                    replace(top, granule, Entry::Hole { changed }, cx.floor, cx.freed);
                }
                self.cursor = end;
            }
        }
    }

    /// Applies the blocks that follow in the same leaf, without looking for each of them.
    fn apply_blocks<D: Disk>(&mut self, overlay: &VolumeOverlay, cx: &mut MergeContext<'_, D>) {
        let end = self.stack.last().expect("a leaf is on top").end();
        for (at, update) in overlay.from(self.cursor) {
            if at >= end || !matches!(update, Update::Block { .. }) {
                return;
            }
            self.apply((at, update), cx);
        }
    }

    /// Writes the page on top, or drops it where nothing is left in it, and tells its parent.
    fn finish<D: Disk>(&mut self, cx: &mut MergeContext<'_, D>) -> Result<bool, CheckpointError> {
        if !self.finish_cut(cx)? {
            return Ok(false);
        }
        let top = self.stack.last().expect("a page is on top");
        let (level, index, old, dirty, end) = (top.level, top.index, top.old, top.dirty, top.end());
        let Summary { changed, held } = summary(&top.page, level).checked(level)?;
        let new = if !dirty {
            None
        } else if held.blocks == 0 {
            Some(Child::Hole { changed })
        } else {
            let mut top = self.stack.pop().expect("looked at above");
            let wrote = cx.write(self.volume, &mut top.page, level, index);
            self.stack.push(top);
            match wrote? {
                Some(ptr) => Some(Child::Page { ptr, changed, held }),
                None => return Ok(false),
            }
        };
        self.stack.pop();
        if let Some(new) = new {
            if let Some(old) = old.filter(|old| cx.floor.owns_page(*old, end)) {
                free_page(old, cx.space.layout.page(), cx.freed);
            }
            match self.stack.last_mut() {
                Some(parent) => {
                    set_child(&mut parent.page, to_usize(index) % FAN_OUT, new);
                    parent.dirty = true;
                }
                None => self.map.root = new,
            }
        }
        Ok(true)
    }

    /// Writes what was cut off from the page on top as a page of its own, at the same address.
    fn finish_cut<D: Disk>(
        &mut self,
        cx: &mut MergeContext<'_, D>,
    ) -> Result<bool, CheckpointError> {
        let top = self.stack.last_mut().expect("a page is on top");
        let (level, index) = (top.level, top.index);
        let Some(mut page) = top.cut.take() else { return Ok(true) };
        let Summary { changed, held } = summary(&page, level).checked(level)?;
        let Some(ptr) = cx.write(self.volume, &mut page, level, index)? else {
            self.stack.last_mut().expect("a page is on top").cut = Some(page);
            return Ok(false);
        };
        let new = Child::Page { ptr, changed, held };
        match self.stack.len().checked_sub(2) {
            None => self.cut = new,
            Some(parent) => {
                let cut = self.stack[parent].cut.get_or_insert_with(|| Buf::zeroed(MAP_PAGE));
                set_child(cut, to_usize(index) % FAN_OUT, new);
            }
        }
        Ok(true)
    }
}

/// Sets an entry, and gives the old block back if it is the volume's own.
fn replace(top: &mut Frame, granule: u64, new: Entry, floor: Floor, freed: &mut Vec<Extent>) {
    let within = to_usize(granule) % FAN_OUT;
    let old = entry(&top.page, within);
    set_entry(&mut top.page, within, new);
    top.dirty = true;
    if let Entry::Block(block) = old
        && floor.owns(block.born, granule + 1)
    {
        free_block(&block, freed);
    }
}

pub fn free_block(block: &Block, freed: &mut Vec<Extent>) {
    let extent = Extent { start: block.place, sectors: u64::from(block.sectors) };
    match freed.last_mut() {
        // What was written in order is freed in order: one extent for all of it.
        Some(last) if last.end() == extent.start => last.sectors += extent.sectors,
        _ => freed.push(extent),
    }
}

pub fn free_page(ptr: PagePtr, sectors: u64, freed: &mut Vec<Extent>) {
    freed.extend(ptr.places.map(|start| Extent { start, sectors }));
}

/// How many slots of a page, from its first one on, have something of a volume's granules. What
/// lies behind a volume's end can never be changed, so a stamp there would stay for ever.
pub fn slots_within(level: u8, index: u64, granules: u64) -> usize {
    let first = index << (7 * (u32::from(level) + 1));
    let slots = granules.saturating_sub(first).div_ceil(1 << (7 * u32::from(level)));
    to_usize(slots.min(FAN_OUT as u64))
}

fn fill_with_holes(page: &mut Buf, level: u8, changed: Seq, slots: usize) {
    blank_page(page);
    if changed == Seq(0) {
        return;
    }
    for within in 0..slots {
        match level {
            0 => set_entry(page, within, Entry::Hole { changed }),
            _ => set_child(page, within, Child::Hole { changed }),
        }
    }
}

/// A stamp above a page that is higher than all in it stands for every entry: before the page is
/// changed, they get it themselves.
pub fn push_down(page: &mut Buf, level: u8, stamp: Seq, slots: usize) {
    if summary(page, level).changed >= stamp {
        return;
    }
    for within in 0..slots {
        match level {
            0 => {
                let stamped = match entry(page, within) {
                    Entry::Hole { .. } => Entry::Hole { changed: stamp },
                    Entry::Block(block) => Entry::Block(Block { changed: stamp, ..block }),
                };
                set_entry(page, within, stamped);
            }
            _ => {
                let stamped = child(page, within).stamped(stamp);
                set_child(page, within, stamped);
            }
        }
    }
}

/// What a page's parent has to know of it.
pub struct Summary {
    /// The highest stamp in it.
    pub changed: Seq,
    pub held: Held,
}

impl Summary {
    /// What pages below say of themselves is no invariant: a page has no more than it has room for.
    pub fn checked(self, level: u8) -> Result<Summary, Contradiction> {
        let Held { blocks, stored } = self.held;
        let room = 1 << (7 * (u32::from(level) + 1)).min(63);
        let sound = blocks <= room && stored <= blocks * SECTORS_MAX;
        if sound { Ok(self) } else { Err(Contradiction::Stored) }
    }
}

pub fn summary(page: &[u8], level: u8) -> Summary {
    let mut sum = Summary { changed: Seq(0), held: Held::default() };
    for within in 0..FAN_OUT {
        if level == 0 {
            let entry = entry(page, within);
            sum.changed = sum.changed.max(entry.changed());
            if let Entry::Block(block) = entry {
                sum.held += Held { blocks: 1, stored: u64::from(block.sectors) };
            }
        } else {
            let child = child(page, within);
            sum.changed = sum.changed.max(child.changed());
            sum.held += child.held();
        }
    }
    sum
}
