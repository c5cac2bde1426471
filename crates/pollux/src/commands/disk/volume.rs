//! Creating, deleting and growing volumes.
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use block::{ByteLen, Position, Seq};
use comfy_table::Table;
use engine::{BlockSize, Op, OpError, Reply, VolumeInfo, VolumeSpec};
use serde::Serialize;

use super::create::fresh_uuid;
use super::volumes::VolumeList;
use super::{about, inspect, open_pool};
use crate::cli::Volume;
use crate::render::{self, Answer, Output};

#[derive(Debug, Serialize)]
struct Deleted<'a> {
    deleted: &'a str,
}

impl Answer for Deleted<'_> {
    fn table(&self) -> Table {
        render::facts([("deleted", self.deleted.to_owned())])
    }
}

pub fn run(command: &Volume, output: Output) -> Result<()> {
    match command {
        Volume::Create { path, name, size, block_size } => {
            create(path, name, *size, *block_size)?;
            show(path, name, output)
        }
        Volume::Delete { path, name } => {
            let volume = find(path, name)?;
            change(path, Op::Delete { volume: volume.id })?;
            render::show(&Deleted { deleted: name }, output)
        }
        Volume::Grow { path, name, size } => {
            grow(path, name, *size)?;
            show(path, name, output)
        }
    }
}

fn create(path: &Path, name: &str, size: ByteLen, block_size: ByteLen) -> Result<()> {
    let block_size = BlockSize::new(block_size.0).with_context(|| {
        format!("a block size of {block_size} cannot be: it is a power of two from 512 to 128 KiB")
    })?;
    let spec = VolumeSpec { name: name.to_owned(), size, block_size, uid: fresh_uuid()? };
    spec.validate()?;
    let taken = inspect(path)?.volumes.iter().any(|volume| volume.name == name);
    ensure!(!taken, about(path, OpError::DuplicateName { name: name.to_owned() }));
    change(path, Op::Create { spec })
}

fn grow(path: &Path, name: &str, size: ByteLen) -> Result<()> {
    let volume = find(path, name)?;
    let VolumeInfo { block_size, uid, size: has, held, .. } = volume;
    VolumeSpec { name: name.to_owned(), size, block_size, uid }.validate()?;
    ensure!(size >= has, OpError::Shrink { has, asked: size });
    let position = Position { seq: Seq(held.seq.0 + 1), ..held };
    change(path, Op::Grow { volume: volume.id, position, size })
}

fn find(path: &Path, name: &str) -> Result<VolumeInfo> {
    let found = inspect(path)?.volumes.into_iter().find(|volume| volume.name == name);
    found.with_context(|| {
        let path = path.display();
        format!("{path}: there is no volume {name:?}; `pollux disk volumes {path}` lists them")
    })
}

/// One operation on the pool, durable when this returns.
fn change(path: &Path, op: Op) -> Result<()> {
    let mut pool = open_pool(path)?;
    let done = pool.run(op);
    // Closed in any case: a refusal must not leave a pool behind that looks crashed.
    pool.close().map_err(|error| about(path, error))?;
    match done.map_err(|error| about(path, error))? {
        Reply::Done | Reply::Created(_) => Ok(()),
        other => bail!(about(path, format!("the pool gave the wrong answer: {other:?}"))),
    }
}

fn show(path: &Path, name: &str, output: Output) -> Result<()> {
    render::show(&VolumeList::new([&find(path, name)?]), output)
}
