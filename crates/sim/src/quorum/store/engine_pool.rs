//! A pool with the engine, on a disk that crashes.
//!
//! The engine is open all the time, also while its node is down: a kill or a power cut opens it
//! anew at once, on what its disk then has; but for a pool whose opening failed (`failing.rs`).
//! How long an operation takes is how often it is polled.
use std::collections::{BTreeMap, BTreeSet};

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::{
    BlockSize, CreateOptions, Limits, Op, OpenOptions, Pool, RequestId, VolumeId, VolumeInfo,
    VolumeSpec,
};
use node::store::Host;
use replication::state::{Origin, SnapshotEntry};
use replication::store::{StoreError, StoreFacts, StoreOp, StoreReply, StoreTag};
use replication::words::{SnapshotUid, VolumeUid};

use super::failing::Closed;
use super::{Answer, Content, Mood, Rotten, Shape};
use crate::quorum::clients::{Time, VolumeNo};
use crate::quorum::off::Off;
use crate::quorum::sparse::Sparse;
use crate::{CrashDisk, Delivery, Rng};

/// Room for the largest volume with its snapshots, and little more.
pub const POOL: u64 = 24 << 20;
/// Where volumes have dozens of snapshots. A copy that is made anew takes more space than its source, whose snapshots share
/// what was rolled back.
pub const LARGE_POOL: u64 = 64 << 20;
/// Read at once by checkers.
const CHUNK: u64 = 128 << 10;
/// Larger volumes are sparse, and are read where something was written.
const READ_WHOLE: u64 = 16 << 20;
/// Tags of checkers; replicas count from below.
const OWN_TAGS: u64 = 1 << 62;
/// Bytes that the hog writes at once until it has asked for as much as the pool has.
const BITE: usize = 256 << 10;
/// Bytes that it writes from then on, and how often: space that comes back is taken again, down to less
/// than a replica asks for.
const CRUMB: usize = 16 << 10;
const CRUMB_EVERY: u64 = 50_000;
/// The hog is thin, so many times as large as the pool: it has room for crumbs until there may be space again.
const HOG_TIMES: u64 = 3;
const HOG: &str = "hog";

pub struct EnginePool {
    off: Off,
    /// Of the device.
    size: u64,
    pub(super) host: Option<Host<CrashDisk>>,
    /// Instead of the host, where the pool did not open.
    pub(super) closed: Option<Closed>,
    pub mood: Mood,
    pub(super) rng: Rng,
    under_way: usize,
    next_poll: Option<Time>,
    /// Answers that came while a checker waited for its own.
    early: Vec<Answer>,
    tags: u64,
    /// The last place in the sequence that was asked for, by volume; what flushes that are under
    /// way cover; and what the last one covered.
    asked: BTreeMap<VolumeNo, Position>,
    flushes: BTreeMap<(VolumeNo, StoreTag), Option<Position>>,
    flushed: BTreeMap<VolumeNo, Position>,
    /// Chunks of each volume that data was ever written to.
    written: BTreeMap<VolumeNo, BTreeSet<u64>>,
    /// How much the hog has asked for, if it has been made.
    hog: Option<(VolumeId, u64)>,
    /// When it takes the next crumb.
    next_crumb: Time,
}

pub fn uid(volume: VolumeNo) -> VolumeUid {
    VolumeUid([u8::try_from(volume.0 + 1).expect("a few volumes"); 16])
}

pub(super) fn volume_of(uid: VolumeUid) -> VolumeNo {
    VolumeNo(usize::from(uid.0[0]) - 1)
}

pub(super) fn limits() -> Limits {
    Limits { cache_pages: 256, overlay_entries: 2048, queue_ops: 512, ..Limits::tiny() }
}

fn open(disk: CrashDisk, off: Off) -> Host<CrashDisk> {
    let pool = Pool::open(disk, OpenOptions::with(limits()));
    let mut pool = pool.unwrap_or_else(|error| panic!("a pool does not open: {error}"));
    off.pool(&mut pool);
    let mut host = Host::new(pool);
    // Replicas take what is held for granted only behind the first answer; so may the world.
    host.poll();
    host
}

impl EnginePool {
    pub fn new(off: Off, size: u64, mut rng: Rng, delay: u64) -> EnginePool {
        let physical = *rng.pick(&[SectorSize::B512, SectorSize::B4096]);
        let mut disk = CrashDisk::new(ByteLen(size), SectorSize::B512, rng.next_u64())
            .with_physical_sector(physical);
        let options =
            CreateOptions { journal: Some(ByteLen(512 << 10)), ..CreateOptions::default() };
        engine::create(&mut disk, &options).expect("a fresh disk");
        let host = open(disk.with_delivery(Delivery::Random), off);
        EnginePool {
            off,
            size,
            host: Some(host),
            closed: None,
            mood: Mood { delay, ..Mood::default() },
            rng,
            under_way: 0,
            next_poll: None,
            early: Vec::new(),
            tags: OWN_TAGS,
            asked: BTreeMap::new(),
            flushes: BTreeMap::new(),
            flushed: BTreeMap::new(),
            written: BTreeMap::new(),
            hog: None,
            next_crumb: Time(0),
        }
    }

    pub(super) fn host(&mut self) -> &mut Host<CrashDisk> {
        self.host.as_mut().expect("it is open")
    }

    fn pool(&self) -> &Pool<CrashDisk> {
        self.host.as_ref().expect("it is open").pool()
    }

    fn tag(&mut self) -> StoreTag {
        self.tags += 1;
        StoreTag(self.tags)
    }

    pub fn create(&mut self, volume: VolumeNo, shape: Shape) {
        self.create_from(volume, shape, None);
    }

    /// A copy that begins as a snapshot in this pool, if there is an origin.
    pub fn create_from(&mut self, volume: VolumeNo, shape: Shape, origin: Option<Origin>) {
        let spec = VolumeSpec {
            name: format!("v{}", volume.0),
            size: ByteLen(shape.size),
            block_size: BlockSize::new(shape.block_size).expect("a legal size"),
            ..VolumeSpec::default()
        };
        let create = |host: &mut Host<CrashDisk>, tag| {
            host.create_from(uid(volume), tag, spec.clone(), shape.incarnation, origin);
        };
        if matches!(self.insist(create), Err(StoreError::NoSpace)) {
            // Whoever places copies looks for space first.
            self.mood.full = false;
            self.feed_hog(Time(0));
            self.flush();
            self.insist(create).expect("a new copy fits");
        }
        let of_origin = origin.and_then(|origin| self.written.get(&volume_of(origin.volume)));
        if let Some(written) = of_origin.cloned() {
            self.written.insert(volume, written);
        }
        self.flush();
    }

    pub fn remove(&mut self, volume: VolumeNo) {
        self.flushed.remove(&volume);
        self.asked.remove(&volume);
        if self.held(volume).is_some() {
            let deleted = self.insist(|host, tag| host.delete(uid(volume), tag));
            deleted.expect("a copy can be deleted");
            self.flush();
            self.early.retain(|(of, _, _)| *of != volume);
        }
    }

    fn flush(&mut self) {
        // Whoever is asked flushes the whole pool.
        let Some(volume) = self.host().volumes().first().copied() else { return };
        let flushed = self.insist(|host, tag| host.submit(volume, tag, StoreOp::Flush));
        flushed.expect("a healthy disk");
    }

    /// Asks until the pool is not too busy with what replicas asked of it.
    fn insist(
        &mut self,
        ask: impl Fn(&mut Host<CrashDisk>, StoreTag),
    ) -> Result<StoreReply, StoreError> {
        // What the world itself asks for comes at a good moment.
        self.spare_flushes();
        loop {
            let tag = self.tag();
            ask(self.host(), tag);
            match self.wait_for(tag) {
                Err(StoreError::Busy) => self.host().pool_mut().wait(),
                answer => return answer,
            }
        }
    }

    /// Lets the disk work until one answer is there.
    fn wait_for(&mut self, tag: StoreTag) -> Result<StoreReply, StoreError> {
        loop {
            let mut found = None;
            for (uid, of, result) in self.host().poll() {
                match of == tag {
                    true => found = Some(result),
                    false => self.early.push((volume_of(uid), of, result)),
                }
            }
            if let Some(result) = found {
                return result;
            }
            self.host().pool_mut().wait();
        }
    }

    pub fn facts(&self, volume: VolumeNo) -> Option<StoreFacts> {
        self.host.as_ref()?.facts(uid(volume))
    }

    pub fn submit(&mut self, now: Time, volume: VolumeNo, tag: StoreTag, op: StoreOp) {
        self.under_way += 1;
        self.note_written(volume, &op);
        if let Some(position) = place(&op) {
            self.asked.insert(volume, position);
        }
        if matches!(op, StoreOp::Flush) {
            self.flushes.insert((volume, tag), self.asked.get(&volume).copied());
        }
        self.host().submit(uid(volume), tag, op);
        if self.next_poll.is_none() {
            self.next_poll = Some(now.after(1 + self.rng.below(self.mood.delay.max(1))));
        }
    }

    pub fn poll(&mut self, now: Time) -> Vec<Answer> {
        if self.mood.failed {
            let size = self.size;
            let disk = self.host().pool_mut().disk_mut();
            disk.fail_writes(ByteOffset(0), ByteLen(size));
        }
        self.feed_hog(now);
        let mut answers = std::mem::take(&mut self.early);
        let came = self.host().poll();
        answers.extend(came.into_iter().map(|(uid, tag, result)| (volume_of(uid), tag, result)));
        self.under_way = self.under_way.saturating_sub(answers.len());
        self.note_flushes(&answers);
        let busy = self.is_busy();
        let pause = 1 + self.rng.below(self.mood.delay.max(1));
        self.next_poll = busy.then(|| now.after(pause));
        answers
    }

    /// A flush that is answered made durable what was asked before it. What the engine tells may
    /// be lower for a moment, while a checkpoint is flushed too.
    fn note_flushes(&mut self, answers: &[Answer]) {
        for (volume, tag, result) in answers {
            let Some(asked) = self.flushes.remove(&(*volume, *tag)) else { continue };
            if result.is_ok() {
                let flushed = asked.min(self.held(*volume));
                self.flushed.insert(*volume, flushed.unwrap_or_default());
            }
        }
    }

    pub fn is_failed(&self) -> bool {
        self.mood.failed || !self.is_open() || self.has_failed()
    }

    /// Nothing is wrong with it, and it has space.
    pub fn is_at_ease(&self) -> bool {
        !self.is_failed() && !self.mood.full && self.hog.is_none()
    }

    /// For the report of a seed that failed.
    pub fn space(&self) -> String {
        if !self.is_open() {
            return "not open".to_owned();
        }
        let info = self.pool().info();
        format!("{} free of {}, {} volumes, {:?}", info.free, info.size, info.volumes, self.hog)
    }

    pub fn is_busy(&self) -> bool {
        let at_disk = self.host.as_ref().map_or(0, |host| host.pool().disk().in_flight());
        self.under_way > 0 || at_disk > 0
    }

    pub fn next(&self) -> Option<Time> {
        self.next_poll
    }

    /// Takes all space while the pool is to be full, and gives it back afterwards.
    fn feed_hog(&mut self, now: Time) {
        let full = self.mood.full;
        match self.hog {
            None if full => self.make_hog(),
            Some((volume, eaten)) if full && eaten < self.size => self.bite(volume, eaten, BITE),
            Some((volume, eaten))
                if full && eaten < HOG_TIMES * self.size && now >= self.next_crumb =>
            {
                self.next_crumb = now.after(CRUMB_EVERY);
                self.bite(volume, eaten, CRUMB);
            }
            // A pool that is too busy refuses; so it is asked until the hog is gone.
            Some((volume, eaten)) if !full && eaten > 0 => match self.pool().volume_named(HOG) {
                Some(_) => {
                    let snapshots = engine::SnapshotsOfDeleted::Delete;
                    self.ask_pool(Op::Delete { volume, snapshots });
                }
                None => self.hog = None,
            },
            _ => {}
        }
    }

    fn bite(&mut self, volume: VolumeId, eaten: u64, len: usize) {
        let mut bite = vec![0; len];
        self.rng.fill(&mut bite);
        // Tags only grow, also when the pool is opened again.
        let position = Position::new(1, 1 + self.tags - OWN_TAGS);
        let (offset, data) = (ByteOffset(eaten), Data::copy_of(&bite));
        self.ask_pool(Op::Write { volume, position, offset, data });
        self.hog = Some((volume, eaten + len as u64));
    }

    fn make_hog(&mut self) {
        match self.pool().volume_named(HOG) {
            Some(volume) => self.hog = Some((volume, 0)),
            None => {
                let size = ByteLen(HOG_TIMES * self.size);
                let spec = VolumeSpec { name: HOG.to_owned(), size, ..VolumeSpec::default() };
                self.ask_pool(Op::Create { spec });
            }
        }
    }

    /// By the pool's own door; nobody waits for the answer.
    fn ask_pool(&mut self, op: Op) {
        self.tags += 1;
        let id = RequestId(self.tags);
        self.host().pool_mut().submit(id, op);
    }

    pub fn kill(&mut self) {
        let seed = self.rng.next_u64();
        if self.has_failed() {
            // The next opening reads the device, not what the system had cached of it.
            self.closed = self.give_up();
            return;
        }
        // A pool that is not open has no process.
        if let Some(host) = self.host.take() {
            self.reopen(host.into_pool().abandon().after_kill(seed));
        }
    }

    /// Tells which copies lost something.
    pub fn cut_power(&mut self) -> Vec<VolumeNo> {
        let Some(Closed { disk, held }) = self.give_up() else { return Vec::new() };
        let disk = self.after_power_cut(&disk);
        self.reopen(disk);
        self.lost_since(&held)
    }

    pub(super) fn reopen(&mut self, disk: CrashDisk) {
        self.host = Some(open(disk, self.off));
        // What the hog ate before is known to be there, not how much.
        self.hog = self.pool().volume_named(HOG).map(|volume| (volume, BITE as u64));
        (self.under_way, self.next_poll) = (0, None);
        self.early.clear();
        self.asked.clear();
        self.flushes.clear();
        self.flushed.clear();
    }

    /// Finds a sector with what a granule has, and turns a bit of it over.
    pub fn rot(&mut self, volume: VolumeNo, may: impl Fn(u64) -> bool) -> Option<Rotten> {
        let granule_len = self.facts(volume)?.costs.granule.0;
        let content = self.read_all(volume, None).ok()?;
        let granules = content.bytes.size() / granule_len;
        let used: Vec<u64> = content.bytes.pages().map(|(at, _)| at / granule_len).collect();
        let granule = match content.bytes.size() > READ_WHOLE && !used.is_empty() {
            true => *self.rng.pick(&used),
            false => self.rng.below(granules),
        };
        let at = granule * granule_len;
        let wanted = content.bytes.read(at, 512);
        if wanted.iter().all(|byte| *byte == 0) || !may(granule) {
            return None;
        }
        let disk = self.pool().disk();
        let place = disk.written_sectors().find(|place| disk.peek(*place, 512) == wanted)?;
        let good = content.bytes.read(at, granule_len);
        let disk = self.host().pool_mut().disk_mut();
        disk.flip(place, 1);
        let bad = disk.peek(place, 512);
        Some(Rotten { granule, good, place, bad })
    }

    /// Takes the rot back, if it is still there.
    pub fn restore(&mut self, rot: &Rotten) -> bool {
        let closed = self.closed.as_mut().map(|closed| &mut closed.disk);
        let open = self.host.as_mut().map(|host| host.pool_mut().disk_mut());
        let Some(disk) = open.or(closed) else { return false };
        let there = disk.peek(rot.place, 512) == rot.bad;
        if there {
            disk.flip(rot.place, 1);
        }
        there
    }

    /// None while it is not open.
    pub(super) fn replicas(&self) -> impl Iterator<Item = VolumeInfo> + use<> {
        let there = self.host.as_ref().map(Host::volumes).unwrap_or_default();
        let all = self.host.as_ref().map(|host| host.pool().volumes()).unwrap_or_default();
        let is_copy =
            move |info: &VolumeInfo| info.staging.is_none() && there.contains(&VolumeUid(info.uid));
        all.into_iter().filter(is_copy)
    }

    fn info(&self, volume: VolumeNo) -> Option<VolumeInfo> {
        self.replicas().find(|info| info.uid == uid(volume).0)
    }

    pub fn has(&self, volume: VolumeNo) -> bool {
        self.info(volume).is_some()
    }

    pub fn snapshots(&self, volume: VolumeNo) -> Vec<SnapshotEntry> {
        self.facts(volume).map(|facts| facts.snapshots).unwrap_or_default()
    }

    /// All snapshots of a volume, those of rounds included.
    pub fn snapshots_of(&self, volume: VolumeNo) -> usize {
        let Some(info) = self.info(volume) else { return 0 };
        self.pool().snapshots().iter().filter(|it| it.volume == info.id && !it.hidden).count()
    }

    pub fn held(&self, volume: VolumeNo) -> Option<Position> {
        self.info(volume).map(|info| info.held)
    }

    pub fn durable(&self, volume: VolumeNo) -> Option<Position> {
        let flushed = self.flushed.get(&volume).copied().unwrap_or_default();
        self.info(volume).map(|info| info.durable.max(flushed.min(info.held)))
    }

    pub fn state(&self, volume: VolumeNo) -> Option<Vec<u8>> {
        self.info(volume).map(|info| info.state)
    }

    pub fn read_all(
        &mut self,
        volume: VolumeNo,
        snapshot: Option<SnapshotUid>,
    ) -> Result<Content, StoreError> {
        let unknown = || StoreError::Refused { reason: "no such volume".to_owned() };
        let facts = self.facts(volume).ok_or_else(unknown)?;
        let granule = facts.costs.granule.0;
        let size = match snapshot {
            None => facts.size.0,
            Some(uid) => self.frozen_size(uid).ok_or(StoreError::UnknownSnapshot)?,
        };
        let mut content = Content { bytes: Sparse::new(size), damaged: Vec::new() };
        for chunk in self.chunks(volume, size) {
            let at = chunk * CHUNK;
            let len = CHUNK.min(size - at);
            match self.read(volume, snapshot, at, len) {
                Ok(bytes) => content.bytes.write(at, &bytes),
                Err(StoreError::Damaged { .. }) => {
                    self.read_granules(volume, snapshot, at..at + len, granule, &mut content)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(content)
    }

    /// What is read of a content: all of a small one, and of a large one what was ever written, here
    /// or by rounds.
    fn chunks(&self, volume: VolumeNo, size: u64) -> Vec<u64> {
        let within = size.div_ceil(CHUNK);
        match self.written.get(&volume) {
            _ if size <= READ_WHOLE => (0..within).collect(),
            Some(written) => written.range(..within).copied().collect(),
            None => Vec::new(),
        }
    }

    fn note_written(&mut self, volume: VolumeNo, op: &StoreOp) {
        let (offset, len) = match op {
            StoreOp::Write { offset, data, .. } => (offset.0, data.len() as u64),
            StoreOp::StageData {
                offset,
                content: replication::store::Content::Bytes(data),
                ..
            } => (offset.0, data.len() as u64),
            _ => return,
        };
        let chunks = offset / CHUNK..(offset + len).div_ceil(CHUNK);
        self.written.entry(volume).or_default().extend(chunks);
    }

    fn frozen_size(&self, uid: SnapshotUid) -> Option<u64> {
        let snapshots = self.pool().snapshots();
        snapshots.iter().find(|frozen| frozen.uid == uid.0).map(|frozen| frozen.size.0)
    }

    fn read_granules(
        &mut self,
        volume: VolumeNo,
        snapshot: Option<SnapshotUid>,
        range: std::ops::Range<u64>,
        granule: u64,
        content: &mut Content,
    ) -> Result<(), StoreError> {
        for at in range.clone().step_by(usize::try_from(granule).expect("small")) {
            let len = granule.min(range.end - at);
            match self.read(volume, snapshot, at, len) {
                Ok(bytes) => content.bytes.write(at, &bytes),
                Err(StoreError::Damaged { .. }) => content.damaged.push(at / granule),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        volume: VolumeNo,
        snapshot: Option<SnapshotUid>,
        at: u64,
        len: u64,
    ) -> Result<Data, StoreError> {
        let (offset, len) = (ByteOffset(at), ByteLen(len));
        let op = match snapshot {
            None => StoreOp::Read { offset, len },
            Some(snapshot) => StoreOp::ReadSnapshot { snapshot, offset, len },
        };
        let tag = self.tag();
        self.host().submit(uid(volume), tag, op);
        match self.wait_for(tag)? {
            StoreReply::Read(data) => Ok(data),
            other => panic!("a read was answered by {other:?}"),
        }
    }
}

/// The place in the sequence that an operation takes.
fn place(op: &StoreOp) -> Option<Position> {
    match op {
        StoreOp::Write { position, .. }
        | StoreOp::Zero { position, .. }
        | StoreOp::Mark { position }
        | StoreOp::Adopt { position, .. }
        | StoreOp::Rollback { position, .. } => Some(*position),
        StoreOp::SetState { position, .. } | StoreOp::Snapshot { position, .. } => *position,
        _ => None,
    }
}
