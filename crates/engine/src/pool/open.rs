//! Opening a pool: the newest superblock, the volumes, and what the journal holds since.
use std::collections::{BTreeMap, HashMap, VecDeque};

use block::{Buf, ByteLen, Wait};

use crate::error::{CheckpointError, OpenError};
use crate::format::{
    Child, FAN_OUT, FORMAT_VERSION, PageId, PageKind, PagePtr, Record, SUPERBLOCK_LEN, Superblock,
    SuperblockProblem, child, decode_object, verify_page,
};
use crate::journal::{Replayed, Ring, replay};
use crate::limits::{Limits, MAP_PAGE};
use crate::map::Pages;
use crate::overlay::{Displaced, Overlay};
use crate::pool::flush::Flush;
use crate::pool::queue::Queue;
use crate::pool::read::Reads;
use crate::pool::seal::InFlight;
use crate::pool::{Condition, Counters, Device, Pool, PoolInfo, VolumeInfo, blocking_read};
use crate::space::{Layout, Space};
use crate::units::{Epoch, Extent, Session, Slot, VolumeId};
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
        OpenOptions { limits, ..OpenOptions::default() }
    }

    fault_question!(has_fault_replay_stops_early, ReplayStopsEarly);
    fault_question!(has_fault_replay_older_session, ReplayOlderSession);
    fault_question!(has_fault_replay_trusts_data, ReplayTrustsData);
    fault_question!(has_fault_open_older_epoch, OpenOlderEpoch);
}

/// The newest superblock. See the invariants of the format: at most one copy of a pair is bad
/// after a power cut, so two are damage.
pub fn newest_superblock<D: Wait>(
    disk: &mut D,
    options: &OpenOptions,
) -> Result<Superblock, OpenError> {
    let size = disk.geometry().size;
    let mut newest: Option<Superblock> = None;
    let (mut ruined, mut foreign, mut version) = (0, 0, None);
    for pair in [Epoch(0), Epoch(1)] {
        let mut bad = 0;
        for copy in 0..2 {
            let at = Layout::superblock(pair, copy);
            if at.0 + SUPERBLOCK_LEN as u64 > size.0 {
                foreign += 1;
                continue;
            }
            // A copy that cannot be read is as bad as one whose checksum fails.
            let found = match blocking_read(disk, at, SUPERBLOCK_LEN) {
                Ok(bytes) => Superblock::decode(&bytes),
                Err(_) => Err(SuperblockProblem::Checksum),
            };
            match found {
                Ok(found) => {
                    if newest.as_ref().is_none_or(|newest| found.epoch > newest.epoch) {
                        newest = Some(found);
                    }
                }
                Err(problem) => {
                    bad += 1;
                    foreign += usize::from(problem == SuperblockProblem::Foreign);
                    if let SuperblockProblem::Version { found } = problem {
                        version = Some(found);
                    }
                }
            }
        }
        ruined += usize::from(bad == 2);
    }
    if let Some(found) = version {
        return Err(OpenError::Version { found, known: FORMAT_VERSION });
    }
    match newest {
        None if foreign == 4 => Err(OpenError::NotAPool),
        None => Err(OpenError::SuperblockDamaged { other: Epoch(0) }),
        Some(newest) if ruined > 0 && !options.has_fault_open_older_epoch() => {
            Err(OpenError::SuperblockDamaged { other: newest.epoch })
        }
        Some(newest) => check_device(disk, newest),
    }
}

fn check_device<D: Wait>(disk: &D, superblock: Superblock) -> Result<Superblock, OpenError> {
    let geometry = disk.geometry();
    let needs = ByteLen(superblock.sectors * superblock.sector.bytes());
    if geometry.size < needs {
        return Err(OpenError::Truncated { has: geometry.size, needs });
    }
    let (pool, device) = (superblock.sector.bytes(), geometry.sector.bytes());
    if pool < device {
        return Err(OpenError::Sector { pool, device });
    }
    Ok(superblock)
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
        let Ok(bytes) = blocking_read(disk, layout.offset(place), MAP_PAGE) else { continue };
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
            volumes.insert(VolumeId(index), decode_object(&page)?);
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

impl<D: Wait> Pool<D> {
    /// Opens a pool for service. What the journal holds is replayed, and a first checkpoint makes
    /// a new session of it, so that nothing of the old one can be taken for new.
    pub fn open(disk: D, options: OpenOptions) -> Result<Pool<D>, OpenError> {
        let mut pool = Pool::load(disk, options)?;
        // Space of replayed slots is in use from here on; what they displaced is not yet free.
        pool.begin_checkpoint(false);
        let first = pool.finish_job();
        first.map_err(|failure: CheckpointError| match failure {
            CheckpointError::PageDamaged { what, problem } => {
                OpenError::PageDamaged { what, problem }
            }
            CheckpointError::Device(error) => OpenError::Device(error),
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
        Pool {
            device: Device::new(disk, superblock.sector, limits.buffer_bytes),
            condition: Condition::Serving,
            pages: Pages::new(superblock.pool(), limits.cache_pages),
            space: Space::new(layout, superblock.space.clone()),
            ring: Ring::new(superblock.journal_blocks, superblock.replay_from, replayed.end),
            volumes: kept.into_iter().map(|(id, kept)| (id, Volume::new(id, kept))).collect(),
            names,
            next_volume: superblock.next_volume,
            active: Overlay::default(),
            frozen: None,
            queue: Queue::default(),
            in_flight: InFlight::default(),
            reads: Reads::default(),
            flush: Flush::default(),
            job: None,
            checkpoint_wanted: false,
            edges_arrived: false,
            session: Session(superblock.session.0 + 1),
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
        let unknown = crate::format::Malformed { what: "volume of a journal record", at: 0 };
        if let Record::Create { volume, header } = record {
            self.names.insert(header.name.clone(), volume);
            let mut created = Volume::new(volume, Durable::with_header(*header));
            created.dirty = true;
            self.volumes.insert(volume, created);
            self.next_volume = self.next_volume.max(volume.0 + 1);
            return Ok(());
        }
        let volume = self.volumes.get_mut(&id).ok_or(unknown)?;
        volume.dirty = true;
        match record {
            Record::Update { position, spans, .. } => {
                volume.kept.position = position;
                self.claim_spans(&spans)?;
                self.overlay_spans(id, position, &spans, slot);
            }
            Record::Resize { position, size, .. } => {
                volume.kept.position = position;
                volume.kept.header.size = size;
            }
            Record::State { position, state, .. } => {
                volume.kept.position = position;
                volume.kept.state = state;
            }
            Record::Mark { position, .. } => volume.kept.position = position,
            Record::Delete { .. } => {
                volume.kept.deleting = true;
                volume.front.deleted = true;
                self.names.remove(&volume.kept.header.name);
                let mut displaced = Displaced::new();
                self.active.remove(id, &mut displaced);
                self.free_displaced(displaced);
            }
            Record::Carry { first, count, changed, .. } => {
                let height = volume.height();
                self.active.insert_hole_below(id, height, first, count, changed, slot);
            }
            Record::Create { .. } => unreachable!("handled above"),
        }
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.front.size = volume.kept.header.size;
            volume.front.position = volume.kept.position;
        }
        Ok(())
    }

    fn claim_spans(&mut self, spans: &[crate::format::Span]) -> Result<(), OpenError> {
        for span in spans {
            let crate::format::Span::Blocks { blocks, .. } = span else { continue };
            for block in blocks {
                let extent = Extent { start: block.place, sectors: u64::from(block.sectors) };
                if !self.space.layout.holds(extent) {
                    let malformed = crate::format::Malformed { what: "place of a block", at: 0 };
                    return Err(malformed.into());
                }
                self.space.claim(extent);
            }
        }
        Ok(())
    }

    /// The pool takes in what the device has become larger by.
    pub fn grow(&mut self) -> Result<ByteLen, CheckpointError> {
        self.finish_job()?;
        let layout = &self.space.layout;
        let size = self.device.disk.geometry().size;
        let sectors = layout.per(size.0 - size.0 % 4096);
        let most = Layout { sectors, ..layout.clone() };
        if sectors > layout.sectors && most.roots() <= crate::format::SPACE_ROOTS_MAX as u64 {
            self.begin_checkpoint_with(false, sectors);
            self.finish_job()?;
        }
        Ok(self.space.layout.bytes(self.space.layout.sectors))
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
