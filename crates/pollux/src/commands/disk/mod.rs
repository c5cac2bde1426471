//! `pollux disk`: a pool that nobody has open.
//!
//! What can be refused is refused before the pool is opened for writing, since opening alone
//! already changes it: a command that fails leaves every byte as it was.
mod check;
mod create;
mod grow;
mod info;
mod volume;
mod volumes;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use disk::{FileDisk, OpenOptions};
use engine::{Inspection, Pool};
use pollux::patience;

use crate::cli::Disk;
use crate::render::Output;

/// A killed owner's lock lingers for some tens of milliseconds; a living one's stays.
const PATIENCE: Duration = Duration::from_secs(1);

pub fn run(command: Disk, output: Output) -> Result<ExitCode> {
    match command {
        Disk::Create(create) => create::run(&create, output)?,
        Disk::Info { path } => info::run(&path, output)?,
        Disk::Volumes { path } => volumes::run(&path, output)?,
        Disk::Check { path, data } => return check::run(&path, data, output),
        Disk::Grow { path, size } => grow::run(&path, size, output)?,
        Disk::Volume(command) => volume::run(&command, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the disk so that nothing can be written to it.
fn open_to_read(path: &Path) -> Result<FileDisk> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    Ok(patience::open(path, &options, PATIENCE)?)
}

fn inspect(path: &Path) -> Result<Inspection> {
    engine::inspect(open_to_read(path)?).map_err(|error| about(path, error))
}

/// Opens the pool for service: from here on it is changed.
fn open_pool(path: &Path) -> Result<Pool<FileDisk>> {
    let disk = patience::open(path, &OpenOptions::default(), PATIENCE)?;
    Pool::open(disk, engine::OpenOptions::default()).map_err(|error| about(path, error))
}

/// The engine knows no paths, and an error without one helps nobody.
fn about(path: &Path, error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{}: {error}", path.display())
}
