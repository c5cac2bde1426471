//! What can be wrong with a history, with what is needed to look for the cause.
use std::fmt;

use replication::words::{ClientId, SnapshotUid, StageNumber};

use super::stamp::{Place, Value};

/// How a value that was read cannot be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unexplained {
    /// The bytes are no write's: torn, misplaced or invented.
    NoValue,
    /// A write of this number never touched this sector, or was not yet sent.
    NeverWritten(Value),
    /// The write was answered with an error that says that it was not done.
    Refused(Value),
    /// Something newer was there for certain, and this was over.
    Stale { found: Value, newer: Value },
    /// It was overwritten before writes were lost, and what overwrote it was flushed; or another
    /// value was seen here since they were lost.
    OlderThanFlushed(Value),
    /// Zeros, and no zeroing explains them.
    Zeros { newer: Value },
}

/// What was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Read {
        client: ClientId,
        sent: u64,
        answered: u64,
    },
    /// It was said that there is no data.
    Extents {
        client: ClientId,
        sent: u64,
        answered: u64,
    },
    Final,
    Snapshot(SnapshotUid),
    /// A copy that an operator chose.
    Chosen,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    Content {
        seen: Seen,
        place: Place,
        why: Unexplained,
    },
    /// A client was told that writes were lost, and another went on under an older stage.
    WorksAfterLoss {
        volume: usize,
        client: ClientId,
        stage: Option<StageNumber>,
        told: u64,
        sent: u64,
    },
    /// An operator chose a copy to go on with, and a client went on under an older stage.
    WorksAfterChoice {
        volume: usize,
        client: ClientId,
        stage: Option<StageNumber>,
        chosen: u64,
        sent: u64,
    },
    /// Writes are said to be lost though power was never cut.
    LossWithoutPowerCut {
        volume: usize,
    },
    /// A read was answered with the wrong number of bytes, or a write with data.
    WrongAnswer {
        client: ClientId,
    },
    /// A cut has a later write of the ordered load without an earlier one.
    Disordered {
        earlier: (usize, u64),
        later: (usize, u64),
    },
    /// A cut has an echo of a number that its source does not have.
    EchoAhead {
        source: u64,
        echo: u64,
    },
    UnknownSnapshot(SnapshotUid),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Violation {}
