//! The sequence of a volume: everything that changes it, one number each (Q6).
use block::{ByteLen, ByteOffset, Data, Position, Seq, Term};

use crate::membership::{MEMBERS_MAX, Membership};
use crate::state::{SnapshotSpec, Stages};
use crate::sums::Sums;
use crate::words::{SnapshotUid, VolumeUid};

/// A checksum of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(pub u64);

impl Checksum {
    pub fn of(bytes: &[u8]) -> Checksum {
        Checksum(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes))
    }
}

/// All read as zeros and give space back; they are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    Zeroes,
    Discard,
    /// A discard that spent no credit, since it frees what it covers: stores apply it on their
    /// reserve, and leave all credits alone. Target, replica and store have to agree on this, so
    /// the entry says it.
    Release,
}

#[derive(Clone, Debug)]
pub enum Change {
    Write {
        offset: ByteOffset,
        data: Data,
        sums: Sums,
    },
    Zero {
        offset: ByteOffset,
        len: ByteLen,
        how: Zeroing,
    },
    /// Everything below it is durable on whoever acknowledges it as durable.
    Flush,
    /// The first entry of a reign. `stages` differs from before if writes may have been lost.
    Barrier {
        stages: Stages,
    },
    /// The last entry of a reign that ended on its own: everything acknowledged is below it.
    Close,
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
    Reservations(Vec<u8>),
    Points(Vec<u8>),
    Stages(Stages),
    Membership(Membership),
}

impl Change {
    /// A write in a volume with this granule, whose bytes enter here.
    pub fn write(granule: ByteLen, offset: ByteOffset, data: Data) -> Change {
        let sums = Sums::of(granule, offset, &data);
        Change::Write { offset, data, sums }
    }

    /// Whether replicas flush after it at once: all but data, whose flush is asked for.
    pub fn is_flushed(&self) -> bool {
        !matches!(self, Change::Write { .. } | Change::Zero { .. })
    }

    /// What of the volume's bytes it changes. A rollback changes all of them.
    pub fn range(&self) -> Option<(ByteOffset, ByteLen)> {
        match self {
            Change::Write { offset, data, .. } => Some((*offset, ByteLen(data.len() as u64))),
            Change::Zero { offset, len, .. } => Some((*offset, *len)),
            Change::Rollback { .. } => Some((ByteOffset(0), ByteLen(u64::MAX))),
            _ => None,
        }
    }

    /// What it takes in memory and on the wire, at the most.
    pub fn bytes(&self) -> u64 {
        64 + match self {
            Change::Write { data, sums, .. } => (data.len() + 8 * sums.list().len()) as u64,
            Change::Snapshot(spec) => spec.name.len() as u64,
            Change::Reservations(bytes) | Change::Points(bytes) => bytes.len() as u64,
            Change::Membership(_) => 2 * 16 * MEMBERS_MAX as u64,
            _ => 0,
        }
    }
}

/// One entry of the sequence. All entries that a target sends are of its own term.
#[derive(Clone, Debug)]
pub struct Entry {
    pub seq: Seq,
    pub change: Change,
}

impl Entry {
    pub fn position(&self, term: Term) -> Position {
        Position { term, seq: self.seq }
    }
}
