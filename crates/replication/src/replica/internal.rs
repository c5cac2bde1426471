//! Snapshots that replicas make for themselves: named after what they are for and where.
use block::Position;

use crate::state::{SnapshotEntry, SnapshotSpec};
use crate::words::SnapshotUid;

/// What such a snapshot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A frozen source.
    Round,
    /// What the destination had when its import began.
    Base,
}

impl Kind {
    fn byte(self) -> u8 {
        match self {
            Kind::Round => b'R',
            Kind::Base => b'B',
        }
    }

    /// Seqs have 56 bits, so the kind fits into the byte above them.
    pub fn uid(self, at: Position) -> SnapshotUid {
        assert!(at.seq.0 >> 56 == 0, "a seq has 56 bits");
        let mut uid = [0; 16];
        uid[..8].copy_from_slice(&at.term.0.to_be_bytes());
        uid[8..].copy_from_slice(&at.seq.0.to_be_bytes());
        uid[8] = self.byte();
        SnapshotUid(uid)
    }

    pub fn spec(self, at: Position) -> SnapshotSpec {
        let what = match self {
            Kind::Round => "round",
            Kind::Base => "base",
        };
        SnapshotSpec { uid: self.uid(at), name: format!("{what} at {at}"), created: 0 }
    }

    pub fn has(self, entry: &SnapshotEntry) -> bool {
        entry.uid == self.uid(entry.position)
    }
}
