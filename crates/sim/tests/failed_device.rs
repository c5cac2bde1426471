//! A device that fails: a failed flush or write is final, a failed read is only that.
mod rot;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::{Op, OpError, Pool, Reply, RequestId, Retry};
use rot::{bytes_of, create, fresh, write};
use sim::{CrashDisk, Delivery, Rng};

/// Submits several operations, lets the device answer, and returns every answer.
fn answers(pool: &mut Pool<CrashDisk>, ops: Vec<Op>) -> Vec<(u64, Result<Reply, OpError>)> {
    let count = ops.len();
    for (id, op) in (0..).zip(ops) {
        pool.submit(RequestId(id), op);
    }
    pool.poll();
    let mut found = Vec::new();
    while found.len() < count {
        while let Some((RequestId(id), result)) = pool.reply() {
            found.push((id, result));
        }
        if found.len() < count {
            pool.wait();
        }
    }
    assert!(pool.reply().is_none(), "every operation is answered once");
    found
}

/// Protects from a flush that is tried again: what the device dropped when it failed is not
/// known, so success of the second would be a lie.
#[test]
fn a_failed_flush_is_final() {
    let mut pool = fresh(8 << 20, SectorSize::B4096);
    let volume = create(&mut pool, "v", 1 << 20, 4096);
    write(&mut pool, volume, 1, 1);
    pool.run(Op::Flush).expect("the device is healthy");
    write(&mut pool, volume, 2, 2);
    let flushes = pool.disk().counters().flushes;
    pool.disk_mut().fail_next_flush();
    let data = Data::copy_of(&bytes_of(3));
    let (position, offset) = (Position::new(1, 3), ByteOffset(3 * 4096));
    let found = answers(
        &mut pool,
        vec![
            Op::Flush,
            Op::Write { volume, position, offset, data },
            Op::Flush,
            Op::Read { volume, offset: ByteOffset(4096), len: ByteLen(4096) },
        ],
    );
    for (id, result) in found {
        match result {
            Err(error) => assert_eq!(error.retry(), Retry::PoolFailed, "answer {id}: {error}"),
            Ok(Reply::Read(bytes)) => assert_eq!(bytes[..], bytes_of(1)),
            Ok(Reply::Done) => assert_eq!(id, 1, "a write that was held before the flush failed"),
            Ok(other) => panic!("answer {id} is {other:?}"),
        }
    }
    assert!(pool.info().failed.is_some_and(|reason| reason.contains("flush")));
    for _ in 0..5 {
        let error = pool.run(Op::Flush).expect_err("the pool has failed for good");
        assert_eq!(error.retry(), Retry::PoolFailed);
        assert!(error.to_string().contains("flush"), "it says why: {error}");
    }
    pool.idle();
    pool.poll();
    assert_eq!(pool.disk().counters().flushes, flushes + 1, "nothing is retried over it");
    let durable = pool.volumes()[0].durable;
    assert_eq!(durable, Position::new(1, 1), "what was not flushed is not called durable");
}

/// Protects from an acknowledgement of a write that the device refused.
#[test]
fn a_failed_write_is_never_acknowledged() {
    for seed in 0..40 {
        let mut disk = CrashDisk::new(ByteLen(8 << 20), SectorSize::B512, seed)
            .with_delivery(Delivery::Random);
        engine::create(&mut disk, &engine::CreateOptions::default()).expect("a fresh disk");
        let mut pool = Pool::open(disk, sim::workload::open_options()).expect("a fresh pool");
        let volume = create(&mut pool, "v", 1 << 20, 4096);
        // Everything behind some place of the device fails, data and journal alike by turns.
        let mut rng = Rng::new(seed);
        let (at, len) = if rng.chance(1, 2) { (2 << 20, 256 << 10) } else { (2304 << 10, 6 << 20) };
        pool.disk_mut().fail_writes(ByteOffset(at), ByteLen(len));
        let ops = (1..=8).map(|seq| Op::Write {
            volume,
            position: Position::new(1, seq),
            offset: ByteOffset(seq * 4096),
            data: Data::copy_of(&bytes_of(seq)),
        });
        for (id, result) in answers(&mut pool, ops.collect()) {
            let error = result.expect_err("the device wrote nothing");
            assert_eq!(error.retry(), Retry::PoolFailed, "seed {seed}, answer {id}: {error}");
        }
    }
}

/// Protects from a read error that is taken for damage of the whole pool, or for zeros.
#[test]
fn a_failed_read_is_an_error_of_that_read_alone() {
    let mut pool = fresh(8 << 20, SectorSize::B4096);
    let volume = create(&mut pool, "v", 1 << 20, 4096);
    (1..5).for_each(|granule| write(&mut pool, volume, granule, granule));
    pool.checkpoint().expect("the device is healthy");
    pool.disk_mut().fail_reads(ByteOffset(0), ByteLen(8 << 20));
    let read =
        |granule: u64| Op::Read { volume, offset: ByteOffset(granule * 4096), len: ByteLen(4096) };
    let error = pool.run(read(2)).expect_err("the device cannot read");
    assert_eq!(error.retry(), Retry::Elsewhere, "{error}");
    pool.disk_mut().heal();
    let Ok(Reply::Read(bytes)) = pool.run(read(3)) else { panic!("the device reads again") };
    assert_eq!(bytes[..], bytes_of(3));
    write(&mut pool, volume, 7, 7);
}

/// Protects from a checkpoint that fails half way and is taken for done.
#[test]
fn a_checkpoint_that_fails_leaves_the_last_one_in_force() {
    for nth in 0..3 {
        let mut pool = fresh(8 << 20, SectorSize::B4096);
        let volume = create(&mut pool, "v", 1 << 20, 4096);
        (1..=rot::WRITES).for_each(|granule| write(&mut pool, volume, granule, granule));
        pool.run(Op::Flush).expect("the device is healthy");
        let flushes = pool.disk().counters().flushes;
        pool.disk_mut().fail_flush_at(flushes + nth);
        pool.checkpoint().expect_err("one of its flushes failed");
        assert!(pool.info().failed.is_some());
        let mut image = pool.abandon().after_kill(nth);
        image.heal();
        let pool = Pool::open(image, sim::workload::open_options()).expect("the pool opens");
        assert_eq!(rot::count_blocks(pool), rot::WRITES, "nothing that was flushed is lost");
    }
}

/// Protects from a checkpoint that goes on over a failed flush and commits what was dropped.
#[test]
fn nothing_is_committed_once_a_flush_has_failed() {
    let mut pool = fresh(8 << 20, SectorSize::B4096);
    let volume = create(&mut pool, "v", 1 << 20, 4096);
    (1..20).for_each(|granule| write(&mut pool, volume, granule, granule));
    let epoch = pool.info().epoch;
    pool.disk_mut().fail_next_flush();
    pool.run(Op::Flush).expect_err("the flush failed");
    pool.checkpoint().expect_err("a failed pool makes no checkpoint");
    pool.grow().expect_err("nor does it grow");
    assert_eq!(pool.info().epoch, epoch);
    assert!(pool.is_quiet(), "nothing is waited for any more");
    pool.close().map(|_| ()).expect_err("nor is it closed in order");
}

/// Protects from a checkpoint that waits for ever for a slot whose write was lost.
#[test]
fn a_lost_slot_ends_the_checkpoint_that_waits_for_it() {
    let mut pool = fresh(8 << 20, SectorSize::B4096);
    let volume = create(&mut pool, "v", 1 << 20, 4096);
    pool.disk_mut().fail_writes(ByteOffset(2 << 20), ByteLen(256 << 10));
    let (position, offset) = (Position::new(1, 1), ByteOffset(0));
    pool.submit(
        RequestId(1),
        Op::Write { volume, position, offset, data: Data::copy_of(&bytes_of(0)) },
    );
    pool.checkpoint().expect_err("the slot was lost");
    assert!(matches!(pool.reply(), Some((RequestId(1), Err(_)))));
}

/// The device takes what is on its way to it; then the process is gone, and another opens the pool.
fn killed_and_opened(mut pool: Pool<CrashDisk>) -> Pool<CrashDisk> {
    pool.poll();
    while pool.disk().in_flight() > 0 {
        pool.wait();
    }
    let mut disk = pool.abandon().after_kill(1);
    disk.heal();
    Pool::open(disk, sim::workload::open_options()).expect("the pool opens")
}

/// Protects from a pool that is opened again as if its device had never failed: the second flush succeeds,
/// and tells nothing of what the first one dropped.
#[test]
fn a_pool_tells_that_its_device_has_failed_before() {
    let mut pool = fresh(8 << 20, SectorSize::B4096);
    let volume = create(&mut pool, "v", 1 << 20, 4096);
    write(&mut pool, volume, 1, 1);
    assert_eq!(pool.info().failures, 0);
    pool.disk_mut().fail_next_flush();
    pool.run(Op::Flush).expect_err("the flush failed");
    // Killed, and opened by a process that knows nothing of it.
    let pool = killed_and_opened(pool);
    assert_eq!(pool.info().failures, 1);
    assert!(pool.info().failed.is_none(), "it is in service again");
    let disk = pool.close().expect("the device is healthy");
    let pool = Pool::open(disk, sim::workload::open_options()).expect("the pool opens");
    assert_eq!(pool.info().failures, 1, "it stays so");
}

/// Protects from a failure that is only told to the process that opens a pool, and gone with it.
#[test]
fn a_flush_that_fails_at_any_step_of_opening_leaves_its_mark() {
    let mut steps = 0;
    for nth in 0.. {
        let mut pool = fresh(8 << 20, SectorSize::B4096);
        let volume = create(&mut pool, "v", 1 << 20, 4096);
        (1..=rot::WRITES).for_each(|granule| write(&mut pool, volume, granule, granule));
        let mut disk = pool.abandon().after_kill(nth);
        let flushes = disk.counters().flushes;
        disk.fail_flush_at(flushes + nth);
        match Pool::open(&mut disk, sim::workload::open_options()) {
            Ok(_) => break,
            Err(error) => assert!(error.device_failed(), "{error}"),
        }
        steps += 1;
        disk.heal();
        let pool = Pool::open(disk, sim::workload::open_options()).expect("the next one opens");
        assert_eq!(pool.info().failures, 1, "flush {nth} of opening");
    }
    assert!(steps >= 3, "opening flushes before and in its checkpoint, not {steps} times");
}

/// Protects from a failed flush that is never told, since it is not known of which pool it was.
#[test]
fn a_pool_that_cannot_be_named_tells_of_a_failed_flush_all_the_same() {
    let mut disk = fresh(8 << 20, SectorSize::B4096).close().expect("a healthy disk");
    assert_eq!(engine::pool_uuid(&mut disk).expect("a pool"), *b"a pool of a test");
    disk.fail_reads(ByteOffset(0), ByteLen(2 << 20));
    let error = engine::pool_uuid(&mut disk).expect_err("it cannot be read");
    assert!(!error.device_failed(), "{error}");
    disk.fail_next_flush();
    let error = engine::pool_uuid(&mut disk).expect_err("it cannot be read");
    assert!(error.device_failed(), "{error}");
}

/// One of the two places is enough.
#[test]
fn a_mark_is_found_where_half_of_it_could_be_written() {
    for place in [16 << 10, (1 << 20) + (16 << 10)] {
        let mut pool = fresh(8 << 20, SectorSize::B4096);
        let volume = create(&mut pool, "v", 1 << 20, 4096);
        write(&mut pool, volume, 1, 1);
        pool.disk_mut().fail_writes(ByteOffset(place), ByteLen(4096));
        pool.disk_mut().fail_next_flush();
        pool.run(Op::Flush).expect_err("the flush failed");
        let pool = killed_and_opened(pool);
        assert_eq!(pool.info().failures, 1, "without {place}");
    }
}
