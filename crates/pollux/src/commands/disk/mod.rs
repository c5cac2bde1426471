//! `pollux disk`: a pool that nobody has open.
mod check;
mod create;
mod export;
mod grow;
mod import;
mod info;
mod scrub;
mod snapshot;
mod snapshots;
mod usage;
mod volume;
mod volumes;

pub use create::make;

use std::process::ExitCode;

use anyhow::{Result, bail};
use block::Wait;
use engine::{Op, Pool, Reply};

use crate::cli::Disk;
use crate::offline::Contents;
use crate::render::Output;

pub fn run(command: Disk, output: Output) -> Result<ExitCode> {
    match command {
        Disk::Create(create) => create::run(&create, output)?,
        Disk::Info { path } => info::run(&path, output)?,
        Disk::Volumes { path } => volumes::run(&path, false, output)?,
        Disk::Check { path, data } => return check::run(&path, data, output),
        Disk::Grow { path, size } => grow::run(&path, size, output)?,
        Disk::Volume(command) => volume::run(&command, output)?,
        Disk::Snapshot(command) => snapshot::run(&command, output)?,
        Disk::Export(export) => export::run(&export, output)?,
        Disk::Import(import) => import::run(&import, output)?,
        Disk::Scrub(scrub) => return scrub::run(&scrub, output),
    }
    Ok(ExitCode::SUCCESS)
}

/// One operation that changes a pool and has no answer but that it is done.
fn done<D: Wait>(pool: &mut Pool<D>, contents: &Contents, op: Op) -> Result<()> {
    match pool.run(op).map_err(|error| contents.explain(error))? {
        Reply::Done | Reply::Created(_) | Reply::Snapshotted(_) => Ok(()),
        other => bail!("the pool gave the wrong answer: {other:?}"),
    }
}
