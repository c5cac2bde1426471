//! Whether a delta belongs to a volume, and how far an earlier run has brought it.
use anyhow::{Result, anyhow, bail, ensure};
use block::{ByteOffset, Position};
use engine::delta::{Base, Content, Destination, FitError, Header, Interrupted, SnapshotRef};
use engine::{Op, OpError, Reply, Runs, Since, SnapshotInfo, SnapshotSpec, VolumeInfo, VolumeSpec};

use super::marker::{Identity, markers};
use super::plan::{Way, before};
use crate::cli::Mode;
use crate::offline::{Contents, after, open_shadow};
use crate::uid;

/// Whether the delta fits a volume that is there. `None`: it does, and nothing was begun yet.
pub fn fit(
    contents: &Contents,
    header: &Header,
    mode: Mode,
    volume: &VolumeInfo,
) -> Result<Option<Way>> {
    ensure!(!volume.attached, contents.explain(OpError::Attached { volume: volume.id }));
    let begun = begun(contents, header, mode, volume);
    if begun.is_none() {
        no_other_import(contents, header, mode, volume)?;
    }
    let content = match begun {
        None => content(contents, header, volume)?,
        // The marker says so, and the volume has not changed since.
        Some(_) => match &header.base {
            Base::Snapshot { uid, .. } => Content::Snapshot(*uid),
            Base::Empty | Base::Seq(_) => Content::Empty,
        },
    };
    let interrupted = match begun {
        Some(Way::GoOn { progress, .. }) => Some(Interrupted {
            base: header.base.clone(),
            snapshot: header.snapshot.uid,
            // What comes a second time is passed over: a delta may begin before.
            progress: progress.min(header.resume_from),
        }),
        _ => None,
    };
    let shown = contents.snapshots_of(volume.id).filter(|snapshot| !snapshot.internal);
    let snapshots: Vec<SnapshotRef> = shown.map(reference).collect();
    let to = Destination {
        uid: volume.uid,
        size: volume.size,
        block_size: volume.block_size,
        position: volume.held,
        content,
        snapshots: &snapshots,
        interrupted: interrupted.as_ref(),
    };
    judge(contents, header, mode, &volume.name, to)?;
    ensure!(
        begun.is_none() || volume.size == header.size,
        "the import that was begun is of {}, this delta of {}: abandon the import first",
        volume.size,
        header.size
    );
    Ok(begun)
}

/// Whether the delta fits a volume that is to be made.
pub fn fit_new(contents: &Contents, header: &Header, mode: Mode, spec: &VolumeSpec) -> Result<()> {
    let to = Destination {
        uid: spec.uid,
        size: spec.size,
        block_size: spec.block_size,
        position: Position::default(),
        content: Content::Empty,
        snapshots: &[],
        interrupted: None,
    };
    judge(contents, header, mode, &spec.name, to)
}

fn judge(
    contents: &Contents,
    header: &Header,
    mode: Mode,
    name: &str,
    to: Destination<'_>,
) -> Result<()> {
    let mut judged = header.clone();
    let mut to = to;
    if mode == Mode::Mirror {
        // Neither the volume nor its positions are the same; the snapshots still are.
        judged.own_sequence = false;
        to.uid = header.volume;
    }
    let path = contents.path.display();
    judged.fits(&to).map_err(|error| match error {
        FitError::BaseDiffers { .. } | FitError::WrongVolume { .. } => {
            anyhow!("{path}: {name}: {error}; --mode mirror does not mind")
        }
        error => anyhow!("{path}: {name}: {error}"),
    })
}

fn reference(snapshot: &SnapshotInfo) -> SnapshotRef {
    let SnapshotInfo { uid, name, position, .. } = snapshot;
    SnapshotRef { uid: *uid, name: name.clone(), position: *position }
}

/// What an earlier run of the same import has left.
fn begun(contents: &Contents, header: &Header, mode: Mode, volume: &VolumeInfo) -> Option<Way> {
    let wanted = Identity::of(header, mode);
    let mut same = markers(contents, volume.id).filter(|(_, found)| Some(*found) == wanted);
    if let Some(hidden) = contents.import_into(volume.id) {
        let same = same.find(|(marker, _)| hidden.parent == Some(marker.id));
        let progress = ByteOffset(hidden.staging.map_or(0, |staging| staging.progress));
        return same.map(|(marker, _)| Way::GoOn {
            staging: hidden.id,
            marker: marker.id,
            progress,
        });
    }
    let adopted = |marker: &SnapshotInfo| match mode {
        Mode::Mirror => after(marker.position),
        Mode::CatchUp => before(header.snapshot.position),
    };
    same.find_map(|(marker, _)| match volume.held {
        held if held == marker.position => Some(Way::FromMarker(marker.id)),
        held if held == adopted(marker) => Some(Way::Adopted(marker.id)),
        _ => None,
    })
}

/// One import into a volume at a time.
fn no_other_import(
    contents: &Contents,
    header: &Header,
    mode: Mode,
    volume: &VolumeInfo,
) -> Result<()> {
    let Some(hidden) = contents.import_into(volume.id) else { return Ok(()) };
    let (path, name) = (contents.path.display(), &volume.name);
    let abandon = format!("`pollux disk import {path} {name} --abandon`");
    let marker = hidden.parent.and_then(|id| contents.snapshot_of(id));
    let Some(identity) = marker.and_then(Identity::marked_by) else {
        bail!(
            "{path}: {name}: an import is unfinished that cannot go on: drop it with {abandon}, \
             and begin anew"
        );
    };
    if Identity::of(header, mode).map(|wanted| Identity { mode: identity.mode, ..wanted })
        == Some(identity)
    {
        bail!(
            "{path}: {name}: this import was begun with --mode {}: go on with that, or drop it with \
             {abandon}",
            identity.mode
        );
    }
    let base = identity.base.map_or(Base::Empty, |uid| {
        let found = contents.snapshots_of(volume.id).find(|snapshot| snapshot.uid == uid);
        let name = found.map_or_else(|| uid::hex(&uid), |snapshot| snapshot.name.clone());
        let position = found.map(|snapshot| snapshot.position).unwrap_or_default();
        Base::Snapshot { uid, name, position }
    });
    let progress = ByteOffset(hidden.staging.map_or(0, |staging| staging.progress));
    bail!("{path}: {name}: {}, with {abandon}", FitError::Unfinished { base, progress })
}

/// What the volume holds, as far as this delta wants to know.
fn content(contents: &Contents, header: &Header, volume: &VolumeInfo) -> Result<Content> {
    let clean = contents.found.clean;
    match &header.base {
        Base::Empty if clean && volume.logical.0 == 0 => Ok(Content::Empty),
        Base::Empty if clean => Ok(Content::Changed),
        Base::Empty => {
            // What is in the journal is in the maps of an open pool.
            let pool = open_shadow(&contents.path)?;
            let found = pool.volumes().into_iter().find(|found| found.id == volume.id);
            let empty = found.is_some_and(|found| found.logical.0 == 0);
            Ok(if empty { Content::Empty } else { Content::Changed })
        }
        Base::Seq(_) => Ok(Content::Changed),
        Base::Snapshot { uid, .. } => {
            let base = contents.snapshots_of(volume.id).find(|snapshot| snapshot.uid == *uid);
            let same = match base {
                None => false,
                Some(base) if volume.parent == Some(base.id) && volume.held == base.position => {
                    true
                }
                Some(base) => is_same(contents, volume, base)?,
            };
            Ok(if same { Content::Snapshot(*uid) } else { Content::Changed })
        }
    }
}

/// Whether a volume has the content of a snapshot, whatever happened since: marks, larger sizes,
/// a rollback. Found out by a snapshot of its present content that nobody will ever see.
fn is_same(contents: &Contents, volume: &VolumeInfo, base: &SnapshotInfo) -> Result<bool> {
    let mut pool = open_shadow(&contents.path)?;
    let spec = SnapshotSpec {
        name: uid::hex(&uid::fresh()?),
        uid: uid::fresh()?,
        internal: true,
        created: 0,
    };
    let op = Op::Snapshot { volume: volume.id, position: Some(after(volume.held)), spec };
    let explain = |error| contents.explain(error);
    let Reply::Snapshotted(snapshot) = pool.run(op).map_err(explain)? else {
        bail!("the pool gave the wrong answer");
    };
    let mut next = Some(ByteOffset(0));
    while let Some(from) = next {
        let since = Since::Snapshot(base.id);
        let op = Op::Changed { snapshot, since, from, to: None, max: 1, runs: Runs::Joined };
        match pool.run(op).map_err(explain)? {
            Reply::Changed(changes) if changes.ranges.is_empty() => next = changes.next,
            Reply::Changed(_) => return Ok(false),
            other => bail!("the pool gave the wrong answer: {other:?}"),
        }
    }
    Ok(true)
}
