//! The targets of this node: their machines between front ends, links and the catalog.
use std::collections::HashMap;

use block::ByteLen;
use frontend::scsi::words::Rights;
use replication::catalog::CatalogAnswer;
use replication::client::{ConnectionId, Login, RequestId};
use replication::message::{ForReplica, ForTarget, encode_to_replica};
use replication::replica::{Event as ReplicaEvent, LinkId};
use replication::target::starting::{self, Starting};
use replication::target::{Begin, Config, Event, Output, Stopped, Target};
use replication::words::{Boot, Moment, ReplicaId, Start, VolumeUid};
use tracing::{info, warn};

use super::Shard;
use super::asks::Asker;
use super::iscsi::DiskUnit;
use super::journal::Logged;
use super::orders::{CommandReply, Refusal, Report};
use super::replicas::End;
use super::status::Protocol;
use super::volumes::VolumeNo;
use crate::records::VolumeRecord;

/// How a target reaches a replica.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub replica: ReplicaId,
    pub end: End,
}

/// Who is logged in, or about to be.
#[derive(Clone, Debug)]
pub struct User {
    pub asker: Asker,
    pub protocol: Protocol,
    pub initiator: String,
    pub address: String,
    pub login: Login,
    pub rights: Rights,
    pub since: Moment,
    pub is_in: bool,
    pub under_way: usize,
}

pub struct TargetRun {
    pub machine: Target,
    /// This run of the machine; answers of the catalog to an older one are not for it.
    pub run: Boot,
    pub record: VolumeRecord,
    pub events: Vec<Event>,
    pub links: HashMap<LinkId, Link>,
    /// Connections that are being made, by replica.
    pub calling: HashMap<ReplicaId, usize>,
    pub users: HashMap<ConnectionId, User>,
    pub since: Moment,
    /// How it and its replicas stood when the log was last told.
    pub logged: Logged,
    /// The size that its users know.
    pub told: ByteLen,
    /// The volume as a disk, once a session wanted it.
    pub unit: Option<Box<DiskUnit>>,
    pub commands: HashMap<RequestId, CommandReply>,
    out: Vec<Output>,
}

impl Shard {
    pub(super) fn start_target(
        &mut self,
        record: VolumeRecord,
        begin: Begin,
        above: Start,
    ) -> Result<(), Refusal> {
        let number = self.volumes.number(record.uid);
        let volume = self.volumes.get(number);
        let known = Some(volume.newest());
        match starting::start(volume.target.is_some(), known, &record.object, begin) {
            Starting::Runs { take_over } => {
                // The caller has read the catalog just now: when it is answered, no session without rights is left.
                self.record_changed(record);
                if take_over {
                    self.tell_target(number, Event::TakeOver);
                }
                return Err(Refusal::TargetRuns);
            }
            Starting::OldRecord => return Err(Refusal::OldRecord),
            Starting::Begin => {}
        }
        self.volumes.get_mut(number).hear(&record.object);
        let run = Boot(self.config.boot.0.wrapping_add(self.numbers.next()));
        let here = self.config.node;
        let has_copy = self.volumes.get(number).replica.is_some();
        let mut places = record.places.iter();
        let local = places.find(|(_, node)| **node == here).map(|(id, _)| *id);
        let config = Config {
            local: local.filter(|_| has_copy),
            hold_deadline: record.hold_deadline,
            start_above: above,
            ..Config::new(here, run)
        };
        let mut out = Vec::new();
        let machine = Target::begin(config, begin, self.now, &mut out);
        info!(volume = record.name, ?begin, "target starts");
        self.volumes.get_mut(number).target = Some(TargetRun {
            machine,
            run,
            record,
            events: Vec::new(),
            links: HashMap::new(),
            calling: HashMap::new(),
            users: HashMap::new(),
            since: self.now,
            logged: Logged::default(),
            told: ByteLen(0),
            unit: None,
            commands: HashMap::new(),
            out,
        });
        self.carry_target(number);
        Ok(())
    }

    pub(super) fn tick_machines(&mut self) {
        for number in self.volumes.numbers() {
            let run = self.volumes.get_mut(number);
            if let Some(replica) = &mut run.replica {
                replica.events.push(ReplicaEvent::Tick);
            }
            if let Some(target) = &mut run.target {
                target.events.push(Event::Tick);
            }
            self.volumes.wake(number);
        }
    }

    pub(super) fn tell_target(&mut self, number: VolumeNo, event: Event) {
        if let Some(target) = self.volumes.target(number) {
            target.events.push(event);
            self.volumes.wake(number);
        }
    }

    pub(super) fn tell_local_target(&mut self, number: VolumeNo, link: LinkId, message: ForTarget) {
        let Some(target) = self.volumes.target(number) else { return };
        let Some(Link { replica, .. }) = target.links.get(&link).copied() else { return };
        self.tell_target(number, Event::Message { replica, link, message });
    }

    /// The replica of this node let go of the target of this node.
    pub(super) fn local_link_lost(&mut self, number: VolumeNo, link: LinkId) {
        let Some(target) = self.volumes.target(number) else { return };
        if let Some(Link { replica, .. }) = target.links.remove(&link) {
            self.tell_target(number, Event::LinkLost { replica, link });
        }
    }

    pub(super) fn run_target(&mut self, number: VolumeNo) {
        let now = self.now;
        let Some(target) = self.volumes.target(number) else { return };
        target.machine.step_all(now, &mut target.events, &mut target.out);
        self.tell_size(number);
        self.carry_target(number);
    }

    fn carry_target(&mut self, number: VolumeNo) {
        let Some(target) = self.volumes.target(number) else { return };
        let mut out = std::mem::take(&mut target.out);
        for output in out.drain(..) {
            self.carry(number, output);
        }
        if let Some(target) = self.volumes.target(number) {
            target.out = out;
        }
    }

    fn carry(&mut self, number: VolumeNo, output: Output) {
        let Some(target) = self.volumes.target(number) else { return };
        match output {
            Output::Catalog(ask) => {
                let (volume, run) = (target.record.uid, target.run);
                let name = target.record.name.clone();
                (self.report)(Report::Catalog { volume, name, run, ask });
            }
            Output::Connect { replica } => self.connect(number, replica),
            Output::Disconnect { link, .. } => self.target_drops(number, link),
            Output::Send { link, message, .. } => self.target_says(number, link, message),
            Output::LoggedIn { connection, result } => {
                if let Some(user) = target.users.get_mut(&connection) {
                    let asker = user.asker;
                    user.is_in = true;
                    if result.is_err() {
                        target.users.remove(&connection);
                    }
                    self.logged_in(number, connection, asker, result);
                }
            }
            Output::Reply { connection, id, result } => {
                if let Some(user) = target.users.get_mut(&connection) {
                    user.under_way = user.under_way.saturating_sub(1);
                    let asker = user.asker;
                    self.replied(asker, id, result);
                }
            }
            Output::Answer { id, result } => self.command_answered(number, id, result),
            Output::Stopped { reason } => self.target_stopped(number, reason),
        }
    }

    /// A command may be answered twice: where a cut lies, and when it is durable.
    fn command_answered(
        &mut self,
        number: VolumeNo,
        id: RequestId,
        result: super::orders::CommandResult,
    ) {
        let Some(target) = self.volumes.target(number) else { return };
        if let Some(reply) = target.commands.get(&id) {
            let last = reply.answer(result);
            if last {
                target.commands.remove(&id);
            }
        }
    }

    fn target_says(&mut self, number: VolumeNo, link: LinkId, message: ForReplica) {
        let Some(target) = self.volumes.target(number) else { return };
        match target.links.get(&link).map(|link| link.end) {
            Some(End::Here) => self.tell_replica(number, ReplicaEvent::Message { link, message }),
            Some(End::Line(line)) => self.send_frame(line, encode_to_replica(&message)),
            None => {}
        }
    }

    fn target_drops(&mut self, number: VolumeNo, link: LinkId) {
        let end = self.volumes.target(number).and_then(|target| target.links.remove(&link));
        match end.map(|link| link.end) {
            Some(End::Here) => {
                if let Some(replica) = self.volumes.replica(number) {
                    replica.links.remove(&link);
                }
                self.tell_replica(number, ReplicaEvent::LinkLost { link });
            }
            Some(End::Line(line)) => {
                self.close_line(line, "the target begins anew with the replica")
            }
            None => {}
        }
    }

    fn connect(&mut self, number: VolumeNo, replica: ReplicaId) {
        let here = self.config.node;
        let link = LinkId(self.numbers.next());
        let run = self.volumes.get_mut(number);
        let Some(target) = run.target.as_mut() else { return };
        let Some(node) = target.record.places.get(&replica).copied() else { return };
        if node != here {
            if !target.calling.contains_key(&replica) {
                self.call(number, replica, node, link);
            }
            return;
        }
        if let Some(local) = run.replica.as_mut() {
            local.links.insert(link, End::Here);
            target.links.insert(link, Link { replica, end: End::Here });
            self.tell_target(number, Event::LinkUp { replica, link });
        }
    }

    fn target_stopped(&mut self, number: VolumeNo, reason: Stopped) {
        let Some(target) = self.volumes.get_mut(number).target.take() else { return };
        info!(volume = target.record.name, ?reason, "target ends");
        for (link, Link { end, .. }) in target.links {
            match end {
                End::Here => {
                    if let Some(replica) = self.volumes.replica(number) {
                        replica.links.remove(&link);
                    }
                    self.tell_replica(number, ReplicaEvent::LinkLost { link });
                }
                End::Line(line) => self.close_line(line, "the target has ended"),
            }
        }
        target.calling.into_values().for_each(|line| self.close_line(line, "the target has ended"));
        for user in target.users.into_values() {
            self.turn_away(user.asker, &target.record.name);
        }
        for reply in target.commands.into_values() {
            reply.refuse(Refusal::NoTarget);
        }
        let (volume, run) = (target.record.uid, target.run);
        let again = starting::restart(&reason);
        (self.report)(Report::Stopped { volume, run, reason });
        if let Some((begin, above)) = again
            && let Err(refusal) = self.start_target(target.record, begin, above)
        {
            warn!(%refusal, "the target does not start again");
        }
    }

    /// An answer of the catalog, or news of it.
    pub(super) fn catalog_says(&mut self, volume: VolumeUid, run: Boot, answer: CatalogAnswer) {
        let Some(number) = self.volumes.known(volume) else { return };
        let current = self.volumes.target(number).is_some_and(|target| target.run == run);
        if current {
            self.tell_target(number, Event::Catalog(answer));
        }
    }

    /// A record of a volume: from a watch, or from a caller that has read the catalog. These overtake one another, so an
    /// older record is dropped: it would give a host back what was taken from it.
    pub(super) fn record_changed(&mut self, record: VolumeRecord) {
        let Some(number) = self.volumes.known(record.uid) else { return };
        if !self.volumes.get_mut(number).hear(&record.object) {
            return;
        }
        self.bound_workers(number, record.workers);
        let Some(target) = self.volumes.target(number) else { return };
        let answer = CatalogAnswer::Object(Box::new(record.object.clone()));
        target.record = record;
        self.judge_users(number);
        self.tell_target(number, Event::Catalog(answer));
    }
}
