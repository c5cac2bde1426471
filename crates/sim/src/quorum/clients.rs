//! The door between the world and those who use its volumes: clients that send requests, and the
//! checkers that judge the answers.
//!
//! The world carries actions over links that delay, break and deliver late; it tells what came
//! back, and facts that a checker needs and a client could not know. All times are the world's.
use std::collections::BTreeSet;

use replication::client::{Command, ConnectionId, Login, Request, RequestId};
use replication::words::SnapshotUid;

use super::sparse::Sparse;

/// Microseconds since the world began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    pub const fn secs(secs: u64) -> Time {
        Time(secs * 1_000_000)
    }

    pub fn after(self, micros: u64) -> Time {
        Time(self.0 + micros)
    }
}

/// A volume's place in the world: 0, 1, 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeNo(pub usize);

/// What clients have to know of a volume when the world begins.
#[derive(Clone, Debug)]
pub struct VolumeFacts {
    pub volume: VolumeNo,
    pub size: u64,
    pub block_size: u64,
    pub granule: u64,
}

#[derive(Clone, Debug)]
pub enum ClientAction {
    /// Connects to whichever target of the volume runs, and logs in. `connection` is chosen by the
    /// client, and never used twice in a world. Without a running target `lost` follows.
    Connect {
        volume: VolumeNo,
        connection: ConnectionId,
        login: Login,
    },
    /// `id` is unique within its connection.
    Send {
        connection: ConnectionId,
        id: RequestId,
        request: Request,
    },
    Disconnect {
        connection: ConnectionId,
    },
    /// To the target of the volume; ids of commands are the client's, and are unique in its world.
    /// An answer may never come. `NewStage`, `TakeNote`, `Snapshot`, `DeleteSnapshot`, `Rollback`,
    /// `Resize` come from clients, so that their checkers know when each was asked for.
    Command {
        volume: VolumeNo,
        id: RequestId,
        command: Command,
    },
}

/// What happened beside requests, and a checker has to know.
#[derive(Clone, Debug)]
pub enum Fact {
    /// Acknowledged writes that were not flushed may be gone from a node.
    PowerCut,
    /// The same without another kernel: a flush of a node's device failed.
    DeviceFailed,
    /// Every release was unbroken and every snapshot is durable: a cut of a group is good.
    GroupCut { snapshots: Vec<(VolumeNo, SnapshotUid)> },
    /// An operator goes on with a copy that has this content and these snapshots; whatever else
    /// was acknowledged is lost.
    Chosen { volume: VolumeNo, at: Time, bytes: Sparse, snapshots: BTreeSet<SnapshotUid> },
}

/// The content of one copy at the end, when everything is still.
#[derive(Clone, Debug)]
pub struct FinalCopy {
    pub volume: VolumeNo,
    pub snapshot: Option<SnapshotUid>,
    /// `None`: it is there, but a part of it rotted.
    pub bytes: Option<Sparse>,
}

/// What a checker found.
pub type Violation = String;
