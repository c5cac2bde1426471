//! Submits random operations to a pool, follows the answers, and compares with the model.
use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::{
    BlockSize, CreateOptions, Limits, Op, OpError, OpenOptions, Pool, Reply, RequestId, VolumeId,
    VolumeSpec, Zeroing,
};

use super::history::{Change, History, SECTOR, Status, View, content};
use super::mix::Mix;
use crate::{CrashDisk, Delivery, Rng};

/// How often each path was taken, over all sequences: what was never reached was not tested.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    pub counts: BTreeMap<&'static str, u64>,
}

impl Paths {
    pub fn add(&mut self, name: &'static str, by: u64) {
        *self.counts.entry(name).or_default() += by;
    }

    pub fn merge(&mut self, other: &Paths) {
        for (name, count) in &other.counts {
            self.add(name, *count);
        }
    }
}

/// How a run of operations ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Finished,
    /// The disk takes no more writes: its power is about to be cut.
    Stopped,
}

enum Asked {
    Change(usize),
    /// A flush, and how many operations were submitted before it.
    Flush(usize),
    Read(View),
}

pub struct Driver {
    pub pool: Option<Pool<CrashDisk>>,
    pub history: History,
    pub mix: Mix,
    pub paths: Paths,
    pub rng: Rng,
    asked: BTreeMap<RequestId, Asked>,
    next_id: u64,
    next_name: u64,
    term: u64,
    sizes: BTreeMap<VolumeId, (u64, u64)>,
}

/// Options for opening a pool in a test: everything small.
pub fn open_options() -> OpenOptions {
    OpenOptions::with(Limits::tiny())
}

impl Driver {
    /// A fresh pool on a fresh disk.
    pub fn new(seed: u64, mix: Mix) -> Driver {
        let mut disk = CrashDisk::new(mix.pool, SectorSize::B512, seed)
            .with_physical_sector(mix.sector)
            .with_delivery(Delivery::Random);
        let options = CreateOptions {
            uuid: *b"a pool of a test",
            journal: mix.journal,
            ..Default::default()
        };
        engine::create(&mut disk, &options).expect("a pool can be made on a fresh disk");
        let pool = Pool::open(disk, open_options()).expect("a fresh pool opens");
        Driver::on(pool, seed, mix)
    }

    /// A pool that is open already.
    pub fn on(pool: Pool<CrashDisk>, seed: u64, mix: Mix) -> Driver {
        Driver {
            pool: Some(pool),
            history: History::default(),
            mix,
            paths: Paths::default(),
            rng: Rng::new(seed),
            asked: BTreeMap::new(),
            next_id: 0,
            next_name: 0,
            term: 1,
            sizes: BTreeMap::new(),
        }
    }

    pub fn pool(&mut self) -> &mut Pool<CrashDisk> {
        self.pool.as_mut().expect("the pool is open")
    }

    fn stopped(&mut self) -> bool {
        self.pool().disk().stopped()
    }

    /// Runs this many random operations, then waits for all of them.
    pub fn run(&mut self, operations: u64) -> Outcome {
        for _ in 0..operations {
            self.step();
            if self.stopped() {
                return Outcome::Stopped;
            }
        }
        self.settle()
    }

    /// Waits until nothing is under way.
    pub fn settle(&mut self) -> Outcome {
        while !self.asked.is_empty() || !self.pool().is_quiet() {
            self.pool().wait();
            self.take_replies();
            if self.stopped() {
                return Outcome::Stopped;
            }
        }
        Outcome::Finished
    }

    fn step(&mut self) {
        while self.asked.len() as u64 >= self.mix.depth {
            self.pool().wait();
            self.take_replies();
            if self.stopped() {
                return;
            }
        }
        match self.rng.below(100) {
            _ if self.sizes.is_empty() => self.create(),
            // Several volumes soon, and a new one for each that goes.
            0..8 if self.sizes.len() < self.mix.volumes_max => self.create(),
            2 if self.sizes.len() > 1 || self.mix.fill => self.delete(),
            0..2 => self.set_state(),
            3..5 => self.grow(),
            5..8 => self.set_state(),
            8..10 => self.mark(),
            10..22 => self.flush(),
            22..40 => self.read(),
            40..48 => self.zero(Zeroing::Zeroes),
            48..58 => self.zero(Zeroing::Discard),
            58..61 => self.pool().idle(),
            61 => self.refused(),
            62 if self.mix.reopen => self.reopen(),
            63 if !self.mix.reopen => {
                let _ = self.settle();
            }
            64..80 if self.mix.fill => self.fill(),
            _ => self.write(),
        }
        // Sometimes let several gather, sometimes push each along.
        if self.rng.chance(2, 3) {
            self.pool().poll();
            self.take_replies();
        }
    }

    fn ask(&mut self, op: Op, asked: Asked) {
        self.next_id += 1;
        let id = RequestId(self.next_id);
        self.asked.insert(id, asked);
        self.pool().submit(id, op);
    }

    fn ask_change(&mut self, op: Op, change: Change, position: Option<Position>) {
        let index = self.history.push(change, position);
        self.ask(op, Asked::Change(index));
    }

    fn position(&mut self, volume: VolumeId) -> Position {
        if self.rng.chance(1, 40) {
            self.term += 1;
        }
        Position::new(self.term, self.history.newest(volume).seq.0 + 1)
    }

    /// A volume with its size in sectors.
    fn volume(&mut self) -> (VolumeId, u64) {
        let at = self.rng.index(self.sizes.len());
        let (id, (size, _)) = self.sizes.iter().nth(at).expect("within the number of volumes");
        (*id, *size)
    }

    fn create(&mut self) {
        let _ = self.settle();
        let block_size = *self.rng.pick(&[512, 512, 4096, 4096, 4096, 8192, 65536, 131072]);
        let blocks = match self.mix.huge {
            true if self.rng.chance(1, 2) => (1 << 40) / block_size + self.rng.below(1000),
            _ => 1 + self.rng.below((2 << 20) / block_size),
        };
        let size = blocks * block_size;
        self.next_name += 1;
        let name = format!("volume-{}", self.next_name);
        let spec = VolumeSpec {
            name: name.clone(),
            size: ByteLen(size),
            block_size: BlockSize::new(block_size).expect("a legal block size"),
            uid: [3; 16],
        };
        // Ids are given in order; the answer says which one it really was.
        let volume = VolumeId(self.next_name);
        let index = self.history.push(Change::Create { volume, name, size }, None);
        self.ask(Op::Create { spec }, Asked::Change(index));
        let _ = self.settle();
        if self.history.entries[index].status == Status::Acked {
            let id = self.history.entries[index].change.volume();
            self.sizes.insert(id, (size / SECTOR, block_size));
            self.paths.add("create", 1);
        }
    }

    fn delete(&mut self) {
        let (volume, _) = self.volume();
        self.sizes.remove(&volume);
        self.paths.add("delete", 1);
        self.ask_change(Op::Delete { volume }, Change::Delete { volume }, None);
    }

    fn grow(&mut self) {
        let (volume, size) = self.volume();
        let block = self.sizes[&volume].1;
        let blocks = match self.rng.below(3) {
            0 => 0,
            1 => 1 + self.rng.below(200),
            _ => self.rng.below(1 << 22),
        };
        let new = size * SECTOR + blocks * block;
        let position = self.position(volume);
        self.sizes.insert(volume, (new / SECTOR, block));
        self.paths.add("grow", 1);
        let op = Op::Grow { volume, position, size: ByteLen(new) };
        self.ask_change(op, Change::Grow { volume, size: new }, Some(position));
    }

    fn set_state(&mut self) {
        let (volume, _) = self.volume();
        let mut state = vec![0; self.rng.index(300)];
        self.rng.fill(&mut state);
        let position = self.position(volume);
        self.paths.add("set state", 1);
        let op = Op::SetState { volume, position, state: state.clone() };
        self.ask_change(op, Change::SetState { volume, state }, Some(position));
    }

    fn mark(&mut self) {
        let (volume, _) = self.volume();
        let position = self.position(volume);
        self.paths.add("mark", 1);
        self.ask_change(Op::Mark { volume, position }, Change::Mark { volume }, Some(position));
    }

    fn flush(&mut self) {
        self.paths.add("flush", 1);
        let before = self.history.entries.len();
        self.ask(Op::Flush, Asked::Flush(before));
    }

    /// A range of a volume: mostly in a few hot places, so that ranges overlap.
    fn range(&mut self, size: u64, max: u64) -> (u64, u64) {
        let count = 1 + self.rng.below(max.min(size));
        let room = size - count;
        let near = match self.rng.below(4) {
            0 => 0,
            1 => room / 2,
            2 => room,
            _ => self.rng.below(room + 1),
        };
        let mut first = (near + self.rng.below(256)).min(room);
        let mut count = count;
        if self.rng.chance(1, 2) && size >= 16 {
            // Whole granules are the common case of real clients.
            first = first / 8 * 8;
            count = count.next_multiple_of(8).min(size - first);
        }
        (first, count)
    }

    fn write(&mut self) {
        let (volume, size) = self.volume();
        let (first, count) = self.range(size, self.mix.write_max);
        let position = self.position(volume);
        let number = self.history.number(self.history.entries.len());
        let mut bytes = vec![0; usize::try_from(count * SECTOR).expect("a write is small")];
        for (sector, part) in (first..).zip(bytes.chunks_exact_mut(512)) {
            content(volume, sector, number, part);
        }
        let offset = ByteOffset(first * SECTOR);
        let op = Op::Write { volume, position, offset, data: Data::copy_of(&bytes) };
        self.ask_change(op, Change::Write { volume, first, count }, Some(position));
    }

    /// A large write at a random place: a pool that is small fills up soon.
    fn fill(&mut self) {
        let max = std::mem::replace(&mut self.mix.write_max, 2048);
        self.write();
        self.mix.write_max = max;
    }

    fn zero(&mut self, how: Zeroing) {
        let (volume, size) = self.volume();
        let max = match self.rng.below(4) {
            0 => size,
            1 => 4096,
            _ => 64,
        };
        let (first, count) = self.range(size, max);
        let position = self.position(volume);
        self.paths.add("zero", 1);
        let (offset, len) = (ByteOffset(first * SECTOR), ByteLen(count * SECTOR));
        let op = Op::Zero { volume, position, offset, len, how };
        self.ask_change(op, Change::Zero { volume, first, count }, Some(position));
    }

    fn read(&mut self) {
        let (volume, size) = self.volume();
        let (first, count) = self.range(size, self.mix.write_max.min(512));
        self.read_range(volume, first, count);
    }

    fn read_range(&mut self, volume: VolumeId, first: u64, count: u64) {
        let view = self.history.view(volume, first, count);
        let (offset, len) = (ByteOffset(first * SECTOR), ByteLen(count * SECTOR));
        self.ask(Op::Read { volume, offset, len }, Asked::Read(view));
    }

    /// Bad input: refused with the right reason, and nothing changed.
    fn refused(&mut self) {
        if self.settle() == Outcome::Stopped {
            return;
        }
        let (volume, size) = self.volume();
        let position = self.position(volume);
        let data = Data::copy_of(&[1; 512]);
        let (end, one) = (ByteOffset(size * SECTOR), ByteLen(512));
        let stale = Position::new(0, 0);
        let nobody = VolumeId(9999);
        let bad = [
            Op::Write { volume, position, offset: end, data: data.clone() },
            Op::Write { volume, position, offset: ByteOffset(1), data: data.clone() },
            Op::Write { volume, position: stale, offset: ByteOffset(0), data: data.clone() },
            Op::Write { volume: nobody, position, offset: ByteOffset(0), data },
            Op::Read { volume, offset: end, len: one },
            Op::Read { volume, offset: ByteOffset(0), len: ByteLen(0) },
            Op::Read { volume, offset: ByteOffset(u64::MAX - 511), len: ByteLen(1024) },
            Op::Grow { volume, position, size: ByteLen(SECTOR / 2) },
        ];
        for op in bad {
            self.pool().submit(RequestId(0), op);
            let answer = self.pool().reply();
            assert!(matches!(answer, Some((RequestId(0), Err(_)))), "bad input is refused at once");
            self.paths.add("refused", 1);
        }
    }

    fn reopen(&mut self) {
        if self.settle() == Outcome::Stopped {
            return;
        }
        self.verify_all();
        let pool = self.pool.take().expect("the pool is open");
        let disk = if self.rng.chance(1, 2) {
            self.paths.add("closed and opened", 1);
            let mut disk = pool.close().expect("a healthy pool closes");
            let report = engine::check::check(&mut disk, engine::check::Depth::Data)
                .expect("a closed pool can be checked");
            assert!(report.is_clean(), "a closed pool has problems: {:?}", report.problems);
            disk
        } else {
            self.paths.add("killed and opened", 1);
            pool.abandon().after_kill(self.rng.next_u64())
        };
        let disk = disk.with_delivery(Delivery::Random);
        self.pool = Some(Pool::open(disk, open_options()).expect("the pool opens again"));
        let replayed = self.pool().counters().replayed_slots;
        self.paths.add("slots replayed", replayed);
        // A kill loses nothing that was acknowledged; everything was.
        self.history.flushed = self.history.entries.len();
        self.verify_all();
    }

    /// Compares all that was ever touched. Nothing may be under way.
    pub fn verify_all(&mut self) {
        let ids: Vec<(VolumeId, u64)> = self.sizes.iter().map(|(id, (s, _))| (*id, *s)).collect();
        for (id, size) in ids {
            for (first, count) in self.history.touched_ranges(id, size) {
                self.read_range(id, first, count);
                if self.asked.len() >= 16 && self.settle() == Outcome::Stopped {
                    return;
                }
            }
        }
        if self.settle() == Outcome::Stopped {
            return;
        }
        let state = self.history.state_after(self.history.entries.len());
        for info in self.pool().volumes() {
            let model = state.volumes.get(&info.id).expect("the model has the same volumes");
            assert_eq!(info.name, model.name);
            assert_eq!(info.size.0, model.size);
            assert_eq!(info.held, model.position, "position of {}", info.name);
            assert_eq!(info.state, model.state);
        }
        assert_eq!(self.pool().volumes().len(), state.volumes.len());
    }

    fn take_replies(&mut self) {
        while let Some((id, result)) = self.pool().reply() {
            let asked = self.asked.remove(&id).expect("an answer to a question");
            match asked {
                Asked::Change(index) => self.changed(index, result),
                Asked::Flush(before) => {
                    result.expect("a flush on a healthy disk succeeds");
                    self.history.flushed = self.history.flushed.max(before);
                }
                Asked::Read(view) => self.compare(&view, result),
            }
        }
    }

    fn size_was_refused(&self, index: usize) -> bool {
        let id = self.history.entries[index].change.volume();
        self.history.entries[..index].iter().any(|entry| {
            entry.status == Status::Refused
                && matches!(entry.change, Change::Grow { volume, .. } if volume == id)
        })
    }

    fn changed(&mut self, index: usize, result: Result<Reply, OpError>) {
        let status = match result {
            Ok(Reply::Created(id)) => {
                if let Change::Create { volume, .. } = &mut self.history.entries[index].change {
                    *volume = id;
                }
                Status::Acked
            }
            Ok(_) => Status::Acked,
            Err(OpError::NoSpace { .. }) => {
                self.paths.add("no space", 1);
                Status::Refused
            }
            Err(OpError::Busy) => Status::Refused,
            // It relied on a size that was then refused.
            Err(OpError::BeyondEnd { .. }) if self.size_was_refused(index) => Status::Refused,
            Err(error) => panic!("operation {index} failed on a healthy disk: {error}"),
        };
        if status == Status::Acked
            && let Change::Write { .. } = self.history.entries[index].change
        {
            self.paths.add("write", 1);
        }
        self.history.entries[index].status = status;
        if status == Status::Refused
            && let Change::Grow { volume, .. } = self.history.entries[index].change
        {
            self.paths.add("grow refused", 1);
            let size = self.history.size_of(volume) / SECTOR;
            self.sizes.entry(volume).and_modify(|(known, _)| *known = size);
        }
    }

    fn compare(&mut self, view: &View, result: Result<Reply, OpError>) {
        let bytes = match result {
            Ok(Reply::Read(bytes)) => bytes,
            // Deleted under the read.
            Err(OpError::UnknownVolume { .. }) => return,
            Err(OpError::Busy) => return,
            other => panic!("a read on a healthy disk ended as {other:?}"),
        };
        self.paths.add("read", 1);
        let mut expected = [0; 512];
        let volume = view.volume;
        for (sector, part) in view.sectors().zip(bytes.chunks_exact(512)) {
            let allowed = self.history.allowed(view, sector);
            let fits = allowed.iter().any(|number| {
                content(volume, sector, *number, &mut expected);
                expected == part
            });
            assert!(
                fits,
                "volume {volume} sector {sector} shows {:?}, not one of {allowed:?}; it was \
                 touched by {:#?}",
                self.history.recognise(volume, sector, part),
                self.history.touching(volume, sector)
            );
        }
        self.pool().recycle(bytes);
    }
}
