//! The world: one heap of events in virtual time, and everything that they happen to.
//!
//! Machines are stepped by events only, and what they ask for becomes events: nothing happens
//! inside of something else. Two events at one moment happen in the order in which they were made.
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use block::{Seq, Term};
use replication::client::ConnectionId;
use replication::replica::LinkId;
use replication::words::{Boot, NodeId, ReplicaId};

use super::check::{Observed, Traffic};
use super::clients::{Fact, Time, VolumeFacts, VolumeNo};
use super::load::Load;
use super::plan::Plan;
use super::store::Rotten;
use super::trace::Trace;
use crate::Rng;
use crate::workload::Paths;

mod books;
mod catalog;
mod clients;
mod clock;
mod clones;
mod control;
mod converge;
mod decide;
mod event;
mod faults;
mod flushes;
mod group;
mod links;
mod losses;
mod nodes;
mod probes;
mod recovery;
mod residue;
mod space;
mod stalls;
mod targets;
mod turns;
mod watch;

use catalog::Catalog;
use clients::Attached;
use clones::Cloning;
use decide::Control;
use event::{Queued, What};
use faults::Trap;
use group::Groups;
use links::Link;
use nodes::Node;
use probes::Probes;
use recovery::Losses;
use space::Space;

/// A replica's number says where it is.
pub(super) fn replica_id(node: NodeId, volume: VolumeNo) -> ReplicaId {
    ReplicaId(node.0 * 16 + volume.0 as u64)
}

pub(super) fn place_of(replica: ReplicaId) -> (NodeId, VolumeNo) {
    (NodeId(replica.0 / 16), VolumeNo((replica.0 % 16) as usize))
}

/// Operations that every world has at the least, and how long its clients go on for them.
const OPERATIONS_MIN: u64 = 510;
const LONGER: u64 = 5_000_000;
const LONGER_MAX: u64 = 120_000_000;

/// Events of a world that goes round in circles without time passing.
const EVENTS_MAX: u64 = 3_000_000;

pub struct World {
    plan: Plan,
    now: Time,
    heap: BinaryHeap<Reverse<Queued>>,
    serial: u64,
    rng: Rng,
    nodes: BTreeMap<NodeId, Node>,
    links: BTreeMap<LinkId, Link>,
    attached: BTreeMap<ConnectionId, Attached>,
    /// From, to, until when: nothing gets through.
    walls: Vec<(NodeId, NodeId, Time)>,
    slow_links_until: Time,
    corrupt_next: bool,
    /// A fault that strikes when something is said.
    armed: Option<Trap>,
    catalog: Catalog,
    control: Control,
    groups: Groups,
    probes: Probes,
    space: Space,
    clients: Load,
    /// When the clients are woken next.
    clients_wake: Time,
    observed: Observed,
    traffic: Traffic,
    /// The newest entry that was sent to each copy.
    sent: BTreeMap<ReplicaId, (Term, Seq)>,
    /// Nothing bad happens any more.
    healed: bool,
    /// Granules of which one copy was made to rot, and where: no other copy's may.
    rotten: BTreeMap<(VolumeNo, u64), (NodeId, Rotten)>,
    /// Volumes that lost their quorum for good.
    losses: Losses,
    cloning: Option<Cloning>,
    numbers: u64,
    pub paths: Paths,
    trace: Trace,
    failure: Option<String>,
}

/// How a world ended.
pub struct Outcome {
    pub paths: Paths,
    pub operations: u64,
    pub violation: Option<String>,
}

impl World {
    pub fn new(plan: Plan, clients: Load, trace: Trace) -> World {
        let mut rng = Rng::new(plan.seed);
        let mut world = World {
            now: Time(0),
            heap: BinaryHeap::new(),
            serial: 0,
            nodes: BTreeMap::new(),
            links: BTreeMap::new(),
            attached: BTreeMap::new(),
            walls: Vec::new(),
            slow_links_until: Time(0),
            corrupt_next: false,
            armed: None,
            catalog: Catalog::default(),
            control: Control::default(),
            groups: Groups::default(),
            probes: Probes::default(),
            space: Space::default(),
            clients,
            clients_wake: Time(0),
            observed: Observed::new(&plan),
            traffic: Traffic::default(),
            sent: BTreeMap::new(),
            healed: false,
            rotten: BTreeMap::new(),
            losses: Losses::default(),
            cloning: None,
            numbers: 0,
            paths: Paths::default(),
            trace,
            failure: None,
            rng: rng.fork(),
            plan,
        };
        world.found(&mut rng);
        world
    }

    /// Nodes, volumes and the first of all events.
    fn found(&mut self, rng: &mut Rng) {
        for no in 1..=self.plan.nodes as u64 {
            let node = Node::new(NodeId(no), &self.plan, rng);
            self.nodes.insert(NodeId(no), node);
        }
        let facts: Vec<VolumeFacts> = (0..self.plan.volumes.len())
            .map(|no| {
                let plan = &self.plan.volumes[no];
                VolumeFacts {
                    volume: VolumeNo(no),
                    size: plan.size,
                    block_size: plan.block_size,
                    granule: plan.block_size.max(4096),
                }
            })
            .collect();
        for fact in &facts {
            self.found_volume(fact.volume);
        }
        for node in self.node_ids() {
            self.start_node(node);
        }
        self.clients.begin(&facts, rng.fork());
        self.push(Time(1), What::Control);
        self.push(Time(2), What::ClientWake);
        self.push(self.plan.heals, What::Heal);
        self.push(self.plan.stops, What::StopClients);
        for index in 0..self.plan.faults.len() {
            self.plan_fault(index);
        }
        self.plan_sample();
    }

    pub fn run(mut self) -> Outcome {
        let mut events = 0;
        while let Some(Reverse(queued)) = self.heap.pop() {
            self.now = queued.at;
            if matches!(queued.what, What::End) {
                self.end();
                break;
            }
            self.happen(queued.what);
            events += 1;
            if events > EVENTS_MAX {
                self.fail("the world goes round in circles".to_owned());
            }
            if let Some(violation) = self.clients.violation().cloned() {
                self.fail(violation);
            }
            if self.failure.is_some() {
                break;
            }
        }
        self.paths.add("events", events);
        for (name, count) in self.clients.paths() {
            self.paths.add(name, count);
        }
        Outcome {
            operations: self.clients.operations(),
            violation: self
                .failure
                .map(|what| format!("at {} ms ({}): {what}", self.now.0 / 1000, self.plan.shown())),
            paths: self.paths,
        }
    }

    fn happen(&mut self, what: What) {
        // What happens on a paused node happens later, in the same order.
        if let Some(until) =
            what.node(&self.links).and_then(|node| self.nodes[&node].paused(self.now))
        {
            self.push(until, what);
            return;
        }
        if let Some(node) = what.node(&self.links) {
            self.send_unsent(node);
        }
        match what {
            What::Tick { node, boot } => self.tick(node, boot),
            What::Poll { node, boot } => self.poll(node, boot),
            What::Restart { node } => self.start_node(node),
            What::LinkUp { link } => self.link_up(link),
            What::Arrive { link, frame } => self.arrive(link, &frame),
            What::LinkLost { link, side } => self.link_lost(link, side),
            What::CatalogAsked { volume, from, ask, asked } => {
                self.catalog_asked(volume, from, ask, asked);
            }
            What::CatalogTold { volume, to, asked, found } => {
                self.catalog_told(volume, to, asked, found);
            }
            What::Watched { node, boot, volume, object } => {
                self.watched(node, boot, volume, object);
            }
            What::Listen { node, boot, tries } => self.listen(node, boot, tries),
            What::Resume { node, boot } => self.resume_targets(node, boot),
            What::CatalogBack => {
                self.catalog.away = false;
                self.disturb_all(self.now);
            }
            What::Operator { volume } => self.operate(volume),
            What::ObjectBack { volume } => self.object_back(volume),
            What::Control => self.control_wakes(),
            What::StartTarget { node, volume, begin, above, fetch } => {
                self.start_target(node, volume, (begin, above), fetch);
            }
            What::Fault { index } => self.fault(index),
            What::Strike { node, trap } => self.strike(node, trap),
            What::DiskHeals { node } => self.disk_heals(node),
            What::DeviceFailed { node, boot } => self.device_failed(node, boot),
            What::Stall { node } => self.stall(node),
            // What it had to send was sent before.
            What::GoOn { .. } => {}
            What::ReplicaTurn { node, volume } => self.replica_turn(node, volume),
            What::TargetTurn { run, volume } => self.target_turn(run, volume),
            What::StartAnew { volume } => self.start_anew(volume),
            What::QuorumGoes { volume } => self.lose_others(volume),
            What::MakeClone => self.make_clone(),
            What::Recover { volume } => self.recover(volume),
            What::Interrupt { run, volume } => self.interrupt(run, volume),
            What::Sample => self.sample(),
            What::Group(step) => self.group_step(step),
            What::ClientWake => self.wake_clients(),
            What::ToFrontEnd { connection, said } => self.arrive_at_front_end(connection, said),
            What::ToClient { connection, said } => self.arrive_at_client(connection, said),
            What::Commanded { volume, to, id, command } => self.commanded(volume, to, id, command),
            What::CommandAnswered { volume, id, result } => {
                self.command_answered(volume, id, result);
            }
            What::Heal => self.heal(),
            What::StopClients => self.stop_clients(),
            What::End => {}
        }
    }

    /// Where clients were held up for long they go on for a while, so that every world has load.
    fn stop_clients(&mut self) {
        let late = Time(self.plan.ends.0 + LONGER_MAX);
        if self.clients.operations() < OPERATIONS_MIN && self.now < late {
            return self.push(self.now.after(LONGER), What::StopClients);
        }
        self.clients.stop(self.now);
        self.stop_probing();
        self.push(self.now, What::ClientWake);
        let end = self.now.after(self.plan.ends.0 - self.plan.stops.0);
        self.push(end, What::End);
    }

    fn push(&mut self, at: Time, what: What) {
        self.serial += 1;
        let at = at.max(self.now);
        self.heap.push(Reverse(Queued { at, serial: self.serial, what }));
    }

    /// In up to this many microseconds.
    fn soon(&mut self, micros: u64) -> Time {
        self.now.after(1 + self.rng.below(micros.max(1)))
    }

    /// A number that was never used in this world.
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn boot(&mut self) -> Boot {
        Boot(self.number())
    }

    fn node_ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    fn volumes(&self) -> impl Iterator<Item = VolumeNo> + use<> {
        (0..self.plan.volumes.len()).map(VolumeNo)
    }

    fn note(&mut self, path: &'static str) {
        self.paths.add(path, 1);
    }

    fn tell(&mut self, fact: &Fact) {
        self.trace.say(self.now, || format!("fact {fact:?}"));
        self.clients.fact(fact);
    }

    fn say(&mut self, line: impl FnOnce() -> String) {
        self.trace.say(self.now, line);
    }

    fn fail(&mut self, what: String) {
        self.trace.say(self.now, || format!("VIOLATION {what}"));
        self.failure.get_or_insert(what);
    }
}
