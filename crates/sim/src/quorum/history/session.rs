//! One client of one volume: its connection, what it waits for, and what it does not know.
use std::collections::BTreeMap;

use replication::client::RequestId;
use replication::words::{ClientId, ConnectionNumber, StageNumber};

use super::register::WriteIndex;
use super::volume::Extent;
use super::workload::Mix;
use crate::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Staged,
    Plain,
}

#[derive(Clone, Debug)]
pub enum Role {
    Mixed(Mix),
    /// Writes the counter of its volume when it is its turn.
    Ordered,
    /// Reads the first volume's counter, or writes it to another.
    Echo,
    /// Reads what others write, and never leaves a target of itself.
    Spy(Mix),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It connects at this moment.
    Down {
        until: u64,
    },
    /// It was told that writes were lost, and waits to be staged anew.
    Told,
    LoggingIn {
        sent: u64,
        until: u64,
    },
    Up,
}

/// What a request was, for its answer.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    Read(Extent),
    Extents(Extent),
    Write { extent: Extent, index: WriteIndex, fua: bool },
    Flush,
}

#[derive(Clone, Copy, Debug)]
pub struct Pending {
    pub sent: u64,
    pub asked: Asked,
}

#[derive(Debug)]
pub struct Session {
    pub id: ClientId,
    pub volume: usize,
    pub kind: Kind,
    pub role: Role,
    pub stage: Option<StageNumber>,
    /// The newest connection.
    pub number: ConnectionNumber,
    pub link: Link,
    /// Something that it asked since the last staging was answered well.
    pub joined: bool,
    pub outstanding: BTreeMap<RequestId, Pending>,
    /// Writes without a clear answer, with their connections.
    pub undecided: Vec<(ConnectionNumber, WriteIndex)>,
    /// When the connection was logged in, until it is proven that this decided older ones.
    pub unproven: Option<u64>,
    pub depth: usize,
    pub patience: u64,
    /// When it wants to ask for something next.
    pub next_ask: u64,
    pub rng: Rng,
}

impl Session {
    /// When the oldest request has waited for too long.
    pub fn patience_ends(&self) -> Option<u64> {
        let oldest = self.outstanding.values().map(|pending| pending.sent).min()?;
        Some(oldest + self.patience)
    }

    /// The connection is gone, or given up: nobody knows what became of its requests.
    pub fn drop_link(&mut self, link: Link) {
        for (_, pending) in std::mem::take(&mut self.outstanding) {
            if let Asked::Write { index, .. } = pending.asked {
                self.undecided.push((self.number, index));
            }
        }
        self.unproven = None;
        self.link = link;
    }

    /// A request of this connection was answered well, so it was no superseded target that let it
    /// in. P9: older work was finished or dropped before the login was answered. Tells when that
    /// was, and which writes it decided.
    pub fn decide(&mut self) -> Option<(u64, Vec<WriteIndex>)> {
        let at = self.unproven.take()?;
        let number = self.number;
        let older = self.undecided.extract_if(.., |(of, _)| *of < number);
        Some((at, older.map(|(_, write)| write).collect()))
    }

    pub fn has_link(&self) -> bool {
        matches!(self.link, Link::LoggingIn { .. } | Link::Up)
    }
}
