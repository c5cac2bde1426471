//! A walk over a map in order of address, beside other maps at the same addresses.
//!
//! A guide says which subtrees to look into; what it does not enter is not read. The walk is a
//! machine: `step` goes on until a page has to be read, and is called again when one arrived.
use std::ops::Range;
use std::sync::Arc;

use block::{Disk, Seq};

use crate::format::{
    Block, Child, Entry, FAN_OUT, PageId, PageKind, PageProblem, PagePtr, child, entry,
};
use crate::map::merge::summary;
use crate::map::{Got, Pages, Waiter};
use crate::pool::Device;
use crate::units::{Granule, to_usize};
use crate::volume::MapRoot;

/// What a guide thinks of a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enter {
    Yes,
    No,
    /// Not now: the walk ends in front of it.
    Stop,
}

/// Decides where a walk goes, and takes what it finds.
pub trait Guide {
    /// A subtree, with what the other maps have at its address.
    fn enter(&mut self, ptr: PagePtr, seen: &Seen<'_, Child>) -> Enter;
    /// A hole above the leaves. `false` ends the walk in front of it.
    fn hole(&mut self, seen: &Seen<'_, Child>) -> bool {
        let _ = seen;
        true
    }
    /// An entry of a leaf. `false` ends the walk in front of it.
    fn entry(&mut self, entry: Entry, seen: &Seen<'_, Entry>) -> bool;
    /// A page was entered, and all of it is behind the walk.
    fn left(&mut self, ptr: PagePtr) {
        let _ = ptr;
    }
}

/// Where a walk is.
pub struct Seen<'a, T> {
    pub span: Range<u64>,
    /// When it last changed, with stamps that stand above it.
    pub changed: Seq,
    /// What the other maps have here.
    pub others: &'a [T],
}

pub enum WalkStep {
    Wait,
    /// All of the map is behind the walk.
    Done,
    /// The guide ended it; this granule was not looked at.
    Stopped(Granule),
    Bad(PageProblem),
}

/// What another map has at an address.
#[derive(Clone)]
enum Other {
    Here(Child),
    /// A lower map: its root is further down, at the first address.
    Below(MapRoot),
}

#[derive(Clone)]
enum OtherPage {
    Page(Arc<[u8]>),
    Hole,
    Below(MapRoot),
}

struct Frame {
    ptr: PagePtr,
    level: u8,
    index: u64,
    /// Stands for everything in the page.
    stamp: Seq,
    page: Arc<[u8]>,
    others: Vec<OtherPage>,
    next: usize,
}

/// A page that is being entered; what arrived stays until all of it is there.
struct Entering {
    ptr: PagePtr,
    level: u8,
    index: u64,
    changed: Seq,
    page: Option<Arc<[u8]>>,
    others: Vec<(Other, Option<OtherPage>)>,
}

pub struct Walk {
    map: MapRoot,
    from: u64,
    /// The other maps at the address of this one's root; higher ones are walked down to it first.
    higher: Vec<MapRoot>,
    others: Vec<Other>,
    stack: Vec<Frame>,
    entering: Option<Entering>,
    begun: bool,
    /// What the other maps have at a granule; kept for its memory.
    entries: Vec<Entry>,
    /// Pages that were entered, and those that are behind the walk.
    pub pages: u64,
    pub passed: u64,
}

pub struct WalkContext<'a, D: Disk> {
    pub pages: &'a mut Pages,
    pub device: &'a mut Device<D>,
}

impl Walk {
    pub fn new(map: MapRoot, others: &[MapRoot], from: Granule) -> Walk {
        Walk {
            map,
            from: from.0,
            higher: others.iter().rev().copied().collect(),
            others: Vec::new(),
            stack: Vec::new(),
            entering: None,
            begun: false,
            entries: Vec::new(),
            pages: 0,
            passed: 0,
        }
    }

    pub fn step<D: Disk>(
        &mut self,
        guide: &mut impl Guide,
        cx: &mut WalkContext<'_, D>,
    ) -> WalkStep {
        if self.map.height == 0 || self.from >= self.map.end() {
            return WalkStep::Done;
        }
        match self.align(cx) {
            Ok(true) => {}
            Ok(false) => return WalkStep::Wait,
            Err(problem) => return WalkStep::Bad(problem),
        }
        if !self.begun {
            self.begun = true;
            let (root, level, others) = (self.map.root, self.map.height - 1, self.others.clone());
            if let Some(ended) = self.meet(root, level, 0, Seq(0), others, guide) {
                return ended;
            }
        }
        loop {
            if self.entering.is_some() {
                match self.load(cx) {
                    Ok(true) => {}
                    Ok(false) => return WalkStep::Wait,
                    Err(problem) => return WalkStep::Bad(problem),
                }
            }
            if self.stack.is_empty() {
                return WalkStep::Done;
            }
            if let Some(ended) = self.advance(guide) {
                return ended;
            }
        }
    }

    /// Walks down higher maps until they are at the height of this one.
    fn align<D: Disk>(&mut self, cx: &mut WalkContext<'_, D>) -> Result<bool, PageProblem> {
        while let Some(&MapRoot { root, height }) = self.higher.last() {
            let other = match root {
                Child::Page { ptr, .. } if height > self.map.height => {
                    let level = height - 1;
                    let id = PageId { kind: PageKind::Map, level, index: 0, born: ptr.born };
                    match cx.pages.want(ptr, id, Waiter::Pump, cx.device) {
                        Got::Page(page) => {
                            let lower = MapRoot { root: child(&page, 0), height: level };
                            *self.higher.last_mut().expect("looked at above") = lower;
                            continue;
                        }
                        Got::Wait => return Ok(false),
                        Got::Bad(problem) => return Err(problem),
                    }
                }
                Child::Page { .. } if height < self.map.height => {
                    Other::Below(MapRoot { root, height })
                }
                root => Other::Here(root),
            };
            self.others.push(other);
            self.higher.pop();
        }
        Ok(true)
    }

    /// Something of an interior page, or the root. `Some` ends the walk.
    fn meet(
        &mut self,
        below: Child,
        level: u8,
        index: u64,
        stamp: Seq,
        others: Vec<Other>,
        guide: &mut impl Guide,
    ) -> Option<WalkStep> {
        let shift = 7 * (u32::from(level) + 1);
        let span = index << shift..(index + 1) << shift;
        // A lower map has something here, though no page of this level: it differs from all.
        let seen_others: Vec<Child> = others
            .iter()
            .map(|other| match other {
                Other::Here(child) => *child,
                Other::Below(map) => map.root,
            })
            .collect();
        let start = Granule(span.start.max(self.from));
        let changed = below.changed().max(stamp);
        let seen = Seen { span, changed, others: &seen_others };
        let Child::Page { ptr, .. } = below else {
            return (!guide.hole(&seen)).then_some(WalkStep::Stopped(start));
        };
        match guide.enter(ptr, &seen) {
            Enter::No => None,
            Enter::Stop => Some(WalkStep::Stopped(start)),
            Enter::Yes => {
                let others = others.into_iter().map(|other| (other, None)).collect();
                self.entering = Some(Entering { ptr, level, index, changed, page: None, others });
                None
            }
        }
    }

    /// Reads the page that is being entered, and those of the others at its address.
    fn load<D: Disk>(&mut self, cx: &mut WalkContext<'_, D>) -> Result<bool, PageProblem> {
        let entering = self.entering.as_mut().expect("called with one");
        let (level, index, own) = (entering.level, entering.index, entering.ptr);
        let mut want = |ptr: PagePtr| {
            let id = PageId { kind: PageKind::Map, level, index, born: ptr.born };
            match cx.pages.want(ptr, id, Waiter::Pump, cx.device) {
                Got::Page(page) => Ok(Some(page)),
                Got::Wait => Ok(None),
                Got::Bad(problem) => Err(problem),
            }
        };
        if entering.page.is_none() {
            entering.page = want(own)?;
        }
        for (other, page) in &mut entering.others {
            if page.is_some() {
                continue;
            }
            *page = match other {
                Other::Below(map) => Some(OtherPage::Below(*map)),
                Other::Here(Child::Hole { .. }) => Some(OtherPage::Hole),
                Other::Here(Child::Page { ptr, .. }) if *ptr == own => {
                    entering.page.clone().map(OtherPage::Page)
                }
                Other::Here(Child::Page { ptr, .. }) => want(*ptr)?.map(OtherPage::Page),
            };
        }
        let whole = entering.page.is_some() && entering.others.iter().all(|(_, p)| p.is_some());
        if !whole {
            return Ok(false);
        }
        let Entering { page, others, changed, .. } = self.entering.take().expect("looked at above");
        let page = page.expect("it is whole");
        let stamp = if changed > summary(&page, level).changed { changed } else { Seq(0) };
        let shift = 7 * (u32::from(level) + 1);
        let behind = self.from.saturating_sub(index << shift) >> (7 * u32::from(level));
        let next = if index << shift < self.from { to_usize(behind) } else { 0 };
        let others = others.into_iter().filter_map(|(_, page)| page).collect();
        self.pages += 1;
        self.stack.push(Frame { ptr: own, level, index, stamp, page, others, next });
        Ok(true)
    }

    /// The next of the page on top. `Some` ends the walk.
    fn advance(&mut self, guide: &mut impl Guide) -> Option<WalkStep> {
        let top = self.stack.last_mut().expect("called with a page");
        if top.next == FAN_OUT {
            let ptr = top.ptr;
            self.stack.pop();
            self.passed += 1;
            guide.left(ptr);
            return None;
        }
        let at = top.next;
        top.next += 1;
        let (level, stamp) = (top.level, top.stamp);
        let index = top.index * FAN_OUT as u64 + at as u64;
        if level == 0 {
            self.entries.clear();
            self.entries.extend(top.others.iter().map(|other| other.entry(at)));
            let others = &self.entries[..];
            let found = entry(&top.page, at);
            let changed = found.changed().max(stamp);
            let seen = Seen { span: index..index + 1, changed, others };
            return (!guide.entry(found, &seen)).then_some(WalkStep::Stopped(Granule(index)));
        }
        let others: Vec<Other> = top.others.iter().map(|other| other.child(level, at)).collect();
        let below = child(&top.page, at);
        self.meet(below, level - 1, index, stamp, others, guide)
    }
}

impl OtherPage {
    fn entry(&self, at: usize) -> Entry {
        match self {
            OtherPage::Page(page) => entry(page, at),
            OtherPage::Hole | OtherPage::Below(_) => Entry::Hole { changed: Seq(0) },
        }
    }

    /// What is at this place of a page of `level`.
    fn child(&self, level: u8, at: usize) -> Other {
        match self {
            OtherPage::Page(page) => Other::Here(child(page, at)),
            OtherPage::Below(map) if at == 0 && map.height == level => Other::Here(map.root),
            OtherPage::Below(map) if at == 0 => Other::Below(*map),
            OtherPage::Below(_) | OtherPage::Hole => Other::Here(Child::NEVER),
        }
    }
}

/// Whether an entry is this very block.
pub fn is_block(entry: &Entry, block: &Block) -> bool {
    matches!(entry, Entry::Block(other) if other.place == block.place)
}
