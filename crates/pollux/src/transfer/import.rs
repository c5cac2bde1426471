//! Bringing a volume to the point that a delta leads to.
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use block::{ByteLen, Position};
use disk::FileDisk;
use engine::delta::{Item, Sums};
use engine::{Op, Pool, SnapshotId, SnapshotsOfDeleted, VolumeId};

use super::intake::Intake;
use super::marker::markers;
use super::plan::{Plan, Way};
use super::{Meter, Source};
use crate::offline::{Contents, about, change, reclaim};

/// An import that was done.
pub struct Imported {
    pub position: Position,
    pub sums: Sums,
}

/// Does what was planned. The source has given its header, and nothing else.
pub fn receive(
    contents: &Contents,
    plan: &Plan,
    source: &mut Source,
    meter: &Meter,
) -> Result<Imported> {
    let path = &contents.path;
    // The pool is opened when there is something to do.
    let first = source.next()?.context("a delta has an end")?;
    let empty = matches!(first, Item::End(_));
    ensure!(
        empty || plan.way != Way::Unchanged,
        "{}: the volume is at {}, the delta leads to {}: there is no room between them for a \
         change; import with --mode mirror, or into a new volume",
        path.display(),
        plan.volume.held(),
        plan.header.snapshot.position
    );
    change(path, |pool| {
        let position = feed(pool, contents, plan, first, source, meter)?;
        reclaim(path, pool)?;
        Ok(Imported { position, sums: source.sums()? })
    })
}

fn feed(
    pool: &mut Pool<FileDisk>,
    contents: &Contents,
    plan: &Plan,
    first: Item,
    source: &mut Source,
    meter: &Meter,
) -> Result<Position> {
    let empty = matches!(first, Item::End(_));
    let mut intake = Intake::begin(pool, contents, plan, empty)?;
    let mut frame = Some(first);
    let fed = loop {
        let Some(item) = frame else { break Ok(()) };
        if let Err(error) = intake.take(item) {
            break Err(error);
        }
        meter.reached(source.taken());
        frame = match source.next() {
            Ok(next) => next,
            Err(error) => break Err(error),
        };
    };
    match fed {
        Ok(()) => intake.commit(),
        Err(error) => {
            intake.give_up();
            Err(error)
        }
    }
}

/// What an error has to say of an import that stays unfinished: `None` if none does.
pub fn what_stays(path: &Path, name: &str) -> Option<String> {
    let contents = Contents::of(path).ok()?;
    let volume = contents.volume(name).ok()?;
    let progress = contents.import_into(volume.id)?.staging?.progress;
    let path = path.display();
    Some(format!(
        "what arrived is kept, up to byte {progress} of the volume: import the whole delta again \
         to go on, or one that was exported with --resume-from {progress}, or drop it with \
         `pollux disk import {path} {name} --abandon`; the volume has not changed"
    ))
}

/// What was dropped of an import.
pub struct Abandoned {
    pub progress: Option<ByteLen>,
}

/// Drops what an unfinished import has left.
pub fn abandon(path: &Path, name: &str) -> Result<Abandoned> {
    let contents = Contents::of(path)?;
    let volume = contents.volume(name)?;
    let hidden: Option<(VolumeId, u64)> = contents
        .import_into(volume.id)
        .map(|hidden| (hidden.id, hidden.staging.map_or(0, |staging| staging.progress)));
    let markers: Vec<SnapshotId> =
        markers(&contents, volume.id).map(|(marker, _)| marker.id).collect();
    if hidden.is_none() && markers.is_empty() {
        bail!(about(path, format!("there is no unfinished import into {name:?}")));
    }
    change(path, |pool| {
        let explain = |error| contents.explain(error);
        if let Some((volume, _)) = hidden {
            let snapshots = SnapshotsOfDeleted::Refuse;
            pool.run(Op::Delete { volume, snapshots }).map_err(explain)?;
        }
        for snapshot in markers {
            pool.run(Op::DeleteSnapshot { snapshot }).map_err(explain)?;
        }
        reclaim(path, pool)
    })?;
    Ok(Abandoned { progress: hidden.map(|(_, progress)| ByteLen(progress)) })
}
