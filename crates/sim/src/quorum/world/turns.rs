//! When a machine takes what came for it: at once, or in turns, with all that came since the last.
use block::Term;
use replication::message::ToTarget;
use replication::replica;
use replication::target::Event;
use replication::words::{Boot, NodeId, ReplicaId};

use super::World;
use super::event::{RunAt, What};
use super::stalls::Unsent;
use crate::quorum::clients::{Time, VolumeNo};

impl World {
    /// When it is the machines' turn, if they do not take everything at once.
    fn next_turn(&self) -> Option<Time> {
        let turn = self.plan.turn;
        (turn > 0).then(|| Time((self.now.0 / turn + 1) * turn))
    }

    /// Something for the replica on a node, if there is one.
    pub(super) fn step_replica(&mut self, id: NodeId, volume: VolumeNo, event: replica::Event) {
        let next = self.next_turn();
        let node = self.nodes.get_mut(&id).expect("a node");
        if !node.replicas.contains_key(&volume) {
            return;
        }
        let came = node.for_replicas.entry(volume).or_default();
        came.push(event);
        match next {
            None => self.replica_turn(id, volume),
            Some(next) if came.len() == 1 => {
                self.push(next, What::ReplicaTurn { node: id, volume });
            }
            Some(_) => {}
        }
    }

    pub(super) fn replica_turn(&mut self, id: NodeId, volume: VolumeNo) {
        if self.stalls_before_step(id) {
            return self.push(self.now, What::ReplicaTurn { node: id, volume });
        }
        let node = self.nodes.get_mut(&id).expect("a node");
        let moment = node.moment(self.now);
        let Some(mut came) = node.for_replicas.remove(&volume) else { return };
        let Some(replica) = node.replicas.get_mut(&volume) else { return };
        let together = came.len() > 1;
        let mut out = Vec::new();
        replica.step_all(moment, &mut came, &mut out);
        self.paths.add("events taken together by a replica", u64::from(together));
        self.observe_replica(id, volume, &out);
        if let Some(out) = self.stalls_behind_step(id, Unsent::Replica { volume, out }) {
            out.leave(self, id);
        }
    }

    /// Something for the target on a node, if there is one.
    pub(super) fn step_target(&mut self, id: NodeId, volume: VolumeNo, event: Event) {
        if let Some(target) = self.nodes[&id].targets.get(&volume) {
            let run = RunAt { node: id, run: target.run };
            self.step_run(run, volume, event);
        }
    }

    /// Something for one run of a target, if that is still the one.
    pub(super) fn step_run(&mut self, at: RunAt, volume: VolumeNo, event: Event) {
        let next = self.next_turn();
        let node = self.nodes.get_mut(&at.node).expect("a node");
        let Some(target) = node.targets.get_mut(&volume).filter(|target| target.run == at.run)
        else {
            return;
        };
        target.came.push(event);
        match next {
            None => self.target_turn(at, volume),
            Some(next) if target.came.len() == 1 => {
                self.push(next, What::TargetTurn { run: at, volume });
            }
            Some(_) => {}
        }
    }

    /// A welcome and a word of the catalog begin a batch of their own: what the target answers for what
    /// came before them is judged by what was known before them.
    pub(super) fn target_turn(&mut self, at: RunAt, volume: VolumeNo) {
        if self.stalls_before_step(at.node) {
            return self.push(self.now, What::TargetTurn { run: at, volume });
        }
        loop {
            let node = self.nodes.get_mut(&at.node).expect("a node");
            let Some(target) = node.targets.get_mut(&volume).filter(|target| target.run == at.run)
            else {
                return;
            };
            let end = target.came.iter().skip(1).position(begins_batch);
            let end = end.map_or(target.came.len(), |position| position + 1);
            let mut batch: Vec<Event> = target.came.drain(..end).collect();
            let Some(first) = batch.first() else { return };
            self.observe_heard(at, volume, first);
            self.paths.add("events taken together by a target", u64::from(batch.len() > 1));
            let node = self.nodes.get_mut(&at.node).expect("a node");
            let moment = node.moment(self.now);
            let Some(target) = node.targets.get_mut(&volume) else { return };
            let mut out = Vec::new();
            target.machine.step_all(moment, &mut batch, &mut out);
            self.observe_target(at, volume, &out);
            let unsent = Unsent::Target { run: at, volume, out };
            if let Some(out) = self.stalls_behind_step(at.node, unsent) {
                out.leave(self, at.node);
            }
        }
    }

    /// A target hears a welcome: from here on only what this run of the replica holds counts. While
    /// answers are held back for a group, what was committed before is answered later.
    fn observe_heard(&mut self, at: RunAt, volume: VolumeNo, event: &Event) {
        let Some((replica, term, boot)) = welcome_of(event) else { return };
        if self.is_running(at, volume) && !self.plan.has_groups() {
            self.observed.welcomed(volume, term, replica, boot);
        }
    }
}

/// Whose welcome it is, if it is one: of which run, to which reign.
fn welcome_of(event: &Event) -> Option<(ReplicaId, Term, Boot)> {
    let Event::Message { replica, message, .. } = event else { return None };
    match &message.body {
        ToTarget::Welcome(welcome) => Some((*replica, message.term, welcome.boot)),
        _ => None,
    }
}

/// Whether what a target goes by may be another from here on.
fn begins_batch(event: &Event) -> bool {
    matches!(event, Event::Catalog(_)) || welcome_of(event).is_some()
}
