//! Mechanisms of the protocol, turned off one at a time: the checkers of a world must notice. A
//! checker that finds nothing here would find nothing elsewhere either.
//!
//! `POLLUX_SIM_SWITCH` names the only one to try; with `POLLUX_SIM_START` it is tried with that seed,
//! and `POLLUX_SIM_TRACE=1` shows what happens.
mod seeds;

use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::Fault;
use replication::Switch;
use sim::quorum::{Check, Off, Plan, Trace, run_plan};

/// What a world with a mechanism turned off comes to: a violation that its checkers saw. Broken
/// invariants that a machine itself noticed count apart: they show the mechanism too, but not that
/// the harm would be seen.
fn verdict(seed: u64, off: Off, healthy: bool) -> Result<(), String> {
    let mut plan = Plan::without(seed, off);
    // It is the harm that has to be seen, not that a volume stands still or keeps something.
    plan.unchecked = vec![Check::Liveness, Check::Residue];
    if healthy {
        plan.off = Off::Nothing;
    }
    let trace = Trace { on: seeds::from_env("POLLUX_SIM_TRACE") == Some(1) };
    let world = || run_plan(plan, trace);
    match catch_unwind(AssertUnwindSafe(world)) {
        Ok(outcome) => outcome.violation.map_or(Ok(()), Err),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            println!("seed {seed}: {off:?}: a machine noticed: {}", text.unwrap_or("?"));
            Ok(())
        }
    }
}

/// What is wrong with a mechanism's turning off, if anything is.
fn search(off: Off, within: u64) -> Result<(), String> {
    let range = match seeds::from_env("POLLUX_SIM_START") {
        Some(seed) => seed..=seed,
        None => 1..=within,
    };
    for seed in range {
        let Err(violation) = verdict(seed, off, false) else { continue };
        if let Err(violation) = verdict(seed, off, true) {
            return Err(format!("{off:?}: seed {seed} with everything on: {violation}"));
        }
        let first: String =
            violation.lines().next().unwrap_or_default().chars().take(300).collect();
        println!("{off:?}: found with seed {seed}: {first}");
        return Ok(());
    }
    Err(format!("{off:?} was not found within {within} seeds"))
}

/// Mechanisms with the number of seeds within which they are found: about three times what it took,
/// since every change of the machines makes other worlds of the same seeds.
const MACHINES: [(Switch, u64); 18] = [
    (Switch::TermInPosition, 130),
    (Switch::DurablePromise, 60),
    (Switch::DrainOldStream, 60),
    (Switch::Barrier, 60),
    (Switch::UndoTail, 40),
    (Switch::RetractAcks, 40),
    (Switch::ReadsWait, 40),
    (Switch::ReadLease, 150),
    (Switch::WaitOutLease, 60),
    (Switch::UnbrokenHold, 40),
    (Switch::NoSeqInHold, 40),
    (Switch::ConnectionNumbers, 40),
    (Switch::DirtyMark, 60),
    (Switch::CatalogMembership, 40),
    (Switch::JointQuorum, 40),
    (Switch::WholeRounds, 40),
    (Switch::DeferredDeletes, 180),
    (Switch::Headroom, 60),
];

const ENGINES: [(Fault, u64); 3] =
    [(Fault::HoleStampsOff, 20), (Fault::RollbackStampsOff, 60), (Fault::AckBeforeLowerSlots, 90)];

/// Rules for what runs the machines.
const RULES: [(Off, u64); 3] =
    [(Off::TimeAfterInput, 420), (Off::ClockCountsSleep, 20), (Off::FailureNoted, 10)];

#[test]
fn every_mechanism_is_missed() {
    let only = std::env::var("POLLUX_SIM_SWITCH").ok();
    let machines = MACHINES.iter().map(|(switch, within)| (Off::Machine(*switch), *within));
    let engines = ENGINES.iter().map(|(fault, within)| (Off::Engine(*fault), *within));
    let wanted = |off: &Off| only.as_ref().is_none_or(|only| format!("{off:?}").contains(only));
    let all: Vec<(Off, u64)> =
        machines.chain(engines).chain(RULES).filter(|(off, _)| wanted(off)).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((off, within)) =
                    all.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    if let Err(what) = search(*off, *within) {
                        println!("{what}");
                        wrong.lock().expect("not poisoned").push(what);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("not poisoned");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
