//! Processes that stop inside a turn, as `SIGSTOP` or a busy host does to them.
//!
//! A turn reads what came, takes the time, steps the machines with it, and sends what they ask
//! for. It may stop for long between any two of these. That is harmless: to the world outside, what
//! is sent late is what takes long on its way, since everything that the step answers had come
//! before its time was taken. A node that takes the time *before* it reads (`Off::TimeAfterInput`) is
//! not: its target answers reads that came when its lease was over.
use replication::constants::LEASE;
use replication::replica;
use replication::target;
use replication::words::NodeId;

use super::World;
use super::event::{RunAt, What};
use super::nodes::Life;
use crate::quorum::clients::{Time, VolumeNo};
use crate::quorum::plan::Fault;

/// How long a process stops inside a turn at the most: much longer than a lease.
const STALL_MAX: u64 = 6_000_000;

/// A turn that does not end goes on with the time that it began with, this long at the most.
const TURN_MAX: u64 = 2_000;

/// Where a process is in its turn.
#[derive(Default)]
pub(super) struct Turn {
    /// In its next turn it stops, for so long.
    stall: Option<u64>,
    /// The time that was taken before the process stopped, and until when it is gone by.
    taken: Option<(Time, Time)>,
    /// What machines asked for before the process stopped, in order.
    unsent: Vec<Unsent>,
}

/// What a step asked for and the process did not get round to send.
pub(super) enum Unsent {
    Replica { volume: VolumeNo, out: Vec<replica::Output> },
    Target { run: RunAt, volume: VolumeNo, out: Vec<target::Output> },
}

impl Turn {
    pub fn time(&self, now: Time) -> Time {
        match self.taken {
            Some((taken, until)) if now <= until => taken,
            _ => now,
        }
    }

    /// A copy was wiped: its replica has nothing to say any more.
    pub fn forget_replica(&mut self, gone: VolumeNo) {
        self.unsent.retain(|it| !matches!(it, Unsent::Replica { volume, .. } if *volume == gone));
    }
}

impl Unsent {
    pub fn leave(self, world: &mut World, node: NodeId) {
        match self {
            Unsent::Replica { volume, out } => world.replica_asks(node, volume, out),
            Unsent::Target { run, volume, out } => world.target_asks(run, volume, out),
        }
    }
}

impl World {
    /// The process stops in its next turn; mostly one that has the volume's target.
    pub(super) fn arm_stall(&mut self, node: NodeId, volume: VolumeNo) {
        let runs = self.runs(volume);
        let node = match self.rng.chance(3, 4) && !runs.is_empty() {
            true => self.rng.pick(&runs).node,
            false => node,
        };
        self.stall(node);
    }

    /// Where processes stall at all, one that was cut off may do so while its lease runs out.
    pub(super) fn stall_at_end_of_lease(&mut self, node: NodeId) {
        let stalls = self.plan.faults.iter().any(|(fault, _)| *fault == Fault::Stall);
        if stalls && self.rng.chance(1, 2) {
            let at = self.now.after(LEASE.0 / 2 + self.rng.below(LEASE.0 / 2));
            self.push(at, What::Stall { node });
        }
    }

    pub(super) fn stall(&mut self, node: NodeId) {
        let lasts = match self.plan.stale_turns() {
            0 => 1 + self.rng.below(STALL_MAX),
            most => 1 + self.rng.below(most),
        };
        self.nodes.get_mut(&node).expect("a node").turn.stall = Some(lasts);
    }

    fn take_stall(&mut self, id: NodeId) -> Option<Time> {
        let node = self.nodes.get_mut(&id).expect("a node");
        let lasts = node.turn.stall.take().filter(|_| node.life == Life::Up)?;
        let until = self.now.after(lasts);
        self.pause_node(id, until);
        self.push(until, What::GoOn { node: id });
        Some(until)
    }

    /// The planted fault: the time was taken, and the process stops before it reads what came.
    pub(super) fn stalls_before_step(&mut self, id: NodeId) -> bool {
        if self.plan.stale_turns() == 0 {
            return false;
        }
        let Some(until) = self.take_stall(id) else { return false };
        let taken = (self.now, until.after(TURN_MAX + self.plan.turn));
        self.nodes.get_mut(&id).expect("a node").turn.taken = Some(taken);
        self.note("turn with an old time");
        true
    }

    /// What a step asked for leaves now, unless the process stops in front of it or has stopped
    /// already.
    pub(super) fn stalls_behind_step(&mut self, id: NodeId, unsent: Unsent) -> Option<Unsent> {
        if self.take_stall(id).is_some() {
            self.note("stalled in front of sending");
        } else if self.nodes[&id].turn.unsent.is_empty() {
            return Some(unsent);
        }
        self.nodes.get_mut(&id).expect("a node").turn.unsent.push(unsent);
        None
    }

    /// The process goes on: first with what it had to send.
    pub(super) fn send_unsent(&mut self, id: NodeId) {
        let unsent = std::mem::take(&mut self.nodes.get_mut(&id).expect("a node").turn.unsent);
        for unsent in unsent {
            match unsent {
                Unsent::Target { run, volume, .. } if !self.is_running(run, volume) => {}
                unsent => unsent.leave(self, id),
            }
        }
    }
}
