//! Checkers of a world, one at a time: each finds a fault that the world passes with once this
//! checker is left out.
//!
//! `POLLUX_SIM_CHECK` names the only one to try; with `POLLUX_SIM_START` it is tried with that seed,
//! and `POLLUX_SIM_TRACE=1` shows what happens.
mod seeds;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use replication::Switch;
use sim::quorum::{Check, Off, Plan, Trace, run_plan};

struct Case {
    check: Check,
    off: Off,
    /// Others that find the same, left out so that this one alone is seen.
    beside: &'static [Check],
    /// Makes the fault more likely to do harm.
    provoke: fn(&mut Plan),
    /// What the violation says.
    says: &'static str,
    /// The number of seeds within which it is found: about three times what it took.
    within: u64,
}

const CASES: &[Case] = &[
    Case {
        check: Check::OneReader,
        off: Off::TimeAfterInput,
        beside: &[],
        provoke: |_| {},
        says: "P5: a read is answered by reign",
        within: 420,
    },
    Case {
        check: Check::Spies,
        off: Off::TimeAfterInput,
        beside: &[Check::OneReader],
        provoke: |plan| plan.stale_turns = 4_000_000,
        says: "Stale",
        within: 140,
    },
    Case {
        check: Check::Liveness,
        off: Off::Machine(Switch::AnswerRepeated),
        beside: &[],
        provoke: |_| {},
        says: "P6: Probe",
        within: 20,
    },
    Case {
        check: Check::Liveness,
        off: Off::Relief,
        beside: &[],
        provoke: |_| {},
        says: "P6: volume",
        within: 35,
    },
    Case {
        check: Check::Residue,
        off: Off::Machine(Switch::ForgetRepairs),
        beside: &[Check::Liveness],
        provoke: |_| {},
        says: "residue",
        within: 200,
    },
    Case {
        check: Check::Residue,
        off: Off::Machine(Switch::UseKept),
        beside: &[Check::Liveness],
        provoke: |_| {},
        says: "residue",
        within: 30,
    },
    Case {
        check: Check::OwnQuorum,
        off: Off::Machine(Switch::NewQuorum),
        beside: &[Check::Liveness, Check::Residue],
        provoke: |_| {},
        says: "by the target's own membership",
        within: 60,
    },
    Case {
        check: Check::Space,
        off: Off::Machine(Switch::FreeWithoutCredit),
        beside: &[],
        provoke: |_| {},
        says: "Q7",
        within: 10,
    },
    Case {
        check: Check::Space,
        off: Off::Machine(Switch::Headroom),
        beside: &[],
        provoke: |_| {},
        says: "no space on too many replicas",
        within: 40,
    },
    Case {
        check: Check::Space,
        off: Off::Machine(Switch::Headroom),
        beside: &[],
        provoke: |_| {},
        says: "waits although only space is short",
        within: 10,
    },
];

/// What a world found; what a machine itself noticed is not a checker's finding.
fn verdict(plan: Plan) -> Result<(), String> {
    let trace = Trace { on: seeds::from_env("POLLUX_SIM_TRACE") == Some(1) };
    match catch_unwind(AssertUnwindSafe(|| run_plan(plan, trace))) {
        Ok(outcome) => outcome.violation.map_or(Ok(()), Err),
        Err(_) => Ok(()),
    }
}

fn search(case: &Case) -> Result<(), String> {
    let Case { check, off, .. } = case;
    let range = match seeds::from_env("POLLUX_SIM_START") {
        Some(seed) => seed..=seed,
        None => 1..=case.within,
    };
    for seed in range {
        let mut plan = Plan::without(seed, *off);
        (case.provoke)(&mut plan);
        plan.unchecked = case.beside.to_vec();
        let Err(violation) = verdict(plan.clone()) else { continue };
        if !violation.contains(case.says) {
            continue;
        }
        plan.unchecked.push(*check);
        if verdict(plan.clone()).is_err() {
            continue;
        }
        (plan.off, plan.unchecked) = (Off::Nothing, Vec::new());
        if let Err(violation) = verdict(plan) {
            return Err(format!("{check:?}: seed {seed} with everything on: {violation}"));
        }
        let first: String =
            violation.lines().next().unwrap_or_default().chars().take(300).collect();
        println!("{check:?}: {off:?} is found with seed {seed}: {first}");
        return Ok(());
    }
    Err(format!("{check:?} alone did not find {off:?} within {} seeds", case.within))
}

#[test]
fn every_checker_is_needed() {
    let only = std::env::var("POLLUX_SIM_CHECK").ok();
    let wanted =
        |case: &&Case| only.as_ref().is_none_or(|only| format!("{:?}", case.check).contains(only));
    let cases: Vec<&Case> = CASES.iter().filter(wanted).collect();
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(what) = search(case) {
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
