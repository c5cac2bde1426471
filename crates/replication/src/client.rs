//! What front ends and operators ask of a target, and what they are told.
use block::{ByteLen, ByteOffset, Data, Position, Seq};
use thiserror::Error;

use crate::entry::Zeroing;
use crate::state::{CLONES_MAX, SNAPSHOTS_MAX, SnapshotEntry, SnapshotSpec};
pub use crate::store::Extent;
use crate::words::{
    ClientId, ConnectionNumber, ReplicaId, SnapshotUid, Span, StageNumber, Token, VolumeUid,
};

/// One connection of a front end. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Names a request between question and answer; unique within its connection, or among the
/// operator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Login {
    pub client: ClientId,
    pub number: ConnectionNumber,
    /// `None`: a plain initiator.
    pub stage: Option<StageNumber>,
}

#[derive(Clone, Debug)]
pub enum Request {
    Read {
        offset: ByteOffset,
        len: ByteLen,
    },
    /// What is allocated, from `offset` on. The answer covers at least the first granule of the
    /// range, and may end early.
    Extents {
        offset: ByteOffset,
        len: ByteLen,
    },
    Write {
        offset: ByteOffset,
        data: Data,
        fua: bool,
    },
    Zero {
        offset: ByteOffset,
        len: ByteLen,
        how: Zeroing,
        fua: bool,
    },
    Flush,
    Reservations(Vec<u8>),
}

#[derive(Clone, Debug)]
pub enum Answer {
    Read(Data),
    /// From the asked offset on, without gaps; neighbours differ in kind.
    Extents(Vec<Extent>),
    Done,
}

/// Why a request failed. What to do follows from [`IoError::retry`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IoError {
    #[error("{len} at {offset} is not within the volume or not a multiple of 512 bytes")]
    BadRange { offset: ByteOffset, len: ByteLen },
    #[error("no quorum of replicas could be reached in time: {reason}")]
    NoQuorum { reason: String },
    #[error("the pools of too many replicas are full")]
    NoSpace,
    #[error("no replica has an intact copy of the block at {offset}")]
    Damaged { offset: ByteOffset },
    #[error("the connection was replaced by a newer one or is not logged in")]
    Superseded,
    #[error("acknowledged writes may have been lost; stage the volume anew")]
    UnflushedWritesLost,
    #[error("too many requests are waiting")]
    Busy,
    #[error("this target serves no more")]
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Later,
    Never,
}

impl IoError {
    pub fn retry(&self) -> Retry {
        match self {
            IoError::NoQuorum { .. } | IoError::Busy | IoError::NoSpace | IoError::Stopped => {
                Retry::Later
            }
            _ => Retry::Never,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoginError {
    #[error("a newer connection of this client is known")]
    OlderConnection,
    #[error("acknowledged writes may have been lost since this stage; stage the volume anew")]
    UnflushedWritesLost,
    #[error("this target serves no more")]
    Stopped,
}

/// What operators and the control plane ask.
#[derive(Clone, Debug)]
pub enum Command {
    Snapshot(SnapshotSpec),
    DeleteSnapshot(SnapshotUid),
    Rollback {
        to: SnapshotUid,
    },
    MarkClone {
        snapshot: SnapshotUid,
        clone: VolumeUid,
    },
    UnmarkClone {
        clone: VolumeUid,
    },
    Resize {
        size: ByteLen,
    },
    Points(Vec<u8>),
    /// A fresh stage of a volume: answered with its number.
    NewStage,
    /// An operator knows that writes may have been lost: plain initiators may come back.
    TakeNote,
    /// No seq for anything that modifies, no acknowledgement, until released or expired.
    Hold {
        token: Token,
        lasts: Span,
    },
    /// The snapshot of a held volume: where it was held, exactly.
    Cut {
        token: Token,
        spec: SnapshotSpec,
    },
    Release {
        token: Token,
    },
    /// Q12: goes on with what one replica has, though no quorum can tell that nothing is newer.
    Choose {
        replica: ReplicaId,
    },
    /// Q1: the catalog was restored from a backup, and is right all the same.
    ConfirmCatalog,
    /// Ends the reign cleanly.
    Close,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandAnswer {
    /// Durable on a quorum at this position.
    Done {
        at: Position,
    },
    Stage(StageNumber),
    /// What was sequenced up to here is in the cut.
    Held {
        through: Seq,
    },
    /// The cut has its seq; [`CommandAnswer::Done`] follows when it is durable on a quorum.
    CutAt {
        at: Position,
    },
    Released {
        unbroken: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommandError {
    #[error("the target does not serve: {reason}")]
    NotServing { reason: String },
    #[error("no snapshot {0:?}")]
    UnknownSnapshot(SnapshotUid),
    #[error("a snapshot with this uid or name exists already")]
    SnapshotExists,
    #[error("volumes were cloned from this snapshot")]
    HasClones,
    #[error("a volume has at most {CLONES_MAX} clones; delete some of them")]
    TooManyClones,
    #[error("a volume has at most {SNAPSHOTS_MAX} snapshots; delete some of them")]
    TooManySnapshots,
    #[error("a volume cannot shrink: it has {has}")]
    Shrink { has: ByteLen },
    #[error("the hold with this token does not exist, or was broken")]
    HoldBroken,
    #[error("another hold is in force")]
    AlreadyHeld,
    #[error("too many of them are waiting; try again")]
    Busy,
    #[error("the pools of too many replicas are full")]
    NoSpace,
    #[error("{reason}")]
    Invalid { reason: String },
}

/// What a target shows of its volume's snapshots: only what a quorum has durably.
pub type SnapshotList = Vec<SnapshotEntry>;
