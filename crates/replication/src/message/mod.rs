//! What target and replica say to each other. One connection carries one volume's stream of one
//! reign, in order; it may break at any moment and lose what was on its way.
use block::{ByteLen, ByteOffset, Data, Position, Seq, Term};
use thiserror::Error;

use crate::cost::Costs;
use crate::entry::Entry;
use crate::membership::Membership;
use crate::state::{ImportMark, Promise, SharedState, SnapshotEntry, SnapshotSpec};
use crate::store::{ChangedRange, Content, Extent};
use crate::words::{Boot, Incarnation, Moment, SnapshotUid};

mod decode;
mod encode;
mod frame;
pub(crate) mod plausible;

pub use crate::encoding::Malformed;
pub use decode::{
    decode_parts_to_replica, decode_parts_to_target, decode_to_replica, decode_to_target,
};
pub use encode::{encode_to_replica, encode_to_target};
pub use frame::{DIVIDES_AFTER, Division, Encoded, REASON_MAX, division};

/// The version of the encoding. A peer with another one is told so, and the connection ends.
/// 1: the first.
/// 2: a welcome says whether the copy began as a clone, and a discard whether it spent credit.
pub const WIRE_VERSION: u16 = 2;

/// The longest frame: the largest fetch with its headers.
pub const FRAME_MAX: usize = 4 << 20;

/// The entries of one message: the sum of their [`crate::entry::Change::bytes`] is at most this, so
/// that the frame around them fits.
pub const BATCH_MAX: u64 = FRAME_MAX as u64 - 4096;

/// Names a read, a fetch or a repair between question and answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

/// A target claims its term. First on every connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub promise: Promise,
    /// What the catalog says; a replica that has seen a higher version refuses.
    pub membership: Membership,
}

/// What a replica has, told after it stored the promise durably and drained what came before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    pub incarnation: Incarnation,
    pub boot: Boot,
    /// Everything up to here is durable.
    pub position: Position,
    pub shared: SharedState,
    pub dirty: bool,
    pub regressed: bool,
    pub snapshots: Vec<SnapshotEntry>,
    /// Snapshots that it keeps for rounds that it was the source of.
    pub rounds: Vec<Position>,
    /// An import that can go on, and how far it came.
    pub import: Option<(ImportMark, ByteOffset)>,
    pub headroom: ByteLen,
    pub block_size: ByteLen,
    pub costs: Costs,
}

/// Which content of a replica is meant; where a round freezes its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoundPoint {
    /// Its present one, wherever it is when the question arrives.
    Now,
    /// At a user's snapshot that the destination misses.
    Snapshot(SnapshotUid),
    /// Where an earlier round froze it; the snapshot is still there.
    Kept(Position),
}

/// Which blocks of a frozen source are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Later than this seq; holes too.
    Changed(Seq),
    /// All of the range, holes included.
    Everything,
}

/// A part of a frozen source.
#[derive(Clone, Debug)]
pub struct Piece {
    pub offset: ByteOffset,
    pub changed: Seq,
    pub content: Content,
}

#[derive(Clone, Debug)]
pub enum ToReplica {
    Hello(Hello),
    /// The entries behind the last that it has, in order.
    Entries(Vec<Entry>),
    /// Confirms the reign, so that the target may serve reads. `settled`: durable on a quorum
    /// through here, so what frees history may take effect.
    Renew {
        sent: Moment,
        settled: Seq,
    },
    Read {
        id: AskId,
        of: RoundPoint,
        offset: ByteOffset,
        len: ByteLen,
    },
    /// What is allocated, as a read would see it.
    Extents {
        id: AskId,
        offset: ByteOffset,
        len: ByteLen,
    },
    /// Bytes of a granule whose copy here is damaged.
    Repair {
        id: AskId,
        of: RoundPoint,
        offset: ByteOffset,
        data: Data,
    },
    /// In this live reign it reached what a quorum held when it came: nothing is missing.
    Recovered,

    // As the source of a round.
    OpenRound {
        id: AskId,
        point: RoundPoint,
    },
    Fetch {
        id: AskId,
        round: Position,
        wanted: Wanted,
        from: ByteOffset,
        to: ByteOffset,
    },
    /// The round's snapshot is not needed any more.
    CloseRound {
        round: Position,
    },

    // As its destination.
    /// Begins an import of the source as of `mark.source`, or goes on with it. `size`: that of the
    /// frozen copy; the destination's grows to it first.
    BeginImport {
        mark: ImportMark,
        size: ByteLen,
    },
    /// What it changed itself since the common position: the tail that is undone.
    OwnChanges {
        id: AskId,
        since: Seq,
        from: ByteOffset,
    },
    Import {
        pieces: Vec<Piece>,
        progress: ByteOffset,
    },
    /// Makes it the content of the volume, at the mark's source, with the small state that belongs
    /// to it. `snapshot`: the round ended at this user's snapshot. `snapshots`: those that the
    /// source had there; others go.
    CommitImport {
        shared: Box<SharedState>,
        snapshot: Option<SnapshotSpec>,
        snapshots: Vec<SnapshotEntry>,
    },
    /// What was staged is of no use.
    AbandonImport,
}

/// Why a replica left the stream. It has everything before `Left::at`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Leaving {
    #[error("its pool has no space")]
    NoSpace,
    #[error("its copy at {offset} is damaged, and a part of it was to be overwritten")]
    Damaged { offset: ByteOffset },
    #[error("its pool has failed: {reason}")]
    Failed { reason: String },
}

/// Why a replica does not follow a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("it follows {0:?}")]
    Promised(Promise),
    #[error("it has seen version {seen} of the membership")]
    OlderMembership { seen: u64 },
}

#[derive(Clone, Debug)]
pub enum ToTarget {
    Welcome(Box<Welcome>),
    Refused(Refusal),
    /// Cumulative. `headroom`: what it has set aside for entries above `held`.
    Ack {
        boot: Boot,
        held: Seq,
        durable: Seq,
        headroom: ByteLen,
    },
    Renewed {
        sent: Moment,
    },
    Left {
        at: Seq,
        reason: Leaving,
    },
    ReadDone {
        id: AskId,
        result: Result<Data, ReadFailure>,
    },
    Repaired {
        id: AskId,
        ok: bool,
    },
    ExtentsDone {
        id: AskId,
        result: Result<Vec<Extent>, ReadFailure>,
    },

    RoundOpened {
        id: AskId,
        opened: Result<Box<OpenedRound>, RoundFailure>,
    },
    Fetched {
        id: AskId,
        result: Result<Fetched, RoundFailure>,
    },

    /// `kept`: what was staged before and is still there, of which moment and how far.
    ImportBegun {
        kept: Option<(ImportMark, ByteOffset)>,
    },
    OwnChanged {
        id: AskId,
        ranges: Vec<ChangedRange>,
        next: Option<ByteOffset>,
    },
    Imported {
        progress: ByteOffset,
    },
    Committed {
        position: Position,
    },
    ImportFailed {
        reason: RoundFailure,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedRound {
    pub position: Position,
    pub shared: SharedState,
    /// The size of the frozen copy.
    pub size: ByteLen,
    /// The user's snapshot that it is, if it is one.
    pub snapshot: Option<SnapshotSpec>,
    /// Users' snapshots at and before this position.
    pub snapshots: Vec<SnapshotEntry>,
}

#[derive(Clone, Debug)]
pub struct Fetched {
    pub pieces: Vec<Piece>,
    /// Everything of the range below this was looked at.
    pub through: ByteOffset,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadFailure {
    #[error("the stored copy at {offset} is damaged")]
    Damaged { offset: ByteOffset },
    #[error("the pool has failed")]
    Failed,
    #[error("too many operations are waiting")]
    Busy,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RoundFailure {
    #[error("no space in the pool")]
    NoSpace,
    #[error("the stored copy at {offset} is damaged")]
    Damaged { offset: ByteOffset },
    #[error("the snapshot is gone")]
    Gone,
    #[error("the pool has failed or refused: {reason}")]
    Failed { reason: String },
}

/// A message to a replica, bound to a reign.
#[derive(Clone, Debug)]
pub struct ForReplica {
    pub term: Term,
    pub body: ToReplica,
}

/// A message to a target, bound to a reign.
#[derive(Clone, Debug)]
pub struct ForTarget {
    pub term: Term,
    pub body: ToTarget,
}
