//! The door to one replica's copy in a pool. The owner of the pool carries operations to the
//! engine and answers back; operations take effect in the order in which they were asked.
use block::{ByteLen, ByteOffset, Data, Position, Seq};
use thiserror::Error;

use crate::cost::Costs;
use crate::entry::Zeroing;
use crate::state::{SnapshotEntry, SnapshotSpec};
use crate::sums::Sums;
use crate::words::SnapshotUid;

/// Names an operation between question and answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreTag(pub u64);

#[derive(Clone, Debug)]
pub enum StoreOp {
    // With a place in the sequence: refused with `Gap` unless it is the very next one.
    /// The bytes were compared with their checksums.
    Write {
        position: Position,
        offset: ByteOffset,
        data: Data,
        sums: Sums,
    },
    Zero {
        position: Position,
        offset: ByteOffset,
        len: ByteLen,
        how: Zeroing,
    },
    Mark {
        position: Position,
    },
    /// `None`: between two positions.
    SetState {
        position: Option<Position>,
        state: Vec<u8>,
    },
    Snapshot {
        position: Option<Position>,
        spec: SnapshotSpec,
        internal: bool,
    },
    Rollback {
        position: Position,
        to: SnapshotUid,
    },

    // Without one.
    Flush,
    /// At least this size; never smaller than it was.
    Grow {
        size: ByteLen,
    },
    DeleteSnapshot {
        snapshot: SnapshotUid,
    },
    Read {
        offset: ByteOffset,
        len: ByteLen,
    },
    /// What is allocated, as a read would see it; from `offset` on, perhaps not of all of the range.
    Extents {
        offset: ByteOffset,
        len: ByteLen,
    },
    ReadSnapshot {
        snapshot: SnapshotUid,
        offset: ByteOffset,
        len: ByteLen,
    },
    /// The state that was kept with a snapshot, as of its position.
    SnapshotState {
        snapshot: SnapshotUid,
    },
    /// Changed later than a seq, holes too: runs of equal stamps, in order, at most `max` of them.
    Changed {
        snapshot: SnapshotUid,
        since: Seq,
        from: ByteOffset,
        to: Option<ByteOffset>,
        max: usize,
    },
    /// Begins an import on top of the present content, which the snapshot `base` has too.
    Stage {
        base: SnapshotUid,
    },
    StageData {
        changed: Seq,
        offset: ByteOffset,
        content: Content,
        progress: u64,
    },
    /// The volume has the staged content, this position and this state, all or nothing.
    Adopt {
        position: Position,
        state: Vec<u8>,
    },
    /// Throws an import away.
    Abandon,
    /// Replaces a damaged granule by the same bytes.
    Repair {
        snapshot: Option<SnapshotUid>,
        offset: ByteOffset,
        data: Data,
    },
    /// Sets space aside for this volume alone.
    Credit {
        bytes: ByteLen,
    },
}

#[derive(Clone, Debug)]
pub enum Content {
    Bytes(Data),
    Zeros(ByteLen),
}

impl Content {
    pub fn len(&self) -> ByteLen {
        match self {
            Content::Bytes(data) => ByteLen(data.len() as u64),
            Content::Zeros(len) => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == ByteLen(0)
    }
}

/// A run of granules with one stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedRange {
    pub offset: ByteOffset,
    pub len: ByteLen,
    pub is_data: bool,
    pub changed: Seq,
}

impl ChangedRange {
    pub fn end(&self) -> Option<ByteOffset> {
        self.offset.end(self.len)
    }
}

/// A range of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub len: ByteLen,
    /// Without data it reads as zeros.
    pub has_data: bool,
}

#[derive(Clone, Debug)]
pub enum StoreReply {
    /// Held: the operation and everything before it.
    Done,
    Read(Data),
    Extents(Vec<Extent>),
    Flushed,
    /// To [`StoreOp::SnapshotState`].
    State(Vec<u8>),
    Changed {
        ranges: Vec<ChangedRange>,
        next: Option<ByteOffset>,
    },
}

/// Why the store refused. Nothing was changed by it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoreError {
    #[error("no space in the pool")]
    NoSpace,
    #[error("the stored copy at {offset} is damaged")]
    Damaged { offset: ByteOffset },
    #[error("an operation before it failed")]
    Gap,
    #[error("too many operations are waiting")]
    Busy,
    #[error("the bytes are not what was stored")]
    OtherBytes,
    #[error("no such snapshot")]
    UnknownSnapshot,
    #[error("it is not allowed: {reason}")]
    Refused { reason: String },
    #[error("the pool has failed: {reason}")]
    Failed { reason: String },
}

/// What a store has when it is opened.
#[derive(Clone, Debug, Default)]
pub struct StoreFacts {
    /// Everything up to here is held.
    pub position: Position,
    pub state: Vec<u8>,
    /// Size of the copy; at least that of the volume.
    pub size: ByteLen,
    pub block_size: ByteLen,
    /// Snapshots of users.
    pub snapshots: Vec<SnapshotEntry>,
    /// Snapshots that were made for rounds and imports.
    pub internal: Vec<SnapshotEntry>,
    /// An import was begun; what its last part said.
    pub staged: Option<u64>,
    pub costs: Costs,
}
