//! What an old pool does with its free space, counted in writes of the device.
mod rot;

use block::{ByteOffset, Data, Position, SectorSize};
use engine::{Op, Pool, VolumeId};
use rot::{create, fresh};
use sim::{CrashDisk, Rng};

const MIB: u64 = 1 << 20;

fn write(pool: &mut Pool<CrashDisk>, volume: VolumeId, seq: u64, offset: u64, len: usize) {
    let (position, offset) = (Position::new(1, seq), ByteOffset(offset));
    let data = Data::copy_of(&vec![7; len]);
    pool.run(Op::Write { volume, position, offset, data }).expect("there is space");
}

/// Writes that the device gets for 1 MiB of data in one operation.
fn writes_of_a_mebibyte(pool: &mut Pool<CrashDisk>, volume: VolumeId, seq: u64) -> u64 {
    pool.checkpoint().expect("a healthy disk");
    let before = pool.disk().counters().writes;
    write(pool, volume, seq, 0, 1 << 20);
    pool.disk().counters().writes - before
}

/// Protects from streams that go back for every hole behind them while there is room in one piece:
/// that breaks up all that is written, and then all that is read.
#[test]
fn a_pool_with_room_writes_in_one_piece_however_it_was_overwritten() {
    for sector in [SectorSize::B512, SectorSize::B4096] {
        let mut pool = fresh(256 * MIB, sector);
        let volume = create(&mut pool, "v", 64 * MIB, 4096);
        let mut seq = 0;
        let mut rng = Rng::new(3);
        for at in 0..16 {
            seq += 1;
            write(&mut pool, volume, seq, at * MIB, 1 << 20);
        }
        let first = writes_of_a_mebibyte(&mut pool, volume, seq + 1);
        seq += 1;
        for round in 0..4 {
            for _ in 0..1_000 {
                seq += 1;
                write(&mut pool, volume, seq, rng.below(4096) * 4096, 4096);
            }
            seq += 1;
            let now = writes_of_a_mebibyte(&mut pool, volume, seq);
            // The data, in two pieces where a region ends, and its slot.
            assert!(now <= 4, "{sector:?}, round {round}: {now} writes, {first} on a fresh pool");
        }
        println!("{sector:?}: {first} writes for a MiB on a fresh pool, no more than 4 later");
    }
}
