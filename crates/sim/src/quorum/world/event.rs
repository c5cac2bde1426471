//! Everything that can happen, and when.
use std::cmp::Ordering;
use std::collections::BTreeMap;

use replication::catalog::{CatalogAsk, VolumeObject};
use replication::client::{
    Answer, Command, CommandAnswer, CommandError, ConnectionId, IoError, Login, LoginError,
    Request, RequestId,
};
use replication::replica::LinkId;
use replication::target::Begin;
use replication::words::{Boot, NodeId, Start};

use super::books::{Asked, Found};
use super::faults::Trap;
use super::group::Step;
use super::links::Link;
use crate::quorum::clients::{Time, VolumeNo};
use crate::quorum::wire::Frame;

/// One run of a target: where, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunAt {
    pub node: NodeId,
    pub run: Boot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Target,
    Replica,
}

/// What a client says to a front end.
#[derive(Debug)]
pub(super) enum Said {
    Login(Login),
    Request(RequestId, Request),
    Gone,
}

/// What a front end says to a client.
#[derive(Debug)]
pub(super) enum Heard {
    LoggedIn(Result<(), LoginError>),
    Answer(RequestId, Result<Answer, IoError>),
    Lost,
}

#[derive(Debug)]
pub(super) enum What {
    Tick {
        node: NodeId,
        boot: Boot,
    },
    Poll {
        node: NodeId,
        boot: Boot,
    },
    Restart {
        node: NodeId,
    },
    ReplicaTurn {
        node: NodeId,
        volume: VolumeNo,
    },
    TargetTurn {
        run: RunAt,
        volume: VolumeNo,
    },
    LinkUp {
        link: LinkId,
    },
    Arrive {
        link: LinkId,
        frame: Frame,
    },
    LinkLost {
        link: LinkId,
        side: Side,
    },
    CatalogAsked {
        volume: VolumeNo,
        from: RunAt,
        ask: CatalogAsk,
        asked: Asked,
    },
    CatalogTold {
        volume: VolumeNo,
        to: RunAt,
        asked: Asked,
        found: Found,
    },
    /// A node's watch tells of an object.
    Watched {
        node: NodeId,
        boot: Boot,
        volume: VolumeNo,
        object: Box<VolumeObject>,
    },
    /// A process that started looks for the catalog.
    Listen {
        node: NodeId,
        boot: Boot,
        tries: u32,
    },
    Resume {
        node: NodeId,
        boot: Boot,
    },
    CatalogBack,
    /// An operator looks at a volume whose catalog went back.
    Operator {
        volume: VolumeNo,
    },
    /// The catalog has an object again.
    ObjectBack {
        volume: VolumeNo,
    },
    Control,
    StartTarget {
        node: NodeId,
        volume: VolumeNo,
        begin: Begin,
        above: Start,
        /// The node asks the catalog first, as it does when control wants it to start.
        fetch: bool,
    },
    Fault {
        index: usize,
    },
    Strike {
        node: NodeId,
        trap: Trap,
    },
    DiskHeals {
        node: NodeId,
    },
    /// A process has a pool that failed.
    DeviceFailed {
        node: NodeId,
        boot: Boot,
    },
    /// A process stops in its next turn.
    Stall {
        node: NodeId,
    },
    /// A process that stalled inside a turn goes on.
    GoOn {
        node: NodeId,
    },
    /// The snapshot of a clone is marked: its copies are made.
    MakeClone,
    /// The target of a volume is started again.
    StartAnew {
        volume: VolumeNo,
    },
    /// The voters of a volume vanish, but for those that are to be left.
    QuorumGoes {
        volume: VolumeNo,
    },
    /// An operator looks after a volume that lost its quorum.
    Recover {
        volume: VolumeNo,
    },
    /// A target dies in the middle of what an operator does.
    Interrupt {
        run: RunAt,
        volume: VolumeNo,
    },
    Sample,
    Group(Step),
    ClientWake,
    ToFrontEnd {
        connection: ConnectionId,
        said: Said,
    },
    ToClient {
        connection: ConnectionId,
        said: Heard,
    },
    Commanded {
        volume: VolumeNo,
        to: RunAt,
        id: RequestId,
        command: Command,
    },
    CommandAnswered {
        volume: VolumeNo,
        id: RequestId,
        result: Result<CommandAnswer, CommandError>,
    },
    Heal,
    StopClients,
    End,
}

impl What {
    /// The node whose process has to run for it.
    pub(super) fn node(&self, links: &BTreeMap<LinkId, Link>) -> Option<NodeId> {
        let end = |link: &LinkId, side: Side| links.get(link).map(|link| link.node(side));
        match self {
            What::Tick { node, .. } | What::Poll { node, .. } | What::GoOn { node } => Some(*node),
            What::ReplicaTurn { node, .. } => Some(*node),
            What::TargetTurn { run, .. } => Some(run.node),
            What::LinkUp { link } => end(link, Side::Target),
            What::Arrive { link, frame } => {
                end(link, if frame.is_to_replica() { Side::Replica } else { Side::Target })
            }
            What::LinkLost { link, side } => end(link, *side),
            What::CatalogTold { to, .. } | What::Commanded { to, .. } => Some(to.node),
            What::StartTarget { node, .. } | What::Watched { node, .. } => Some(*node),
            What::Listen { node, .. } | What::Resume { node, .. } => Some(*node),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Queued {
    pub at: Time,
    pub serial: u64,
    pub what: What,
}

impl Ord for Queued {
    fn cmp(&self, other: &Queued) -> Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Queued) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Queued {
    fn eq(&self, other: &Queued) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Queued {}
