//! The directory: a radix tree from object numbers to object pages, rewritten by a checkpoint
//! where volumes changed. Same pages and same rules as the maps; the lowest level holds the
//! places of object pages instead of blocks.
use std::collections::BTreeMap;

use block::{Buf, Disk, Seq};

use crate::error::CheckpointError;
use crate::format::{
    Child, FAN_OUT, Held, PageId, PageKind, PagePtr, blank_page, child, encode_object, set_child,
};
use crate::limits::MAP_PAGE;
use crate::map::merge::free_page;
use crate::map::writer::Wrote;
use crate::map::{Got, PageWriter, Pages, Waiter};
use crate::pool::Device;
use crate::snapshot::Object;
use crate::space::Space;
use crate::units::{Birth, Extent, ObjectId, to_usize};
use crate::volume::height_for;

struct Frame {
    level: u8,
    index: u64,
    page: Buf,
    old: Option<PagePtr>,
}

pub struct DirectoryEdit {
    /// What objects become; `None` removes one.
    changes: BTreeMap<ObjectId, Option<Object>>,
    root: Child,
    height: u8,
    target: u8,
    stack: Vec<Frame>,
    cursor: u64,
}

pub struct DirectoryContext<'a, D: Disk> {
    pub birth: Birth,
    pub pages: &'a mut Pages,
    pub device: &'a mut Device<D>,
    pub space: &'a mut Space,
    pub writer: &'a mut PageWriter,
    pub freed: &'a mut Vec<Extent>,
}

pub enum DirectoryStep {
    Wait,
    Done { root: Option<PagePtr>, height: u8 },
}

impl DirectoryEdit {
    pub fn new(
        changes: BTreeMap<ObjectId, Option<Object>>,
        root: Option<PagePtr>,
        height: u8,
    ) -> DirectoryEdit {
        let highest = changes.keys().next_back().map_or(0, |id| id.0);
        let root = root.map_or(Child::NEVER, directory_child);
        let target = height_for(highest + 1).max(height).max(1);
        DirectoryEdit { changes, root, height, target, stack: Vec::new(), cursor: 0 }
    }

    pub fn step<D: Disk>(
        &mut self,
        cx: &mut DirectoryContext<'_, D>,
    ) -> Result<DirectoryStep, CheckpointError> {
        while self.height < self.target {
            if !self.raise(cx)? {
                return Ok(DirectoryStep::Wait);
            }
        }
        loop {
            let next = self.changes.range(ObjectId(self.cursor)..).next().map(|(id, _)| id.0);
            let done = match (self.stack.last(), next) {
                (None, None) => {
                    let root = match self.root {
                        Child::Page { ptr, .. } => Some(ptr),
                        Child::Hole { .. } => None,
                    };
                    return Ok(DirectoryStep::Done { root, height: self.height });
                }
                (None, Some(id)) => self.descend(id, cx)?,
                (Some(top), Some(id)) if id < (top.index + 1) << (7 * u32::from(top.level)) => {
                    if top.level == 1 {
                        self.apply(id, cx)?
                    } else {
                        self.descend(id, cx)?
                    }
                }
                (Some(_), _) => self.finish(cx)?,
            };
            if !done {
                return Ok(DirectoryStep::Wait);
            }
        }
    }

    fn raise<D: Disk>(
        &mut self,
        cx: &mut DirectoryContext<'_, D>,
    ) -> Result<bool, CheckpointError> {
        if let Child::Page { .. } = self.root {
            let mut page = Buf::zeroed(MAP_PAGE);
            set_child(&mut page, 0, self.root);
            match write(&mut page, PageKind::Directory, self.height + 1, 0, cx)? {
                Some(ptr) => {
                    cx.pages.hold(ptr, &page);
                    self.root = directory_child(ptr);
                }
                None => return Ok(false),
            }
        }
        self.height += 1;
        Ok(true)
    }

    fn descend<D: Disk>(
        &mut self,
        id: u64,
        cx: &mut DirectoryContext<'_, D>,
    ) -> Result<bool, CheckpointError> {
        let (level, below) = match self.stack.last() {
            Some(top) => {
                let within = to_usize(id >> (7 * (u32::from(top.level) - 1))) % FAN_OUT;
                (top.level - 1, child(&top.page, within))
            }
            None => (self.height, self.root),
        };
        let index = id >> (7 * u32::from(level));
        let mut page = Buf::zeroed(MAP_PAGE);
        let old = match below {
            Child::Hole { .. } => None,
            Child::Page { ptr, .. } => {
                let id = PageId { kind: PageKind::Directory, level, index, born: ptr.born };
                match cx.pages.want(ptr, id, Waiter::Pump, cx.device) {
                    Got::Page(found) => page.copy_from_slice(&found),
                    Got::Wait => return Ok(false),
                    Got::Bad(problem) => {
                        return Err(CheckpointError::PageDamaged { what: "directory", problem });
                    }
                }
                Some(ptr)
            }
        };
        self.stack.push(Frame { level, index, page, old });
        Ok(true)
    }

    /// Writes one object page and enters its place into the lowest directory page.
    fn apply<D: Disk>(
        &mut self,
        id: u64,
        cx: &mut DirectoryContext<'_, D>,
    ) -> Result<bool, CheckpointError> {
        let new = match &self.changes[&ObjectId(id)] {
            None => Child::NEVER,
            Some(object) => {
                let mut page = Buf::zeroed(MAP_PAGE);
                blank_page(&mut page);
                encode_object(&mut page, object);
                match write(&mut page, PageKind::Object, 0, id, cx)? {
                    Some(ptr) => directory_child(ptr),
                    None => return Ok(false),
                }
            }
        };
        let top = self.stack.last_mut().expect("the lowest directory page is on top");
        let within = to_usize(id) % FAN_OUT;
        if let Child::Page { ptr, .. } = child(&top.page, within) {
            free_page(ptr, cx.space.layout.page(), cx.freed);
        }
        set_child(&mut top.page, within, new);
        self.cursor = id + 1;
        Ok(true)
    }

    fn finish<D: Disk>(
        &mut self,
        cx: &mut DirectoryContext<'_, D>,
    ) -> Result<bool, CheckpointError> {
        let top = self.stack.last_mut().expect("a page is on top");
        let empty = (0..FAN_OUT).all(|at| matches!(child(&top.page, at), Child::Hole { .. }));
        let new = if empty {
            Child::NEVER
        } else {
            match write(&mut top.page, PageKind::Directory, top.level, top.index, cx)? {
                Some(ptr) => directory_child(ptr),
                None => return Ok(false),
            }
        };
        let top = self.stack.pop().expect("looked at above");
        if let Some(old) = top.old {
            free_page(old, cx.space.layout.page(), cx.freed);
        }
        match self.stack.last_mut() {
            Some(parent) => set_child(&mut parent.page, to_usize(top.index) % FAN_OUT, new),
            None => self.root = new,
        }
        Ok(true)
    }
}

fn write<D: Disk>(
    page: &mut Buf,
    kind: PageKind,
    level: u8,
    index: u64,
    cx: &mut DirectoryContext<'_, D>,
) -> Result<Option<PagePtr>, CheckpointError> {
    let id = PageId { kind, level, index, born: cx.birth };
    let keep = kind == PageKind::Directory;
    Ok(match cx.writer.write(page, 0, id, keep, cx.space, cx.pages, cx.device)? {
        Wrote::At(ptr) => Some(ptr),
        Wrote::Wait => None,
    })
}

fn directory_child(ptr: PagePtr) -> Child {
    Child::Page { ptr, changed: Seq(0), held: Held::default() }
}
