//! Creating, deleting and growing volumes.
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use block::ByteLen;
use comfy_table::Table;
use engine::{BlockSize, Compression, Op, OpError, SnapshotsOfDeleted, VolumeInfo, VolumeSpec};
use serde::Serialize;

use super::{done, usage, volumes};
use crate::cli::Volume;
use crate::offline::{Contents, about, after, change, reclaim};
use crate::render::{self, Answer, Output};

#[derive(Debug, Serialize)]
struct Deleted<'a> {
    deleted: &'a str,
    deleted_snapshots: Vec<String>,
    /// They are found as `@SNAPSHOT` from now on.
    kept_snapshots: Vec<String>,
}

impl Answer for Deleted<'_> {
    fn table(&self) -> Table {
        let mut table = render::facts([("deleted", self.deleted.to_owned())]);
        let at = |name: &String| format!("@{name}");
        for (what, names) in
            [("and snapshots", &self.deleted_snapshots), ("kept", &self.kept_snapshots)]
        {
            if !names.is_empty() {
                let names: Vec<String> = names.iter().map(at).collect();
                table.add_row([what.to_owned(), names.join(", ")]);
            }
        }
        table
    }
}

pub fn run(command: &Volume, output: Output) -> Result<()> {
    match command {
        Volume::Create { path, name, size, block_size, compression } => {
            create(path, name, *size, *block_size, *compression)?;
            volumes::show(path, name, output)
        }
        Volume::List { path, all } => volumes::run(path, *all, output),
        Volume::Delete { path, name, with_snapshots, keep_snapshots } => {
            let fate = match (with_snapshots, keep_snapshots) {
                (true, _) => SnapshotsOfDeleted::Delete,
                (_, true) => SnapshotsOfDeleted::Keep,
                _ => SnapshotsOfDeleted::Refuse,
            };
            render::show(&delete(path, name, fate)?, output)
        }
        Volume::Grow { path, name, size } => {
            grow(path, name, *size)?;
            volumes::show(path, name, output)
        }
        Volume::Usage { path, name } => usage::of_volumes(path, name.as_deref(), output),
    }
}

fn create(
    path: &Path,
    name: &str,
    size: ByteLen,
    block_size: ByteLen,
    compression: Compression,
) -> Result<()> {
    let block_size = BlockSize::new(block_size.0).with_context(|| {
        format!("a block size of {block_size} cannot be: it is a power of two from 512 to 128 KiB")
    })?;
    let uid = crate::uid::fresh()?;
    let spec = VolumeSpec { name: name.to_owned(), size, block_size, compression, uid };
    spec.validate()?;
    let contents = Contents::of(path)?;
    ensure_free(&contents, name)?;
    change(path, |pool| done(pool, &contents, Op::Create { spec }))
}

/// Whether a new volume may have this name.
pub fn ensure_free(contents: &Contents, name: &str) -> Result<()> {
    let taken = contents.volumes().any(|volume| volume.name == name);
    ensure!(!taken, about(&contents.path, OpError::DuplicateName { name: name.to_owned() }));
    Ok(())
}

fn grow(path: &Path, name: &str, size: ByteLen) -> Result<()> {
    let contents = Contents::of(path)?;
    let volume = contents.at_rest(name)?;
    let VolumeInfo { block_size, compression, uid, size: has, .. } = *volume;
    VolumeSpec { name: name.to_owned(), size, block_size, compression, uid }.validate()?;
    ensure!(size >= has, OpError::Shrink { has, asked: size });
    let op = Op::Grow { volume: volume.id, position: Some(after(volume.held)), size };
    change(path, |pool| done(pool, &contents, op))
}

fn delete<'a>(path: &Path, name: &'a str, fate: SnapshotsOfDeleted) -> Result<Deleted<'a>> {
    let contents = Contents::of(path)?;
    let volume = contents.at_rest(name)?;
    let id = volume.id;
    ensure!(!volume.attached, contents.explain(OpError::Attached { volume: id }));
    let snapshots: Vec<String> =
        contents.snapshots_of(id).filter(|s| !s.internal).map(|s| s.name.clone()).collect();
    if fate == SnapshotsOfDeleted::Refuse && !snapshots.is_empty() {
        bail!(about(
            path,
            format!(
                "volume {name:?} has snapshots ({}): delete them as well with --with-snapshots, \
                 or keep them with --keep-snapshots",
                snapshots.join(", ")
            )
        ));
    }
    let internal: Vec<_> = contents.snapshots_of(id).filter(|s| s.internal).map(|s| s.id).collect();
    change(path, |pool| {
        // Pollux's own serve nobody when the volume is gone.
        for snapshot in internal {
            done(pool, &contents, Op::DeleteSnapshot { snapshot })?;
        }
        done(pool, &contents, Op::Delete { volume: id, snapshots: fate })?;
        reclaim(path, pool)
    })?;
    let (deleted_snapshots, kept_snapshots) = match fate {
        SnapshotsOfDeleted::Keep => (Vec::new(), snapshots),
        _ => (snapshots, Vec::new()),
    };
    Ok(Deleted { deleted: name, deleted_snapshots, kept_snapshots })
}
