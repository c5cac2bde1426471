//! Small pools in known states, for tests that damage them at chosen bytes.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::{BlockSize, CreateOptions, Op, Pool, Reply, RequestId, VolumeId, VolumeSpec};
use sim::workload::open_options;
use sim::{CrashDisk, Image};

pub const WRITES: u64 = 12;
const JOURNAL_AT: u64 = 2 << 20;

pub fn fresh(size: u64, sector: SectorSize) -> Pool<CrashDisk> {
    let mut disk = CrashDisk::new(ByteLen(size), SectorSize::B512, 5).with_physical_sector(sector);
    let options = CreateOptions { uuid: *b"a pool of a test", ..CreateOptions::default() };
    engine::create(&mut disk, &options).expect("a fresh disk");
    Pool::open(disk, open_options()).expect("a fresh pool")
}

pub fn create(pool: &mut Pool<CrashDisk>, name: &str, size: u64, block_size: u64) -> VolumeId {
    let block_size = BlockSize::new(block_size).expect("a legal block size");
    let (name, size) = (name.into(), ByteLen(size));
    let spec = VolumeSpec { name, size, block_size, uid: [1; 16], ..VolumeSpec::default() };
    match pool.run(Op::Create { spec }) {
        Ok(Reply::Created(id)) => id,
        other => panic!("create ended as {other:?}"),
    }
}

pub fn bytes_of(granule: u64) -> Vec<u8> {
    (0..4096u64).map(|at| u8::try_from((at * 7 + granule * 31) % 251 + 1).expect("small")).collect()
}

pub fn write(pool: &mut Pool<CrashDisk>, volume: VolumeId, granule: u64, seq: u64) {
    let data = Data::copy_of(&bytes_of(granule));
    let (position, offset) = (Position::new(1, seq), ByteOffset(granule * 4096));
    pool.run(Op::Write { volume, position, offset, data }).expect("a write on a healthy disk");
}

/// A pool with [`WRITES`] writes that are flushed but not checkpointed.
fn flushed(fault: Option<engine::Fault>) -> (Pool<CrashDisk>, VolumeId) {
    let mut pool = fresh(8 << 20, SectorSize::B4096);
    if let Some(fault) = fault {
        pool.plant(fault);
    }
    let volume = create(&mut pool, "v", 1 << 20, 4096);
    (1..=WRITES).for_each(|granule| write(&mut pool, volume, granule, granule));
    pool.run(Op::Flush).expect("a flush on a healthy disk");
    (pool, volume)
}

/// The device, and where the slot of the last flushed write lies.
pub fn flushed_then_more() -> (Image, ByteOffset) {
    let (mut pool, volume) = flushed(None);
    // The next slot tells that the ones before it are durable. It writes granule 1 again, so
    // that the number of blocks stays.
    write(&mut pool, volume, 1, WRITES + 1);
    let disk = pool.abandon();
    let slot = last_slot_before(&disk, 1);
    (disk.kill_image(&mut sim::Rng::new(1)), slot)
}

pub fn flushed_then_idle(fault: Option<engine::Fault>) -> (Image, ByteOffset) {
    let (mut pool, _) = flushed(fault);
    pool.idle();
    while !pool.is_quiet() {
        pool.wait();
    }
    let disk = pool.abandon();
    let slot = last_slot_before(&disk, u64::from(fault.is_none()));
    (disk.kill_image(&mut sim::Rng::new(1)), slot)
}

/// Where the newest slot lies, or the one that many before it.
fn last_slot_before(disk: &CrashDisk, newer: u64) -> ByteOffset {
    let is_slot = |block: &u64| disk.peek(ByteOffset(JOURNAL_AT + block * 4096 + 8), 4) == b"PLXJ";
    let newest = (0..64).filter(is_slot).max().expect("slots were written");
    ByteOffset(JOURNAL_AT + (newest - newer) * 4096)
}

/// A pool whose journal ring was gone around several times, and the number of its last write.
pub fn after_several_laps() -> (Image, u64) {
    let (mut pool, volume) = flushed(None);
    for seq in WRITES + 1..=200 {
        write(&mut pool, volume, seq % 100, seq);
    }
    (pool.abandon().kill_image(&mut sim::Rng::new(1)), 200)
}

/// A pool just before its next checkpoint: the ring has overwritten what the older epoch would
/// replay. With it its newest epoch, and the number of its last operation.
pub fn two_epochs() -> (Image, u64, u64) {
    let (mut pool, volume) = flushed(None);
    let (mut before, mut changes) = (None, 0);
    for seq in WRITES + 1.. {
        let epoch = pool.info().epoch.0;
        let image = pool.disk().kill_image(&mut sim::Rng::new(1));
        // Without data, so that the ring decides when a checkpoint is due.
        let mark = Op::Mark { volume, position: Position::new(1, seq) };
        pool.run(mark).expect("a healthy disk");
        while !pool.is_quiet() {
            pool.wait();
        }
        if pool.info().epoch.0 != epoch {
            changes += 1;
            before = Some((image, epoch, seq - 1));
        }
        if changes == 6 {
            break;
        }
    }
    before.expect("the loop ends after changes")
}

pub fn newest_seq(pool: Pool<CrashDisk>) -> u64 {
    pool.volumes().first().map_or(0, |volume| volume.held.seq.0)
}

pub fn superblock_copies(epoch: u64) -> [ByteOffset; 2] {
    [ByteOffset(epoch % 2 * 4096), ByteOffset(epoch % 2 * 4096 + (1 << 20))]
}

/// How many of the writes can be read back as they were written.
pub fn count_blocks(mut pool: Pool<CrashDisk>) -> u64 {
    let Some(volume) = pool.volume_named("v") else {
        return 0;
    };
    let mut count = 0;
    for granule in 1..=WRITES {
        let (offset, len) = (ByteOffset(granule * 4096), ByteLen(4096));
        pool.submit(RequestId(1), Op::Read { volume, offset, len });
        pool.poll();
        loop {
            if let Some((_, result)) = pool.reply() {
                count += u64::from(
                    matches!(result, Ok(Reply::Read(bytes)) if bytes[..] == bytes_of(granule)),
                );
                break;
            }
            pool.wait();
        }
    }
    count
}
