//! Hostile bytes for every decoder, for a bounded time.
use std::process::ExitCode;

use anyhow::Result;

use crate::report::Report;
use crate::shell;
use crate::totals::Totals;

#[derive(clap::Args)]
pub struct Options {
    /// How long the decoders are tried
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let mut report = Report::new("fuzz");
    report.step("decoders", |log| decoders(options.seconds, log));
    report.finish()
}

/// Whether there is something to run.
pub fn exists() -> bool {
    let tests = shell::root().join("crates/engine/tests");
    tests.join("fuzz_decoders.rs").exists() || tests.join("fuzz_decoders/main.rs").exists()
}

pub fn decoders(seconds: u64, log: &str) -> Result<Totals> {
    let test = "test --release --locked -p engine -p frontend -p replication --test fuzz_decoders --test hostile -- --nocapture";
    let finished = shell::cargo(test).env("POLLUX_FUZZ_SECONDS", seconds).run(log)?;
    Ok(finished.as_tests())
}
