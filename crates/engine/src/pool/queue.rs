//! Operations that were accepted and wait for their slot, in the order of their submission.
use std::collections::VecDeque;

use block::{Buf, ByteLen, ByteOffset, Data, Position, Seq};

use crate::error::OpError;
use crate::pool::pack::Packing;
use crate::pool::{GranuleSums, Reply, RequestId};
use crate::units::{Extent, Granule, SnapshotId, VolumeId};
use crate::volume::{Header, SnapshotSpec, VolumeSpec};

/// A granule that an operation covers in part: its old bytes are needed first.
#[derive(Debug)]
pub enum Edge {
    Wanted(Granule),
    Reading(Granule),
    Ready(Granule, Buf),
    Failed(OpError),
}

impl Edge {
    pub fn granule(&self) -> Option<Granule> {
        match self {
            Edge::Wanted(granule) | Edge::Reading(granule) | Edge::Ready(granule, _) => {
                Some(*granule)
            }
            Edge::Failed(_) => None,
        }
    }
}

/// Whether the operation in front can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Ready,
    Wait,
    /// It was refused, and the next one is in front.
    Answered,
}

/// What the bytes of a range become.
#[derive(Debug)]
pub enum Content {
    Bytes(Data),
    Zeros,
}

/// A change of a volume's bytes.
#[derive(Debug)]
pub struct Change {
    pub volume: VolumeId,
    pub position: Position,
    pub offset: ByteOffset,
    pub len: ByteLen,
    pub content: Content,
    /// Of the bytes, one for each granule from the first on, where they are known.
    pub sums: Option<GranuleSums>,
    pub first: Granule,
    /// The granule behind the last.
    pub end: Granule,
    /// At most two: where the range begins and where it ends within a granule.
    pub edges: Vec<Edge>,
    /// Granules for which space has to be found.
    pub stored: u64,
    /// How they are stored, known when its turn has come.
    pub packing: Packing,
    /// Space that was found already, when looking for the rest had to wait.
    pub space: Vec<Extent>,
    /// A part of an import: stamped by its source, and without a place in the sequence.
    pub import: Option<Import>,
    /// No credit was set aside for it.
    pub unpaid: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Import {
    pub changed: Seq,
    pub progress: u64,
}

#[derive(Debug)]
pub enum Kind {
    Change(Box<Change>),
    Flush,
    Mark {
        volume: VolumeId,
        position: Position,
    },
    SetState {
        volume: VolumeId,
        position: Option<Position>,
        state: Vec<u8>,
    },
    Grow {
        volume: VolumeId,
        position: Option<Position>,
        size: ByteLen,
    },
    Create {
        volume: VolumeId,
        spec: VolumeSpec,
    },
    Delete {
        volume: VolumeId,
        snapshots: bool,
    },
    Attach {
        volume: VolumeId,
        attached: bool,
    },
    Credit {
        volume: VolumeId,
        sectors: u64,
    },
    Snapshot {
        volume: VolumeId,
        position: Option<Position>,
        snapshot: SnapshotId,
        spec: SnapshotSpec,
    },
    DeleteSnapshot {
        snapshot: SnapshotId,
    },
    Clone {
        volume: VolumeId,
        snapshot: SnapshotId,
        header: Box<Header>,
    },
    Rollback {
        volume: VolumeId,
        position: Position,
        to: SnapshotId,
    },
    Stage {
        volume: VolumeId,
        of: VolumeId,
        base: SnapshotId,
    },
    Adopt {
        volume: VolumeId,
        staging: VolumeId,
        position: Position,
        renew: bool,
        state: Option<Vec<u8>>,
    },
}

impl Kind {
    /// The volume that it changes.
    pub fn volume(&self) -> Option<VolumeId> {
        match self {
            Kind::Change(change) => Some(change.volume),
            Kind::Mark { volume, .. }
            | Kind::SetState { volume, .. }
            | Kind::Grow { volume, .. }
            | Kind::Create { volume, .. }
            | Kind::Attach { volume, .. }
            | Kind::Credit { volume, .. }
            | Kind::Snapshot { volume, .. }
            | Kind::Clone { volume, .. }
            | Kind::Rollback { volume, .. }
            | Kind::Stage { volume, .. }
            | Kind::Adopt { volume, .. }
            | Kind::Delete { volume, .. } => Some(*volume),
            Kind::Flush | Kind::DeleteSnapshot { .. } => None,
        }
    }

    /// The place that it takes in the sequence of a volume.
    pub fn position(&self) -> Option<(VolumeId, Position)> {
        match self {
            Kind::Change(change) if change.import.is_some() => None,
            Kind::Change(change) => Some((change.volume, change.position)),
            Kind::Mark { volume, position }
            | Kind::Rollback { volume, position, .. }
            | Kind::Adopt { volume, position, .. } => Some((*volume, *position)),
            Kind::SetState { volume, position, .. }
            | Kind::Snapshot { volume, position, .. }
            | Kind::Grow { volume, position, .. } => Some((*volume, (*position)?)),
            Kind::Flush
            | Kind::Create { .. }
            | Kind::Delete { .. }
            | Kind::Attach { .. }
            | Kind::Credit { .. }
            | Kind::DeleteSnapshot { .. }
            | Kind::Clone { .. }
            | Kind::Stage { .. } => None,
        }
    }

    pub fn reply(&self) -> Reply {
        match self {
            Kind::Create { volume, .. }
            | Kind::Clone { volume, .. }
            | Kind::Stage { volume, .. } => Reply::Created(*volume),
            Kind::Snapshot { snapshot, .. } => Reply::Snapshotted(*snapshot),
            Kind::Flush => Reply::Flushed,
            _ => Reply::Done,
        }
    }

    /// Whether the operation brings a new object into being.
    pub fn is_birth(&self) -> bool {
        matches!(
            self,
            Kind::Create { .. } | Kind::Clone { .. } | Kind::Stage { .. } | Kind::Snapshot { .. }
        )
    }
}

#[derive(Debug)]
pub struct Queued {
    pub id: RequestId,
    pub kind: Kind,
}

impl Queued {
    pub fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Change(change) => match &change.content {
                Content::Bytes(data) => data.len(),
                Content::Zeros => 0,
            },
            _ => 0,
        }
    }

    fn touches(&self, volume: VolumeId, granule: Granule) -> bool {
        match &self.kind {
            Kind::Change(change) => {
                change.volume == volume && (change.first..change.end).contains(&granule)
            }
            // All of the volume becomes something else.
            Kind::Rollback { volume: jumping, .. } | Kind::Adopt { volume: jumping, .. } => {
                *jumping == volume
            }
            _ => false,
        }
    }
}

#[derive(Debug, Default)]
pub struct Queue {
    waiting: VecDeque<Queued>,
    /// The number of the operation in front; operations are numbered by their submission.
    front: u64,
    bytes: usize,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, op: Queued) -> u64 {
        self.bytes += op.bytes();
        self.waiting.push_back(op);
        self.front + self.waiting.len() as u64 - 1
    }

    pub fn pop(&mut self) -> Option<Queued> {
        let op = self.waiting.pop_front()?;
        self.front += 1;
        self.bytes -= op.bytes();
        Some(op)
    }

    pub fn front(&mut self) -> Option<&mut Queued> {
        self.waiting.front_mut()
    }

    pub fn front_number(&self) -> u64 {
        self.front
    }

    pub fn get(&mut self, number: u64) -> Option<&mut Queued> {
        let at = usize::try_from(number.checked_sub(self.front)?).ok()?;
        self.waiting.get_mut(at)
    }

    /// Whether an operation before `number` still has to change this granule.
    pub fn changes_before(&self, number: u64, volume: VolumeId, granule: Granule) -> bool {
        let before = usize::try_from(number - self.front).unwrap_or(usize::MAX);
        self.waiting.iter().take(before).any(|op| op.touches(volume, granule))
    }

    /// The newest position that waits for a volume.
    pub fn last_position(&self, volume: VolumeId) -> Option<Position> {
        let newest_first = self.waiting.iter().rev().filter_map(|op| op.kind.position());
        newest_first.filter(|(id, _)| *id == volume).map(|(_, position)| position).next()
    }

    /// Whether a snapshot of this name waits to be made.
    pub fn names_snapshot(&self, id: VolumeId, name: &str) -> bool {
        self.waiting.iter().any(|op| match &op.kind {
            Kind::Snapshot { volume, spec, .. } => *volume == id && spec.name == name,
            _ => false,
        })
    }

    /// Snapshots of a volume that wait to be made.
    pub fn snapshots_of(&self, id: VolumeId) -> usize {
        let of_it = |op: &&Queued| matches!(op.kind, Kind::Snapshot { volume, .. } if volume == id);
        self.waiting.iter().filter(of_it).count()
    }

    /// The newest size that waits for a volume.
    pub fn last_size(&self, id: VolumeId) -> Option<u64> {
        self.waiting.iter().rev().find_map(|op| match op.kind {
            Kind::Grow { volume, size, .. } if volume == id => Some(size.0),
            _ => None,
        })
    }

    pub fn drain(&mut self) -> impl Iterator<Item = RequestId> + use<> {
        self.front += self.waiting.len() as u64;
        self.bytes = 0;
        std::mem::take(&mut self.waiting).into_iter().map(|op| op.id)
    }
}
