//! What is asked of a shard from outside, and what it tells.
use block::ByteLen;
use engine::{BlockSize, Compression};
use replication::catalog::{CatalogAnswer, CatalogAsk};
use replication::client::{Answer as IoAnswer, RequestId};
use replication::client::{
    Command, CommandAnswer, CommandError, ConnectionId, IoError, LoginError,
};
use replication::membership::Membership;
use replication::replica::{Event as ReplicaEvent, WipeRefusal};
use replication::state::Origin;
use replication::store::StoreError;
use replication::target::{Begin, Event, Stopped};
use replication::words::{
    Boot, Incarnation, Moment, ReplicaId, SnapshotUid, Span, Start, VolumeUid,
};
use thiserror::Error;
use tracing::{info, warn};

use super::Shard;
use super::asks::Asker;
use super::extents::{Extents, ExtentsAsk};
use super::status::{Pulse, ReplicaStatus, ShardStatus, TargetStatus};
use super::volumes::VolumeNo;
use crate::records::{NodeBook, VolumeRecord};
use crate::store::{Cut, Missing};

/// How long targets, and then replicas, may take to close before the process ends without them.
const CLOSE_PATIENCE: Span = Span::secs(10);

/// Why an order was refused.
#[derive(Clone, Debug, Error)]
pub enum Refusal {
    #[error("there is no pool `{pool}` on this node")]
    UnknownPool { pool: String },
    #[error("the volume has a replica here already")]
    ReplicaExists,
    #[error("the replica is being made; try again when it is there")]
    BeingMade,
    #[error("the volume has no replica here")]
    NoReplica,
    #[error("the volume's target runs here already")]
    TargetRuns,
    #[error("the volume's record changed meanwhile; try again")]
    OldRecord,
    #[error("the volume's target does not run here")]
    NoTarget,
    #[error("the replica keeps its content: {0}")]
    Wipe(WipeRefusal),
    #[error(transparent)]
    Store(StoreError),
    #[error(transparent)]
    Command(CommandError),
    #[error(transparent)]
    Missing(Missing),
    #[error("the node is about to end")]
    Ending,
}

/// Who waits for the end of an order.
pub type Answer<T> = Box<dyn FnOnce(Result<T, Refusal>) + Send>;
pub type CommandResult = Result<CommandAnswer, CommandError>;
/// Called for each answer to a command; a cut has two.
pub type Reply = Box<dyn Fn(Result<CommandAnswer, Refusal>) + Send>;

pub struct CommandReply(pub Reply);

impl CommandReply {
    /// Whether it was the last answer.
    pub fn answer(&self, result: CommandResult) -> bool {
        let last = !matches!(result, Ok(CommandAnswer::CutAt { .. }));
        (self.0)(result.map_err(Refusal::Command));
        last
    }

    pub fn refuse(&self, refusal: Refusal) {
        (self.0)(Err(refusal));
    }
}

/// A replica that is to be made.
#[derive(Clone, Debug)]
pub struct ReplicaSpec {
    pub volume: VolumeUid,
    pub name: String,
    pub pool: String,
    pub size: ByteLen,
    pub block_size: BlockSize,
    pub compression: Compression,
    pub incarnation: Incarnation,
    /// Operations that it may have under way at once; `None`: as many as the engine takes.
    pub workers: Option<usize>,
    /// The snapshot that it begins as; `None`: it begins empty.
    pub origin: Option<Origin>,
}

pub enum Order {
    CreateReplica {
        spec: ReplicaSpec,
        answer: Answer<Incarnation>,
    },
    DeleteReplica {
        volume: VolumeUid,
        replica: ReplicaId,
        incarnation: Incarnation,
        /// As the catalog has it now.
        membership: Membership,
        answer: Answer<()>,
    },
    /// A snapshot as the replica here has it.
    ReplicaSnapshot {
        volume: VolumeUid,
        snapshot: SnapshotUid,
        answer: Answer<Cut>,
    },
    /// What a snapshot of the replica here has, or how it differs from another.
    Extents {
        ask: ExtentsAsk,
        answer: Answer<Extents>,
    },
    StartTarget {
        record: Box<VolumeRecord>,
        begin: Begin,
        answer: Answer<()>,
    },
    Command {
        volume: VolumeUid,
        command: Command,
        reply: Reply,
    },
    /// The catalog's answer to a question of this run of a target.
    Catalog {
        volume: VolumeUid,
        run: Boot,
        answer: CatalogAnswer,
    },
    /// The record of a volume changed.
    Record(Box<VolumeRecord>),
    Nodes(NodeBook),
    Status(Box<dyn FnOnce(ShardStatus) + Send>),
    /// Of all volumes, or of one.
    Targets {
        of: Option<VolumeUid>,
        tell: Box<dyn FnOnce(Vec<TargetStatus>) + Send>,
    },
    Replicas {
        of: Option<VolumeUid>,
        tell: Box<dyn FnOnce(Vec<ReplicaStatus>) + Send>,
    },
    /// What is asked every second.
    Pulse(Box<dyn FnOnce(Pulse) + Send>),
    /// Closes targets, then replicas, then ends the loop.
    End,
}

/// What a shard tells whoever talks to the catalog.
#[derive(Clone, Debug)]
pub enum Report {
    Catalog {
        volume: VolumeUid,
        name: String,
        run: Boot,
        ask: CatalogAsk,
    },
    Stopped {
        volume: VolumeUid,
        run: Boot,
        reason: Stopped,
    },
    /// Its device may have lost what it completed: that has to outlive this process (P8).
    PoolFailed {
        uuid: [u8; 16],
    },
}

/// How far the end has come.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    Targets { until: Moment },
    Replicas { until: Moment },
    Ended,
}

impl Shard {
    pub(super) fn take_orders(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            self.obey(order);
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::CreateReplica { answer, .. } if self.ending.is_some() => {
                answer(Err(Refusal::Ending));
            }
            Order::StartTarget { answer, .. } if self.ending.is_some() => {
                answer(Err(Refusal::Ending));
            }
            Order::CreateReplica { spec, answer } => self.create_replica(spec, answer),
            Order::DeleteReplica { volume, replica, incarnation, membership, answer } => {
                self.delete_replica(volume, (replica, incarnation), &membership, answer);
            }
            Order::ReplicaSnapshot { volume, snapshot, answer } => {
                answer(self.replica_snapshot(volume, snapshot));
            }
            Order::Extents { ask, answer } => self.extents(ask, answer),
            Order::StartTarget { record, begin, answer } => {
                answer(self.start_target(*record, begin, Start(0)));
            }
            Order::Command { volume, command, reply } => self.command(volume, command, reply),
            Order::Catalog { volume, run, answer } => self.catalog_says(volume, run, answer),
            Order::Record(record) => self.record_changed(*record),
            Order::Nodes(nodes) => self.nodes = nodes,
            Order::Status(tell) => tell(self.status()),
            Order::Targets { of, tell } => tell(self.target_statuses(of)),
            Order::Replicas { of, tell } => tell(self.replica_statuses(of)),
            Order::Pulse(tell) => tell(self.pulse()),
            Order::End => self.begin_ending(),
        }
    }

    fn command(&mut self, volume: VolumeUid, command: Command, reply: Reply) {
        let reply = CommandReply(reply);
        let id = RequestId(self.numbers.next());
        let number = self.volumes.known(volume);
        let target = number.and_then(|number| self.volumes.target(number));
        let (Some(number), Some(target)) = (number, target) else {
            return reply.refuse(Refusal::NoTarget);
        };
        target.commands.insert(id, reply);
        self.tell_target(number, Event::Command { id, command });
    }

    pub(super) fn logged_in(
        &mut self,
        number: VolumeNo,
        connection: ConnectionId,
        asker: Asker,
        result: Result<(), LoginError>,
    ) {
        if let Err(error) = &result {
            let target = self.volumes.get(number).target.as_ref();
            let volume = target.map_or("", |target| &target.record.name[..]);
            let what = format!("{volume} {error}");
            if let Some(before) = self.complaints.due("login", &what, self.now) {
                warn!(volume, connection = connection.0, %error, before, "a login is refused");
            }
        }
        match asker {
            Asker::Nbd { line } => self.nbd_logged_in(line, number, result),
            Asker::Iscsi { nexus } => self.iscsi_logged_in(nexus, number, result),
        }
    }

    pub(super) fn replied(
        &mut self,
        asker: Asker,
        id: RequestId,
        result: Result<IoAnswer, IoError>,
    ) {
        match asker {
            Asker::Nbd { line } => self.nbd_replied(line, id, result),
            Asker::Iscsi { nexus } => self.iscsi_replied(nexus, id, result),
        }
    }

    /// A login waits as long as IO does (P6), and then fails: whoever mounts is told something.
    pub(super) fn expire_logins(&mut self) {
        let now = self.now;
        let numbers: Vec<VolumeNo> = self.volumes.numbers().collect();
        for number in numbers {
            let Some(target) = self.volumes.target(number) else { continue };
            let patience = target.record.hold_deadline;
            let late: Vec<(ConnectionId, Asker)> = target
                .users
                .iter()
                .filter(|(_, user)| !user.is_in && now >= user.since + patience)
                .map(|(connection, user)| (*connection, user.asker))
                .collect();
            for (connection, asker) in late {
                if let Some(target) = self.volumes.target(number) {
                    target.users.remove(&connection);
                }
                self.tell_target(number, Event::Gone { connection });
                self.logged_in(number, connection, asker, Err(LoginError::Stopped));
            }
        }
    }

    /// Users are told when their volume has grown, at once: who asks for its size over another connection uses
    /// the new one on this.
    pub(super) fn tell_size(&mut self, number: VolumeNo) {
        let Some(target) = self.volumes.target(number) else { return };
        let size = target.machine.size();
        if std::mem::replace(&mut target.told, size) == size {
            return;
        }
        let askers: Vec<Asker> = target.users.values().map(|user| user.asker).collect();
        for asker in askers {
            if let Asker::Nbd { line } = asker {
                self.nbd_resized(line, size);
            }
        }
        self.step_unit(number, frontend::scsi::Event::Resized { size });
    }

    /// The target is gone, and with it what its users had open.
    pub(super) fn turn_away(&mut self, asker: Asker, name: &str) {
        match asker {
            Asker::Iscsi { nexus } => self.iscsi_turn_away(nexus, name),
            Asker::Nbd { line } => self.close_line(line, "the volume is not served here any more"),
        }
    }

    fn begin_ending(&mut self) {
        if self.ending.is_some() {
            return;
        }
        info!("closing targets");
        self.ending = Some(Ending::Targets { until: self.now + CLOSE_PATIENCE });
        self.doors.clear();
        let numbers: Vec<VolumeNo> = self.volumes.numbers().collect();
        for number in numbers {
            let id = RequestId(self.numbers.next());
            self.tell_target(number, Event::Command { id, command: Command::Close });
        }
    }

    pub(super) fn go_on_ending(&mut self) {
        let numbers: Vec<VolumeNo> = self.volumes.numbers().collect();
        match self.ending {
            Some(Ending::Targets { until }) => {
                let closed = numbers.iter().all(|it| self.volumes.get(*it).target.is_none());
                if closed || self.now >= until {
                    info!(closed, "closing replicas");
                    self.ending = Some(Ending::Replicas { until: self.now + CLOSE_PATIENCE });
                    numbers.iter().for_each(|it| self.tell_replica(*it, ReplicaEvent::Close));
                }
            }
            Some(Ending::Replicas { until }) => {
                let is_closed = |it: &VolumeNo| {
                    self.volumes.get(*it).replica.as_ref().is_none_or(|replica| replica.closed)
                };
                let closed = numbers.iter().all(is_closed);
                if closed || self.now >= until {
                    info!(closed, "everything is closed");
                    self.ending = Some(Ending::Ended);
                }
            }
            Some(Ending::Ended) | None => {}
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.ending, Some(Ending::Ended))
    }
}
