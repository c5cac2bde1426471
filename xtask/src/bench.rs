//! Measurements. The bench program prints its own table of ratios; this is the way to it.
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
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
    /// With `target`: beside this older program of ours, in alternation, instead of other servers
    #[arg(long)]
    against: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Area {
    /// One pool on one device, beside the device alone
    Engine,
    /// What a pool keeps in memory, as pool and volumes grow
    Memory,
    /// Served volumes beside other servers
    Target,
    /// A hundred volumes that nobody uses
    Idle,
    /// A thousand volumes in one controller
    Control,
    /// One loop over all sockets beside a task for each
    Runtime,
}

/// Servers that ours are measured beside: a program, and the Debian package that has it.
const PEERS: [(&str, &str); 5] = [
    ("tgtd", "tgt"),
    ("tgtadm", "tgt"),
    ("nbdkit", "nbdkit"),
    ("qemu-nbd", "qemu-utils"),
    ("qemu-storage-daemon", "qemu-system-common"),
];

impl Area {
    fn name(self) -> &'static str {
        match self {
            Area::Engine => "engine",
            Area::Memory => "memory",
            Area::Target => "target",
            Area::Idle => "idle",
            Area::Control => "control",
            Area::Runtime => "runtime",
        }
    }

    /// What has to be there before: programs of others, and our own as it is shipped.
    fn prepare(self, log: &str) -> Result<()> {
        match self {
            Area::Engine | Area::Memory | Area::Runtime => return Ok(()),
            Area::Target => install_peers(log)?,
            Area::Idle | Area::Control => {}
        }
        // Whoever names a program wants that one measured.
        if env::var_os("POLLUX_BIN").is_none() {
            let built = shell::cargo("build --release --locked -p pollux").run(log)?;
            ensure!(built.exited_well, "pollux cannot be built");
        }
        Ok(())
    }
}

/// Installs what is missing, where that is possible.
fn install_peers(log: &str) -> Result<()> {
    let missing = || -> Vec<&str> {
        let path = env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let is_there = |name: &str| env::split_paths(&path).any(|at| at.join(name).is_file());
        let absent = PEERS.iter().filter(|(program, _)| !is_there(program));
        absent.map(|(_, package)| *package).collect()
    };
    let packages = missing().join(" ");
    if packages.is_empty() {
        return Ok(());
    }
    println!("installing {packages}");
    let get = |words: &str| {
        let get = shell::program("apt-get", words).env("DEBIAN_FRONTEND", "noninteractive");
        get.run(log).with_context(|| format!("these packages are needed: {packages}"))
    };
    // QEMU's recommendations are a desktop.
    let install = format!("-y -q install --no-install-recommends {packages}");
    if !get(&install)?.exited_well {
        // The list of packages may be older than the packages.
        get("-q update")?;
        get(&install)?;
    }
    let left = missing().join(" ");
    ensure!(left.is_empty(), "these packages could not be installed: {left}");
    Ok(())
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
    let is_target = matches!(options.area, Area::Target);
    ensure!(is_target || options.against.is_none(), "only `target` runs `--against` a program");
    options.area.prepare(&log)?;
    let mut command = shell::cargo("run --release --locked -p bench --").arg(area);
    if options.quick {
        command = command.arg("--quick");
    }
    if let Some(older) = &options.against {
        let older = older.canonicalize().with_context(|| format!("{}", older.display()))?;
        command = command.arg("--against").arg(&older.to_string_lossy());
    }
    let finished = command.arg("--json").arg(&report.to_string_lossy()).run(&log)?;
    ensure!(finished.exited_well, "the bench of {area} failed");
    let text = fs::read_to_string(&report).context("nothing was measured: no report was left")?;
    let _: Value = serde_json::from_str(&text).context("the report is not JSON")?;
    Ok(ExitCode::SUCCESS)
}
