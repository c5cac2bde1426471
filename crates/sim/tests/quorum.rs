//! Worlds of replicated volumes: crashes, power cuts, partitions, rivals, and their checkers.
//!
//! `POLLUX_SIM_SEEDS` sets how many worlds run, `POLLUX_SIM_START` the first seed. A failure prints
//! the seed and how to run it alone; `POLLUX_SIM_TRACE=1` then shows what happened.
mod seeds;

use sim::quorum::{Trace, coverage, run};

const WORLDS: u64 = 1000;

/// Seeds that failed once, from `kept/quorum-seeds.txt`: a number in front of each line.
fn kept() -> Vec<u64> {
    let lines = include_str!("kept/quorum-seeds.txt").lines();
    let number = |line: &str| line.split_whitespace().next().and_then(|word| word.parse().ok());
    lines.filter(|line| !line.starts_with('#')).filter_map(number).collect()
}

/// Protects from every broken promise of `docs/quorum.md` that a world can show.
#[test]
fn worlds_keep_their_promises() {
    let seeds = seeds::range(WORLDS);
    let count = seeds.end - seeds.start;
    let trace = Trace { on: count == 1 && seeds::from_env("POLLUX_SIM_TRACE") == Some(1) };
    let kept = if count == 1 { Vec::new() } else { kept() };
    let summary = run(&kept, seeds, trace);
    println!(
        "{} worlds, {} operations; the slowest was {}, with {:?}",
        summary.seeds, summary.operations, summary.slowest.1, summary.slowest.0
    );
    let (least, idlest) = summary.idlest.expect("at least one world");
    println!("the idlest was {idlest}, with {least} operations");
    println!("{}", coverage::table(&summary.paths));
    let percent = coverage::catch_up_percent(&summary.paths);
    println!("catching up brought {percent} % of what had changed meanwhile");
    assert!(summary.failures.is_empty(), "{}", summary.report());
    if count >= WORLDS {
        assert!(percent <= 120, "catching up brought {percent} % of what had changed meanwhile");
        assert!(least >= 500, "world {idlest} had only {least} operations");
        let missing = coverage::missing(&summary.paths);
        assert!(missing.is_empty(), "paths that no world took often enough: {missing:?}");
    }
}
