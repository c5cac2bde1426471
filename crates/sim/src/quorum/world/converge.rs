//! The end: everything is well again, all copies are the same, and what they have to be.
use std::collections::BTreeSet;

use replication::words::{NodeId, SnapshotUid};

use super::event::What;
use super::nodes::Life;
use super::{World, place_of};
use crate::quorum::clients::{FinalCopy, VolumeNo};
use crate::quorum::off::Check;
use crate::quorum::sparse::{PAGE, Sparse};
use crate::quorum::store::Content;

/// How often a copy is looked at while the world goes on.
const SAMPLE_EVERY: u64 = 8_000_000;

impl World {
    pub(super) fn plan_sample(&mut self) {
        let at = self.soon(2 * SAMPLE_EVERY);
        self.push(at, What::Sample);
    }

    /// Any copy, at any moment, is a prefix of the sequence (Q4).
    pub(super) fn sample(&mut self) {
        self.plan_sample();
        let nodes = self.node_ids();
        let node = *self.rng.pick(&nodes);
        for volume in self.volumes() {
            if let Err(violation) = self.judge_copy(node, volume) {
                self.fail(violation);
            }
        }
    }

    /// Compares a copy with the entries of its own history.
    pub(super) fn judge_copy(&mut self, node: NodeId, volume: VolumeNo) -> Result<(), String> {
        self.observe_store(node, volume);
        let pool = &mut self.nodes.get_mut(&node).expect("a node").pool;
        // Beside operations that are under way a read sees either.
        if pool.is_busy() {
            return Ok(());
        }
        let Ok(copy) = pool.read_all(volume, None) else { return Ok(()) };
        let (Some(at), Some(facts)) = (pool.held(volume), pool.facts(volume)) else {
            return Ok(());
        };
        let granule = facts.costs.granule.0;
        let size = self.plan.volumes[volume.0].size;
        let model = self.observed.model(volume, at, size);
        let of = |violation| format!("volume {} on {node} at {at}: {violation}", volume.0);
        let Some(model) = model.map_err(of)? else {
            self.note("copy with a history that is not known whole");
            return Ok(());
        };
        self.paths.add("copies compared with the sequence", 1);
        let shown = facts.snapshots.len();
        if let Some(byte) = differs(&copy, &model.bytes, granule) {
            return Err(format!(
                "Q4: the copy of volume {} on {node} at {at} ({shown} snapshots) differs from the sequence at byte {byte}",
                volume.0
            ));
        }
        for snapshot in facts.snapshots {
            let Some(then) = model.snapshots.get(&snapshot.uid) else { continue };
            let pool = &mut self.nodes.get_mut(&node).expect("a node").pool;
            let frozen = pool.read_all(volume, Some(snapshot.uid));
            if let Some(byte) = frozen.ok().and_then(|frozen| differs(&frozen, then, granule)) {
                let others = self.who_differs(volume, snapshot.uid, then, granule);
                return Err(format!(
                    "snapshot {} of volume {} on {node} differs from the sequence at byte {byte}; \
                     of those who have it: {others:?}",
                    snapshot.name, volume.0
                ));
            }
        }
        Ok(())
    }

    /// Everybody who has a snapshot, with where it differs from what it has to be.
    fn who_differs(
        &mut self,
        volume: VolumeNo,
        uid: SnapshotUid,
        wanted: &Sparse,
        granule: u64,
    ) -> Vec<(NodeId, Option<u64>)> {
        let mut found = Vec::new();
        for (id, node) in &mut self.nodes {
            if let Ok(frozen) = node.pool.read_all(volume, Some(uid)) {
                found.push((*id, differs(&frozen, wanted, granule)));
            }
        }
        found
    }

    pub(super) fn end(&mut self) {
        if let Err(violation) = self.judge_end() {
            let state = self.describe();
            self.fail(format!("{violation}\n{state}"));
        }
    }

    fn judge_end(&mut self) -> Result<(), String> {
        let mut copies = Vec::new();
        for volume in self.volumes() {
            self.judge_volume(volume, &mut copies)?;
        }
        match self.clients.waiting() {
            0 => self.clients.judge(&copies)?,
            waiting => return Err(format!("{waiting} requests were never answered")),
        }
        if self.plan.has_check(Check::Residue) {
            for volume in self.volumes() {
                self.judge_residue(volume)?;
            }
        }
        Ok(())
    }

    fn judge_volume(
        &mut self,
        volume: VolumeNo,
        copies: &mut Vec<FinalCopy>,
    ) -> Result<(), String> {
        let object = self.catalog.objects[&volume].clone();
        let name = volume.0;
        let mut voters = object.membership.voters.members.clone();
        voters.sort_unstable();
        let mut desired = object.desired.clone();
        desired.sort_unstable();
        if object.membership.next.is_some() || voters != desired {
            return Err(format!("volume {name} did not arrive at its members"));
        }
        let mut first: Option<(NodeId, Sparse)> = None;
        let mut listed: Option<BTreeSet<SnapshotUid>> = None;
        for member in &object.desired {
            let (node, _) = place_of(member.replica);
            self.judge_copy(node, volume)?;
            let pool = &mut self.nodes.get_mut(&node).expect("a node").pool;
            let granule = pool.facts(volume).map_or(4096, |facts| facts.costs.granule.0);
            let copy = pool
                .read_all(volume, None)
                .map_err(|error| format!("volume {name} on {node}: {error}"))?;
            let snapshots: BTreeSet<SnapshotUid> =
                pool.snapshots(volume).iter().map(|snapshot| snapshot.uid).collect();
            let size = copy.bytes.pages().count() as u64 * PAGE;
            match &first {
                Some((other, known))
                    if copy.damaged.is_empty() && differs(&copy, known, granule).is_some() =>
                {
                    return Err(format!("volume {name} on {node} is not that on {other}"));
                }
                Some(_) => {}
                None if copy.damaged.is_empty() => first = Some((node, copy.bytes)),
                None => {}
            }
            if listed.get_or_insert_with(|| snapshots.clone()) != &snapshots {
                return Err(format!(
                    "volume {name} on {node} has other snapshots: {snapshots:?} {listed:?}"
                ));
            }
            self.paths.add("final copies compared", 1);
            self.paths.add("final bytes compared", size);
        }
        let node = first.as_ref().map_or(place_of(object.desired[0].replica).0, |(node, _)| *node);
        let bytes = first.map(|(_, bytes)| bytes);
        copies.push(FinalCopy { volume, snapshot: None, bytes });
        for uid in listed.into_iter().flatten() {
            let pool = &mut self.nodes.get_mut(&node).expect("a node").pool;
            let frozen = pool.read_all(volume, Some(uid));
            let frozen = frozen.map_err(|error| format!("snapshot {uid:?}: {error}"))?;
            let bytes = frozen.damaged.is_empty().then_some(frozen.bytes);
            copies.push(FinalCopy { volume, snapshot: Some(uid), bytes });
        }
        Ok(())
    }

    /// For the report of a seed that failed.
    fn describe(&self) -> String {
        let pools = self.nodes.iter().map(|(id, node)| (id, node.pool.space()));
        let mut lines: Vec<String> =
            pools.map(|(id, space)| format!("  pool of node {id}: {space}")).collect();
        for (volume, object) in &self.catalog.objects {
            lines.push(format!("  volume {}: {object:?}", volume.0));
            for (id, node) in &self.nodes {
                let up = matches!(node.life, Life::Up);
                let target = node.targets.get(volume).map(|target| (target.run, target.term));
                let (held, durable) = (node.pool.held(*volume), node.pool.durable(*volume));
                let shown =
                    |p: Option<block::Position>| p.map_or("-".to_owned(), |p| p.to_string());
                let member = self.member_on(*id, *volume).map(|member| member.incarnation.0);
                lines.push(format!(
                    "    node {id} up {up} held {} durable {} incarnation {member:?} target {target:?}",
                    shown(held),
                    shown(durable)
                ));
            }
        }
        lines.join("\n")
    }
}

/// The first byte in which a copy differs from what it has to be; what is missing at the end is
/// zeros, and damaged granules are not looked at.
fn differs(copy: &Content, wanted: &Sparse, granule: u64) -> Option<u64> {
    copy.bytes.differs(wanted, |byte| !copy.damaged.contains(&(byte / granule)))
}
