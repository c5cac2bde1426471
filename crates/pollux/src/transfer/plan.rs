//! Whether a delta can be imported, and how; decided before anything is written.
use anyhow::{Result, anyhow, bail, ensure};
use block::{ByteLen, ByteOffset, Position, Seq};
use engine::delta::{Base, Header};
use engine::{SnapshotId, VolumeId, VolumeInfo, VolumeSpec};

use super::fit::{fit, fit_new};
use crate::cli::{Import, Mode};
use crate::offline::{Contents, after, check_snapshot_name};
use crate::uid;

/// An import that can be done.
pub struct Plan {
    /// With the name that the snapshot will have here.
    pub header: Header,
    pub mode: Mode,
    pub volume: Target,
    pub way: Way,
}

pub enum Target {
    There(Box<VolumeInfo>),
    New(VolumeSpec),
}

/// How what arrives gets into the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A marker, then a hidden volume on top of it.
    Marked,
    /// A hidden volume on top of a snapshot that is there: the sequence has no place for a marker.
    /// An import that is interrupted begins anew.
    Unmarked(SnapshotId),
    /// As the one operation that it was at its source: the sequence has no place for more.
    AtOnce,
    /// The sequence has no place for any change: only a delta without one can be imported.
    Unchanged,
    /// The marker is there, and nothing came since.
    FromMarker(SnapshotId),
    /// An interrupted import goes on.
    GoOn { staging: VolumeId, marker: SnapshotId, progress: ByteOffset },
    /// The volume has everything already, and only lacks the snapshot.
    Adopted(SnapshotId),
}

impl Target {
    pub fn held(&self) -> Position {
        match self {
            Target::There(volume) => volume.held,
            Target::New(_) => Position::default(),
        }
    }

    fn size(&self) -> ByteLen {
        match self {
            Target::There(volume) => volume.size,
            Target::New(spec) => spec.size,
        }
    }
}

impl Plan {
    /// Whether the volume must become larger first.
    pub fn grows(&self) -> bool {
        self.volume.size() < self.header.size
    }

    /// Where the end of the import stands, in the sequence of a volume that is at `held`.
    pub fn adoption(&self, held: Position) -> Position {
        match self.mode {
            Mode::Mirror => after(held),
            Mode::CatchUp => before(self.header.snapshot.position),
        }
    }

    pub fn snapshot(&self, held: Position) -> Position {
        match self.mode {
            Mode::Mirror => after(held),
            Mode::CatchUp => self.header.snapshot.position,
        }
    }
}

/// The place in the sequence in front of another.
pub fn before(at: Position) -> Position {
    Position { seq: Seq(at.seq.0.saturating_sub(1)), ..at }
}

pub fn plan(contents: &Contents, header: Header, import: &Import) -> Result<Plan> {
    let mut header = header;
    if let Some(name) = &import.snapshot {
        check_snapshot_name(name)?;
        header.snapshot.name.clone_from(name);
    }
    ensure!(
        !header.snapshot.name.is_empty(),
        "the snapshot of this delta has no name: give it one with --snapshot"
    );
    let volume = target(contents, &header, import)?;
    let mode = mode(&header, &volume, import.mode)?;
    let begun = match &volume {
        Target::There(volume) => fit(contents, &header, mode, volume)?,
        Target::New(spec) => {
            fit_new(contents, &header, mode, spec)?;
            None
        }
    };
    let mut plan = Plan { header, mode, volume, way: Way::Marked };
    plan.way = match begun {
        Some(way) => way,
        None => fresh_way(contents, &plan)?,
    };
    check_places(contents, &plan)?;
    Ok(plan)
}

fn target(contents: &Contents, header: &Header, import: &Import) -> Result<Target> {
    let name = &import.volume;
    let error = match contents.volume(name) {
        Ok(volume) => return Ok(Target::There(Box::new(volume.clone()))),
        Err(error) if !import.create && header.base == Base::Empty => {
            bail!("{error}, and --create makes one of this delta")
        }
        Err(error) => error,
    };
    ensure!(import.create, error);
    let known = contents.volumes().any(|volume| volume.uid == header.volume);
    ensure!(
        !known || import.mode != Some(Mode::CatchUp),
        "{}: the volume of this delta is in this pool already, under another name: import into \
         that one, or with --mode mirror",
        contents.path.display()
    );
    // The identity of a volume is that of its sequence. A mirror has its own.
    let own = known || import.mode == Some(Mode::Mirror) || !header.own_sequence;
    let uid = if own { uid::fresh()? } else { header.volume };
    let (size, block_size) = (header.size, header.block_size);
    let compression = import.compression;
    let spec = VolumeSpec { name: name.clone(), size, block_size, compression, uid };
    spec.validate()?;
    Ok(Target::New(spec))
}

fn mode(header: &Header, volume: &Target, asked: Option<Mode>) -> Result<Mode> {
    let uid = match volume {
        Target::There(volume) => volume.uid,
        Target::New(spec) => spec.uid,
    };
    let same = header.own_sequence && uid == header.volume;
    let mode = asked.unwrap_or(if same { Mode::CatchUp } else { Mode::Mirror });
    ensure!(
        mode == Mode::Mirror || header.own_sequence,
        "this delta is not of the volume's own sequence: import it with --mode mirror"
    );
    let by_seq = matches!(header.base, Base::Seq(_));
    ensure!(
        mode == Mode::CatchUp || !by_seq,
        "this delta begins at a seq, which means something only within one volume's own sequence: \
         export it from a snapshot, or from empty"
    );
    Ok(mode)
}

/// The way of an import that begins: it needs places in the sequence.
fn fresh_way(contents: &Contents, plan: &Plan) -> Result<Way> {
    let by_seq = matches!(plan.header.base, Base::Seq(_));
    // For a marker, the adoption and the snapshot; without a marker; without a change.
    let way = match places(plan) {
        None | Some(3..) if !by_seq => return Ok(Way::Marked),
        Some(0..=1) => return Ok(Way::Unchanged),
        _ if plan.header.base == Base::Empty => return Ok(Way::AtOnce),
        _ => base_here(contents, plan),
    };
    way.map(Way::Unmarked)
}

/// The snapshot that has the present content of the volume.
fn base_here(contents: &Contents, plan: &Plan) -> Result<SnapshotId> {
    let Target::There(volume) = &plan.volume else {
        bail!("a volume that is made now has no snapshot");
    };
    volume.parent.ok_or_else(|| {
        anyhow!(
            "{}: {} has no snapshot to begin an import from: export from a snapshot that it has, \
             or everything into a new volume",
            contents.path.display(),
            volume.name
        )
    })
}

/// Places in the sequence between the volume and the snapshot of the delta, that one included,
/// without the one that growing takes. `None`: as many as are wanted.
fn places(plan: &Plan) -> Option<u64> {
    if plan.mode == Mode::Mirror {
        return None;
    }
    let left = plan.header.snapshot.position.seq.0.saturating_sub(plan.volume.held().seq.0);
    Some(left.saturating_sub(u64::from(plan.grows())))
}

/// Catching up ends exactly where the source was: the volume must not be there or beyond.
fn check_places(contents: &Contents, plan: &Plan) -> Result<()> {
    let needed = match plan.way {
        Way::Marked => 3,
        Way::Unmarked(_) | Way::AtOnce | Way::FromMarker(_) | Way::GoOn { .. } => 2,
        Way::Unchanged | Way::Adopted(_) => 1,
    };
    let (held, to) = (plan.volume.held(), plan.header.snapshot.position);
    let room = places(plan).is_none_or(|places| places >= needed && to.term >= held.term);
    ensure!(
        room,
        "{}: the volume is at {held}, the delta leads to {to}: there is no room between them in \
         the volume's sequence; import with --mode mirror, or into a new volume",
        contents.path.display()
    );
    Ok(())
}
