//! `pollux demo`: what is promised, broken on purpose, and counted.
mod kill;
mod power;
mod real;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use comfy_table::Table;
use pollux::proof::{Scratch, Verified, entropy};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use sim::Rng;

use crate::render::{self, Answer, Output};

/// One part of the demo.
#[derive(Debug, Serialize)]
struct Row {
    step: &'static str,
    passed: bool,
    seconds: f64,
    /// What was done and found, or what went wrong.
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Shown(Shown),
    Failed(String),
}

/// What a part did and found.
#[derive(Debug, Serialize)]
struct Shown {
    done: String,
    /// What makes an operation one that must not be lost: "acknowledged" or "flushed".
    promise: &'static str,
    #[serde(serialize_with = "figures")]
    found: Verified,
    verdict: &'static str,
}

#[derive(Debug, Serialize)]
struct DemoAnswer {
    seed: u64,
    passed: bool,
    steps: Vec<Row>,
}

impl Answer for DemoAnswer {
    fn table(&self) -> Table {
        let mut table = render::boxed(&["step", "what was done", "figures", "verdict"], 110);
        for row in &self.steps {
            let (done, figures, verdict) = match &row.outcome {
                Outcome::Shown(shown) => {
                    (shown.done.clone(), shown.figures(), shown.verdict.to_owned())
                }
                Outcome::Failed(why) => (String::new(), String::new(), format!("FAILED: {why}")),
            };
            let figures = format!("{figures}{:.1} s", row.seconds);
            table.add_row([row.step.to_owned(), done, figures, verdict]);
        }
        table
    }
}

impl Shown {
    fn figures(&self) -> String {
        let Shown { promise, found, .. } = self;
        let mut text = format!("{} {promise}, 0 lost\n", grouped(found.promised));
        let (kept, gone) = (found.unpromised_kept, found.unpromised_gone);
        if kept + gone > 0 {
            text += &format!("{} not {promise}: ", grouped(kept + gone));
            text += &format!("{} there, {} not\n", grouped(kept), grouped(gone));
        }
        text + &format!("{} sectors compared\n", grouped(found.sectors))
    }
}

fn figures<S: Serializer>(found: &Verified, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(None)?;
    map.serialize_entry("promised", &found.promised)?;
    map.serialize_entry("unpromised_kept", &found.unpromised_kept)?;
    map.serialize_entry("unpromised_gone", &found.unpromised_gone)?;
    map.serialize_entry("sectors", &found.sectors)?;
    map.end()
}

pub fn run(seed: Option<u64>, output: Output) -> Result<ExitCode> {
    let seed = match seed {
        Some(seed) => seed,
        // Short enough to be typed again.
        None => u64::from(u32::from_le_bytes(entropy()?)),
    };
    let scratch = Scratch::new("demo")?;
    let mut rng = Rng::new(seed);
    let steps = vec![
        row("write and read", || real::run(&scratch, &mut rng)),
        row("power cut", || power::run(&mut rng)),
        row("kill -9", || kill::run(&scratch, &mut rng)),
    ];
    drop(scratch);
    let passed = steps.iter().all(|row| row.passed);
    render::show(&DemoAnswer { seed, passed, steps }, output)?;
    if output == Output::Table {
        let verdict = match passed {
            true => "Nothing that was promised was lost.",
            false => "SOMETHING WENT WRONG, see above. Please report it with the seed.",
        };
        render::say(&format!(
            "{verdict} Seed {seed}; everything was in a temporary folder, now gone."
        ))?;
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a part. One that fails is a row too, and the others still run.
fn row(step: &'static str, run: impl FnOnce() -> Result<Shown>) -> Row {
    let begun = Instant::now();
    let outcome = run();
    let (passed, seconds) = (outcome.is_ok(), begun.elapsed().as_secs_f64());
    let outcome = match outcome {
        Ok(shown) => Outcome::Shown(shown),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    Row { step, passed, seconds, outcome }
}

/// Large numbers are easier to read in threes.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn large_numbers_are_grouped_in_threes() {
        let shown = [0, 999, 1000, 1_234_567].map(super::grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
