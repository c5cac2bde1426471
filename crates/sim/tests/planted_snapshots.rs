//! Planted faults of snapshots, clones and stamps: the model must see them.
use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::Fault;
use sim::workload::{Driver, Mix};

/// Seeds within which every fault must be found.
const SEEDS: u64 = 500;

thread_local! {
    /// Where the last panic of this thread came from.
    static PANICKED: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// What the checkers of the model say of a workload with a fault planted. What the engine notices
/// by itself does not count.
fn run_and_compare(seed: u64, fault: Option<Fault>) -> Result<(), String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut mix = Mix::for_seed(seed);
        (mix.fill, mix.reopen, mix.snapshots) = (false, false, true);
        mix.depth = mix.depth.max(2);
        let mut driver = Driver::new(seed, mix);
        if let Some(fault) = fault {
            driver.pool().plant(fault);
        }
        driver.run(300);
        driver.verify_all();
    }));
    let Err(panic) = outcome else { return Ok(()) };
    let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    let place = PANICKED.with_borrow(Clone::clone);
    let own = ["the pool has failed", "contradict"].iter().any(|words| said.contains(words));
    if own || !place.contains("workload") { Ok(()) } else { Err(format!("{place}: {said}")) }
}

/// Looks for a seed in which the model sees the fault.
fn assert_seen(fault: Fault) {
    let hook = |info: &std::panic::PanicHookInfo<'_>| {
        let place = info.location().map_or_else(String::new, |at| at.file().to_owned());
        PANICKED.with_borrow_mut(|last| *last = place);
    };
    std::panic::set_hook(Box::new(hook));
    let found = (1..=SEEDS).find_map(|seed| {
        let problem = run_and_compare(seed, Some(fault)).err()?;
        Some((seed, problem, run_and_compare(seed, None)))
    });
    let _ = std::panic::take_hook();
    let (seed, problem, healthy) =
        found.unwrap_or_else(|| panic!("{fault:?} was not found within {SEEDS} seeds"));
    println!("{fault:?}: found with seed {seed}: {:.200}", problem);
    assert_eq!(healthy, Ok(()), "the same seed passes without the fault");
}

/// Protects from holes that deltas do not tell of, rollbacks that they do not tell of, blocks that
/// are freed while a snapshot has them, and origins that are freed while clones have them.
///
/// One test for all, in a file of its own, since the hook that tells where a panic came from is
/// the process's.
#[test]
fn faults_of_snapshots_are_seen_by_the_model() {
    assert_seen(Fault::HoleStampsOff);
    assert_seen(Fault::RollbackStampsOff);
    assert_seen(Fault::FreeDeadEarly);
    assert_seen(Fault::OriginFreed);
}
