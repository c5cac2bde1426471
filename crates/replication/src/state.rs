//! What a replica keeps beside the blocks. It is committed by the store together with a position,
//! or between two, all or nothing.
//!
//! Invariants: `shared` is the same on all replicas at the same position, since it follows from
//! the sequence alone; the rest is the replica's own and no import replaces it. The whole fits the
//! store's bound ([`STATE_MAX`]): every list has a bound of its own, and whoever makes an entry of
//! the sequence keeps to it. `layout.rs` has the bytes.
use block::{ByteLen, Position, Seq, Term};

use crate::history::Reigns;
use crate::membership::Membership;
use crate::words::{Boot, Incarnation, Powered, SnapshotUid, StageNumber, VolumeUid};

mod layout;

pub use layout::{STATE_MAX, STATE_VERSION};

/// Snapshots that may wait for their deletion to be durable on a quorum.
pub const DOOMED_MAX: usize = 8;
/// Clones that may be marked at once. They and the reservations share what everything else leaves of
/// a state, about half each.
pub const CLONES_MAX: usize = 32;
/// Snapshots of one volume. A replica tells all of them in one message when it is greeted.
pub const SNAPSHOTS_MAX: usize = 4096;
/// The most snapshots that a message can carry; a store with more cannot be a replica.
pub const SNAPSHOTS_FIT: usize = 13_000;
/// Bytes of persistent reservations: of 16 initiators whose names have 49 bytes, or 7 with 128.
pub const RESERVATIONS_MAX: usize = 1040;
/// Bytes of mirror points.
pub const POINTS_MAX: usize = 128;
/// Bytes of a snapshot's name; the same as the engine's.
pub const NAME_MAX: usize = 255;

/// The highest term that a replica promised to follow, and which run of a target it was: a target
/// that is started twice may choose the same number twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Promise {
    pub term: Term,
    pub run: Boot,
}

/// An import that was begun and not yet committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportMark {
    /// What the source had when it was frozen for this round: what is staged is of this moment.
    pub source: Position,
    /// From where on changes were taken: the last position that both had.
    pub since: Seq,
}

/// A snapshot whose deletion is in the sequence, but may still be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doomed {
    pub snapshot: SnapshotUid,
    /// The seq of the deletion.
    pub at: Seq,
}

/// Whether acknowledged writes were lost, as those who are attached have to know it (P8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// Logins with a lower number are refused for good.
    pub lowest: StageNumber,
    /// The last number that was given.
    pub last: StageNumber,
    /// Initiators without a number are refused until an operator takes note.
    pub plain_refused: bool,
}

/// The small state of a volume: what the sequence says, beside the blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedState {
    pub reigns: Reigns,
    pub size: ByteLen,
    pub membership: Membership,
    pub doomed: Vec<Doomed>,
    /// Snapshots that volumes were cloned from: they are not deleted.
    pub clones: Vec<(SnapshotUid, VolumeUid)>,
    pub reservations: Vec<u8>,
    pub points: Vec<u8>,
    pub stages: Stages,
    /// The seq of the last clean close. The history ends cleanly if it ends there.
    pub closed: Seq,
}

/// A user's snapshot that is to be made at the position that a round was committed at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSpec {
    pub uid: SnapshotUid,
    pub name: String,
    /// When it was asked for, in milliseconds since 1970.
    pub created: u64,
}

/// All of it, as the store keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaState {
    pub incarnation: Incarnation,
    pub promise: Promise,
    /// The highest membership version that was seen; lower ones are refused.
    pub membership_seen: u64,
    /// Something acknowledged may not be durable, since this power-up.
    pub dirty: Option<Powered>,
    /// It started dirty, and could not prove that nothing was lost.
    pub regressed: bool,
    pub import: Option<ImportMark>,
    /// A round was committed at a user's snapshot: it has to be made here, before anything else.
    pub pending: Option<SnapshotSpec>,
    pub shared: SharedState,
}

/// The snapshot of another volume that a replica begins as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub volume: VolumeUid,
    pub snapshot: SnapshotUid,
    /// One of the same uid elsewhere is of a tail that was undone, or will be.
    pub at: Position,
}

/// A snapshot as replicas and targets speak of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    pub uid: SnapshotUid,
    pub name: String,
    pub created: u64,
    pub position: Position,
}

impl ReplicaState {
    /// The state that an empty replica is created with.
    pub fn fresh(incarnation: Incarnation, size: ByteLen) -> ReplicaState {
        let shared = SharedState { size, ..SharedState::default() };
        ReplicaState { incarnation, shared, ..ReplicaState::default() }
    }

    /// The state that a replica of a clone is created with: the history of the volume that it comes
    /// from, as of the snapshot, and nothing else of it. It follows from the snapshot alone, so all
    /// replicas that are made of it agree. The history counts as closed: no target of the clone has
    /// served it, and a snapshot that can be cloned is durable on a quorum. The promise keeps out
    /// terms in which the history could not go on.
    pub fn cloned(
        incarnation: Incarnation,
        origin: &SharedState,
        at: Position,
        size: ByteLen,
    ) -> ReplicaState {
        let shared = SharedState {
            reigns: origin.reigns.up_to(at.seq),
            size,
            closed: at.seq,
            ..SharedState::default()
        };
        let promise = Promise { term: at.term, run: Boot(0) };
        ReplicaState { incarnation, promise, shared, ..ReplicaState::default() }
    }
}
