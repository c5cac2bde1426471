//! Nodes: processes that live, sleep and die, with a clock, a pool, replicas and targets.
use std::collections::BTreeMap;

use block::ByteLen;
use replication::catalog::VolumeObject;
use replication::replica::{Event, LinkId, Output, Replica, Run};
use replication::store::StoreTag;
use replication::words::{Boot, Moment, NodeId, Powered};

use super::clock::Clock;
use super::event::{Side, What};
use super::stalls::Turn;
use super::targets::TargetRun;
use super::{World, replica_id};
use crate::Rng;
use crate::quorum::clients::{Fact, Time, VolumeNo};
#[cfg(feature = "faults")]
use crate::quorum::off::Off;
use crate::quorum::plan::Plan;
use crate::quorum::store::EnginePool;
use crate::quorum::wire::Parcel;

/// How often machines are told the time.
const TICK: u64 = 100_000;

/// What a pool sets aside for each of its copies.
const CREDIT: u64 = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Up,
    /// Nothing runs, the clock goes on.
    Paused {
        until: Time,
    },
    /// Replicas are being closed; then it goes down.
    Stopping,
    Down,
}

pub(super) struct Node {
    pub life: Life,
    clock: Clock,
    pub pool: EnginePool,
    pub boot: Boot,
    powered: Powered,
    /// Failures of its device that the node remembers, and whether it has noted the present one.
    pub noted_failures: u64,
    pub failing: bool,
    pub replicas: BTreeMap<VolumeNo, Replica>,
    /// What came for them, and waits for their turn.
    pub for_replicas: BTreeMap<VolumeNo, Vec<Event>>,
    pub targets: BTreeMap<VolumeNo, TargetRun>,
    /// The newest object of each volume that it heard of.
    pub books: BTreeMap<VolumeNo, VolumeObject>,
    /// Since when no fault was at it.
    pub calm_since: Time,
    /// Since when none was but that its space is short.
    pub quiet_since: Time,
    /// Where the process is in its turn.
    pub turn: Turn,
    closing: usize,
    /// When its pool is polled next.
    armed: Option<Time>,
}

impl Node {
    pub fn new(id: NodeId, plan: &Plan, rng: &mut Rng) -> Node {
        Node {
            life: Life::Down,
            clock: Clock::draw(rng),
            pool: EnginePool::new(plan.off, plan.pool_size(), rng.fork(), plan.disk_delay),
            boot: Boot(0),
            powered: Powered { kernel: 1, device: u128::from(id.0) << 64 },
            noted_failures: 0,
            failing: false,
            replicas: BTreeMap::new(),
            for_replicas: BTreeMap::new(),
            targets: BTreeMap::new(),
            books: BTreeMap::new(),
            calm_since: Time(0),
            quiet_since: Time(0),
            turn: Turn::default(),
            closing: 0,
            armed: None,
        }
    }

    /// The time that machines are stepped with.
    pub fn moment(&self, now: Time) -> Moment {
        self.clock.at(self.turn.time(now))
    }

    pub fn is_up(&self) -> bool {
        matches!(self.life, Life::Up | Life::Paused { .. })
    }

    /// What tells its device from others, and from itself before it failed.
    fn device(&self, id: NodeId, notes: bool) -> u128 {
        let failures = self.noted_failures + self.pool.marked_failures();
        u128::from(id.0) << 64 | u128::from(if notes { failures } else { 0 })
    }

    fn forget_replicas(&mut self) {
        self.replicas.clear();
        self.for_replicas.clear();
        self.turn = Turn::default();
    }

    /// Copies can be made and wiped.
    pub fn is_whole(&self) -> bool {
        self.is_up() && !self.pool.is_failed()
    }

    pub fn paused(&self, now: Time) -> Option<Time> {
        match self.life {
            Life::Paused { until } if until > now => Some(until),
            _ => None,
        }
    }
}

impl World {
    pub(super) fn start_node(&mut self, id: NodeId) {
        // Whoever stops a process ends it if it takes too long.
        if self.nodes[&id].life == Life::Stopping {
            self.note("clean stop took too long");
            self.kill_node(id);
        }
        if self.nodes[&id].life != Life::Down || !self.open_pool(id) {
            return;
        }
        let boot = self.boot();
        let now = self.now;
        let notes = self.plan.off.notes_failures();
        let node = self.nodes.get_mut(&id).expect("a node");
        node.life = Life::Up;
        node.powered.device = node.device(id, notes);
        node.failing = false;
        node.boot = boot;
        node.armed = None;
        let first = now.after(1 + id.0 * 777);
        self.disturb(id, now);
        self.say(|| format!("node {id} starts, boot {}", boot.0));
        self.push(first, What::Tick { node: id, boot });
        for volume in self.volumes() {
            if self.nodes[&id].pool.has(volume) {
                self.open_replica(id, volume);
            }
        }
        let at = self.soon(50_000);
        self.push(at, What::Listen { node: id, boot, tries: 0 });
    }

    /// Opens a replica on what the pool has.
    pub(super) fn open_replica(&mut self, id: NodeId, volume: VolumeNo) {
        let node = self.nodes.get_mut(&id).expect("a node");
        let facts = node.pool.facts(volume).expect("it is in the pool");
        let run = Run { boot: node.boot, powered: node.powered, credit: ByteLen(CREDIT) };
        let mut out = Vec::new();
        match Replica::open(facts, run, node.clock.at(self.now), &mut out) {
            Ok(mut replica) => {
                self.plan.off.replica(&mut replica);
                node.replicas.insert(volume, replica);
                node.for_replicas.remove(&volume);
                self.observe_replica(id, volume, &out);
                self.replica_asks(id, volume, out);
            }
            Err(error) => self.fail(format!("replica {id}/{} does not open: {error}", volume.0)),
        }
    }

    pub(super) fn tick(&mut self, id: NodeId, boot: Boot) {
        let node = &self.nodes[&id];
        if node.boot != boot || node.life == Life::Down {
            return;
        }
        if let Life::Paused { .. } = node.life {
            self.say(|| format!("node {id} goes on"));
            self.nodes.get_mut(&id).expect("a node").life = Life::Up;
        }
        let again = self.now.after(TICK);
        self.push(again, What::Tick { node: id, boot });
        for volume in self.volumes() {
            self.step_replica(id, volume, Event::Tick);
            self.step_target(id, volume, replication::target::Event::Tick);
        }
    }

    /// Judges what a replica says when it says it: it may leave later.
    pub(super) fn observe_replica(&mut self, id: NodeId, volume: VolumeNo, out: &[Output]) {
        for output in out {
            if let Output::Send { message, .. } = output {
                self.observe_to_target(id, volume, message);
                let said = self.observed.said(volume, replica_id(id, volume), message);
                said.unwrap_or_else(|violation| self.fail(violation));
            }
        }
    }

    pub(super) fn replica_asks(&mut self, id: NodeId, volume: VolumeNo, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Store { tag, op } => self.store(id, volume, tag, op),
                Output::Send { link, message } => {
                    self.spring_trap(id, &message.body);
                    self.send(link, Side::Replica, &Parcel::ToTarget(message));
                }
                Output::Drop { link } => self.hang_up(link, Side::Replica),
                Output::Closed => self.replica_closed(id),
            }
        }
    }

    fn store(
        &mut self,
        id: NodeId,
        volume: VolumeNo,
        tag: StoreTag,
        op: replication::store::StoreOp,
    ) {
        let node = self.nodes.get_mut(&id).expect("a node");
        node.pool.submit(self.now, volume, tag, op);
        self.arm(id);
    }

    /// Polls the pool when its next operation is due, and not twice for the same.
    fn arm(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("a node");
        let Some(next) = node.pool.next().map(|next| next.max(self.now)) else { return };
        if node.armed.is_none_or(|armed| next < armed || armed < self.now) {
            node.armed = Some(next);
            let boot = node.boot;
            self.push(next, What::Poll { node: id, boot });
        }
    }

    pub(super) fn poll(&mut self, id: NodeId, boot: Boot) {
        let node = self.nodes.get_mut(&id).expect("a node");
        if node.boot != boot || node.life == Life::Down {
            return;
        }
        node.armed = None;
        let answers = node.pool.poll(self.now);
        self.watch_device(id);
        self.arm(id);
        for volume in self.volumes() {
            self.observe_store(id, volume);
        }
        for (volume, tag, result) in answers {
            if let Err(error) = &result {
                self.note_store_error(error);
                let error = error.clone();
                self.say(|| format!("node {id} volume {} store: {error}", volume.0));
            }
            self.step_replica(id, volume, Event::Stored { tag, result });
        }
    }

    fn note_store_error(&mut self, error: &replication::store::StoreError) {
        use replication::store::StoreError;
        match error {
            StoreError::NoSpace => self.note("store: no space"),
            StoreError::Damaged { .. } => self.note("store: damaged"),
            StoreError::Gap => self.note("store: gap"),
            StoreError::OtherBytes => self.note("store: other bytes"),
            StoreError::Refused { .. } => self.note("store: refused"),
            _ => {}
        }
    }

    /// The process ends at once.
    pub(super) fn kill_node(&mut self, id: NodeId) {
        if self.end_process(id) {
            self.nodes.get_mut(&id).expect("a node").pool.kill();
        }
    }

    /// False if there was none.
    pub(super) fn end_process(&mut self, id: NodeId) -> bool {
        if self.nodes[&id].life == Life::Down {
            return false;
        }
        // A failure is noted before anything follows from it.
        self.watch_device(id);
        let node = self.nodes.get_mut(&id).expect("a node");
        node.life = Life::Down;
        node.forget_replicas();
        self.say(|| format!("node {id} is killed"));
        self.targets_die(id);
        self.links_of_dead(id);
        true
    }

    /// The power ends at once: what is not durable may be lost.
    pub(super) fn cut_power(&mut self, id: NodeId) {
        self.end_process(id);
        let kernel = u128::from(self.number());
        let node = self.nodes.get_mut(&id).expect("a node");
        node.powered.kernel = 1 << 32 | kernel;
        let lost = node.pool.cut_power();
        self.say(|| format!("node {id} lost power; writes lost of {lost:?}"));
        self.tell(&Fact::PowerCut);
        for _ in lost {
            self.note("power cut lost writes");
        }
    }

    pub(super) fn pause_node(&mut self, id: NodeId, until: Time) {
        let node = self.nodes.get_mut(&id).expect("a node");
        if node.life == Life::Up {
            node.life = Life::Paused { until };
            #[cfg(feature = "faults")]
            if self.plan.off == Off::ClockCountsSleep {
                node.clock.sleep(self.now, until);
            }
            let left = (until.0 - self.now.0) / 1000;
            self.disturb(id, until);
            self.say(|| format!("node {id} is paused for {left} ms"));
        }
    }

    /// Replicas are closed, then the process ends.
    pub(super) fn stop_node(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("a node");
        if node.life != Life::Up {
            return;
        }
        node.life = Life::Stopping;
        node.closing = node.replicas.len();
        self.say(|| format!("node {id} is stopped"));
        self.targets_die(id);
        for volume in self.volumes() {
            self.step_replica(id, volume, Event::Close);
        }
        if self.nodes[&id].closing == 0 {
            self.replica_closed(id);
        }
    }

    fn replica_closed(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("a node");
        node.closing = node.closing.saturating_sub(1);
        if node.life != Life::Stopping || node.closing > 0 {
            return;
        }
        node.life = Life::Down;
        node.forget_replicas();
        self.note("replicas closed cleanly");
        self.say(|| format!("node {id} is down, cleanly"));
        self.links_of_dead(id);
    }

    /// A link ended for the machine at one side.
    pub(super) fn lose_link_of_replica(&mut self, id: NodeId, volume: VolumeNo, link: LinkId) {
        self.step_replica(id, volume, Event::LinkLost { link });
    }
}
