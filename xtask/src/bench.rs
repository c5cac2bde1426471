//! Measurements. The bench program prints its own table of ratios; this is the way to it.
use std::fs;
use std::io::ErrorKind;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde_json::Value;

use crate::shell;

#[derive(clap::Args)]
pub struct Options {
    /// What to measure
    area: Area,
    /// A short run: good for the order of magnitude, not for a claim
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Area {
    /// One pool on one device, beside the device alone
    Engine,
    /// What a pool keeps in memory, as pool and volumes grow
    Memory,
}

impl Area {
    fn name(self) -> &'static str {
        match self {
            Area::Engine => "engine",
            Area::Memory => "memory",
        }
    }
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let area = options.area.name();
    let report = shell::reports()?.join(format!("bench-{area}.json"));
    // An old report must not pass for the one of this run.
    if let Err(error) = fs::remove_file(&report) {
        ensure!(error.kind() == ErrorKind::NotFound, "removing {}: {error}", report.display());
    }
    let log = format!("bench-{area}");
    shell::clear_log(&log)?;
    let mut command = shell::cargo("run --release --locked -p bench --").arg(area);
    if options.quick {
        command = command.arg("--quick");
    }
    let finished = command.arg("--json").arg(&report.to_string_lossy()).run(&log)?;
    ensure!(finished.exited_well, "the bench of {area} failed");
    let text = fs::read_to_string(&report).context("nothing was measured: no report was left")?;
    let _: Value = serde_json::from_str(&text).context("the report is not JSON")?;
    Ok(ExitCode::SUCCESS)
}
