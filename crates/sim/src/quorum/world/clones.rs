//! A volume that begins as a snapshot of another, while everything else goes on.
//!
//! The steps are those of the control plane (`docs/quorum.md`, section 13): the mark in the sequence of
//! the origin, copies that its pools clone from the snapshot, and votes for those copies alone. A
//! place whose pool has not the snapshot begins empty and catches up.
use replication::catalog::VolumeObject;
use replication::client::{Command, CommandAnswer, CommandError, RequestId};
use replication::membership::{Member, Membership, Voters};
use replication::state::Origin;
use replication::words::{CatalogVersion, Grant, Incarnation, NodeId, SnapshotUid};

use super::clients::COORDINATOR;
use super::event::What;
use super::{World, place_of, replica_id};
use crate::quorum::clients::{Time, VolumeFacts, VolumeNo};
use crate::quorum::plan::{Fault, VolumePlan};
use crate::quorum::store::{Shape, uid_of};

/// So long before the end of all faults a clone is begun at the latest, and its copies are tried for.
const BEFORE_END: u64 = 10_000_000;
const PATIENCE: u64 = 5_000_000;

/// A clone that is being made: one in a world.
pub(super) struct Cloning {
    origin: VolumeNo,
    clone: VolumeNo,
    snapshot: SnapshotUid,
    mark: RequestId,
    until: Time,
}

impl World {
    /// Where blocks rot, two volumes that share them would have the same rot on too many copies; and a
    /// cut of a group is about the volumes that it began with.
    fn may_clone(&self) -> bool {
        let rots = self.plan.faults.iter().any(|(fault, _)| *fault == Fault::Rot);
        let late = self.now.after(BEFORE_END) >= self.plan.heals;
        !rots && !late && !self.plan.has_groups() && self.cloning.is_none()
    }

    pub(super) fn begin_clone(&mut self, origin: VolumeNo) {
        let snapshots = self.clients.snapshots(origin);
        if !self.may_clone() || snapshots.is_empty() {
            return;
        }
        let snapshot = *self.rng.pick(&snapshots);
        let clone = VolumeNo(self.plan.volumes.len());
        let mark = RequestId(COORDINATOR - 1 - self.number());
        let until = self.now.after(PATIENCE);
        self.cloning = Some(Cloning { origin, clone, snapshot, mark, until });
        self.say(|| format!("v{} is to be cloned at {snapshot:?}", origin.0));
        self.command(origin, mark, Command::MarkClone { snapshot, clone: uid_of(clone) });
    }

    /// The answer to the mark, if it is one. Only behind it the snapshot stays.
    pub(super) fn clone_marked(
        &mut self,
        id: RequestId,
        result: &Result<CommandAnswer, CommandError>,
    ) {
        if self.cloning.as_ref().is_none_or(|cloning| cloning.mark != id) {
            return;
        }
        match result {
            Ok(_) => self.push(self.now, What::MakeClone),
            Err(_) => {
                self.note("clone refused");
                self.cloning = None;
            }
        }
    }

    /// Copies on the nodes of the origin's voters, as soon as enough of them have the snapshot.
    pub(super) fn make_clone(&mut self) {
        let Some(Cloning { origin, clone, snapshot, until, .. }) = self.cloning else { return };
        if self.now > until {
            // The mark stays, and so does the snapshot.
            return self.note("clone given up");
        }
        let again = self.soon(500_000);
        let object = &self.catalog.objects[&origin];
        let places: Vec<NodeId> =
            object.membership.voters.members.iter().map(|it| place_of(it.replica).0).collect();
        let target = self.nodes[&object.holder].targets.get(&origin);
        let listed = target.map(|it| it.machine.snapshots()).unwrap_or_default();
        let listed = listed.iter().find(|it| it.uid == snapshot);
        let Some(at) = listed.map(|entry| entry.position) else {
            return self.push(again, What::MakeClone);
        };
        let has = |node: &&NodeId| {
            let pool = &self.nodes[node].pool;
            let there =
                pool.snapshots(origin).iter().any(|it| (it.uid, it.position) == (snapshot, at));
            there && self.nodes[node].is_whole()
        };
        let copies: Vec<NodeId> = places.iter().filter(has).copied().collect();
        if copies.len() < places.len() / 2 + 1 {
            return self.push(again, What::MakeClone);
        }
        let of = Origin { volume: uid_of(origin), snapshot, at };
        let pool = &mut self.nodes.get_mut(&copies[0]).expect("a node").pool;
        let content = pool.read_all(origin, Some(snapshot)).expect("it has the snapshot");
        let (size, block_size) = (content.bytes.size(), self.plan.volumes[origin.0].block_size);
        self.plan.volumes.push(VolumePlan { rf: places.len(), size, block_size });
        self.observed.cloned(origin, at);
        let mut voters = Vec::new();
        let mut desired = Vec::new();
        for node in places {
            if copies.contains(&node) {
                voters.push(self.clone_copy(node, clone, of));
            } else if self.nodes[&node].is_whole() {
                self.note("copy of a clone begins empty");
                desired.push(self.create_copy(node, clone));
            }
        }
        desired.extend(voters.iter().copied());
        desired.sort_unstable();
        self.list_clone(clone, Grant::of(at.term), &voters, desired);
        let granule = block_size.max(4096);
        let facts = VolumeFacts { volume: clone, size, block_size, granule };
        self.clients.cloned(self.now, origin, &facts, &content.bytes);
        self.push(self.now, What::ClientWake);
    }

    fn clone_copy(&mut self, node: NodeId, clone: VolumeNo, origin: Origin) -> Member {
        let incarnation = Incarnation(self.number());
        let VolumePlan { size, block_size, .. } = self.plan.volumes[clone.0];
        let shape = Shape { size, block_size, incarnation };
        self.nodes.get_mut(&node).expect("a node").pool.create_from(clone, shape, Some(origin));
        let replica = replica_id(node, clone);
        self.observed.created(replica, clone, incarnation);
        Member { replica, incarnation }
    }

    fn list_clone(
        &mut self,
        clone: VolumeNo,
        grant: Grant,
        voters: &[Member],
        desired: Vec<Member>,
    ) {
        let membership = Membership { version: 1, voters: Voters::of(voters), next: None };
        self.control.note_voters(clone, &membership);
        let holder = place_of(self.rng.pick(voters).replica).0;
        let version = CatalogVersion(1);
        let nodes: Vec<NodeId> = desired.iter().map(|member| place_of(member.replica).0).collect();
        let object =
            VolumeObject { version, grant, holder, membership, desired, ..VolumeObject::default() };
        self.say(|| format!("v{} is a clone: {object:?}", clone.0));
        self.note("clone made");
        self.catalog.objects.insert(clone, object);
        self.disturb_volume(clone);
        for node in nodes {
            self.disturb(node, self.now);
            self.open_replica(node, clone);
        }
    }
}
