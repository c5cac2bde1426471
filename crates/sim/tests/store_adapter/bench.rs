//! A host on a small pool, asked by hand.
use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::{CreateOptions, Pool, VolumeSpec};
use node::store::Host;
use replication::state::SnapshotSpec;
use replication::store::{StoreError, StoreFacts, StoreOp, StoreReply, StoreTag};
use replication::sums::Sums;
use replication::words::{Incarnation, SnapshotUid, VolumeUid};
use sim::CrashDisk;
use sim::workload::open_options;

pub const GRANULE: u64 = 4096;

pub type Answer = Result<StoreReply, StoreError>;

pub fn bytes_of(tag: u64) -> Vec<u8> {
    let byte = u8::try_from(tag % 256).expect("a byte");
    vec![byte; 4096]
}

pub fn uid(n: u8) -> SnapshotUid {
    SnapshotUid([n; 16])
}

pub fn spec_of(n: u8) -> SnapshotSpec {
    SnapshotSpec { uid: uid(n), name: format!("s{n}"), created: u64::from(n) }
}

pub fn state_of(n: u64) -> Vec<u8> {
    format!("state {n}").into_bytes()
}

pub fn write(seq: u64, granule: u64, tag: u64) -> StoreOp {
    let data = Data::copy_of(&bytes_of(tag));
    write_at(Position::new(1, seq), ByteOffset(granule * GRANULE), data)
}

pub fn write_at(position: Position, offset: ByteOffset, data: Data) -> StoreOp {
    let sums = Sums::of(ByteLen(GRANULE), offset, &data);
    StoreOp::Write { position, offset, data, sums }
}

pub struct Bench {
    host: Option<Host<CrashDisk>>,
    next: u64,
    under_way: usize,
}

impl Bench {
    pub fn new() -> Bench {
        let mut disk = CrashDisk::new(ByteLen(16 << 20), SectorSize::B512, 5);
        engine::create(&mut disk, &CreateOptions::default()).expect("a fresh disk");
        Bench::on(disk)
    }

    fn on(disk: CrashDisk) -> Bench {
        let pool = Pool::open(disk, open_options()).expect("the pool opens");
        Bench { host: Some(Host::new(pool)), next: 0, under_way: 0 }
    }

    /// The same pool after its process was killed.
    pub fn killed(mut self, seed: u64) -> Bench {
        let pool = self.host.take().expect("it is there").into_pool();
        let disk = pool.abandon().after_kill(seed);
        Bench { next: self.next, ..Bench::on(disk) }
    }

    pub fn host(&mut self) -> &mut Host<CrashDisk> {
        self.host.as_mut().expect("it is there")
    }

    pub fn spec(granules: u64) -> VolumeSpec {
        VolumeSpec { size: ByteLen(granules * GRANULE), ..VolumeSpec::default() }
    }

    pub fn named(volume: VolumeUid, granules: u64) -> VolumeSpec {
        VolumeSpec { name: format!("v{}", volume.0[0]), ..Bench::spec(granules) }
    }

    /// For something that is asked by hand and will be answered.
    pub fn tag(&mut self) -> StoreTag {
        self.next += 1;
        self.under_way += 1;
        StoreTag(self.next)
    }

    pub fn try_create(&mut self, volume: VolumeUid, granules: u64) -> Answer {
        let tag = self.tag();
        let spec = Bench::named(volume, granules);
        self.host().create(volume, tag, spec, Incarnation(9));
        self.answers().remove(&tag).expect("it was asked")
    }

    pub fn create(&mut self, volume: VolumeUid, granules: u64) {
        self.try_create(volume, granules).expect("there is space");
    }

    pub fn submit(&mut self, volume: VolumeUid, op: StoreOp) -> StoreTag {
        let tag = self.tag();
        self.host().submit(volume, tag, op);
        tag
    }

    /// All answers that are due.
    pub fn answers(&mut self) -> BTreeMap<StoreTag, Answer> {
        let due = std::mem::take(&mut self.under_way);
        let mut answers = BTreeMap::new();
        loop {
            for (_, tag, answer) in self.host().poll() {
                assert!(answers.insert(tag, answer).is_none(), "{tag:?} was answered twice");
            }
            if answers.len() == due {
                return answers;
            }
            self.host().pool_mut().wait();
        }
    }

    /// Lets the device finish so much, whether or not anything is answered.
    pub fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.host().poll();
            if self.host().pool().disk().in_flight() > 0 {
                self.host().pool_mut().wait();
            }
        }
    }

    /// Submits all of them at once, and returns their answers in order.
    pub fn together(&mut self, volume: VolumeUid, ops: Vec<StoreOp>) -> Vec<Answer> {
        let tags: Vec<StoreTag> = ops.into_iter().map(|op| self.submit(volume, op)).collect();
        let mut answers = self.answers();
        tags.iter().map(|tag| answers.remove(tag).expect("all were answered")).collect()
    }

    pub fn all_done(&mut self, volume: VolumeUid, ops: Vec<StoreOp>) {
        for (n, answer) in self.together(volume, ops).into_iter().enumerate() {
            answer.unwrap_or_else(|error| panic!("operation {n}: {error}"));
        }
    }

    pub fn facts(&mut self, volume: VolumeUid) -> StoreFacts {
        self.host().facts(volume).expect("it has a replica here")
    }

    /// What every granule holds.
    pub fn tags(&mut self, volume: VolumeUid) -> Vec<u64> {
        let granules = self.facts(volume).size.0 / GRANULE;
        let reads = (0..granules).map(|granule| StoreOp::Read {
            offset: ByteOffset(granule * GRANULE),
            len: ByteLen(GRANULE),
        });
        let answers = self.together(volume, reads.collect());
        let tag = |answer: Answer| match answer {
            Ok(StoreReply::Read(data)) => {
                assert!(data.iter().all(|byte| *byte == data[0]), "one write, one byte");
                u64::from(data[0])
            }
            other => panic!("a read ended as {other:?}"),
        };
        answers.into_iter().map(tag).collect()
    }
}
