//! Running many seeds on all cores, with the failing seed in the message.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sim::workload::Paths;

/// A number from the environment.
pub fn from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

/// The seeds to run: the ordinary number, unless the environment says otherwise.
pub fn range(ordinary: u64) -> Range<u64> {
    let start = from_env("POLLUX_SIM_START").unwrap_or(1);
    start..start + from_env("POLLUX_SIM_SEEDS").unwrap_or(ordinary)
}

/// Runs every seed and adds up the paths that they took.
pub fn run(seeds: Range<u64>, one: impl Fn(u64) -> Paths + Sync) -> Paths {
    let next = AtomicU64::new(seeds.start);
    let total = Mutex::new(Paths::default());
    let failed = Mutex::new(None);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || failed.lock().expect("not poisoned").is_some() {
                        return;
                    }
                    match catch_unwind(AssertUnwindSafe(|| one(seed))) {
                        Ok(paths) => total.lock().expect("not poisoned").merge(&paths),
                        Err(_) => *failed.lock().expect("not poisoned") = Some(seed),
                    }
                }
            });
        }
    });
    if let Some(seed) = failed.into_inner().expect("not poisoned") {
        panic!(
            "number {seed} failed; a seed runs alone with POLLUX_SIM_START={seed} POLLUX_SIM_SEEDS=1"
        );
    }
    total.into_inner().expect("not poisoned")
}

/// Every path must have been taken often enough; fewer seeds than usual ask for less.
pub fn require(paths: &Paths, ordinary: u64, minimums: &[(&'static str, u64)]) {
    let seeds = range(ordinary);
    if seeds.end - seeds.start < ordinary {
        return;
    }
    for (name, least) in minimums {
        let count = paths.counts.get(name).copied().unwrap_or(0);
        assert!(count >= *least, "path {name:?} was taken {count} times, at least {least} wanted");
    }
}
