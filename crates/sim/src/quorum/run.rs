//! Runs seeds, many at once, and tells what they found.
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::load::Load;
use super::plan::Plan;
use super::trace::Trace;
use super::world::{Outcome, World};
use crate::workload::Paths;

/// What came out of many seeds.
#[derive(Default)]
pub struct Summary {
    pub seeds: u64,
    pub operations: u64,
    pub paths: Paths,
    /// The seed that took longest.
    pub slowest: (Duration, u64),
    /// The seed whose clients did least, and how many operations that were.
    pub idlest: Option<(u64, u64)>,
    /// Seeds that failed, and how.
    pub failures: Vec<(u64, String)>,
}

/// Seeds that fail beyond this many are not worth the time.
const FAILURES_MAX: usize = 20;

pub fn run_one(seed: u64, trace: Trace) -> Outcome {
    run_plan(Plan::for_seed(seed), trace)
}

pub fn run_plan(plan: Plan, trace: Trace) -> Outcome {
    trace.say(super::clients::Time(0), || format!("{plan:?}"));
    #[cfg(feature = "faults")]
    replication::bounds::lower(plan.bounds);
    let load = Load::new(&plan);
    World::new(plan, load, trace).run()
}

/// Runs seeds on all cores. `kept` run first.
pub fn run(kept: &[u64], seeds: Range<u64>, trace: Trace) -> Summary {
    let kept: BTreeSet<u64> = kept.iter().copied().filter(|seed| !seeds.contains(seed)).collect();
    let all: Vec<u64> = kept.into_iter().chain(seeds).collect();
    let next = AtomicU64::new(0);
    let summary = Mutex::new(Summary::default());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(seed) = all.get(usize::try_from(at).unwrap_or(usize::MAX)) else {
                        return;
                    };
                    let one = Instant::now();
                    let outcome = catch_unwind(AssertUnwindSafe(|| run_one(*seed, trace)));
                    let mut summary = summary.lock().expect("not poisoned");
                    summary.add(*seed, outcome);
                    summary.slowest = summary.slowest.max((one.elapsed(), *seed));
                    summary.show_progress(all.len() as u64, began);
                    if summary.failures.len() >= FAILURES_MAX {
                        return;
                    }
                }
            });
        }
    });
    let mut summary = summary.into_inner().expect("not poisoned");
    summary.failures.sort();
    summary
}

impl Summary {
    fn add(&mut self, seed: u64, outcome: std::thread::Result<Outcome>) {
        self.seeds += 1;
        match outcome {
            Ok(outcome) => {
                self.operations += outcome.operations;
                let least = (outcome.operations, seed);
                self.idlest = Some(self.idlest.map_or(least, |idlest| idlest.min(least)));
                self.paths.merge(&outcome.paths);
                if let Some(violation) = outcome.violation {
                    eprintln!(
                        "seed {seed} failed: {}",
                        violation.lines().next().unwrap_or_default()
                    );
                    self.failures.push((seed, violation));
                }
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                let text = format!("panic: {}", text.unwrap_or("?"));
                eprintln!("seed {seed} failed: {text}");
                self.failures.push((seed, text));
            }
        }
    }

    fn show_progress(&self, all: u64, began: Instant) {
        let every = if std::io::stderr().is_terminal() { 20 } else { 500 };
        if self.seeds.is_multiple_of(every) {
            let rate = self.seeds as f64 / began.elapsed().as_secs_f64().max(0.001);
            eprintln!(
                "{}/{all} seeds, {rate:.1} a second, {} failed",
                self.seeds,
                self.failures.len()
            );
        }
    }

    /// One paragraph for each seed that failed, with how to run it alone.
    pub fn report(&self) -> String {
        let lines = self.failures.iter().map(|(seed, violation)| {
            format!(
                "seed {seed} failed: {violation}\n  replay: POLLUX_SIM_START={seed} POLLUX_SIM_SEEDS=1 \
                 POLLUX_SIM_TRACE=1 cargo test -p sim --test quorum -- --nocapture\n"
            )
        });
        lines.collect()
    }
}
