//! The long modes of the simulator's tests: the same tests as in `cargo test`, over more seeds.
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::report::Report;
use crate::shell;

#[derive(clap::Args)]
pub struct Options {
    /// Which tests to run; all of them when none is named
    suites: Vec<Suite>,
    /// How many seeds each test tries, or which: `20000`, or `4000..8000`
    #[arg(long, default_value = "20000")]
    seeds: Seeds,
    /// The first seed, as a failing test printed it
    #[arg(long)]
    start: Option<u64>,
    /// Shows what happens, event by event; for a single seed
    #[arg(long)]
    trace: bool,
}

/// A number of seeds, and where they begin if that was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seeds {
    start: Option<u64>,
    count: u64,
}

impl FromStr for Seeds {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Seeds> {
        let Some((start, end)) = text.split_once("..") else {
            return Ok(Seeds { start: None, count: text.parse().context("not a number")? });
        };
        let start: u64 = start.parse().context("a range begins with a number")?;
        let end: u64 = end.parse().context("a range ends with a number")?;
        ensure!(start < end, "the range {text} is empty");
        Ok(Seeds { start: Some(start), count: end - start })
    }
}

/// One file each under `crates/sim/tests/`, of those that try many seeds.
#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Suite {
    /// The engine against a plain model
    Model,
    /// Power cuts: lost, torn and reordered writes
    PowerCut,
    /// Worlds of replicated volumes
    Quorum,
}

impl Suite {
    fn name(self) -> &'static str {
        match self {
            Suite::Model => "model",
            Suite::PowerCut => "power_cut",
            Suite::Quorum => "quorum",
        }
    }
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let suites = match options.suites.as_slice() {
        [] => Suite::value_variants(),
        named => named,
    };
    let mut report = Report::new("sim");
    for suite in suites {
        report.step(suite.name(), |log| {
            let mut test = shell::cargo("test --release --locked -p sim --test")
                .arg(suite.name())
                .arg("--")
                .arg("--nocapture")
                .env("POLLUX_SIM_SEEDS", options.seeds.count);
            if let Some(start) = options.start.or(options.seeds.start) {
                test = test.env("POLLUX_SIM_START", start);
            }
            if options.trace {
                test = test.env("POLLUX_SIM_TRACE", 1);
            }
            Ok(test.run(log)?.as_tests())
        });
    }
    report.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_number_or_a_range() {
        let seeds = |text: &str| text.parse::<Seeds>().ok();
        assert_eq!(seeds("500"), Some(Seeds { start: None, count: 500 }));
        assert_eq!(seeds("40..100"), Some(Seeds { start: Some(40), count: 60 }));
        assert_eq!(seeds("100..100"), None);
        assert_eq!(seeds("a..b"), None);
    }
}
