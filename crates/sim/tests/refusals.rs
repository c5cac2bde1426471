//! What is refused leaves nothing behind, and what is allowed on a full pool can be finished.
mod rot;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::{
    Op, OpError, OpenOptions, Pool, RequestId, SnapshotsOfDeleted, VOLUME_MAX, VolumeId, Zeroing,
};
use rot::{create, fresh, write};
use sim::CrashDisk;

fn discard(volume: VolumeId, seq: u64, offset: u64, len: u64) -> Op {
    let (position, offset, len) = (Position::new(1, seq), ByteOffset(offset), ByteLen(len));
    Op::Zero { volume, position, offset, len, how: Zeroing::Discard }
}

fn grow(volume: VolumeId, seq: u64, size: u64) -> Op {
    Op::Grow { volume, position: Some(Position::new(1, seq)), size: ByteLen(size) }
}

fn fill(pool: &mut Pool<CrashDisk>, volume: VolumeId) {
    let data = Data::copy_of(&[7; 4096]);
    for seq in 1.. {
        let (position, offset) = (Position::new(1, seq), ByteOffset(seq * 4096));
        match pool.run(Op::Write { volume, position, offset, data: data.clone() }) {
            Ok(_) => {}
            Err(OpError::NoSpace { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A full pool with many small volumes that have data, and one that fills it.
fn full(count: u64) -> (Pool<CrashDisk>, Vec<VolumeId>) {
    let mut pool = fresh(12 << 20, SectorSize::B512);
    let small: Vec<VolumeId> =
        (0..count).map(|at| create(&mut pool, &format!("small-{at}"), 512 << 10, 4096)).collect();
    for volume in &small {
        (0..2).for_each(|granule| write(&mut pool, *volume, granule, granule + 1));
    }
    let big = create(&mut pool, "big", 1 << 30, 4096);
    fill(&mut pool, big);
    (0..2).for_each(|_| pool.checkpoint().expect("a healthy disk"));
    (pool, small)
}

/// Protects from a checkpoint that finds no space: every page that it writes, also those of maps
/// that became higher, was set aside when its operation was taken.
#[test]
fn volumes_that_grow_on_a_full_pool_leave_room_for_the_checkpoint() {
    let (mut pool, small) = full(30);
    for volume in &small {
        pool.run(discard(*volume, 3, 0, 4096)).expect("a full pool can discard");
        match pool.run(grow(*volume, 4, VOLUME_MAX)) {
            Ok(_) | Err(OpError::NoSpace { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    pool.checkpoint().expect("there is room for it");
    let disk = pool.abandon().after_kill(1);
    let mut pool = Pool::open(disk, OpenOptions::default()).expect("the pool opens again");
    for volume in small {
        pool.run(Op::Delete { volume, snapshots: SnapshotsOfDeleted::Refuse })
            .expect("a full pool can delete");
    }
}

/// Protects from a reserve that is spent for good by operations that only borrow from it.
#[test]
fn growing_again_and_again_does_not_use_up_the_reserve() {
    let (mut pool, small) = full(60);
    for (at, volume) in small.iter().enumerate() {
        pool.run(discard(*volume, 3, 0, 4096))
            .unwrap_or_else(|error| panic!("discard {at} on a full pool: {error}"));
        let _ = pool.run(grow(*volume, 4, VOLUME_MAX / 2));
        pool.checkpoint().expect("a healthy disk");
    }
    for (at, volume) in small.into_iter().enumerate() {
        pool.run(Op::Delete { volume, snapshots: SnapshotsOfDeleted::Refuse })
            .unwrap_or_else(|error| panic!("delete {at} on a full pool: {error}"));
    }
}

/// Protects from a volume that keeps a size it was never given: what is acknowledged beyond its
/// end could not be replayed.
#[test]
fn an_operation_that_relied_on_a_refused_one_is_refused_too() {
    let (mut pool, small) = full(1);
    let volume = small[0];
    // All three are accepted before the first is found not to fit.
    let data = Data::copy_of(&[3; 4096]);
    let (position, offset) = (Position::new(1, 11), ByteOffset(VOLUME_MAX - 4096));
    pool.submit(RequestId(1), grow(volume, 10, VOLUME_MAX));
    pool.submit(RequestId(2), Op::Write { volume, position, offset, data });
    pool.submit(RequestId(3), discard(volume, 12, VOLUME_MAX - 8192, 4096));
    let mut answers = Vec::new();
    pool.poll();
    while answers.len() < 3 {
        answers.extend(std::iter::from_fn(|| pool.reply()));
        pool.wait();
    }
    let refused = answers.iter().any(|(id, answer)| id.0 == 1 && answer.is_err());
    assert!(refused, "a map that becomes much higher does not fit a full pool: {answers:?}");
    assert!(answers.iter().all(|(_, answer)| answer.is_err()), "{answers:?}");
    let size = pool.volumes().iter().find(|info| info.id == volume).map(|info| info.size);
    assert_eq!(size, Some(ByteLen(512 << 10)), "the refused size left no trace");
    let beyond = pool.run(discard(volume, 13, VOLUME_MAX - 4096, 4096));
    assert!(matches!(beyond, Err(OpError::BeyondEnd { .. })), "{beyond:?}");
    pool.run(discard(volume, 13, 0, 4096)).expect("positions go on from the last that counted");
    let disk = pool.abandon().after_kill(1);
    Pool::open(disk, OpenOptions::default()).map(|_| ()).expect("the pool opens again");
}

/// Protects from writes of zeros that leave something to be dropped without being counted.
#[test]
fn zeros_that_are_written_need_no_space_and_are_never_cut_off() {
    let (mut pool, _) = full(1);
    let volume = pool.volume_named("big").expect("it fills the pool");
    let before = pool.counters();
    let zeros = Data::copy_of(&vec![0; 1 << 20]);
    let seq = pool.volumes().iter().find(|v| v.id == volume).expect("it is there").held.seq.0;
    for at in 1..=40 {
        let (position, offset) =
            (Position::new(1, seq + at), ByteOffset(at * (3 << 19) + 4096 * 64));
        pool.run(Op::Write { volume, position, offset, data: zeros.clone() })
            .unwrap_or_else(|error| panic!("zeros on a full pool: {error}"));
    }
    pool.checkpoint().expect("a healthy disk");
    assert_eq!(pool.counters().cut_off, before.cut_off, "none is large");
}
