//! The one door for everything beyond build and test: `cargo xtask <verb>`.
//!
//! Every verb ends with one summary (a line `N passed, N failed, N skipped`, or a table of
//! ratios), leaves a JSON report under `reports/`, and exits non-zero when something failed or
//! when nothing ran: a check that silently did nothing must never look like one that passed.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod conformance;
mod fuzz;
mod mutants;
mod release;
mod report;
mod shell;
mod sim;
mod totals;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "The one door for everything beyond build and test"
)]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Everything that must hold before a change lands
    Ci,
    /// Measure one area and print ratios
    Bench(bench::Options),
    /// Run a public conformance suite against Pollux
    Conformance(conformance::Options),
    /// Run the simulator's tests over many seeds
    Sim(sim::Options),
    /// Change lines of the product at random, and see whether the tests notice
    Mutants(mutants::Options),
    /// Throw hostile bytes at every decoder for a bounded time
    Fuzz(fuzz::Options),
}

fn main() -> ExitCode {
    let outcome = match Args::parse().verb {
        Verb::Ci => ci::run(),
        Verb::Bench(options) => bench::run(&options),
        Verb::Conformance(options) => conformance::run(&options),
        Verb::Sim(options) => sim::run(&options),
        Verb::Mutants(options) => mutants::run(&options),
        Verb::Fuzz(options) => fuzz::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        for (verb, known) in [("bench", "engine, memory"), ("sim", "power_cut")] {
            let error = Args::try_parse_from(["xtask", verb, "nonsense"])
                .err()
                .expect("nonsense is no name")
                .to_string();
            assert!(error.contains(known), "{error}");
        }
    }
}
