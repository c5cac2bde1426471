//! What is left in machines and stores when everything is done: nothing, or no more than its bound.
use std::collections::BTreeSet;

use block::Position;
use replication::membership::Member;
use replication::words::{NodeId, ReplicaId};

use super::event::RunAt;
use super::{World, place_of, replica_id};
use crate::quorum::clients::VolumeNo;
use crate::quorum::off::Check;

impl World {
    pub(super) fn judge_residue(&mut self, volume: VolumeNo) -> Result<(), String> {
        let object = self.catalog.objects[&volume].clone();
        let mut kept = BTreeSet::new();
        if let Some(target) = self.nodes[&object.holder].targets.get(&volume) {
            for residue in target.machine.residue() {
                if residue.is_too_much() {
                    return Err(format!(
                        "residue in the target of volume {}: {residue:?}",
                        volume.0
                    ));
                }
            }
            kept.extend(target.machine.kept_sources());
        }
        for member in &object.desired {
            self.judge_replica(volume, *member, &kept)?;
        }
        self.note("volume left nothing behind");
        Ok(())
    }

    /// What a target closes it keeps no longer. The other way round a source may be gone: one that
    /// catches up itself drops what it froze, and the target forgets it after a while.
    pub(super) fn judge_closed(
        &mut self,
        at: RunAt,
        volume: VolumeNo,
        closed: (ReplicaId, Position),
    ) {
        let target = self.nodes[&at.node].targets.get(&volume);
        let kept = target.is_some_and(|it| it.machine.kept_sources().any(|kept| kept == closed));
        if kept && self.plan.has_check(Check::Residue) {
            self.fail(format!("residue: {closed:?} is closed, and kept all the same"));
        }
    }

    fn frozen(&self, node: NodeId, volume: VolumeNo) -> Vec<(ReplicaId, Position)> {
        let replica = self.nodes[&node].replicas.get(&volume);
        let frozen = replica.into_iter().flat_map(|replica| replica.frozen_at());
        frozen.map(|at| (replica_id(node, volume), at)).collect()
    }

    /// A replica in the stream: what it has for rounds is what the target knows.
    fn judge_replica(
        &mut self,
        volume: VolumeNo,
        member: Member,
        kept: &BTreeSet<(ReplicaId, Position)>,
    ) -> Result<(), String> {
        let (id, _) = place_of(member.replica);
        let node = &self.nodes[&id];
        let Some(replica) = node.replicas.get(&volume) else { return Ok(()) };
        if let Some(residue) = replica.residue().into_iter().find(|it| it.is_too_much()) {
            return Err(format!("residue in {:?}: {residue:?}", member.replica));
        }
        let known = |at: &(ReplicaId, Position)| kept.contains(at);
        if let Some(lost) = self.frozen(id, volume).into_iter().find(|at| !known(at)) {
            return Err(format!("residue: {lost:?} is frozen, and no round will use or close it"));
        }
        let shown = node.pool.snapshots(volume).len();
        let has = node.pool.snapshots_of(volume);
        let internal = self.frozen(id, volume).len();
        match has > shown + internal {
            true => Err(format!(
                "residue in the pool of node {id}: {has} snapshots of volume {}, {shown} shown, \
                 {internal} of rounds",
                volume.0
            )),
            false => Ok(()),
        }
    }
}
