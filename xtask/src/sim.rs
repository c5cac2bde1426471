//! The long modes of the simulator's tests: the same tests as in `cargo test`, over more seeds.
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;

use crate::report::Report;
use crate::shell;

#[derive(clap::Args)]
pub struct Options {
    /// Which tests to run; all of them when none is named
    suites: Vec<Suite>,
    /// How many seeds each test tries
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// The first seed, as a failing test printed it
    #[arg(long)]
    start: Option<u64>,
}

/// One file each under `crates/sim/tests/`, of those that try many seeds.
#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Suite {
    /// The engine against a plain model
    Model,
    /// Power cuts: lost, torn and reordered writes
    PowerCut,
}

impl Suite {
    fn name(self) -> &'static str {
        match self {
            Suite::Model => "model",
            Suite::PowerCut => "power_cut",
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
                .env("POLLUX_SIM_SEEDS", options.seeds);
            if let Some(start) = options.start {
                test = test.env("POLLUX_SIM_START", start);
            }
            Ok(test.run(log)?.as_tests())
        });
    }
    report.finish()
}
