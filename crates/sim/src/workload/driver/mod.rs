//! Submits random operations to a pool, follows the answers, and compares with the model.
mod answers;
mod changes;
mod deltas;
mod extents;
mod imports;
mod queries;
mod refused;
mod snapshots;
mod verify;

use std::collections::BTreeMap;

use block::{Position, SectorSize};
use engine::{
    CreateOptions, Limits, Op, OpError, OpenOptions, Pool, Reply, RequestId, VolumeId, Zeroing,
};

use super::change::{Change, Status};
use super::history::History;
use super::mix::Mix;
use crate::{CrashDisk, Delivery, Rng};
use answers::Asked;
use deltas::Mirror;
use imports::Import;

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

/// A volume as it will be when everything that was submitted is done.
#[derive(Clone, Copy, Debug)]
struct Front {
    /// In sectors.
    size: u64,
    block: u64,
    attached: bool,
}

impl Front {
    /// Sectors of a granule.
    fn per(&self) -> u64 {
        self.block.max(4096) / super::SECTOR
    }
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
    /// Volumes that anything may be done to.
    volumes: BTreeMap<VolumeId, Front>,
    /// Imports under way, with the volumes that they are for.
    imports: Vec<Import>,
    /// Volumes that follow another one, and are not changed but by that.
    mirrors: Vec<Mirror>,
}

/// What a pool may take with these limits: three times the bytes of the queue (queued, under way, read), its buffers, and less
/// than a MiB for pages, overlays and extents together.
fn memory_max() -> usize {
    let limits = Limits::tiny();
    3 * limits.queue_bytes + limits.buffer_bytes + (1 << 20)
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
            volumes: BTreeMap::new(),
            imports: Vec::new(),
            mirrors: Vec::new(),
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
        let plain = !self.mix.snapshots || self.volumes.is_empty();
        if plain || self.rng.chance(3, 4) {
            self.plain_step();
        } else {
            self.snapshot_step();
        }
        // Sometimes let several gather, sometimes push each along.
        if self.rng.chance(2, 3) {
            self.pool().poll();
            self.take_replies();
        }
        let memory = self.pool().memory();
        assert!(memory.used <= memory.bound, "more than its own bound: {memory:?}");
        assert!(memory.bound <= memory_max(), "more than its limits allow: {memory:?}");
    }

    fn plain_step(&mut self) {
        match self.rng.below(100) {
            _ if self.volumes.is_empty() => self.create(),
            // Several volumes soon, and a new one for each that goes.
            0..8 if self.volumes.len() < self.mix.volumes_max => self.create(),
            2 if self.volumes.len() > 1 || self.mix.fill => self.delete(),
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
    }

    fn snapshot_step(&mut self) {
        match self.rng.below(100) {
            0..22 => self.snapshot(),
            22..33 => self.delete_snapshot(),
            33..40 => self.clone_snapshot(),
            40..48 => self.roll_back(),
            48..53 => self.attach(),
            53..55 => self.delete(),
            55..68 => self.import(),
            68..82 => self.read_snapshot(),
            82..88 => self.query(),
            88..91 => self.refused_with_snapshots(),
            _ => self.mirror(),
        }
    }

    fn ask(&mut self, op: Op, asked: Asked) {
        self.next_id += 1;
        let id = RequestId(self.next_id);
        self.asked.insert(id, asked);
        self.pool().submit(id, op);
    }

    fn ask_change(&mut self, op: Op, change: Change, position: Option<Position>) -> usize {
        let index = self.history.push(change, position);
        self.ask(op, Asked::Change(index));
        index
    }

    /// A change with nothing else under way: where it stands in the history, if it was done.
    fn change_alone(
        &mut self,
        op: Op,
        change: Change,
        position: Option<Position>,
    ) -> Option<usize> {
        if self.settle() == Outcome::Stopped {
            return None;
        }
        let index = self.ask_change(op, change, position);
        let outcome = self.settle();
        let done = self.history.entries[index].status == Status::Acked;
        (outcome == Outcome::Finished && done).then_some(index)
    }

    /// A question with nothing else under way. No answer comes from a disk that is stopped.
    fn call(&mut self, op: Op) -> Option<Result<Reply, OpError>> {
        if self.settle() == Outcome::Stopped {
            return None;
        }
        self.pool().submit(RequestId(0), op);
        self.pool().poll();
        loop {
            if let Some((id, result)) = self.pool().reply() {
                assert_eq!(id, RequestId(0), "nothing else is under way");
                return Some(result);
            }
            if self.stopped() {
                return None;
            }
            self.pool().wait();
        }
    }

    fn position(&mut self, volume: VolumeId) -> Position {
        if self.rng.chance(1, 40) {
            self.term += 1;
        }
        Position::new(self.term, self.history.newest(volume).seq.0 + 1)
    }

    /// A position, or none for an operation that can do without. Not drawn from the seed, so that
    /// its story stays the same.
    fn some_position(&mut self, volume: VolumeId) -> Option<Position> {
        let position = self.position(volume);
        let beside = self.history.entries.len().is_multiple_of(3);
        self.paths.add("no place in the sequence", u64::from(beside));
        (!beside).then_some(position)
    }

    /// One of the volumes that anything may be done to, with its size in sectors.
    fn volume(&mut self) -> (VolumeId, u64) {
        let at = self.rng.index(self.volumes.len());
        let (id, front) = self.volumes.iter().nth(at).expect("within the number of volumes");
        (*id, front.size)
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

    /// A name that nothing else has, and an identity to go with it.
    fn fresh_name(&mut self, what: &str) -> (String, [u8; 16]) {
        self.next_name += 1;
        let mut uid = [3; 16];
        uid[..8].copy_from_slice(&self.next_name.to_le_bytes());
        (format!("{what}-{}", self.next_name), uid)
    }
}
