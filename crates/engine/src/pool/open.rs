//! Opening a pool: the newest superblock, the volumes, and what the journal holds since.
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use block::{Buf, ByteLen, Wait};

use crate::error::{CheckpointError, OpenError};
use crate::format::{
    Child, Encoding, FAN_OUT, Malformed, PageId, PageKind, PagePtr, Record, SPACE_ROOTS_MAX, Span,
    Superblock, child, decode_object, verify_page,
};
use crate::journal::{Replayed, Ring, replay};
use crate::limits::{Limits, MAP_PAGE, SEQ_MAX, VOLUME_MAX};
use crate::map::{Carried, Hole, Pages};
use crate::overlay::{Displaced, Overlay};
use crate::pool::flush::Flush;
use crate::pool::queue::Queue;
use crate::pool::read::Reads;
use crate::pool::seal::InFlight;
use crate::pool::superblocks::{mend_superblocks, newest_superblock};
use crate::pool::{
    Condition, Counters, Device, Pool, PoolInfo, VolumeInfo, blocking, blocking_read,
};
use crate::space::{Layout, Space};
use crate::units::{Extent, Granule, Session, Slot, VolumeId};
use crate::volume::{Durable, Volume};

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

/// All volumes of the directory, and how many pages that took.
pub fn read_directory<D: Wait>(
    disk: &mut D,
    superblock: &Superblock,
) -> Result<(BTreeMap<VolumeId, Durable>, Vec<PagePtr>), OpenError> {
    let layout = Layout::of(superblock);
    let pool = superblock.pool();
    let (mut volumes, mut pages) = (BTreeMap::new(), Vec::new());
    let mut todo: Vec<(PagePtr, u8, u64)> =
        superblock.directory.map(|ptr| (ptr, superblock.directory_height, 0)).into_iter().collect();
    while let Some((ptr, level, index)) = todo.pop() {
        pages.push(ptr);
        if level == 0 {
            let id = PageId { kind: PageKind::Object, level: 0, index, epoch: ptr.born };
            let page = read_page(disk, &layout, pool, ptr, id, "directory")?;
            let volume = decode_object(&page)?;
            check_volume(&layout, &volume)?;
            volumes.insert(VolumeId(index), volume);
            continue;
        }
        let id = PageId { kind: PageKind::Directory, level, index, epoch: ptr.born };
        let page = read_page(disk, &layout, pool, ptr, id, "directory")?;
        for within in 0..FAN_OUT {
            if let Child::Page { ptr, .. } = child(&page, within) {
                todo.push((ptr, level - 1, index * FAN_OUT as u64 + within as u64));
            }
        }
    }
    Ok((volumes, pages))
}

fn malformed(what: &'static str) -> OpenError {
    Malformed { what, at: 0 }.into()
}

/// What of a volume everything behind relies on.
fn check_volume(layout: &Layout, volume: &Durable) -> Result<(), OpenError> {
    let holds = |start| layout.holds(Extent { start, sectors: layout.page() });
    match volume.root {
        Child::Page { ptr, .. } if !ptr.places.into_iter().all(holds) => {
            Err(malformed("place of a volume's map"))
        }
        Child::Page { .. } if volume.height == 0 => Err(malformed("height of a volume's map")),
        _ if volume.height > 7 || volume.header.size == 0 => Err(malformed("size of a volume")),
        _ if volume.root.changed().0 > SEQ_MAX || volume.position.seq.0 >= SEQ_MAX => {
            Err(malformed("position of a volume"))
        }
        _ if volume.stored > layout.sectors => Err(malformed("stored sectors of a volume")),
        _ => Ok(()),
    }
}

impl<D: Wait> Pool<D> {
    /// Opens a pool for service. What the journal holds is replayed, and a first checkpoint makes
    /// a new session of it, so that nothing of the old one can be taken for new.
    pub fn open(mut disk: D, options: OpenOptions) -> Result<Pool<D>, OpenError> {
        // What is read here may be in the device's cache alone, if its owner was killed. It must
        // not be built upon before it is durable.
        blocking::flush(&mut disk)?;
        // Another version, or a ruined pair, is refused before anything is written.
        newest_superblock(&mut disk, &options)?;
        mend_superblocks(&mut disk)?;
        let mut pool = Pool::load(disk, options)?;
        // Space of replayed slots is in use from here on; what they displaced is not yet free.
        pool.begin_checkpoint(false);
        let first = pool.finish_job();
        first.map_err(|failure: CheckpointError| match failure {
            CheckpointError::PageDamaged { what, problem } => {
                OpenError::PageDamaged { what, problem }
            }
            CheckpointError::Device(error) => OpenError::Device(error),
            CheckpointError::Contradiction(found) => OpenError::Contradiction(found),
            CheckpointError::PoolFailed { reason } => OpenError::Failed { reason },
        })?;
        pool.counters.pages_read_at_open += pool.pages.reads;
        Ok(pool)
    }

    /// Everything that opening reads, without the checkpoint that would change the device.
    fn load(mut disk: D, options: OpenOptions) -> Result<Pool<D>, OpenError> {
        let superblock = newest_superblock(&mut disk, &options)?;
        let (kept, directory_pages) = read_directory(&mut disk, &superblock)?;
        let replayed = replay(&mut disk, &superblock, &options)?;
        let mut pool = Pool::before_replay(disk, superblock, kept, &replayed, options);
        pool.counters.pages_read_at_open = directory_pages.len() as u64;
        pool.counters.replayed_slots = replayed.slots.len() as u64;
        for (slot, records) in replayed.slots {
            for record in records {
                pool.replay_record(slot, record)?;
            }
        }
        for volume in pool.volumes.values_mut() {
            (volume.held, volume.durable) = (volume.kept.position, volume.kept.position);
        }
        Ok(pool)
    }

    fn before_replay(
        disk: D,
        superblock: Superblock,
        kept: BTreeMap<VolumeId, Durable>,
        replayed: &Replayed,
        options: OpenOptions,
    ) -> Pool<D> {
        let layout = Layout::of(&superblock);
        let limits = options.limits;
        let last = Slot(replayed.end.0 - 1);
        let mut names = HashMap::new();
        for (id, volume) in kept.iter().filter(|(_, volume)| !volume.deleting) {
            names.insert(volume.header.name.clone(), *id);
        }
        let kept_deleting = kept.iter().filter(|(_, v)| v.deleting).map(|(id, _)| *id).collect();
        Pool {
            device: Device::new(disk, superblock.sector, limits.buffer_bytes),
            condition: Condition::Serving,
            pages: Pages::new(superblock.pool(), limits.cache_pages),
            space: Space::new(layout, superblock.space.clone()),
            ring: Ring::new(superblock.journal_blocks, superblock.replay_from, replayed.end),
            volumes: kept.into_iter().map(|(id, kept)| (id, Volume::new(id, kept))).collect(),
            names,
            dirty: BTreeSet::new(),
            deleting: kept_deleting,
            next_volume: superblock.next_volume,
            active: Overlay::default(),
            frozen: None,
            carried: Carried::default(),
            large_holes: 0,
            queue: Queue::default(),
            in_flight: InFlight::default(),
            reads: Reads::default(),
            flush: Flush::default(),
            job: None,
            checkpoint_wanted: false,
            edges_arrived: false,
            session: Session(replayed.newest_session.0 + 1),
            held: last,
            durable: last,
            durable_told: last,
            replies: VecDeque::new(),
            counters: Counters::default(),
            failure: None,
            superblock,
            limits,
            #[cfg(feature = "faults")]
            fault: options.fault,
        }
    }

    fn replay_record(&mut self, slot: Slot, record: Record) -> Result<(), OpenError> {
        let id = record.volume();
        if let Record::Create { volume, header } = record {
            if volume.0 >> 48 != 0 {
                return Err(malformed("number of a volume"));
            }
            self.names.insert(header.name.clone(), volume);
            let created = Volume::new(volume, Durable::with_header(*header));
            check_volume(&self.space.layout, &created.kept)?;
            self.volumes.insert(volume, created);
            self.dirty.insert(volume);
            self.next_volume = self.next_volume.max(volume.0 + 1);
            return Ok(());
        }
        let unknown = || malformed("volume of a journal record");
        let volume = self.volumes.get_mut(&id).ok_or_else(unknown)?;
        self.dirty.insert(id);
        let granules = volume.kept.header.size.div_ceil(volume.granule());
        match record {
            Record::Update { position, spans, .. } => {
                volume.kept.position = position;
                let sectors = self.space.layout.per(volume.granule());
                self.claim_spans(&spans, granules, sectors)?;
                self.overlay_spans(id, position, &spans, slot);
            }
            Record::Resize { position, size, .. } => {
                volume.kept.position = position;
                volume.kept.header.size = size;
                check_volume(&self.space.layout, &volume.kept)?;
            }
            Record::State { position, state, .. } => {
                volume.kept.position = position;
                volume.kept.state = state;
            }
            Record::Mark { position, .. } => volume.kept.position = position,
            Record::Delete { .. } => self.replay_delete(id),
            Record::Carry { first, count, changed, .. } => {
                check_run(first, count, granules)?;
                if changed.0 >= SEQ_MAX {
                    return Err(malformed("stamp of a hole"));
                }
                let end = Granule(first.0 + count);
                self.carried.add(id, changed, Hole { first, end });
            }
            Record::Create { .. } => unreachable!("handled above"),
        }
        if let Some(volume) = self.volumes.get_mut(&id) {
            if volume.kept.position.seq.0 >= SEQ_MAX || volume.kept.header.size > VOLUME_MAX {
                return Err(malformed("position or size in a journal record"));
            }
            volume.front.size = volume.kept.header.size;
            volume.front.position = volume.kept.position;
        }
        Ok(())
    }

    fn replay_delete(&mut self, id: VolumeId) {
        let volume = self.volumes.get_mut(&id).expect("looked up by the caller");
        volume.kept.deleting = true;
        volume.front.deleted = true;
        self.deleting.insert(id);
        self.names.remove(&volume.kept.header.name);
        let mut displaced = Displaced::new();
        self.active.remove(id, &mut displaced);
        self.carried.remove(id);
        self.free_displaced(displaced);
    }

    fn claim_spans(
        &mut self,
        spans: &[Span],
        granules: u64,
        sectors: u64,
    ) -> Result<(), OpenError> {
        for span in spans {
            let (first, count) = match span {
                Span::Hole { first, count } => (*first, *count),
                Span::Blocks { first, blocks } => (*first, blocks.len() as u64),
            };
            check_run(first, count, granules)?;
            let Span::Blocks { blocks, .. } = span else { continue };
            for block in blocks {
                let extent = Extent { start: block.place, sectors: u64::from(block.sectors) };
                let raw = block.encoding == Encoding::Raw;
                if !self.space.layout.holds(extent) || extent.sectors != sectors || !raw {
                    return Err(malformed("place of a block"));
                }
                self.space.claim(extent)?;
            }
        }
        Ok(())
    }

    /// The pool takes in what the device has become larger by, and waits until that counts.
    pub fn grow(&mut self) -> Result<ByteLen, CheckpointError> {
        self.finish_job()?;
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

/// A run of granules that lies within its volume.
fn check_run(first: Granule, count: u64, granules: u64) -> Result<(), OpenError> {
    match first.0.checked_add(count) {
        Some(end) if count > 0 && end <= granules => Ok(()),
        _ => Err(malformed("range of a journal record")),
    }
}

/// A pool as it lies on a device that nobody has open. Nothing is written.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub info: PoolInfo,
    pub volumes: Vec<VolumeInfo>,
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
        journal_slots: pool.counters.replayed_slots,
        clean: pool.superblock.clean && pool.counters.replayed_slots == 0,
    })
}
