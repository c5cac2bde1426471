//! A full pool: writes get a clean error, and everything that gives space back still works.
mod rot;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::check::{Depth, check};
use engine::{Op, OpError, Pool, Reply, SnapshotsOfDeleted, VolumeId, Zeroing};
use rot::{create, fresh};
use sim::CrashDisk;

const ROUNDS: u64 = 100;

struct Writer {
    volume: VolumeId,
    size: u64,
    seq: u64,
}

impl Writer {
    fn next(&mut self) -> Position {
        self.seq += 1;
        Position::new(1, self.seq)
    }

    /// Writes the volume from its start until the pool is full; returns how far it came.
    fn fill(&mut self, pool: &mut Pool<CrashDisk>, len: u64) -> u64 {
        let mut offset = 0;
        while offset + len <= self.size {
            let tag = u8::try_from(offset / len % 250 + 1).expect("small");
            let data = Data::copy_of(&vec![tag; usize::try_from(len).expect("small")]);
            let (volume, position) = (self.volume, self.next());
            match pool.run(Op::Write { volume, position, offset: ByteOffset(offset), data }) {
                Ok(_) => offset += len,
                Err(OpError::NoSpace { .. }) => return offset,
                Err(error) => panic!("a full pool answers {error}"),
            }
        }
        panic!("the volume is larger than the pool, so the pool fills up first");
    }

    fn discard(&mut self, pool: &mut Pool<CrashDisk>, offset: u64, len: u64) {
        let (volume, position) = (self.volume, self.next());
        let (offset, len) = (ByteOffset(offset), ByteLen(len));
        let op = Op::Zero { volume, position, offset, len, how: Zeroing::Discard };
        pool.run(op).expect("a full pool can discard");
    }

    fn verify(&self, pool: &mut Pool<CrashDisk>, end: u64, len: u64) {
        for offset in (0..end).step_by(usize::try_from(len).expect("small")) {
            let read =
                Op::Read { volume: self.volume, offset: ByteOffset(offset), len: ByteLen(512) };
            let Ok(Reply::Read(bytes)) = pool.run(read) else { panic!("a full pool can be read") };
            let tag = u8::try_from(offset / len % 250 + 1).expect("small");
            assert!(bytes.iter().all(|byte| *byte == tag), "what was acknowledged is there");
        }
    }
}

fn settle(pool: &mut Pool<CrashDisk>) -> (u64, u64) {
    // Deletions and large discards go on over several checkpoints.
    for _ in 0..2 {
        pool.checkpoint().expect("a healthy disk");
    }
    while !pool.is_quiet() || pool.info().pending.0 > 0 {
        pool.checkpoint().expect("a healthy disk");
    }
    let info = pool.info();
    (info.free.0, info.reserve.0)
}

fn rounds(sector: SectorSize, block_size: u64, write: u64) {
    let mut pool = fresh(7 << 20, sector);
    let keep = create(&mut pool, "kept", 1 << 20, 4096);
    let mut kept = Writer { volume: keep, size: 1 << 20, seq: 0 };
    kept.discard(&mut pool, 0, 1 << 20);
    // Numbers are not given twice: with 128 of them the directory becomes a level higher.
    for _ in 0..128 {
        let volume = create(&mut pool, "counting", 1 << 20, 4096);
        let snapshots = SnapshotsOfDeleted::Refuse;
        pool.run(Op::Delete { volume, snapshots }).expect("an empty volume can be deleted");
    }
    let mut figures = None;
    for round in 0..ROUNDS {
        let volume = create(&mut pool, "filling", 1 << 30, block_size);
        let mut writer = Writer { volume, size: 1 << 30, seq: 0 };
        let end = writer.fill(&mut pool, write);
        assert!(end > 1 << 20, "round {round}: only {end} bytes fitted");
        writer.verify(&mut pool, end, write);
        // Discards of all sizes work on a full pool, also where only a part of a block goes.
        writer.discard(&mut pool, 512, 512);
        writer.discard(&mut pool, end / 2 / 512 * 512, 3 * 4096 + 512);
        writer.discard(&mut pool, 1 << 20, 1 << 29);
        settle(&mut pool);
        // What was discarded can be written again.
        let (volume, position) = (writer.volume, writer.next());
        let data = Data::copy_of(&[9; 4096]);
        let again = Op::Write { volume, position, offset: ByteOffset(1 << 20), data };
        pool.run(again).expect("there is space again");
        writer.fill(&mut pool, write);
        pool.run(Op::Delete { volume: writer.volume, snapshots: SnapshotsOfDeleted::Refuse })
            .expect("a full pool can delete");
        let now = settle(&mut pool);
        let first = *figures.get_or_insert(now);
        assert_eq!(now, first, "round {round}: free space and reserve are what they were");
    }
    let mut disk = pool.close().expect("a healthy pool closes");
    let report = check(&mut disk, Depth::Data).expect("a closed pool");
    assert!(report.is_clean(), "{:?}", report.problems);
    println!("{ROUNDS} rounds with {sector:?} and blocks of {block_size}: {figures:?}");
}

/// Protects from a pool that fills up for good, a reserve that is used up bit by bit, and space
/// that is lost with every round.
#[test]
fn a_full_pool_can_always_give_space_back() {
    rounds(SectorSize::B4096, 4096, 64 << 10);
}

#[test]
fn a_full_pool_of_small_sectors_and_blocks_can_always_give_space_back() {
    rounds(SectorSize::B512, 512, 4096);
}

#[test]
fn a_full_pool_of_large_blocks_can_always_give_space_back() {
    rounds(SectorSize::B4096, 131_072, 131_072);
}
