//! One operation of the history, and what became of it.
use std::sync::Arc;

use block::Position;
use engine::{SnapshotId, SnapshotsOfDeleted, Stamps, VolumeId};

/// What one operation does. Ranges are in sectors of 512 bytes, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Create {
        volume: VolumeId,
        name: String,
        uid: [u8; 16],
        size: u64,
        block_size: u64,
        /// Blocks are stored as they are.
        raw: bool,
    },
    Delete {
        volume: VolumeId,
        snapshots: SnapshotsOfDeleted,
    },
    Write {
        volume: VolumeId,
        first: u64,
        count: u64,
    },
    Zero {
        volume: VolumeId,
        first: u64,
        count: u64,
    },
    Grow {
        volume: VolumeId,
        size: u64,
    },
    SetState {
        volume: VolumeId,
        state: Vec<u8>,
    },
    Mark {
        volume: VolumeId,
    },
    Attach {
        volume: VolumeId,
        attached: bool,
    },
    Snapshot {
        volume: VolumeId,
        snapshot: SnapshotId,
        name: String,
        uid: [u8; 16],
        internal: bool,
        created: u64,
    },
    DeleteSnapshot {
        volume: VolumeId,
        snapshot: SnapshotId,
    },
    Clone {
        volume: VolumeId,
        snapshot: SnapshotId,
        name: String,
        uid: [u8; 16],
        size: u64,
    },
    Rollback {
        volume: VolumeId,
        to: SnapshotId,
    },
    Stage {
        staging: VolumeId,
        volume: VolumeId,
    },
    StageData {
        staging: VolumeId,
        first: u64,
        count: u64,
        /// Whose bytes each sector gets; `None` for zeros.
        values: Option<Arc<[u64]>>,
        progress: u64,
    },
    Adopt {
        volume: VolumeId,
        staging: VolumeId,
        stamps: Stamps,
        state: Option<Vec<u8>>,
    },
    /// Nobody sees it but others that look for space.
    Credit {
        volume: VolumeId,
    },
}

impl Change {
    pub fn volume(&self) -> VolumeId {
        match self {
            Change::Create { volume, .. }
            | Change::Delete { volume, .. }
            | Change::Write { volume, .. }
            | Change::Zero { volume, .. }
            | Change::Grow { volume, .. }
            | Change::SetState { volume, .. }
            | Change::Mark { volume }
            | Change::Attach { volume, .. }
            | Change::Credit { volume }
            | Change::Snapshot { volume, .. }
            | Change::DeleteSnapshot { volume, .. }
            | Change::Clone { volume, .. }
            | Change::Rollback { volume, .. }
            | Change::Stage { volume, .. }
            | Change::StageData { staging: volume, .. }
            | Change::Adopt { volume, .. } => *volume,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Pending,
    Acked,
    /// Refused: it must have changed nothing.
    Refused,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub change: Change,
    pub position: Option<Position>,
    pub status: Status,
}
