//! Whether a delta belongs to the volume that it is to be imported into. Asked before the first
//! range is applied: a delta over another base makes bytes that never were.
use block::{ByteLen, ByteOffset, Position};
use thiserror::Error;

use super::header::{Base, Header};
use crate::error::Retry;
use crate::volume::BlockSize;

/// A snapshot that the destination has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRef {
    pub uid: [u8; 16],
    pub name: String,
    /// In the destination's sequence.
    pub position: Position,
}

/// An import that was begun and not committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted {
    pub base: Base,
    /// The uid of the snapshot that it leads to.
    pub snapshot: [u8; 16],
    pub progress: ByteOffset,
}

/// What the destination's content is, as of the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing is allocated.
    Empty,
    /// The same as that of the snapshot with this uid: since that was taken, imported or rolled
    /// back to, nothing came but marks and states.
    Snapshot([u8; 16]),
    /// Its own.
    Changed,
}

/// The volume that a delta is to be imported into. What an interrupted import staged is no part
/// of it yet.
#[derive(Clone, Debug)]
pub struct Destination<'a> {
    pub uid: [u8; 16],
    pub size: ByteLen,
    pub block_size: BlockSize,
    pub position: Position,
    pub content: Content,
    pub snapshots: &'a [SnapshotRef],
    pub interrupted: Option<&'a Interrupted>,
}

/// Why a delta cannot be imported into a volume. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FitError {
    #[error(
        "the delta is of volume {:032x}, the destination is {:032x}: choose the right one",
        u128::from_be_bytes(*stream),
        u128::from_be_bytes(*destination)
    )]
    WrongVolume { stream: [u8; 16], destination: [u8; 16] },
    #[error(
        "the delta has blocks of {stream} bytes, the destination of {destination}: import into a \
         volume with the same blocks"
    )]
    BlockSize { stream: u64, destination: u64 },
    #[error(
        "the destination has {destination}, the delta is of {stream}: a volume cannot shrink; \
         import into a smaller one"
    )]
    Smaller { stream: ByteLen, destination: ByteLen },
    #[error("the destination has snapshot {name:?} already: nothing is left to import")]
    AlreadyThere { name: String },
    #[error("another snapshot of the destination is named {name:?}: rename or delete it first")]
    NameTaken { name: String },
    #[error(
        "the delta begins at {base}, which the destination, at {at}, does not have: import that \
         first, or export from a base that it has, or everything into a new volume"
    )]
    BaseMissing { base: Base, at: Position },
    #[error(
        "the delta begins at {base}, but the snapshot of that uid is at {found} here: it is of \
         another history; export everything into a new volume"
    )]
    BaseDiffers { base: Base, found: Position },
    #[error(
        "the delta begins at {base}, but the destination has moved beyond that, to {at}: roll it \
         back to the base, or export from where it is, or everything into a new volume"
    )]
    Moved { base: Base, at: Position },
    #[error(
        "this delta continues at {stream}, but the import is at {import}: export it from there, \
         or whole"
    )]
    NotContinuing { stream: ByteOffset, import: ByteOffset },
    #[error(
        "an import of another delta (from {base}) is unfinished at {progress}: finish or abandon \
         it first"
    )]
    Unfinished { base: Base, progress: ByteOffset },
}

impl FitError {
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl Header {
    /// Whether this delta, applied to that volume, makes the snapshot. A larger size is no
    /// obstacle: the importer grows the volume.
    pub fn fits(&self, to: &Destination<'_>) -> Result<(), FitError> {
        if self.volume != to.uid {
            return Err(FitError::WrongVolume { stream: self.volume, destination: to.uid });
        }
        if self.block_size != to.block_size {
            let (stream, destination) = (self.block_size.bytes(), to.block_size.bytes());
            return Err(FitError::BlockSize { stream, destination });
        }
        if self.size < to.size {
            return Err(FitError::Smaller { stream: self.size, destination: to.size });
        }
        for SnapshotRef { uid, name, .. } in to.snapshots {
            let name = name.clone();
            if *uid == self.snapshot.uid {
                return Err(FitError::AlreadyThere { name });
            }
            if name == self.snapshot.name && !name.is_empty() {
                return Err(FitError::NameTaken { name });
            }
        }
        self.stands_on_its_base(to)?;
        self.continues(to.interrupted)
    }

    fn stands_on_its_base(&self, to: &Destination<'_>) -> Result<(), FitError> {
        let (base, at) = (self.base.clone(), to.position);
        match &self.base {
            Base::Empty if to.content == Content::Empty => Ok(()),
            Base::Seq(seq) if at.seq == *seq => Ok(()),
            Base::Seq(seq) if at.seq < *seq => Err(FitError::BaseMissing { base, at }),
            Base::Snapshot { uid, position, .. } => {
                let Some(found) = to.snapshots.iter().find(|snapshot| snapshot.uid == *uid) else {
                    return Err(FitError::BaseMissing { base, at });
                };
                // In a foreign sequence the same snapshot has another position.
                if self.own_sequence && found.position != *position {
                    return Err(FitError::BaseDiffers { base, found: found.position });
                }
                if to.content != Content::Snapshot(*uid) {
                    return Err(FitError::Moved { base, at });
                }
                Ok(())
            }
            Base::Empty | Base::Seq(_) => Err(FitError::Moved { base, at }),
        }
    }

    fn continues(&self, interrupted: Option<&Interrupted>) -> Result<(), FitError> {
        let stream = self.resume_from;
        let import = match interrupted {
            None => ByteOffset(0),
            Some(Interrupted { base, snapshot, progress })
                if *base != self.base || *snapshot != self.snapshot.uid =>
            {
                return Err(FitError::Unfinished { base: base.clone(), progress: *progress });
            }
            Some(same) => same.progress,
        };
        // A whole stream begins the same import anew, with the same content.
        if stream != import && stream != ByteOffset(0) {
            return Err(FitError::NotContinuing { stream, import });
        }
        Ok(())
    }
}
