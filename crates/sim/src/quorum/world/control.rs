//! The copies of volumes: decides which replicas vote, creates and wipes them. Where targets are is decided in `decide.rs`.
use replication::catalog::VolumeObject;
use replication::membership::{Member, Membership, Voters};
use replication::state::ReplicaState;
use replication::words::{CatalogVersion, Grant, Incarnation, NodeId};

use super::event::What;
use super::{World, place_of, replica_id};
use crate::quorum::clients::VolumeNo;
use crate::quorum::store::Shape;

impl World {
    /// Creates a volume: its copies, and its object.
    pub(super) fn found_volume(&mut self, volume: VolumeNo) {
        let rf = self.plan.volumes[volume.0].rf;
        let mut nodes = self.node_ids();
        self.rng.shuffle(&mut nodes);
        let mut members: Vec<Member> =
            nodes[..rf].iter().map(|node| self.create_copy(*node, volume)).collect();
        members.sort_unstable();
        let membership = Membership { version: 1, voters: Voters::of(&members), next: None };
        self.control.note_voters(volume, &membership);
        let object = VolumeObject {
            version: CatalogVersion(1),
            grant: Grant(1),
            holder: nodes[0],
            membership,
            desired: members,
            ..VolumeObject::default()
        };
        self.catalog.objects.insert(volume, object);
    }

    /// An empty copy with an incarnation of its own.
    pub(super) fn create_copy(&mut self, node: NodeId, volume: VolumeNo) -> Member {
        let incarnation = Incarnation(self.number());
        let plan = &self.plan.volumes[volume.0];
        let shape = Shape { size: plan.size, block_size: plan.block_size, incarnation };
        let pool = &mut self.nodes.get_mut(&node).expect("a node").pool;
        pool.create(volume, shape);
        let replica = replica_id(node, volume);
        self.observed.created(replica, volume, incarnation);
        self.traffic.forget(replica);
        Member { replica, incarnation }
    }

    /// The same place, another content: what was there is gone.
    pub(super) fn recreate(&mut self, node: NodeId, volume: VolumeNo) -> Member {
        let up = self.nodes[&node].is_up();
        self.wipe(node, volume);
        let member = self.create_copy(node, volume);
        self.say(|| format!("v{} a new copy on {node}: {member:?}", volume.0));
        if up {
            self.open_replica(node, volume);
        }
        member
    }

    fn wipe(&mut self, node: NodeId, volume: VolumeNo) {
        let gone = self.nodes.get_mut(&node).expect("a node");
        gone.replicas.remove(&volume);
        gone.for_replicas.remove(&volume);
        gone.turn.forget_replica(volume);
        gone.pool.remove(volume);
        self.disturb(node, self.now);
        let theirs: Vec<_> = self
            .links
            .iter()
            .filter(|(_, link)| link.replica == node && link.volume == volume)
            .map(|(id, _)| *id)
            .collect();
        for link in theirs {
            self.break_link(link);
        }
    }

    /// The member that a node's copy is, if it has one.
    pub(super) fn member_on(&self, node: NodeId, volume: VolumeNo) -> Option<Member> {
        let state = self.nodes[&node].pool.state(volume)?;
        let incarnation = ReplicaState::decode(&state).ok()?.incarnation;
        Some(Member { replica: replica_id(node, volume), incarnation })
    }

    pub(super) fn control_wakes(&mut self) {
        let again = self.now.after(250_000 + self.rng.below(100_000));
        self.push(again, What::Control);
        self.forget_links();
        self.judge_waiting();
        self.go_on_probing();
        self.look_after_targets();
        for volume in self.volumes() {
            if !self.catalog.away {
                self.see_to_copies(volume);
            }
        }
    }

    /// Changes who is to vote.
    pub(super) fn desire(&mut self, volume: VolumeNo, change: impl FnOnce(&mut Vec<Member>)) {
        let before = self.catalog.objects[&volume].clone();
        let mut object = before.clone();
        change(&mut object.desired);
        object.desired.sort_unstable();
        let (expected, grant) = (before.version, before.grant);
        if let Some(after) = self.catalog.swap(volume, expected, grant, &object) {
            self.catalog_changed(volume, &before, &after);
        }
    }

    /// Those who are wanted have a copy, and those who are not have none.
    fn see_to_copies(&mut self, volume: VolumeNo) {
        let Some(object) = self.catalog.find(volume).cloned() else { return };
        for member in object.desired.iter().filter(|_| !self.is_lost(volume)) {
            let (node, _) = place_of(member.replica);
            let has = self.member_on(node, volume);
            let gave_up =
                self.control.voted.contains(&(volume, *member)) && !object.membership.has(*member);
            if self.nodes[&node].is_whole() && (has != Some(*member) || gave_up) {
                self.note(if gave_up { "gave up and came back as new" } else { "copy lost" });
                let new = self.recreate(node, volume);
                self.desire(volume, |desired| {
                    desired.retain(|old| old.replica != new.replica);
                    desired.push(new);
                });
                return;
            }
        }
        for node in self.node_ids() {
            let Some(member) = self.member_on(node, volume) else { continue };
            let wanted = object.desired.contains(&member) || object.membership.has(member);
            if !wanted && self.nodes[&node].is_whole() && self.rng.chance(1, 4) {
                self.wipe_unwanted(node, volume, member);
            }
        }
    }

    /// The replica itself has the last word; and it never lets go of what is listed (Q13).
    fn wipe_unwanted(&mut self, node: NodeId, volume: VolumeNo, member: Member) {
        // The node asks the catalog, and goes by the newest that it knows.
        let present = self.catalog.objects[&volume].clone();
        let membership = &self.learn(node, volume, &present).membership;
        let Some(replica) = self.nodes[&node].replicas.get(&volume) else { return };
        for voter in membership.everybody() {
            if voter.replica == member.replica && replica.may_wipe(voter, membership).is_ok() {
                self.fail(format!("Q13: {voter:?} is listed and may be wiped"));
                return;
            }
        }
        if replica.may_wipe(member, membership).is_err() {
            self.note("wipe refused");
            return;
        }
        self.note("copy wiped");
        self.say(|| format!("v{} the copy on {node} is wiped", volume.0));
        self.wipe(node, volume);
    }

    /// Another number of replicas.
    pub(super) fn scale(&mut self, volume: VolumeNo) {
        // Where something rotted, enough others must have it.
        let rotten = self.rotten.keys().any(|(of, _)| *of == volume);
        let wanted = *self.rng.pick(&[1, 2, 3, 5]).max(if rotten { &3 } else { &1 });
        let object = self.catalog.objects[&volume].clone();
        let mut desired = object.desired.clone();
        while desired.len() > wanted {
            let index = self.rng.index(desired.len());
            desired.remove(index);
        }
        while desired.len() < wanted {
            let Some(member) = self.newcomer(volume, &desired) else { break };
            desired.push(member);
        }
        self.note(if desired.len() > object.desired.len() { "scaled up" } else { "scaled down" });
        self.desire(volume, |list| *list = desired);
    }

    /// A copy on another node instead of one.
    pub(super) fn replace(&mut self, volume: VolumeNo) {
        let mut desired = self.catalog.objects[&volume].desired.clone();
        let Some(member) = self.newcomer(volume, &desired) else { return };
        let index = self.rng.index(desired.len());
        desired[index] = member;
        self.desire(volume, |list| *list = desired);
    }

    fn newcomer(&mut self, volume: VolumeNo, taken: &[Member]) -> Option<Member> {
        let membership = self.catalog.objects[&volume].membership.clone();
        let free = self.nodes.iter().filter(|(id, node)| {
            let replica = replica_id(**id, volume);
            let known = taken.iter().chain(&membership.everybody()).any(|m| m.replica == replica);
            node.is_whole() && !known
        });
        let free: Vec<NodeId> = free.map(|(id, _)| *id).collect();
        if free.is_empty() {
            return None;
        }
        let node = *self.rng.pick(&free);
        Some(self.recreate(node, volume))
    }
}
