//! Freezing a volume, and what can be made of a snapshot.
use std::path::Path;

use anyhow::{Result, ensure};
use block::ByteLen;
use comfy_table::Table;
use engine::{CloneSpec, Compression, Op, OpError, SnapshotSpec, VolumeSpec};
use serde::Serialize;

use super::snapshots::{self, SnapshotList};
use super::volume::ensure_free;
use super::{done, usage, volumes};
use crate::cli::Snapshot;
use crate::offline::{Contents, about, after, change, check_snapshot_name, reclaim};
use crate::render::{self, Answer, Output};
use crate::{clock, uid};

#[derive(Debug, Serialize)]
struct Deleted {
    deleted: String,
    /// While these are there, it is kept hidden, and takes its space.
    kept_for_clones: Vec<Option<String>>,
}

impl Answer for Deleted {
    fn table(&self) -> Table {
        let mut table = render::facts([("deleted", self.deleted.clone())]);
        if !self.kept_for_clones.is_empty() {
            let clones = self.kept_for_clones.iter();
            let names: Vec<&str> =
                clones.map(|clone| clone.as_deref().unwrap_or("(deleted)")).collect();
            table.add_row(["kept hidden", &format!("for its clones {}", names.join(", "))]);
        }
        table
    }
}

pub fn run(command: &Snapshot, output: Output) -> Result<()> {
    match command {
        Snapshot::Create { path, volume, name } => create(path, volume, name, output),
        Snapshot::List { path, volume, all } => {
            snapshots::run(path, volume.as_deref(), *all, output)
        }
        Snapshot::Delete { path, snapshot } => render::show(&delete(path, snapshot)?, output),
        Snapshot::Clone { path, snapshot, name, size } => {
            clone(path, snapshot, name, *size)?;
            volumes::show(path, name, output)
        }
        Snapshot::Rollback { path, snapshot, force } => rollback(path, snapshot, *force, output),
        Snapshot::Usage { path, snapshot } => {
            usage::of_snapshots(path, snapshot.as_deref(), output)
        }
    }
}

fn create(path: &Path, volume: &str, name: &str, output: Output) -> Result<()> {
    check_snapshot_name(name)?;
    let contents = Contents::of(path)?;
    let of = contents.at_rest(volume)?;
    let taken = contents.snapshots_of(of.id).any(|snapshot| snapshot.name == name);
    let title = format!("{volume}@{name}");
    ensure!(!taken, about(path, OpError::DuplicateName { name: title.clone() }));
    let (uid, created) = (uid::fresh()?, clock::now_ms());
    let spec = SnapshotSpec { name: name.to_owned(), uid, internal: false, created };
    let op = Op::Snapshot { volume: of.id, position: Some(after(of.held)), spec };
    change(path, |pool| done(pool, &contents, op))?;
    let contents = Contents::of(path)?;
    render::show(&SnapshotList::new(&contents, [contents.snapshot(&title)?], false), output)
}

fn delete(path: &Path, snapshot: &str) -> Result<Deleted> {
    let contents = Contents::of(path)?;
    let found = contents.snapshot(snapshot)?;
    let import = contents.import_into(found.volume);
    if import.is_some_and(|import| import.parent == Some(found.id)) {
        // It is what the import stands on, and knows itself by.
        contents.at_rest(&contents.volume_of(found.volume).expect("it has an import").name)?;
    }
    let (deleted, kept_for_clones) = (contents.title(found), contents.clones(found));
    let op = Op::DeleteSnapshot { snapshot: found.id };
    change(path, |pool| {
        done(pool, &contents, op)?;
        reclaim(path, pool)
    })?;
    Ok(Deleted { deleted, kept_for_clones })
}

fn clone(path: &Path, snapshot: &str, name: &str, size: Option<ByteLen>) -> Result<()> {
    let contents = Contents::of(path)?;
    let found = contents.snapshot(snapshot)?;
    let (has, block_size, uid) = (found.size, found.block_size, uid::fresh()?);
    let asked = size.unwrap_or(has);
    let compression = Compression::Off;
    VolumeSpec { name: name.to_owned(), size: asked, block_size, compression, uid }.validate()?;
    ensure!(asked >= has, OpError::Shrink { has, asked });
    ensure_free(&contents, name)?;
    let spec = CloneSpec { name: name.to_owned(), uid, size };
    let op = Op::Clone { snapshot: found.id, spec };
    change(path, |pool| done(pool, &contents, op))
}

fn rollback(path: &Path, snapshot: &str, force: bool, output: Output) -> Result<()> {
    let contents = Contents::of(path)?;
    let found = contents.snapshot(snapshot)?;
    let title = contents.title(found);
    let volume = contents.volume_of(found.volume).map(|volume| volume.name.as_str());
    let Some(name) = volume else {
        let text = format!("the volume of {title} is gone: clone the snapshot instead");
        return Err(about(path, text));
    };
    let volume = contents.at_rest(name)?;
    ensure!(
        force || !volume.attached,
        about(
            path,
            format!(
                "volume {name:?} is marked as in use, and whoever uses it would see its bytes \
                 change: detach it first, or say --force if nobody does"
            )
        )
    );
    let (position, to) = (after(volume.held), found.id);
    let op = Op::Rollback { volume: volume.id, position, to, force };
    change(path, |pool| done(pool, &contents, op))?;
    volumes::show(path, name, output)
}
