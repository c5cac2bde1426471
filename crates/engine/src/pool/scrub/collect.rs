//! What comes next: a batch of pages, blocks or slots to be read.
use std::collections::HashSet;

use block::{ByteOffset, Disk};

use super::{At, Damage, Expect, Item, Part, Scrub};
use crate::format::{Block, Child, Entry, FAN_OUT, PageId, PageKind, PagePtr, child};
use crate::limits::{JOURNAL_BLOCK, MAP_PAGE, SLOT_BLOCKS_MAX};
use crate::map::{Enter, Got, Guide, Seen, Waiter, Walk, WalkContext, WalkStep};
use crate::pool::{Pool, Subject};
use crate::snapshot::{Floor, Object};
use crate::space::Layout;
use crate::units::{Birth, Epoch, Granule, ObjectId, Slot, SnapshotId, VolumeId};

/// Blocks and pages of a batch: enough to keep a device busy, little enough to be thrown away.
const BATCH: usize = 32;
/// Journal blocks of a batch.
const WINDOW: u64 = 64;

/// Gathers what a map owns.
pub struct Collect {
    floor: Floor,
    from: u64,
    page_levels: Vec<(PagePtr, u8, u64)>,
    blocks: Vec<(Granule, Block)>,
    skipped: HashSet<PagePtr>,
    last: Option<PagePtr>,
}

impl Guide for Collect {
    fn enter(&mut self, ptr: PagePtr, seen: &Seen<'_, Child>) -> Enter {
        if !self.floor.owns_page(ptr, seen.span.end) || self.skipped.contains(&ptr) {
            return Enter::No;
        }
        let fresh = seen.span.start >= self.from;
        if fresh && self.page_levels.len() + self.blocks.len() >= BATCH {
            return Enter::Stop;
        }
        self.last = Some(ptr);
        if fresh {
            let span = seen.span.end - seen.span.start;
            let level = (span.trailing_zeros() / 7 - 1).to_le_bytes()[0];
            self.page_levels.push((ptr, level, seen.span.start / span));
        }
        Enter::Yes
    }

    fn entry(&mut self, entry: Entry, seen: &Seen<'_, Entry>) -> bool {
        let Entry::Block(block) = entry else { return true };
        if !self.floor.owns(block.born, seen.span.end) || seen.span.start < self.from {
            return true;
        }
        if self.blocks.len() >= BATCH {
            return false;
        }
        self.blocks.push((Granule(seen.span.start), block));
        true
    }
}

impl<D: Disk> Pool<D> {
    /// Makes the next batch. `false`: something has to be waited for.
    pub(super) fn gather(&mut self, scrub: &mut Scrub) -> bool {
        match scrub.at.clone() {
            At::Begin(before) if self.superblock.epoch <= before => return false,
            At::Begin(_) => scrub.at = At::Superblocks,
            // The other pair is being written while a checkpoint ends.
            At::Superblocks if self.job.as_ref().is_some_and(|job| job.is_ending()) => {
                return false;
            }
            At::Superblocks => self.gather_superblocks(scrub),
            At::Journal(from) => self.gather_journal(scrub, from),
            At::Directory { from, epoch, stack } => {
                return self.gather_directory(scrub, from, epoch, stack);
            }
            At::Space(level, index) => return self.gather_space(scrub, level, index),
            At::Map(object, from) => return self.gather_map(scrub, object, from),
            At::End => scrub.status.finished = true,
        }
        true
    }

    fn gather_superblocks(&mut self, scrub: &mut Scrub) {
        let epoch = self.superblock.epoch;
        let pairs = [epoch, Epoch(epoch.0.saturating_sub(1))];
        let items = pairs.into_iter().flat_map(|epoch| {
            (0..2).map(move |copy| {
                let at = Layout::superblock(epoch, copy);
                Item::new(at, MAP_PAGE as u64, Expect::Superblock(epoch))
            })
        });
        let next = At::Journal(self.ring.tail());
        self.send_batch(scrub, items.collect(), next, epoch);
    }

    fn gather_journal(&mut self, scrub: &mut Scrub, from: Slot) {
        let from = from.max(self.ring.tail());
        let end = self.held.0 + 1;
        if from.0 >= end {
            scrub.at = At::Directory { from: 0, epoch: Epoch(0), stack: Vec::new() };
            return;
        }
        let blocks = self.space.layout.journal_blocks;
        let count = (blocks - from.0 % blocks).min(WINDOW).min(end - from.0);
        // A slot that begins within the window may reach beyond it.
        let read = (blocks - from.0 % blocks).min(count + SLOT_BLOCKS_MAX as u64 - 1);
        let len = read * JOURNAL_BLOCK as u64;
        let expect = Expect::Journal(from, Slot(from.0 + count));
        let item = Item::new(self.space.layout.slot(from), len, expect);
        // Where the last whole slot of the window ends is known when it was read.
        let next = At::Journal(Slot(from.0 + count));
        self.send_batch(scrub, vec![item], next, self.superblock.epoch);
    }

    fn page_items(&self, ptr: PagePtr, id: PageId, part: &Part) -> [Item; 2] {
        [0, 1].map(|copy| {
            let at = self.space.layout.offset(ptr.places[copy]);
            let expect = Expect::Page { ptr, id, copy, part: part.clone() };
            Item::new(at, MAP_PAGE as u64, expect)
        })
    }

    fn gather_directory(
        &mut self,
        scrub: &mut Scrub,
        mut from: u64,
        epoch: Epoch,
        mut stack: Vec<(PagePtr, u8, u64)>,
    ) -> bool {
        let now = self.superblock.epoch;
        if epoch != now {
            let height = self.superblock.directory_height;
            stack = self.superblock.directory.map(|ptr| (ptr, height, 0)).into_iter().collect();
        }
        let mut items = Vec::new();
        while let Some((ptr, level, index)) = stack.pop() {
            let kind = if level == 0 { PageKind::Object } else { PageKind::Directory };
            let id = PageId { kind, level, index, born: ptr.born };
            if level == 0 {
                from = index + 1;
            } else {
                match self.pages.want(ptr, id, Waiter::Pump, &mut self.device) {
                    // The lowest number is to be on top.
                    Got::Page(page) => stack.extend((0..FAN_OUT).rev().filter_map(|within| {
                        let below = index * FAN_OUT as u64 + within as u64;
                        let ahead = (below + 1) << (7 * (u32::from(level) - 1)) > from;
                        child(&page, within).ptr().filter(|_| ahead).map(|p| (p, level - 1, below))
                    })),
                    Got::Wait => {
                        stack.push((ptr, level, index));
                        if items.is_empty() {
                            scrub.at = At::Directory { from, epoch: now, stack };
                            return false;
                        }
                        break;
                    }
                    // Both copies are bad, which the batch will find out.
                    Got::Bad(_) => {}
                }
            }
            items.extend(self.page_items(ptr, id, &Part::Directory));
            if items.len() >= 2 * BATCH {
                break;
            }
        }
        let next = match stack.is_empty() {
            true => At::Space(2, 0),
            false => At::Directory { from, epoch: now, stack },
        };
        self.send_batch(scrub, items, next, now);
        true
    }

    /// Space pages of one level after the other, the uppermost first.
    fn gather_space(&mut self, scrub: &mut Scrub, level: u8, from: u64) -> bool {
        let layout = self.space.layout.clone();
        let count = layout.space_pages(level);
        let mut items = Vec::new();
        let mut at = from;
        while at < count && items.len() < 2 * BATCH {
            match self.space.page_entry(level, at, &mut self.pages, &mut self.device) {
                Ok(Some(entry)) if entry.epoch != Epoch(0) => {
                    let ptr = layout.space_page(level, at, entry);
                    let born = Birth(entry.epoch.0);
                    let id = PageId { kind: PageKind::Space, level, index: at, born };
                    items.extend(self.page_items(ptr, id, &Part::SpaceMap));
                }
                Ok(Some(_)) => {}
                Ok(None) if items.is_empty() => {
                    scrub.at = At::Space(level, at);
                    return false;
                }
                Ok(None) => break,
                // Its upper page is bad in both places, and was reported.
                Err(_) => {}
            }
            at += 1;
        }
        let next = match (at < count, level) {
            (true, _) => At::Space(level, at),
            (false, 0) => At::Map(ObjectId(0), Granule(0)),
            (false, _) => At::Space(level - 1, 0),
        };
        self.send_batch(scrub, items, next, self.superblock.epoch);
        true
    }

    fn first_object(&self, from: ObjectId) -> Option<ObjectId> {
        let volumes = self.volumes.range(VolumeId(from.0)..).next().map(|(id, _)| id.0);
        let settled = |(_, s): &(&SnapshotId, &crate::snapshot::Snapshot)| s.settled;
        let snapshots =
            self.snapshots.range(SnapshotId(from.0)..).find(settled).map(|(id, _)| id.0);
        let orphans = self.orphans.range(from..).next().map(|(id, _)| id.0);
        [volumes, snapshots, orphans].into_iter().flatten().min().map(ObjectId)
    }

    /// What one map owns, from where it was left.
    fn gather_map(&mut self, scrub: &mut Scrub, from: ObjectId, at: Granule) -> bool {
        let Some(id) = self.first_object(from) else {
            scrub.at = At::End;
            return true;
        };
        let at = if id == from { at } else { Granule(0) };
        let object = self.object(id);
        let epoch = self.superblock.epoch;
        let (mut walk, mut collect) = match scrub.gathering.take() {
            Some((walk, collect, then)) if then == epoch => (walk, collect),
            _ => {
                let (floor, dropped) = match &object {
                    Object::Volume(volume) => (self.floor(volume.parent), Granule(0)),
                    Object::Snapshot(cut) => (self.floor(cut.parent), cut.dropped),
                    Object::Orphan(orphan) => (orphan.floor, orphan.dropped),
                };
                let from = at.max(dropped);
                let skipped = scrub.skipped.clone();
                let (page_levels, blocks, last) = (Vec::new(), Vec::new(), None);
                let collect = Collect { floor, from: from.0, page_levels, blocks, skipped, last };
                (Walk::new(object.map(), &[], from), collect)
            }
        };
        let mut cx = WalkContext { pages: &mut self.pages, device: &mut self.device };
        let next = match walk.step(&mut collect, &mut cx) {
            WalkStep::Wait => {
                scrub.at = At::Map(id, at);
                scrub.gathering = Some((walk, collect, epoch));
                return false;
            }
            WalkStep::Done => At::Map(ObjectId(id.0 + 1), Granule(0)),
            WalkStep::Stopped(at) => At::Map(id, at),
            WalkStep::Bad(_) => {
                // Neither copy can be read: what lies below is out of reach.
                if let Some(ptr) = collect.last {
                    scrub.skipped.insert(ptr);
                    let part = Part::Map { of: subject(id, &object) };
                    let at = self.space.layout.offset(ptr.places[0]);
                    let len = block::ByteLen(MAP_PAGE as u64);
                    scrub.status.add(Damage { part, at, len, repaired: false });
                }
                At::Map(id, at)
            }
        };
        let granule = object.header().block_size.granule();
        let part = Part::Map { of: subject(id, &object) };
        let mut items = Vec::new();
        let unskipped = collect.page_levels.iter().filter(|(ptr, ..)| !scrub.skipped.contains(ptr));
        for (ptr, level, index) in unskipped {
            let id = PageId { kind: PageKind::Map, level: *level, index: *index, born: ptr.born };
            items.extend(self.page_items(*ptr, id, &part));
        }
        for (at, block) in &collect.blocks {
            let offset = ByteOffset(at.0 * granule);
            let expect =
                Expect::Block { object: id, granule: *at, offset, checksum: block.checksum };
            let len = self.space.layout.bytes(block.sectors.into()).0;
            items.push(Item::new(self.space.layout.offset(block.place), len, expect));
        }
        self.send_batch(scrub, items, next, epoch);
        true
    }
}

/// What users know an object as.
pub fn subject(id: ObjectId, object: &Object) -> Option<Subject> {
    match object {
        Object::Volume(_) => Some(Subject::Volume(VolumeId(id.0))),
        Object::Snapshot(cut) if !cut.deleted => Some(Subject::Snapshot(SnapshotId(id.0))),
        Object::Snapshot(_) | Object::Orphan(_) => None,
    }
}
