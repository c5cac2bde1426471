//! A pool in a sparse file, on a file system that fills up: the pool is full, and nothing fails.
//!
//! The disk here refuses every write to what was not allocated before, so each of these tests also shows that
//! there is none.
mod rot;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::check::{Depth, check};
use engine::{
    CreateOptions, Op, OpError, OpenError, OpenOptions, Pool, Reply, Retry, SnapshotSpec,
    SnapshotsOfDeleted, VolumeId,
};
use sim::workload::open_options;
use sim::{CrashDisk, Delivery};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 256 * MIB;
const BLOCK: u64 = 64 << 10;

fn sparse(space: u64, sector: SectorSize, seed: u64) -> Pool<CrashDisk> {
    sparse_of(SIZE, space, sector, seed)
}

fn sparse_of(size: u64, space: u64, sector: SectorSize, seed: u64) -> Pool<CrashDisk> {
    let disk = CrashDisk::new(ByteLen(size), SectorSize::B512, seed);
    let mut disk = disk.with_physical_sector(sector).with_space(ByteLen(space));
    let options = CreateOptions { journal: Some(ByteLen(2 * MIB)), ..CreateOptions::default() };
    engine::create(&mut disk, &options).expect("there is space for an empty pool");
    Pool::open(disk.with_delivery(Delivery::Random), open_options()).expect("a fresh pool")
}

struct Load {
    volume: VolumeId,
    seq: u64,
    written: Vec<u64>,
}

impl Load {
    fn on(pool: &mut Pool<CrashDisk>) -> Load {
        let volume = rot::create(pool, "v", SIZE, BLOCK);
        Load { volume, seq: 0, written: Vec::new() }
    }

    fn bytes(number: u64, version: u64) -> Vec<u8> {
        let tag = u8::try_from((number * 7 + version) % 250 + 1).expect("small");
        vec![tag; usize::try_from(BLOCK).expect("small")]
    }

    fn write(&mut self, pool: &mut Pool<CrashDisk>, number: u64) -> Result<(), OpError> {
        self.seq += 1;
        let version =
            self.written.get(usize::try_from(number).expect("small")).map_or(0, |v| v + 1);
        let data = Data::copy_of(&Load::bytes(number, version));
        let (position, offset) = (Position::new(1, self.seq), ByteOffset(number * BLOCK));
        pool.run(Op::Write { volume: self.volume, position, offset, data })?;
        match usize::try_from(number).expect("small") {
            at if at < self.written.len() => self.written[at] = version,
            _ => self.written.push(0),
        }
        Ok(())
    }

    /// Until the pool is full; how many blocks there are then.
    fn fill(&mut self, pool: &mut Pool<CrashDisk>) -> u64 {
        for number in self.written.len() as u64.. {
            match self.write(pool, number) {
                Ok(()) => {}
                Err(error) => {
                    assert!(matches!(error, OpError::NoSpace { .. }), "block {number}: {error}");
                    assert_eq!(error.retry(), Retry::Later);
                    return number;
                }
            }
        }
        unreachable!("a pool has an end")
    }

    /// Up to so many blocks.
    fn fill_to(&mut self, pool: &mut Pool<CrashDisk>, blocks: u64) -> u64 {
        while (self.written.len() as u64) < blocks {
            let number = self.written.len() as u64;
            let written = self.write(pool, number);
            written.unwrap_or_else(|error| panic!("block {number}: {error}; {:?}", pool.info()));
        }
        self.written.len() as u64
    }

    fn verify(&self, pool: &mut Pool<CrashDisk>) {
        for (number, version) in (0..).zip(&self.written) {
            let (volume, offset) = (self.volume, ByteOffset(number * BLOCK));
            let read = Op::Read { volume, offset, len: ByteLen(BLOCK) };
            let Ok(Reply::Read(bytes)) = pool.run(read) else { panic!("block {number}") };
            assert_eq!(bytes[..], Load::bytes(number, *version), "block {number}");
        }
    }
}

#[test]
fn a_full_file_system_is_a_full_pool_and_no_more() {
    for (seed, sector) in [(1, SectorSize::B4096), (2, SectorSize::B512)] {
        let mut pool = sparse(64 * MIB, sector, seed);
        let mut load = Load::on(&mut pool);
        let first = load.fill(&mut pool) * BLOCK;
        assert!(first > 24 * MIB && first < 64 * MIB, "{first} bytes of 64 MiB");
        for _ in 0..3 {
            assert!(load.fill(&mut pool) * BLOCK < 64 * MIB, "it stays full");
        }
        assert!(pool.info().failed.is_none());
        assert_eq!(pool.info().failures, 0);
        // Overwriting displaces as much as it takes, so it goes on as in every full pool.
        load.verify(&mut pool);
        pool.run(Op::Flush).expect("a flush needs no space");
        pool.checkpoint().expect("a checkpoint lives on the reserve");

        // Space comes back, and nothing is opened anew.
        pool.disk_mut().set_space_left(ByteLen(64 * MIB));
        let second = load.fill(&mut pool) * BLOCK;
        assert!(second > first + 32 * MIB, "{second} bytes, before {first}");
        load.verify(&mut pool);
        let mut disk = pool.close().expect("a healthy disk");
        let report = check(&mut disk, Depth::Data).expect("a pool");
        assert!(report.is_clean(), "{:?}", report.problems);
    }
}

#[test]
fn a_full_pool_on_a_full_file_system_can_delete_and_open() {
    let mut pool = sparse(64 * MIB, SectorSize::B4096, 3);
    let mut load = Load::on(&mut pool);
    load.fill(&mut pool);
    // Nothing more is to be had at all, and the process is killed.
    pool.disk_mut().set_space_left(ByteLen(0));
    load.fill(&mut pool);
    let disk = pool.abandon().after_kill(3);
    let mut pool = Pool::open(disk, open_options()).expect("it needs no more than it had");
    load.verify(&mut pool);
    let (volume, snapshots) = (load.volume, SnapshotsOfDeleted::Refuse);
    pool.run(Op::Delete { volume, snapshots }).expect("deleting always works");
    for _ in 0..8 {
        pool.checkpoint().expect("a healthy disk");
    }
    let mut again = Load { volume: rot::create(&mut pool, "w", SIZE, BLOCK), ..load };
    again.written.clear();
    assert!(again.fill(&mut pool) * BLOCK > 24 * MIB, "what was deleted can be used again");
}

#[test]
fn a_pool_that_cannot_be_opened_for_want_of_space_says_so() {
    let disk = CrashDisk::new(ByteLen(SIZE), SectorSize::B512, 4).with_space(ByteLen(64 * MIB));
    let mut disk = disk;
    engine::create(&mut disk, &CreateOptions::default()).expect("there is space");
    // As after a copy that left holes where zeros were.
    let mut copy = CrashDisk::from_image(disk.durable_image(), 4).with_space(ByteLen(MIB));
    let error = Pool::open(&mut copy, open_options()).map(drop).expect_err("there is no space");
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Later);
    assert!(!error.device_failed());
    copy.set_space_left(ByteLen(64 * MIB));
    let pool = Pool::open(copy, open_options()).expect("there is space now");
    assert_eq!(pool.info().failures, 0);
}

#[test]
fn credits_are_given_only_from_what_is_there() {
    let mut pool = sparse(64 * MIB, SectorSize::B4096, 5);
    let load = Load::on(&mut pool);
    let ask = |bytes| Op::Credit { volume: load.volume, bytes: ByteLen(bytes) };
    let error = pool.run(ask(128 * MIB)).expect_err("the file system has less");
    assert!(matches!(error, OpError::NoSpace { .. }), "{error}");
    pool.run(ask(16 * MIB)).expect("there is so much");
    let disk = pool.abandon().after_kill(5);
    let mut pool = Pool::open(disk, open_options()).expect("a healthy disk");
    assert_eq!(pool.volumes()[0].credit, ByteLen(16 * MIB), "it is kept over a restart");
    pool.disk_mut().set_space_left(ByteLen(256 * MIB));
    pool.run(ask(128 * MIB)).expect("there is so much now");
}

#[test]
fn a_sparse_pool_grows() {
    let mut pool = sparse(64 * MIB, SectorSize::B4096, 6);
    let mut load = Load::on(&mut pool);
    for number in 0..64 {
        load.write(&mut pool, number).expect("there is space");
    }
    pool.disk_mut().grow(ByteLen(2 * SIZE));
    assert_eq!(pool.grow().expect("a healthy disk"), ByteLen(2 * SIZE));
    load.fill(&mut pool);
    let disk = pool.abandon().after_kill(6);
    let mut pool = Pool::open(disk, open_options()).expect("it needs no more than it had");
    pool.disk_mut().set_space_left(ByteLen(400 * MIB));
    let blocks = load.fill_to(&mut pool, 240 * MIB / BLOCK);
    assert_eq!(blocks, 240 * MIB / BLOCK);
    load.verify(&mut pool);
}

/// Protects from a step that ends between the two homes of a region's page: the regions move against the
/// steps by a quarter of a MiB each.
#[test]
fn a_file_system_that_is_full_at_the_start_of_a_region_is_a_full_pool() {
    for space in [272, 274] {
        let mut pool = sparse_of(320 * MIB, space * MIB, SectorSize::B512, space);
        let volume = rot::create(&mut pool, "v", 320 * MIB, BLOCK);
        let mut load = Load { volume, seq: 0, written: Vec::new() };
        let filled = load.fill(&mut pool) * BLOCK;
        assert!(filled > 224 * MIB && filled < space * MIB, "{filled} bytes of {space} MiB");
        pool.checkpoint().expect("a checkpoint lives on the reserve");
        assert!(pool.info().failed.is_none());
        assert_eq!(pool.info().failures, 0);
        load.verify(&mut pool);
        let mut disk = pool.close().expect("a healthy disk");
        let report = check(&mut disk, Depth::Structure).expect("a pool");
        assert!(report.is_clean(), "{:?}", report.problems);
    }
}

/// Protects from a pool that does not open, since replay sets aside what the file does not have.
#[test]
fn a_rollback_is_replayed_with_the_space_that_is_there() {
    let disk = CrashDisk::new(ByteLen(SIZE), SectorSize::B512, 7).with_space(ByteLen(32 * MIB));
    let mut disk = disk;
    engine::create(&mut disk, &CreateOptions::default()).expect("there is space");
    let mut pool = Pool::open(disk, OpenOptions::default()).expect("a fresh pool");
    // So large that stamping all of it would take more pages than there is space for.
    let volume = rot::create(&mut pool, "v", 1 << 40, 4096);
    let mut load = Load { volume, seq: 0, written: Vec::new() };
    load.fill_to(&mut pool, 16);
    let spec = SnapshotSpec { name: "s".into(), uid: [2; 16], internal: true, created: 0 };
    let Ok(Reply::Snapshotted(to)) = pool.run(Op::Snapshot { volume, position: None, spec }) else {
        panic!("there is space for a snapshot")
    };
    pool.checkpoint().expect("a healthy disk");
    let kept = load.written.clone();
    load.fill(&mut pool);
    pool.disk_mut().set_space_left(ByteLen(0));
    let position = Position::new(1, load.seq + 1);
    pool.run(Op::Rollback { volume, position, to, force: false }).expect("the reserve has room");
    let disk = pool.abandon().after_kill(7);
    let mut pool = Pool::open(disk, OpenOptions::default()).expect("it needs no more than it had");
    load.written = kept;
    load.verify(&mut pool);
    assert!(pool.info().failed.is_none());
}
