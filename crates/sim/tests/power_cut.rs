//! Power cuts: a workload is stopped at a write boundary, and every state that the device could be
//! in then is opened and verified.
mod seeds;

use std::collections::BTreeSet;

use block::SectorSize;
use engine::Pool;
use engine::check::{Depth, check};
use sim::workload::{Change, Driver, Expected, Mix, Outcome, Paths, Recovery, open_options};
use sim::{Budget, CrashDisk, Delivery, Image, Rng};

const WORKLOADS: u64 = 250;
const BOUNDARIES_EACH: u64 = 8;
const OPERATIONS: u64 = 60;

/// Runs a workload until the disk takes no more writes.
fn run_until(seed: u64, boundary: u64) -> (Driver, Outcome) {
    let mut driver = Driver::new(seed, Mix::for_power_cut(seed));
    driver.pool().disk_mut().stop_at(boundary);
    let outcome = driver.run(OPERATIONS);
    (driver, outcome)
}

/// Cuts the power again while the pool is being opened, at a write of that opening.
fn cut_while_opening(expected: &mut Expected<'_>, image: &Image, rng: &mut Rng, paths: &mut Paths) {
    let mut disk = CrashDisk::from_image(image.clone(), rng.next_u64());
    disk.refuse_at(1 + rng.below(24));
    let opened = Pool::open(&mut disk, open_options()).map(|_| ());
    paths.add(if opened.is_ok() { "opened before the cut" } else { "cut while opening" }, 1);
    let images = disk.crash_images(SectorSize::B512, Budget::default(), rng);
    for image in images.take(6) {
        let disk = CrashDisk::from_image(image, 7);
        if let Err(problem) = expected.verify(disk, Recovery::PowerCut, open_options()) {
            panic!("after a power cut while opening: {problem}");
        }
    }
}

/// Opens one image, verifies it, and now and then goes on working and cuts the power again.
fn verify_image(expected: &mut Expected<'_>, disk: CrashDisk, again: bool, paths: &mut Paths) {
    let disk = disk.with_delivery(Delivery::Immediate);
    let (mut pool, count) = match expected.verify(disk, Recovery::PowerCut, open_options()) {
        Ok(found) => found,
        Err(problem) => panic!("after a power cut: {problem}"),
    };
    paths.add("slots replayed", pool.counters().replayed_slots);
    // What is left to be dropped goes on by itself; a kill in the middle of a checkpoint may leave
    // a torn superblock, which is no damage.
    while !pool.is_quiet() {
        pool.wait();
    }
    let disk = pool.abandon();
    let mut quiet = disk.after_kill(count as u64);
    let report = check(&mut quiet, Depth::Structure).expect("a recovered pool can be checked");
    assert!(report.is_clean(), "check after a power cut found {:?}", report.problems);
    if again {
        paths.add("second cuts", 1);
        // The next life begins where this one ended: a cut right after opening loses nothing.
        let mut rng = Rng::new(count as u64);
        let images = disk.crash_images(SectorSize::B512, Budget::default(), &mut rng);
        for image in images.take(4) {
            let disk = CrashDisk::from_image(image, 7);
            let (_, second) = expected
                .verify(disk, Recovery::PowerCut, open_options())
                .unwrap_or_else(|problem| panic!("after a second power cut: {problem}"));
            assert_eq!(second, count, "what was recovered once is recovered again");
        }
    }
}

/// Operations of which there are few, so that their being in flight is counted.
fn rare(change: &Change) -> Option<&'static str> {
    match change {
        Change::Snapshot { .. } => Some("snapshots in flight"),
        Change::DeleteSnapshot { .. } => Some("deletions of snapshots in flight"),
        Change::Clone { .. } => Some("clones in flight"),
        Change::Rollback { .. } => Some("rollbacks in flight"),
        Change::Attach { .. } => Some("attachments in flight"),
        Change::StageData { .. } => Some("parts of imports in flight"),
        Change::Adopt { .. } => Some("adoptions in flight"),
        _ => None,
    }
}

fn cut(seed: u64, boundary: u64, paths: &mut Paths) {
    let (mut driver, outcome) = run_until(seed, boundary);
    if outcome == Outcome::Finished {
        paths.add("workload ended before the boundary", 1);
        return;
    }
    let pool = driver.pool.take().expect("open");
    let mut rng = Rng::new(seed ^ boundary << 20);
    let tear = if rng.chance(1, 2) { SectorSize::B512 } else { SectorSize::B4096 };
    let disk = pool.abandon();
    let unflushed = &driver.history.entries[driver.history.flushed..];
    let in_flight: BTreeSet<_> = unflushed.iter().map(|entry| entry.change.volume()).collect();
    unflushed.iter().filter_map(|entry| rare(&entry.change)).for_each(|name| paths.add(name, 1));
    let mut expected = Expected::new(&driver.history);
    let mut again = rng.fork();
    let images = disk.crash_images(tear, Budget::default(), &mut rng);
    paths.add("boundaries", 1);
    paths.add(if images.is_exhaustive() { "exhaustive" } else { "sampled" }, 1);
    paths.add("with several volumes in flight", u64::from(in_flight.len() > 1));
    for (at, image) in images.enumerate() {
        paths.add("images", 1);
        if at % 8 == 3 {
            cut_while_opening(&mut expected, &image, &mut again, paths);
        }
        let disk = CrashDisk::from_image(image, seed);
        verify_image(&mut expected, disk, at % 16 == 5, paths);
    }
    // The same moment as a kill: nothing that was acknowledged may be missing.
    paths.add("kills", 1);
    let killed = disk.after_kill(seed);
    if let Err(problem) = expected.verify(killed, Recovery::Kill, open_options()) {
        panic!("after a kill: {problem}");
    }
}

/// Protects from every order and every part of unsynced writes that a power cut may leave: all
/// flushed data is there, every unflushed operation is whole or absent, and space is exact.
#[test]
fn a_power_cut_at_any_write_loses_nothing_that_was_flushed() {
    let range = seeds::range(WORKLOADS);
    let paths = seeds::run(range.clone(), |seed| {
        let mut paths = Paths::default();
        let (mut whole, _) = run_until(seed, u64::MAX);
        let end = whole.pool().disk().write_boundary();
        let mut rng = Rng::new(seed ^ 0xc07);
        // The first writes make the pool; the workload's own follow.
        for _ in 0..BOUNDARIES_EACH {
            cut(seed, 8 + rng.below(end.max(9) - 8), &mut paths);
        }
        paths
    });
    println!("{} workloads; {:#?}", range.count(), paths.counts);
    seeds::require(
        &paths,
        WORKLOADS,
        &[
            ("boundaries", 1_000),
            ("exhaustive", 100),
            ("sampled", 300),
            ("with several volumes in flight", 1_000),
            ("images", 40_000),
            ("second cuts", 1_000),
            ("slots replayed", 40_000),
            ("kills", 1_000),
            ("cut while opening", 5_000),
            ("snapshots in flight", 100),
            ("deletions of snapshots in flight", 20),
            ("clones in flight", 20),
            ("rollbacks in flight", 20),
            ("attachments in flight", 20),
            ("parts of imports in flight", 20),
            ("adoptions in flight", 10),
        ],
    );
}
