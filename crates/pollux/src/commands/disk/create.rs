//! Making a pool: on a fresh file, which goes away again if that fails, or on what is there.
use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use block::ByteLen;
use disk::{FileDisk, OpenOptions};
use engine::CreateOptions;
use pollux::patience;

use super::info::PoolAnswer;
use crate::cli::Create;
use crate::offline::{Contents, PATIENCE, about};
use crate::render::{self, Output};
use crate::uid;

/// Head and tail of a device that must be blank: no file system, partition table or raid hides
/// its signature from both.
const SIGNATURE_WITHIN: u64 = 4 << 20;

pub fn run(create: &Create, output: Output) -> Result<()> {
    make(create)?;
    let path = &create.path;
    render::show(&PoolAnswer::new(path, &Contents::of(path)?.found), output)
}

pub fn make(create: &Create) -> Result<()> {
    let path = &create.path;
    match std::fs::metadata(path) {
        Ok(found) if found.file_type().is_block_device() => on_device(create),
        Ok(found) if found.is_file() => on_file(create, &found),
        // What it is instead, opening tells best; and why nothing was found, too.
        Ok(_) => open(path).map(drop),
        Err(_) => on_new_file(create),
    }
}

fn open(path: &Path) -> Result<FileDisk> {
    Ok(patience::open(path, &OpenOptions::default(), PATIENCE)?)
}

fn on_new_file(create: &Create) -> Result<()> {
    let path = &create.path;
    if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
        let text = "the folder does not exist: create it first, or choose another path";
        ensure!(folder.try_exists().unwrap_or(true), about(folder, text));
    }
    let Some(size) = create.size else {
        bail!(about(path, "does not exist: give --size to make it a new file, or check the path"));
    };
    let sparse = create.sparse;
    let options = OpenOptions { create: Some(size), sparse, ..OpenOptions::default() };
    let mut disk = disk::open(path, &options)?;
    format(create, &mut disk).inspect_err(|_| {
        // Removed while it is locked, so that nobody else can have begun with it. The error tells
        // what was wrong; a file that stays behind would be a second wrong.
        let _ = std::fs::remove_file(path);
    })
}

fn on_file(create: &Create, found: &Metadata) -> Result<()> {
    let path = &create.path;
    let has = ByteLen(found.len());
    match create.size {
        None if has.0 == 0 => bail!(about(path, "is empty: give --size to tell how large a pool")),
        Some(size) if has.0 == 0 => return on_empty_file(create, size),
        Some(size) if size != has => bail!(about(
            path,
            format!("exists and has {has}, not {size}: leave out --size, or remove it first")
        )),
        _ => {}
    }
    ensure!(
        create.force,
        about(path, "exists and is not empty: remove it, or lose what is in it with --force")
    );
    format(create, &mut open(path)?)
}

/// A name that somebody reserved, as `mktemp` does. Two who find the same empty file must not cut
/// each other's pool short, hence the lock, which does not meet the one of an open disk.
fn on_empty_file(create: &Create, size: ByteLen) -> Result<()> {
    let path = &create.path;
    if size.0 == 0 || !size.0.is_multiple_of(4096) {
        bail!(disk::OpenError::CreateSize { path: path.clone(), size });
    }
    let file = File::options().write(true).open(path).map_err(|error| about(path, error))?;
    let alone = file.try_lock().is_ok() && file.metadata().is_ok_and(|found| found.len() == 0);
    ensure!(alone, disk::OpenError::InUse { path: path.clone() });
    let made = || -> Result<()> {
        file.set_len(size.0).map_err(|error| about(path, error))?;
        if !create.sparse {
            disk::allocate(path, &file, size)?;
        }
        file.sync_all().map_err(|error| about(path, error))?;
        format(create, &mut open(path)?)
    };
    made().inspect_err(|_| {
        // Empty again, as it was found.
        let _ = file.set_len(0);
    })
}

fn on_device(create: &Create) -> Result<()> {
    let path = &create.path;
    ensure!(create.size.is_none(), about(path, "is a device and has its size: leave out --size"));
    // Opening it for writing would use up what the system has to tell its owner of a flush that failed. So
    // one that is refused is only read.
    if !create.force {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let _reading = patience::open(path, &options, PATIENCE)?;
        refuse_used(path)?;
    }
    let mut disk = open(path)?;
    if !create.force {
        refuse_used(path)?;
    }
    format(create, &mut disk)
}

fn refuse_used(path: &Path) -> Result<()> {
    let used = "is not blank: choose another device, or lose what is on it with --force";
    ensure!(is_blank(path)?, about(path, used));
    Ok(())
}

fn is_blank(path: &Path) -> Result<bool> {
    let mut device = File::open(path)?;
    let end = device.seek(SeekFrom::End(0))?;
    for from in [0, end.saturating_sub(SIGNATURE_WITHIN)] {
        device.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        (&device)
            .take(SIGNATURE_WITHIN)
            .read_to_end(&mut bytes)
            .context("looking at the device")?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn format(create: &Create, disk: &mut FileDisk) -> Result<()> {
    let options = CreateOptions {
        uuid: uid::fresh()?,
        sector: create.sector.map(Into::into),
        journal: create.journal,
        overwrite: create.force,
    };
    engine::create(disk, &options).map_err(|error| about(&create.path, error))
}
