//! Targets: started by control, stepped by everything, and gone with their node or alone.
use block::Term;
use replication::catalog::{CatalogAnswer, CatalogAsk};
use replication::message::ToReplica;
use replication::target::starting::{self, Starting};
use replication::target::{Begin, Config, Event, Output, Stopped, Target};
use replication::words::{Boot, Moment, NodeId, ReplicaId, Span, Start};

use super::books::Asked;
use super::event::{Heard, RunAt, Side, What};
use super::{World, replica_id};
use crate::quorum::clients::VolumeNo;
use crate::quorum::wire::Parcel;

pub(super) struct TargetRun {
    pub machine: Target,
    pub run: Boot,
    /// What came for it, and waits for its turn.
    pub came: Vec<Event>,
    /// What it claimed last.
    pub term: Option<Term>,
    /// It has asked the catalog something.
    asked: bool,
    pub since: Moment,
    /// Since when too few voters answer it, as its node last saw.
    pub without_quorum: Option<Moment>,
}

impl World {
    pub(super) fn start_target(
        &mut self,
        id: NodeId,
        volume: VolumeNo,
        (begin, above): (Begin, Start),
        fetch: bool,
    ) {
        if !self.nodes[&id].is_up() {
            return;
        }
        if fetch {
            let present = self.catalog.find(volume).cloned();
            let Some(present) = present.filter(|_| self.reaches_catalog(id)) else {
                self.note("start without the catalog refused");
                return;
            };
            self.learn(id, volume, &present);
        }
        let node = &self.nodes[&id];
        let Some(record) = node.books.get(&volume).cloned() else { return };
        let runs = node.targets.contains_key(&volume);
        match starting::start(runs, Some(&record), &record, begin) {
            Starting::Runs { take_over } => {
                let answer = CatalogAnswer::Object(Box::new(record));
                self.step_target(id, volume, Event::Catalog(answer));
                if take_over {
                    self.note("takeover where a run is already");
                    self.step_target(id, volume, Event::TakeOver);
                }
                return;
            }
            Starting::OldRecord => return,
            Starting::Begin => {}
        }
        let run = self.boot();
        let now = self.now;
        let node = self.nodes.get_mut(&id).expect("a node");
        let config = Config {
            node: id,
            run,
            local: node.pool.has(volume).then(|| replica_id(id, volume)),
            hold_deadline: Span::secs(60),
            backlog: self.plan.backlog,
            start_above: above,
            catch_up_rate: 0,
        };
        let mut out = Vec::new();
        let mut machine = Target::begin(config, begin, node.moment(now), &mut out);
        self.plan.off.target(&mut machine);
        let since = node.moment(now);
        let started = TargetRun {
            machine,
            run,
            came: Vec::new(),
            term: None,
            asked: false,
            since,
            without_quorum: None,
        };
        node.targets.insert(volume, started);
        self.note(match begin {
            Begin::Granted => "target started under its grant",
            Begin::TakeOver => "takeover",
        });
        self.say(|| format!("v{} target {id}/{} begins: {begin:?}", volume.0, run.0));
        self.observe_target(RunAt { node: id, run }, volume, &out);
        self.target_asks(RunAt { node: id, run }, volume, out);
    }

    pub(super) fn is_running(&self, at: RunAt, volume: VolumeNo) -> bool {
        let target = self.nodes.get(&at.node).and_then(|node| node.targets.get(&volume));
        target.is_some_and(|target| target.run == at.run)
    }

    /// All runs of targets of a volume, wherever.
    pub(super) fn runs(&self, volume: VolumeNo) -> Vec<RunAt> {
        let runs = self.nodes.iter().filter_map(|(id, node)| {
            node.targets.get(&volume).map(|target| RunAt { node: *id, run: target.run })
        });
        runs.collect()
    }

    /// Judges what a target says when it says it: it may leave later. A reply that leaves late is as
    /// good as one that is on its way for long, if what it answers had come before.
    pub(super) fn observe_target(&mut self, at: RunAt, volume: VolumeNo, out: &[Output]) {
        for output in out {
            match output {
                Output::Send { replica, message, .. } => {
                    self.observe_sent(at, volume, *replica, message);
                }
                Output::Reply { connection, id, result } => {
                    self.observe_reply(at, volume, (*connection, *id), result);
                }
                Output::Answer { id, result } => {
                    self.observe_answer(volume, *id, result.as_ref().err());
                }
                _ => {}
            }
        }
    }

    pub(super) fn target_asks(&mut self, at: RunAt, volume: VolumeNo, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Catalog(ask) => self.ask_catalog(at, volume, ask),
                Output::Connect { replica } => self.connect(at, volume, replica),
                Output::Disconnect { link, .. } => self.hang_up(link, Side::Target),
                Output::Send { link, message, .. } => {
                    self.send(link, Side::Target, &Parcel::ToReplica(message));
                }
                Output::LoggedIn { connection, result } => {
                    self.say(|| format!("v{} login of {}: {result:?}", volume.0, connection.0));
                    self.carry_to_client(connection, Heard::LoggedIn(result));
                }
                Output::Reply { connection, id, result } => {
                    self.carry_to_client(connection, Heard::Answer(id, result));
                }
                Output::Answer { id, result } => {
                    self.say(|| format!("v{} command {}: {result:?}", volume.0, id.0));
                    let arrival = self.soon(3_000);
                    self.push(arrival, What::CommandAnswered { volume, id, result });
                }
                Output::Stopped { reason } => self.target_stopped(at, volume, &reason),
            }
        }
    }

    fn ask_catalog(&mut self, at: RunAt, volume: VolumeNo, ask: CatalogAsk) {
        let node = self.nodes.get_mut(&at.node).expect("a node");
        let Some(target) = node.targets.get_mut(&volume) else { return };
        let first = !std::mem::replace(&mut target.asked, true);
        let before = node.books.get(&volume).cloned().map(Box::new);
        let asked = Asked { before, may_remember: starting::may_remember(first, &ask) };
        let arrival = self.soon(5_000);
        self.push(arrival, What::CatalogAsked { volume, from: at, ask, asked });
    }

    pub(super) fn term_of(&self, at: RunAt, volume: VolumeNo) -> Option<Term> {
        self.nodes[&at.node].targets.get(&volume).and_then(|target| target.term)
    }

    fn observe_sent(
        &mut self,
        at: RunAt,
        volume: VolumeNo,
        replica: ReplicaId,
        message: &replication::message::ForReplica,
    ) {
        let node = self.nodes.get_mut(&at.node).expect("a node");
        if let Some(target) = node.targets.get_mut(&volume) {
            target.term = Some(message.term);
        }
        self.observe_to_replica(volume, replica, message);
        if let ToReplica::CloseRound { round } = &message.body {
            self.judge_closed(at, volume, (replica, *round));
        }
        if let ToReplica::Recovered = &message.body {
            let judged = self.observed.recovered(volume, message.term, replica);
            judged.unwrap_or_else(|violation| self.fail(violation));
        }
    }

    fn target_stopped(&mut self, at: RunAt, volume: VolumeNo, reason: &Stopped) {
        self.say(|| format!("v{} target {}/{} ends: {reason:?}", volume.0, at.node, at.run.0));
        self.note(match reason {
            Stopped::Closed => "target closed cleanly",
            Stopped::Superseded => "target superseded",
            Stopped::Outnumbered { .. } => "target outnumbered",
            Stopped::NoVolume => "target without a volume",
        });
        // Q1: what is missing without the mark of its deletion is not obeyed; nothing is deleted here.
        if *reason == Stopped::NoVolume && self.term_of(at, volume).is_some() {
            self.fail(format!("Q1: the target of volume {} ended with its object", volume.0));
        }
        self.drop_target(at.node, volume);
        if let Some((begin, above)) = starting::restart(reason) {
            let again = self.soon(200_000);
            let (node, fetch) = (at.node, false);
            self.push(again, What::StartTarget { node, volume, begin, above, fetch });
        }
    }

    /// A target is gone, without a word.
    pub(super) fn drop_target(&mut self, id: NodeId, volume: VolumeNo) {
        let node = self.nodes.get_mut(&id).expect("a node");
        let Some(target) = node.targets.remove(&volume) else { return };
        let status = target.machine.status(node.moment(self.now));
        self.paths.add("reads waited for the lease", status.waiting_for_lease);
        let run = RunAt { node: id, run: target.run };
        self.links_of_run(run);
        self.clients_of_run(run);
    }

    pub(super) fn targets_die(&mut self, id: NodeId) {
        for volume in self.volumes() {
            self.drop_target(id, volume);
        }
        self.forget_books(id);
    }
}
