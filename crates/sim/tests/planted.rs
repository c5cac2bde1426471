//! Planted faults: with a mechanism turned off, the checkers must find a violation. A checker that
//! finds nothing here would find nothing elsewhere either.
mod rot;

use std::panic::{AssertUnwindSafe, catch_unwind};

use block::{ByteOffset, SectorSize};
use engine::{Fault, OpenOptions, Pool};
use sim::workload::{Driver, Expected, Mix, Outcome, Recovery, open_options};
use sim::{Budget, CrashDisk, Delivery, Rng};

/// Seeds within which every fault must be found.
const SEEDS: u64 = 3000;

fn with_fault(fault: Option<Fault>) -> OpenOptions {
    OpenOptions { fault, ..open_options() }
}

/// One workload with a fault planted, cut at a random write; what the checkers say of it.
fn cut_and_check(seed: u64, fault: Option<Fault>, recovery: Recovery) -> Result<(), String> {
    let run = |boundary| {
        let mut mix = Mix::for_power_cut(seed);
        mix.fill = false;
        mix.depth = mix.depth.max(6);
        let mut driver = Driver::new(seed, mix);
        if let Some(fault) = fault {
            driver.pool().plant(fault);
        }
        driver.pool().disk_mut().stop_at(boundary);
        let outcome = driver.run(80);
        (driver, outcome)
    };
    let (mut whole, _) = run(u64::MAX);
    let end = whole.pool().disk().write_boundary();
    let mut rng = Rng::new(seed);
    let (mut driver, outcome) = run(8 + rng.below(end.max(9) - 8));
    if outcome == Outcome::Finished {
        return Ok(());
    }
    let disk = driver.pool.take().expect("open").abandon();
    let mut expected = Expected::new(&driver.history);
    let mut open = |disk: CrashDisk| {
        let disk = disk.with_delivery(Delivery::Immediate);
        let (pool, _) = expected.verify(disk, recovery, with_fault(fault))?;
        let report =
            engine::check::check(&mut pool.abandon().after_kill(1), engine::check::Depth::Data)
                .map_err(|error| error.to_string())?;
        if report.is_clean() { Ok(()) } else { Err(format!("check: {:?}", report.problems)) }
    };
    if recovery == Recovery::Kill {
        return open(disk.after_kill(seed));
    }
    for image in disk.crash_images(SectorSize::B512, Budget::default(), &mut rng) {
        open(CrashDisk::from_image(image, seed))?;
    }
    Ok(())
}

/// Looks for a seed whose crash shows the fault. An assertion of the engine does not count: the
/// checkers have to see the harm.
fn assert_found(fault: Fault, recovery: Recovery) {
    for seed in 1..=SEEDS {
        let judged = catch_unwind(AssertUnwindSafe(|| cut_and_check(seed, Some(fault), recovery)));
        if matches!(judged, Ok(Ok(()))) {
            continue;
        }
        let healthy = cut_and_check(seed, None, recovery);
        assert_eq!(healthy, Ok(()), "the same seed passes without the fault");
        if let Ok(Err(problem)) = judged {
            println!("{fault:?}: found with seed {seed}: {problem}");
            return;
        }
    }
    panic!("{fault:?} was not found within {SEEDS} seeds");
}

/// Protects from an acknowledgement that overtakes a lower slot.
#[test]
fn an_ack_that_does_not_wait_for_lower_slots_is_found() {
    assert_found(Fault::AckBeforeLowerSlots, Recovery::Kill);
}

/// Protects from a flush that is issued while lower slots are in flight.
#[test]
fn a_flush_that_does_not_wait_for_lower_slots_is_found() {
    assert_found(Fault::FlushBeforeLowerSlots, Recovery::PowerCut);
}

/// Protects from freed space that is written to while replay may still need what was there.
#[test]
fn freed_space_that_is_reused_too_early_is_found() {
    assert_found(Fault::ReuseBeforeCheckpoint, Recovery::PowerCut);
}

/// Protects from slots of an older lap of the ring that are replayed behind the newest one.
#[test]
fn an_older_lap_that_is_replayed_is_found() {
    let (image, newest) = rot::after_several_laps();
    let open = |fault| {
        let disk = CrashDisk::from_image(image.clone(), 1);
        catch_unwind(AssertUnwindSafe(|| Pool::open(disk, with_fault(fault)).map(rot::newest_seq)))
    };
    let healthy = open(None).expect("no panic").expect("the pool opens");
    assert_eq!(healthy, newest, "everything that was written is there, and nothing else");
    let faulty = open(Some(Fault::ReplayOlderSession));
    let same = matches!(faulty, Ok(Ok(seq)) if seq == newest);
    assert!(!same, "slots of an older lap were replayed and nobody noticed");
}

/// Protects from records that are believed although their data never arrived.
#[test]
fn replay_that_trusts_unflushed_data_is_found() {
    assert_found(Fault::ReplayTrustsData, Recovery::PowerCut);
}

/// Protects from an early end: a rotten slot below the durable mark must refuse to open.
#[test]
fn replay_that_stops_early_at_a_rotten_slot_is_found() {
    let (disk, slot) = rot::flushed_then_more();
    disk_with_rot(&disk, slot, None).map(|_| ()).expect_err("a rotten durable slot is damage");
    let opened = disk_with_rot(&disk, slot, Some(Fault::ReplayStopsEarly));
    let pool = opened.expect("the fault takes it for the end");
    assert_ne!(rot::count_blocks(pool), rot::WRITES, "flushed writes were lost without a word");
}

/// Protects from an idle flush that nothing in the journal tells of: rot of the slot it covered
/// would pass for the end.
#[test]
fn a_missing_idle_record_is_found() {
    let (told, slot) = rot::flushed_then_idle(None);
    disk_with_rot(&told, slot, None).map(|_| ()).expect_err("a rotten durable slot is damage");
    let (untold, slot) = rot::flushed_then_idle(Some(Fault::NoIdleDurable));
    let pool = disk_with_rot(&untold, slot, None).expect("nothing tells that it was durable");
    assert_ne!(rot::count_blocks(pool), rot::WRITES, "flushed writes were lost without a word");
}

/// Protects from going back in time when both copies of the newest superblock are bad.
#[test]
fn an_older_superblock_that_is_opened_silently_is_found() {
    let (disk, newest, seq) = rot::two_epochs();
    let ruin = || {
        let mut image = disk.clone();
        for at in rot::superblock_copies(newest) {
            image.flip(ByteOffset(at.0 + 100), 0xff);
        }
        CrashDisk::from_image(image, 1)
    };
    Pool::open(ruin(), open_options()).map(|_| ()).expect_err("both copies are gone");
    let faulty = with_fault(Some(Fault::OpenOlderEpoch));
    let older = Pool::open(ruin(), faulty);
    // It may be noticed at once, since what the older epoch names was reused; or too late.
    let back_in_time = older.map_or(0, rot::newest_seq);
    assert_ne!(back_in_time, seq, "acknowledged and checkpointed writes were lost");
}

fn disk_with_rot(
    disk: &sim::Image,
    slot: ByteOffset,
    fault: Option<Fault>,
) -> Result<Pool<CrashDisk>, engine::OpenError> {
    let mut image = disk.clone();
    image.flip(ByteOffset(slot.0 + 70), 0x10);
    Pool::open(CrashDisk::from_image(image, 1), with_fault(fault))
}
