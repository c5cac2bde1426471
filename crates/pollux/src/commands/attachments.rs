//! Volumes that are attached to this machine, and the process of each of them.
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use attach::ways::Way;
use clap::Args;
use control::csi;

/// Empty after a boot, as attachments are.
pub const STATE: &str = "/run/pollux/attachments";

#[derive(Debug, Args)]
pub struct ServeAttachment {
    /// Where its record is.
    #[arg(long, value_name = "DIR")]
    pub folder: PathBuf,
}

/// This machine, with this program.
pub fn host(state: &Path) -> Result<attach::Host> {
    let program = std::env::current_exe().context("which program this is")?;
    let state = std::path::absolute(state).context("--state")?;
    Ok(attach::Host { state, program })
}

pub fn way(text: &str) -> Result<Way, String> {
    let found = Way::ALL.into_iter().find(|way| way.name() == text);
    found.ok_or_else(|| format!("write one of: {}", Way::ALL.map(Way::name).join(", ")))
}

pub fn serve(arguments: &ServeAttachment) -> Result<ExitCode> {
    logging::start();
    let knows = |record: &_| -> Result<Box<dyn attach::link::Whereabouts>, String> {
        let knows = csi::whereabouts(record).map_err(|error| error.to_string())?;
        Ok(Box::new(knows))
    };
    attach::process::run(&arguments.folder, knows)?;
    Ok(ExitCode::SUCCESS)
}
