//! A read whose place is given to somebody else while it is under way.
mod rot;
mod slow;

use block::{ByteLen, ByteOffset, Data, Position};
use engine::{BlockSize, CreateOptions, Op, Pool, Reply, RequestId, VolumeSpec};
use rot::bytes_of;
use sim::CrashDisk;
use sim::workload::open_options;
use slow::{Hold, Slow};

/// Protects from a read that returns another block's bytes, or calls a block damaged, because its
/// place was freed and written again before the device came to it.
#[test]
fn a_read_of_a_place_that_was_given_away_begins_anew() {
    let mut disk = CrashDisk::new(ByteLen(8 << 20), block::SectorSize::B4096, 5);
    engine::create(&mut disk, &CreateOptions::default()).expect("a fresh disk");
    let mut pool = Pool::open(Slow::new(disk), open_options()).expect("a fresh pool");
    let block_size = BlockSize::DEFAULT;
    let (name, size) = ("v".into(), ByteLen(4 << 20));
    let spec = VolumeSpec { name, size, block_size, uid: [1; 16], ..VolumeSpec::default() };
    let Ok(Reply::Created(volume)) = pool.run(Op::Create { spec }) else { panic!("no volume") };
    let mut seq = 0;
    let mut write = |pool: &mut Pool<Slow>, granule: u64, content: u64| {
        seq += 1;
        let (position, offset) = (Position::new(1, seq), ByteOffset(granule * 4096));
        let data = Data::copy_of(&bytes_of(content));
        pool.run(Op::Write { volume, position, offset, data }).expect("a healthy disk");
    };
    write(&mut pool, 7, 7);
    pool.checkpoint().expect("a healthy disk");
    // The map's pages are in memory from here on, so that only the block itself is held back.
    let read = || Op::Read { volume, offset: ByteOffset(7 * 4096), len: ByteLen(4096) };
    pool.run(read()).expect("a healthy disk");
    pool.disk_mut().hold = Hold::Reads;
    pool.submit(RequestId(1), read());
    pool.poll();
    assert_eq!(pool.disk().held.len(), 1, "the read of the block is under way");
    pool.disk_mut().hold = Hold::Nothing;
    // The block moves, its old place comes back, and the whole pool is written over.
    write(&mut pool, 7, 77);
    for round in 0..3 {
        (100..900).for_each(|granule| write(&mut pool, granule, granule + round));
        pool.checkpoint().expect("a healthy disk");
    }
    pool.disk_mut().release();
    let bytes = loop {
        match pool.reply() {
            Some((RequestId(1), Ok(Reply::Read(bytes)))) => break bytes,
            Some(other) => panic!("the read ended as {other:?}"),
            None => pool.wait(),
        }
    };
    assert_eq!(bytes[..], bytes_of(77), "what is there now");
    assert_eq!(pool.counters().reads_begun_anew, 1, "the place had been given away");
    assert_eq!(pool.counters().damaged_blocks, 0, "and nothing was damaged");
}
