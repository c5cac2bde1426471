//! Operations by hand, one at a time, on a small pool: for sequences that a test writes down.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::check::{Depth, check};
use engine::{
    BlockSize, CloneSpec, CreateOptions, Op, OpError, Pool, Reply, RequestId, SnapshotId,
    SnapshotSpec, SnapshotsOfDeleted, Subject, VolumeId, VolumeSpec, Zeroing,
};
use sim::CrashDisk;
use sim::workload::open_options;

pub const GRANULE: u64 = 4096;

/// What each granule holds: the tag that was written, or 0 for zeros.
pub type Tags = Vec<u64>;

pub struct Hand {
    pub pool: Pool<CrashDisk>,
    /// The newest seq of each volume.
    pub places: BTreeMap<VolumeId, u64>,
    names: u64,
    /// Operations that were submitted without waiting for their answers.
    asked: Vec<RequestId>,
}

pub fn bytes_of(tag: u64) -> Vec<u8> {
    if tag == 0 {
        return vec![0; 4096];
    }
    (0..4096u64).map(|at| u8::try_from((at * 7 + tag * 31) % 251 + 1).expect("small")).collect()
}

fn at(granule: u64) -> ByteOffset {
    ByteOffset(granule * GRANULE)
}

impl Hand {
    pub fn new(size: u64) -> Hand {
        let mut disk = CrashDisk::new(ByteLen(size), SectorSize::B512, 5);
        engine::create(&mut disk, &CreateOptions::default()).expect("a fresh disk");
        let pool = Pool::open(disk, open_options()).expect("a fresh pool");
        let mut hand = Hand::on(pool);
        // What the first volume and snapshot leave behind for good is there from now on.
        let volume = hand.create(8);
        hand.write(volume, 3, 3);
        hand.snapshot(volume);
        hand.delete(volume, SnapshotsOfDeleted::Delete);
        hand.settle();
        hand
    }

    pub fn on(pool: Pool<CrashDisk>) -> Hand {
        Hand { pool, places: BTreeMap::new(), names: 0, asked: Vec::new() }
    }

    pub fn run(&mut self, op: Op) -> Reply {
        let asked = format!("{op:?}");
        self.pool.run(op).unwrap_or_else(|error| panic!("{asked} ended as {error}"))
    }

    pub fn refused(&mut self, op: Op) -> OpError {
        let asked = format!("{op:?}");
        match self.pool.run(op) {
            Ok(reply) => panic!("{asked} was done: {reply:?}"),
            Err(error) => error,
        }
    }

    /// Submits an operation; [`Hand::answers`] tells what became of it.
    pub fn submit(&mut self, op: Op) -> RequestId {
        let id = RequestId(1000 + self.asked.len() as u64);
        self.asked.push(id);
        self.pool.submit(id, op);
        id
    }

    pub fn submit_write(&mut self, volume: VolumeId, granule: u64, tag: u64) -> RequestId {
        let (position, offset) = (self.place(volume), at(granule));
        self.submit(Op::Write { volume, position, offset, data: Data::copy_of(&bytes_of(tag)) })
    }

    /// The answers to everything that was submitted since the last call.
    pub fn answers(&mut self) -> BTreeMap<RequestId, Result<Reply, OpError>> {
        let asked = std::mem::take(&mut self.asked).len();
        let mut answers = BTreeMap::new();
        self.pool.poll();
        loop {
            answers.extend(std::iter::from_fn(|| self.pool.reply()));
            if answers.len() == asked {
                return answers;
            }
            self.pool.wait();
        }
    }

    /// The next place in a volume's sequence.
    pub fn place(&mut self, volume: VolumeId) -> Position {
        let seq = self.places.entry(volume).or_default();
        *seq += 1;
        Position::new(1, *seq)
    }

    fn name(&mut self, what: &str) -> String {
        self.names += 1;
        format!("{what}-{}", self.names)
    }

    pub fn create(&mut self, granules: u64) -> VolumeId {
        let name = self.name("volume");
        let size = ByteLen(granules * GRANULE);
        let spec = VolumeSpec {
            name,
            size,
            block_size: BlockSize::DEFAULT,
            uid: [1; 16],
            ..VolumeSpec::default()
        };
        match self.run(Op::Create { spec }) {
            Reply::Created(volume) => volume,
            other => panic!("create ended as {other:?}"),
        }
    }

    pub fn write(&mut self, volume: VolumeId, granule: u64, tag: u64) {
        let (position, offset) = (self.place(volume), at(granule));
        self.run(Op::Write { volume, position, offset, data: Data::copy_of(&bytes_of(tag)) });
    }

    pub fn discard(&mut self, volume: VolumeId, granule: u64, count: u64) {
        let (position, offset, len) = (self.place(volume), at(granule), ByteLen(count * GRANULE));
        self.run(Op::Zero { volume, position, offset, len, how: Zeroing::Discard });
    }

    pub fn grow(&mut self, volume: VolumeId, granules: u64) {
        let position = self.place(volume);
        self.run(Op::Grow { volume, position: Some(position), size: ByteLen(granules * GRANULE) });
    }

    pub fn snapshot(&mut self, volume: VolumeId) -> SnapshotId {
        let position = self.place(volume);
        self.snapshot_at(volume, position)
    }

    pub fn snapshot_at(&mut self, volume: VolumeId, position: Position) -> SnapshotId {
        let name = self.name("snapshot");
        let spec = SnapshotSpec { name, uid: [2; 16], internal: false, created: 0 };
        self.places.insert(volume, position.seq.0);
        match self.run(Op::Snapshot { volume, position: Some(position), spec }) {
            Reply::Snapshotted(snapshot) => snapshot,
            other => panic!("a snapshot ended as {other:?}"),
        }
    }

    pub fn delete_snapshot(&mut self, snapshot: SnapshotId) {
        self.run(Op::DeleteSnapshot { snapshot });
        let again = self.refused(Op::DeleteSnapshot { snapshot });
        assert!(matches!(again, OpError::UnknownSnapshot { .. }), "it is gone at once: {again}");
    }

    pub fn clone_of(&mut self, snapshot: SnapshotId) -> VolumeId {
        let spec = CloneSpec { name: self.name("clone"), uid: [3; 16], size: None };
        let Reply::Created(volume) = self.run(Op::Clone { snapshot, spec }) else {
            panic!("no clone")
        };
        let place = self.position_of(snapshot).seq.0;
        self.places.insert(volume, place);
        volume
    }

    pub fn roll_back(&mut self, volume: VolumeId, to: SnapshotId) {
        let position = self.place(volume);
        self.run(Op::Rollback { volume, position, to, force: false });
    }

    pub fn delete(&mut self, volume: VolumeId, snapshots: SnapshotsOfDeleted) {
        self.run(Op::Delete { volume, snapshots });
    }

    pub fn position_of(&self, snapshot: SnapshotId) -> Position {
        let listed = self.pool.snapshots();
        listed.iter().find(|info| info.id == snapshot).expect("it is listed").position
    }

    pub fn read(&mut self, of: Subject, granule: u64) -> Vec<u8> {
        let (offset, len) = (at(granule), ByteLen(GRANULE));
        let op = match of {
            Subject::Volume(volume) => Op::Read { volume, offset, len },
            Subject::Snapshot(snapshot) => Op::ReadSnapshot { snapshot, offset, len },
        };
        match self.run(op) {
            Reply::Read(bytes) => bytes.to_vec(),
            other => panic!("a read ended as {other:?}"),
        }
    }

    pub fn assert_holds(&mut self, of: Subject, tags: &[u64], when: &str) {
        for (granule, tag) in (0..).zip(tags) {
            let bytes = self.read(of, granule);
            assert!(bytes == bytes_of(*tag), "{of:?}, granule {granule}, {when}: not {tag}");
        }
    }

    /// Waits until everything that was deleted has given its space back; returns what is free.
    pub fn settle(&mut self) -> u64 {
        for _ in 0..10_000 {
            self.pool.checkpoint().expect("a healthy disk");
            let info = self.pool.info();
            if info.pending.0 == 0 && info.reclaimable.0 == 0 {
                return info.free.0;
            }
        }
        panic!("space never stops coming back");
    }

    /// The same pool after its process was killed.
    pub fn killed(self, seed: u64) -> Hand {
        let disk = self.pool.abandon().after_kill(seed);
        let pool = Pool::open(disk, open_options()).expect("the pool opens again");
        Hand { pool, ..self }
    }

    /// The same pool, closed, found in order, and opened again.
    pub fn checked(self) -> Hand {
        let mut disk = self.pool.close().expect("a healthy pool closes");
        let report = check(&mut disk, Depth::Data).expect("a closed pool");
        assert!(report.is_clean(), "{:?}", report.problems);
        let pool = Pool::open(disk, open_options()).expect("the pool opens again");
        Hand { pool, ..self }
    }

    /// One round of changes, each of which meets what the rounds before left: blocks that are
    /// written over, holes that are made, holes that are filled again, and what stays.
    pub fn change(&mut self, volume: VolumeId, tags: &mut Tags, round: u64) {
        for granule in 0..tags.len() as u64 {
            let tag = &mut tags[usize::try_from(granule).expect("few granules")];
            match (granule + round) % 5 {
                0 => {
                    *tag = round * 1000 + granule + 1;
                    self.write(volume, granule, *tag);
                }
                1 if granule.is_multiple_of(2) => {
                    *tag = 0;
                    self.discard(volume, granule, 1);
                }
                _ => {}
            }
        }
    }
}

/// Every order of `count` things.
pub fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut found = Vec::new();
    for shorter in orders(count - 1) {
        for place in 0..count {
            let mut order = shorter.clone();
            order.insert(place, count - 1);
            found.push(order);
        }
    }
    found
}
