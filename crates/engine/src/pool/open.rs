//! Opening a pool: the newest superblock, the volumes, and what the journal holds since.
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use block::{Buf, ByteLen, Seq, Wait};

use crate::error::{CheckpointError, OpenError};
use crate::format::{
    Child, FAN_OUT, Malformed, PageId, PageKind, PagePtr, SPACE_ROOTS_MAX, Superblock, child,
    decode_object, verify_page,
};
use crate::journal::{Replayed, Ring, replay};
use crate::limits::{Limits, MAP_PAGE, SEQ_MAX};
use crate::map::Pages;
use crate::overlay::Overlay;
use crate::pool::failure::{failures, marked};
use crate::pool::flush::Flush;
use crate::pool::queue::Queue;
use crate::pool::read::Reads;
use crate::pool::seal::InFlight;
use crate::pool::superblocks::{mend_superblocks, newest_superblock};
use crate::pool::{
    Condition, Counters, Device, Pool, PoolInfo, SnapshotInfo, VolumeInfo, blocking, blocking_read,
};
use crate::snapshot::{Object, Snapshot};
use crate::space::{Layout, Space};
use crate::units::{Extent, ObjectId, Session, Slot, SnapshotId, VolumeId};
use crate::volume::Volume;

/// How to open a pool.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    pub limits: Limits,
    #[cfg(feature = "faults")]
    pub fault: Option<crate::Fault>,
}

macro_rules! fault_question {
    ($name:ident, $fault:ident) => {
        pub(crate) fn $name(&self) -> bool {
            #[cfg(feature = "faults")]
            return self.fault == Some(crate::Fault::$fault);
            #[cfg(not(feature = "faults"))]
            false
        }
    };
}

impl OpenOptions {
    pub fn with(limits: Limits) -> OpenOptions {
        OpenOptions {
            limits,
            #[cfg(feature = "faults")]
            fault: None,
        }
    }

    fault_question!(has_fault_replay_stops_early, ReplayStopsEarly);
    fault_question!(has_fault_replay_older_session, ReplayOlderSession);
    fault_question!(has_fault_replay_trusts_data, ReplayTrustsData);
    fault_question!(has_fault_open_older_epoch, OpenOlderEpoch);
}

/// Reads a page, from its second place if the first is bad.
pub fn read_page<D: Wait>(
    disk: &mut D,
    layout: &Layout,
    pool: u64,
    ptr: PagePtr,
    id: PageId,
    what: &'static str,
) -> Result<Buf, OpenError> {
    let mut last = crate::format::PageProblem::Unreadable;
    for place in ptr.places {
        let Ok(bytes) = blocking_read(disk, layout.offset(place), MAP_PAGE) else {
            continue;
        };
        match verify_page(&bytes, pool, id) {
            Ok(()) => return Ok(bytes),
            Err(problem) => last = problem,
        }
    }
    Err(OpenError::PageDamaged { what, problem: last })
}

/// Everything that the directory names.
pub type Objects = BTreeMap<ObjectId, Object>;

/// All objects of the directory, and the pages that it takes.
pub fn read_directory<D: Wait>(
    disk: &mut D,
    superblock: &Superblock,
) -> Result<(Objects, Vec<(PagePtr, PageId)>), OpenError> {
    let layout = Layout::of(superblock);
    let pool = superblock.pool();
    let (mut objects, mut pages) = (BTreeMap::new(), Vec::new());
    let mut todo: Vec<(PagePtr, u8, u64)> =
        superblock.directory.map(|ptr| (ptr, superblock.directory_height, 0)).into_iter().collect();
    while let Some((ptr, level, index)) = todo.pop() {
        let kind = if level == 0 { PageKind::Object } else { PageKind::Directory };
        let id = PageId { kind, level, index, born: ptr.born };
        pages.push((ptr, id));
        if level == 0 {
            let page = read_page(disk, &layout, pool, ptr, id, "directory")?;
            let object = decode_object(&page)?;
            check_object(&layout, &object)?;
            objects.insert(ObjectId(index), object);
            continue;
        }
        let page = read_page(disk, &layout, pool, ptr, id, "directory")?;
        for within in 0..FAN_OUT {
            if let Child::Page { ptr, .. } = child(&page, within) {
                todo.push((ptr, level - 1, index * FAN_OUT as u64 + within as u64));
            }
        }
    }
    check_family(&objects)?;
    check_numbers(&objects, superblock.next_object)?;
    Ok((objects, pages))
}

pub(super) fn malformed(what: &'static str) -> OpenError {
    Malformed { what, at: 0 }.into()
}

/// What of an object everything behind relies on.
pub(super) fn check_object(layout: &Layout, object: &Object) -> Result<(), OpenError> {
    let holds = |start| layout.holds(Extent { start, sectors: layout.page() });
    let (map, size) = (object.map(), object.header().size);
    let seq = match object {
        Object::Volume(volume) => volume.position.seq,
        Object::Snapshot(cut) => cut.position.seq,
        Object::Orphan(_) => Seq(0),
    };
    match map.root {
        Child::Page { ptr, .. } if !ptr.places.into_iter().all(holds) => {
            Err(malformed("place of a map"))
        }
        Child::Page { .. } if map.height == 0 => Err(malformed("height of a map")),
        _ if map.height > 5 || size == 0 => Err(malformed("size of a volume")),
        _ if map.root.changed().0 > SEQ_MAX || seq.0 >= SEQ_MAX => {
            Err(malformed("position of a volume"))
        }
        _ if map.root.held().stored > layout.sectors.saturating_mul(2) => {
            Err(malformed("stored sectors of a volume"))
        }
        _ if map.root.held().blocks > map.end() => Err(malformed("blocks of a volume")),
        Child::Page { ptr, .. } if ptr.born.0 >> 40 != 0 => Err(malformed("birth of a map")),
        _ => Ok(()),
    }
}

/// Whoever goes on from a snapshot must find it, and not go in circles.
fn check_family(objects: &BTreeMap<ObjectId, Object>) -> Result<(), OpenError> {
    let mut sound = BTreeSet::new();
    for (id, object) in objects {
        let mut line = vec![*id];
        let mut at = object.parent();
        while let Some(parent) = at {
            let id = ObjectId::from(parent);
            let Some(found @ Object::Snapshot(_)) = objects.get(&id) else {
                return Err(malformed("parent of a volume or snapshot"));
            };
            if sound.contains(&id) {
                break;
            }
            if line.len() > objects.len() {
                return Err(malformed("parents of snapshots"));
            }
            line.push(id);
            at = found.parent();
        }
        sound.extend(line);
    }
    Ok(())
}

/// The next object gets a number that no other has, whatever its kind.
fn check_numbers(objects: &Objects, next: u64) -> Result<(), OpenError> {
    match objects.last_key_value() {
        Some((last, _)) if last.0 >= next => Err(malformed("number of the next object")),
        _ => Ok(()),
    }
}

impl<D: Wait> Pool<D> {
    /// Opens a pool for service. What the journal holds is replayed, and a first checkpoint makes
    /// a new session of it, so that nothing of the old one can be taken for new.
    pub fn open(mut disk: D, options: OpenOptions) -> Result<Pool<D>, OpenError> {
        // What is read here may be in the device's cache alone, if its owner was killed. It must
        // not be built upon before it is durable.
        let flushed = blocking::flush(&mut disk).map_err(OpenError::from);
        marked(&mut disk, &options, flushed)?;
        // Another version, or a ruined pair, is refused before anything is written.
        newest_superblock(&mut disk, &options)?;
        let mended = mend_superblocks(&mut disk);
        marked(&mut disk, &options, mended)?;
        let mut pool = Pool::load(disk, options)?;
        if pool.device.disk.is_sparse() {
            pool.begin_backing()?;
        }
        // Space of replayed slots is in use from here on; what they displaced is not yet free.
        pool.begin_checkpoint(false);
        let first = pool.finish_job();
        pool.finish_marking();
        first.map_err(|failure: CheckpointError| match failure {
            CheckpointError::PageDamaged { what, problem } => {
                OpenError::PageDamaged { what, problem }
            }
            CheckpointError::Device(error) => OpenError::Device(error),
            CheckpointError::Contradiction(found) => OpenError::Contradiction(found),
            CheckpointError::PoolFailed { reason } => OpenError::Failed { reason },
        })?;
        pool.counters.pages_read_at_open += pool.pages.reads;
        pool.clamp_credits();
        Ok(pool)
    }

    /// Everything that opening reads, without the checkpoint that would change the device.
    fn load(mut disk: D, options: OpenOptions) -> Result<Pool<D>, OpenError> {
        let superblock = newest_superblock(&mut disk, &options)?;
        let (kept, directory_pages) = read_directory(&mut disk, &superblock)?;
        let replayed = replay(&mut disk, &superblock, &options)?;
        let failures = failures(&mut disk, &superblock);
        let mut pool = Pool::before_replay(disk, superblock, kept, &replayed, options);
        pool.failures = failures;
        pool.counters.pages_read_at_open = directory_pages.len() as u64;
        pool.counters.replayed_slots = replayed.slots.len() as u64;
        for (slot, records) in replayed.slots {
            for record in records {
                pool.replay_record(slot, record)?;
            }
        }
        let mut staged = Vec::new();
        for volume in pool.volumes.values_mut() {
            (volume.held, volume.durable) = (volume.kept.position, volume.kept.position);
            let staging = volume.kept.staging.filter(|_| !volume.deleting);
            staged.extend(staging.map(|staging| (staging.of, volume.id)));
        }
        for (of, staging) in staged {
            if let Some(volume) = pool.volumes.get_mut(&of) {
                volume.front.staged = Some(staging);
            }
        }
        Ok(pool)
    }

    fn before_replay(
        disk: D,
        superblock: Superblock,
        objects: BTreeMap<ObjectId, Object>,
        replayed: &Replayed,
        options: OpenOptions,
    ) -> Pool<D> {
        let layout = Layout::of(&superblock);
        let limits = options.limits;
        let last = Slot(replayed.end.0 - 1);
        let (mut volumes, mut snapshots) = (BTreeMap::new(), BTreeMap::new());
        let (mut orphans, mut names) = (BTreeMap::new(), HashMap::new());
        let mut deleted_snapshots = BTreeSet::new();
        for (id, object) in objects {
            match object {
                Object::Volume(kept) => {
                    let id = VolumeId(id.0);
                    if kept.staging.is_none() {
                        names.insert(kept.header.name.clone(), id);
                    }
                    volumes.insert(id, Volume::new(id, kept));
                }
                Object::Snapshot(cut) => {
                    let (id, front_deleted) = (SnapshotId(id.0), cut.deleted);
                    if cut.deleted {
                        deleted_snapshots.insert(id);
                    }
                    snapshots.insert(id, Snapshot { id, cut, settled: true, front_deleted });
                }
                Object::Orphan(orphan) => {
                    orphans.insert(id, orphan);
                }
            }
        }
        Pool {
            device: Device::new(disk, superblock.sector, limits.buffer_bytes),
            condition: Condition::Serving,
            pages: Pages::new(superblock.pool(), limits.cache_pages),
            space: Space::new(layout, superblock.space.clone()),
            ring: Ring::new(superblock.journal_blocks, superblock.replay_from, replayed.end),
            volumes,
            snapshots,
            deleted_snapshots,
            orphans,
            names,
            dirty: BTreeSet::new(),
            deleting: BTreeSet::new(),
            next_object: superblock.next_object,
            active: Overlay::default(),
            frozen: None,
            queue: Queue::default(),
            in_flight: InFlight::default(),
            reads: Reads::default(),
            looks: Vec::new(),
            scrub: None,
            mending: 0,
            superblocks_due: 0,
            holding: false,
            flush: Flush::default(),
            backing: None,
            job: None,
            checkpoint_wanted: false,
            zeroed: 0,
            edges_arrived: false,
            session: Session(replayed.newest_session.0 + 1),
            held: last,
            durable: last,
            durable_told: last,
            replies: VecDeque::new(),
            counters: Counters::default(),
            failure: None,
            failures: 0,
            marking: 0,
            superblock,
            limits,
            #[cfg(feature = "faults")]
            fault: options.fault,
        }
    }

    /// The pool takes in what the device has become larger by, and waits until that counts.
    pub fn grow(&mut self) -> Result<ByteLen, CheckpointError> {
        // No checkpoint begins by itself before the one that grows.
        self.holding = true;
        let settled = self.finish_job();
        self.holding = false;
        settled?;
        self.back_homes_of_last_region()?;
        self.begin_grow();
        self.finish_job()?;
        Ok(self.space.layout.bytes(self.space.layout.sectors))
    }

    /// Begins a checkpoint that records the device's present size. No other may be running.
    pub fn begin_grow(&mut self) {
        let layout = &self.space.layout;
        let size = self.device.disk.geometry().size;
        let sectors = layout.per(size.0 - size.0 % 4096);
        let grown = Layout { sectors, ..layout.clone() };
        if sectors > layout.sectors && grown.roots() <= SPACE_ROOTS_MAX as u64 {
            self.begin_checkpoint_with(false, sectors);
        }
    }
}

/// A pool as it lies on a device that nobody has open. Nothing is written.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub info: PoolInfo,
    pub volumes: Vec<VolumeInfo>,
    pub snapshots: Vec<SnapshotInfo>,
    /// Slots that opening would replay.
    pub journal_slots: u64,
    /// Whether it was closed in order.
    pub clean: bool,
}

pub fn inspect<D: Wait>(disk: D) -> Result<Inspection, OpenError> {
    let pool = Pool::load(disk, OpenOptions::default())?;
    Ok(Inspection {
        info: pool.info(),
        volumes: pool.volumes(),
        snapshots: pool.snapshots(),
        journal_slots: pool.counters.replayed_slots,
        clean: pool.superblock.clean && pool.counters.replayed_slots == 0,
    })
}

#[cfg(test)]
mod tests;
