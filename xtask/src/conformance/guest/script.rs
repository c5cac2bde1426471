//! What the guest's script says: results of checks, and what it wants of the host.
use anyhow::{Context, Result, bail, ensure};

use crate::totals::Totals;

/// What runs in the guest, as its first process.
pub const INIT: &str = include_str!("init.sh");

/// How the guest has a volume, and so the first word of a check's name.
const VIA: [&str; 2] = ["iscsi", "nbd"];

/// Every check that the script has to report for each of them. One that it is silent about has failed.
const CHECKS: [&str; 10] = [
    "attach",
    "a replica dies under load",
    "the target moves under load",
    "verify",
    "grow",
    "trim",
    "detach",
    "the same content again",
    "a volume with a secret",
    "nothing is left",
];

/// And before them.
const FIRST: [&str; 1] = ["the API answers"];

#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    Outcome(Outcome),
    /// The script waits until it is answered.
    Wish(Wish<'a>),
    /// All checks were made.
    End,
    Remark(&'a str),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed(String),
    Failed { name: String, why: String },
    Skipped { name: String, why: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish<'a> {
    Kill {
        victim: Victim,
        volume: &'a str,
    },
    /// What was killed comes back, and the volume is healthy.
    Revive {
        volume: &'a str,
    },
    /// Keep in mind how much is free in the pools.
    NoteFree,
    /// So much more is free than was noted, in all pools together.
    Freed {
        mebibytes: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The node that serves the volume.
    Target,
    /// Another that has a replica.
    Replica,
}

impl Line<'_> {
    pub fn read(line: &str) -> Result<Line<'_>> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let with_reason = || {
            let (name, why) = rest.split_once(": ").context("a result without a reason")?;
            anyhow::Ok((name.to_owned(), why.to_owned()))
        };
        Ok(match word {
            "PASS" => Line::Outcome(Outcome::Passed(rest.to_owned())),
            "FAIL" => {
                let (name, why) = with_reason()?;
                Line::Outcome(Outcome::Failed { name, why })
            }
            "SKIP" => {
                let (name, why) = with_reason()?;
                Line::Outcome(Outcome::Skipped { name, why })
            }
            "HOST" => Line::Wish(Wish::read(rest)?),
            "END" => Line::End,
            _ => Line::Remark(line),
        })
    }
}

impl Wish<'_> {
    fn read(words: &str) -> Result<Wish<'_>> {
        let words: Vec<&str> = words.split_whitespace().collect();
        Ok(match words.as_slice() {
            ["kill", "target", volume] => Wish::Kill { victim: Victim::Target, volume },
            ["kill", "replica", volume] => Wish::Kill { victim: Victim::Replica, volume },
            ["revive", volume] => Wish::Revive { volume },
            ["note-free"] => Wish::NoteFree,
            ["freed", mebibytes] => Wish::Freed { mebibytes: mebibytes.parse()? },
            other => bail!("the guest wants what nobody knows: {other:?}"),
        })
    }
}

fn expected() -> Vec<String> {
    let first = FIRST.map(str::to_owned).into_iter();
    let each = VIA.iter().flat_map(|via| CHECKS.map(|check| format!("{via} {check}")));
    first.chain(each).collect()
}

pub fn judge(told: &[Outcome]) -> Result<Totals> {
    let mut totals = Totals::default();
    let mut silent = expected();
    for outcome in told {
        let (Outcome::Passed(name) | Outcome::Failed { name, .. } | Outcome::Skipped { name, .. }) =
            outcome;
        let place = silent.iter().position(|expected| expected == name);
        silent.remove(place.with_context(|| format!("`{name}` was not expected, or not again"))?);
        match outcome {
            Outcome::Passed(_) => totals.passed += 1,
            Outcome::Failed { name, why } => {
                println!("failed: {name}: {why}");
                totals.failed += 1;
            }
            Outcome::Skipped { name, why } => {
                println!("skipped: {name}: {why}");
                totals.skipped += 1;
            }
        }
    }
    for name in silent {
        println!("failed: {name}: the guest did not come to it");
        totals.failed += 1;
    }
    ensure!(totals.passed > 0, "the guest passed nothing");
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_wishes_and_remarks_are_told_apart() {
        let read = |line| Line::read(line).unwrap();
        assert_eq!(read("PASS nbd trim"), Line::Outcome(Outcome::Passed("nbd trim".into())));
        let (name, why) = ("nbd trim".to_owned(), "a: b".to_owned());
        assert_eq!(read("FAIL nbd trim: a: b"), Line::Outcome(Outcome::Failed { name, why }));
        let kill = Wish::Kill { victim: Victim::Target, volume: "db" };
        assert_eq!(read("HOST kill target db"), Line::Wish(kill));
        assert_eq!(read("HOST freed 12"), Line::Wish(Wish::Freed { mebibytes: 12 }));
        assert_eq!((read("END"), read("PASSED x")), (Line::End, Line::Remark("PASSED x")));
        for bad in ["FAIL nbd trim", "SKIP x", "HOST dance", "HOST freed much"] {
            assert!(Line::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_check_that_the_guest_is_silent_about_has_failed() {
        let mut told: Vec<Outcome> = expected().into_iter().map(Outcome::Passed).collect();
        let all = told.len() as u64;
        assert_eq!(judge(&told).unwrap(), Totals { passed: all, failed: 0, skipped: 0 });
        told.pop();
        assert_eq!(judge(&told).unwrap(), Totals { passed: all - 1, failed: 1, skipped: 0 });
        assert!(judge(&[]).is_err());
    }

    #[test]
    fn a_check_counts_once_and_by_its_name() {
        let passed = |name: &str| Outcome::Passed(name.to_owned());
        assert!(judge(&[passed("nbd trim"), passed("nbd trim")]).is_err());
        assert!(judge(&[passed("something else")]).is_err());
    }

    #[test]
    fn the_script_names_every_check() {
        for check in CHECKS.iter().chain(&FIRST) {
            assert!(INIT.contains(check), "{check}");
        }
    }
}
