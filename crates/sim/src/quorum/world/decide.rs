//! Where targets are: decided by the controller's own rules (`control::controller::need`), of what nodes say of
//! themselves in their beats.
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use control::controller::need::{Need, View, need};
use control::controller::presence::{Pulse, Targets};
use control::controller::relief::{Candidate, Relief, Rests, choose};
use proto::v1;
use replication::catalog::VolumeObject;
use replication::membership::{Member, Membership};
use replication::target::Begin;
use replication::words::{NodeId, Start, VolumeUid};

use super::event::What;
use super::nodes::Life;
use super::{World, place_of, replica_id};
use crate::quorum::clients::{Time, VolumeNo};

/// Times of a site, shorter than a real one's.
const AWAY_AFTER: Duration = Duration::from_secs(3);
const RESUMING: Duration = Duration::from_secs(1);
const RENEWING: Duration = Duration::from_secs(5);
const RESTS: Rests = Rests { first: Duration::from_secs(1), last: Duration::from_secs(4) };
/// Nothing is replaced for being away: copies are seen to in `control.rs`.
const GRACE: Duration = Duration::from_secs(3600);

/// Between two things that are done for a volume.
const PAUSE: u64 = 1_000_000;

pub(super) struct Control {
    /// The world's beginning, as the controller's clock has it.
    began: Instant,
    pulse: Pulse,
    /// Nothing is started before this moment.
    starting: BTreeMap<VolumeNo, Time>,
    touched: BTreeMap<VolumeNo, Instant>,
    reliefs: BTreeMap<VolumeNo, Relief>,
    /// Members that ever voted: one that does no more, and is still wanted, gave up its vote.
    pub voted: BTreeSet<(VolumeNo, Member)>,
}

impl Default for Control {
    fn default() -> Control {
        Control {
            began: Instant::now(),
            pulse: Pulse::new(AWAY_AFTER),
            starting: BTreeMap::new(),
            touched: BTreeMap::new(),
            reliefs: BTreeMap::new(),
            voted: BTreeSet::new(),
        }
    }
}

impl Control {
    fn instant(&self, now: Time) -> Instant {
        self.began + Duration::from_micros(now.0)
    }

    pub fn note_voters(&mut self, volume: VolumeNo, membership: &Membership) {
        self.voted.extend(membership.voters.members.iter().map(|member| (volume, *member)));
    }
}

/// The one pool of every node.
pub(super) const POOL: &str = "pool";

pub(super) fn uid(volume: VolumeNo) -> VolumeUid {
    let mut uid = [0; 16];
    // The catalog takes no uid of zeros.
    uid[0] = u8::try_from(volume.0 + 1).expect("a few volumes");
    VolumeUid(uid)
}

impl World {
    pub(super) fn look_after_targets(&mut self) {
        self.take_beats();
        for volume in self.volumes() {
            let wait = self.control.starting.get(&volume).copied().unwrap_or_default();
            if wait > self.now {
                continue;
            }
            if let Some(need) = self.need_of(volume) {
                self.meet(volume, &need);
            }
        }
    }

    /// Asks each node whether it is there, and what it serves. One that is paused does not answer, nor does one that is
    /// cut off from the site's network.
    fn take_beats(&mut self) {
        let now = self.control.instant(self.now);
        let ids = self.node_ids();
        self.control.pulse.know(&ids.iter().map(|id| id.0).collect::<Vec<_>>(), now);
        for id in ids {
            self.watch_quorums(id);
            let node = &self.nodes[&id];
            if node.life != Life::Up || self.exiled(id).is_some() {
                continue;
            }
            let beat = v1::BeatResponse { node: id.0, boot: node.boot.0, ..Default::default() };
            let targets: Targets = self
                .volumes()
                .filter_map(|volume| {
                    Some((uid(volume).0.to_vec(), self.target_status(id, volume)?))
                })
                .collect();
            self.control.pulse.heard(id.0, now, Ok(beat));
            self.control.pulse.heard_targets(id.0, now, targets);
        }
    }

    /// A process looks at its targets from time to time, as `node::shard` does.
    fn watch_quorums(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("a node");
        if node.life == Life::Up {
            let moment = node.moment(self.now);
            for target in node.targets.values_mut() {
                let status = target.machine.status(moment);
                target.without_quorum = status.without_quorum(target.without_quorum, moment);
            }
        }
    }

    pub(super) fn target_status(&self, id: NodeId, volume: VolumeNo) -> Option<v1::TargetStatus> {
        let node = &self.nodes[&id];
        let target = node.targets.get(&volume)?;
        let moment = node.moment(self.now);
        let status = node::shard::TargetStatus {
            volume: uid(volume),
            name: volume.0.to_string(),
            status: target.machine.status(moment),
            snapshots: Vec::new(),
            clones: Vec::new(),
            connections: Vec::new(),
            up: moment.since(target.since),
            without_quorum: target.without_quorum.map(|lost| moment.since(lost)),
        };
        Some(node::admin::target_status(&status, id))
    }

    /// The volume as the controller reads it in the catalog.
    fn catalog_volume(&self, volume: VolumeNo) -> Option<v1::Volume> {
        self.catalog.find(volume).map(|object| self.as_volume(volume, object))
    }

    pub(super) fn as_volume(&self, volume: VolumeNo, object: &VolumeObject) -> v1::Volume {
        let mut members = object.membership.everybody();
        members.extend(&object.desired);
        let replicas: BTreeSet<_> = members.iter().map(|member| member.replica).collect();
        let place = |replica| {
            let (node, _) = place_of(replica);
            v1::Place { replica: replica.0, node: node.0, pool: POOL.into() }
        };
        v1::Volume {
            uid: uid(volume).0.to_vec(),
            name: volume.0.to_string(),
            size: self.plan.volumes[volume.0].size,
            block_size: u32::try_from(self.plan.volumes[volume.0].block_size)
                .expect("at most 16 KiB"),
            compression: "off".into(),
            replicas: u32::try_from(object.desired.len()).expect("a few replicas"),
            quorum: Some(node::catalog::convert::quorum(object)),
            places: replicas.into_iter().map(place).collect(),
            ..Default::default()
        }
    }

    fn need_of(&self, volume: VolumeNo) -> Option<Need> {
        let now = self.control.instant(self.now);
        let object = self.catalog_volume(volume)?;
        let holder = object.quorum.as_ref().map_or(0, |quorum| quorum.holder);
        let targets = self.control.pulse.targets(holder);
        let view = View {
            now,
            grace: GRACE,
            away_after: AWAY_AFTER,
            resuming: RESUMING,
            renewing: RENEWING,
            may_relieve: self.control.reliefs.get(&volume).is_none_or(|it| it.is_over(now)),
            presence: &|node| self.control.pulse.presence(node, now),
            is_failed: &|place| self.has_failed(place),
            is_ill: &|_| false,
            target: targets.as_ref().map(|(told, all)| (*told, all.get(&object.uid))),
            touched: self.control.touched.get(&volume).copied(),
        };
        need(&object, &view)
    }

    fn has_failed(&self, place: &v1::Place) -> bool {
        self.nodes.get(&NodeId(place.node)).is_some_and(|node| node.pool.is_failed())
    }

    fn meet(&mut self, volume: VolumeNo, need: &Need) {
        let is_fit = self.is_fit(self.truth(volume).holder, volume);
        match need {
            Need::Serve => {
                let now = self.control.instant(self.now);
                let here = |id: &NodeId| self.control.pulse.presence(id.0, now).is_here();
                let here: Vec<NodeId> = self.node_ids().into_iter().filter(here).collect();
                if !here.is_empty() {
                    let node = *self.rng.pick(&here);
                    self.note("need: serve");
                    self.probes.moved(volume, is_fit, self.now);
                    self.probes.served_anew(volume);
                    self.begin_target(node, volume, Begin::TakeOver);
                }
            }
            Need::Relieve if self.plan.off.leaves_stranded() => {}
            Need::Relieve => match self.relief_for(volume) {
                Some(node) => {
                    self.note("need: relieve");
                    let now = self.control.instant(self.now);
                    let before = self.control.reliefs.get(&volume).copied();
                    self.control.reliefs.insert(volume, Relief::after(before, now, RESTS));
                    self.probes.moved(volume, is_fit, self.now);
                    self.begin_target(node, volume, Begin::TakeOver);
                }
                None => self.note("need: relieve, and no node reaches a quorum"),
            },
            Need::Resume { node } => {
                self.note("need: resume");
                self.probes.moved(volume, is_fit, self.now);
                self.begin_target(NodeId(*node), volume, Begin::TakeOver);
            }
            // Copies are seen to in `control.rs`; nothing grows, is made or deleted by need.
            Need::Make | Need::Grow | Need::Delete => {}
            Need::Add | Need::Remove { .. } | Need::Replace { .. } | Need::TakeBack { .. } => {}
            Need::Renew { .. } | Need::Wipe { .. } => {}
        }
    }

    /// A node that reaches a quorum of the volume's voters: each is asked which of them it reaches now.
    fn relief_for(&self, volume: VolumeNo) -> Option<NodeId> {
        let object = self.catalog_volume(volume)?;
        let quorum = object.quorum?;
        let now = self.control.instant(self.now);
        let useful: Vec<&v1::Place> =
            object.places.iter().filter(|place| !self.has_failed(place)).collect();
        let load = |node: u64| {
            self.catalog.objects.values().filter(|object| object.holder.0 == node).count()
        };
        let here = useful.iter().filter(|place| {
            place.node != quorum.holder
                && self.control.pulse.presence(place.node, now).is_here()
                && self.nodes[&NodeId(place.node)].life == Life::Up
        });
        let candidate = |place: &&v1::Place| {
            let reached = useful
                .iter()
                .filter(|other| self.reaches(NodeId(place.node), NodeId(other.node), volume));
            Candidate {
                node: place.node,
                load: load(place.node),
                reached: reached.map(|other| other.replica).collect(),
                why: String::new(),
            }
        };
        let candidates: Vec<Candidate> = here.map(candidate).collect();
        choose(&quorum, &candidates).map(|best| NodeId(best.node))
    }

    /// Whether a call from one node to the replica on another is answered.
    pub(super) fn reaches(&self, from: NodeId, to: NodeId, volume: VolumeNo) -> bool {
        let node = &self.nodes[&to];
        let is_walled = self.wall(from, to) > self.now || self.wall(to, from) > self.now;
        node.life == Life::Up && node.replicas.contains_key(&volume) && (from == to || !is_walled)
    }

    /// Whether a node runs, and reaches the catalog and a quorum of the volume's voters now.
    pub(super) fn is_fit(&self, id: NodeId, volume: VolumeNo) -> bool {
        let votes = |member: Member| {
            let (node, _) = place_of(member.replica);
            self.reaches(id, node, volume) && member.replica == replica_id(node, volume)
        };
        self.nodes.get(&id).is_some_and(|node| node.life == Life::Up)
            && self.reaches_catalog(id)
            && self.truth(volume).membership.is_quorum(votes)
    }

    fn begin_target(&mut self, node: NodeId, volume: VolumeNo, begin: Begin) {
        let now = self.control.instant(self.now);
        self.control.touched.insert(volume, now);
        self.control.starting.insert(volume, self.now.after(PAUSE));
        let at = self.soon(200_000);
        let (above, fetch) = (Start(0), true);
        self.push(at, What::StartTarget { node, volume, begin, above, fetch });
    }

    /// A fault: another node takes over although nothing is wrong.
    pub(super) fn take_over(&mut self, node: NodeId, volume: VolumeNo) {
        self.disturb_volume(volume);
        self.begin_target(node, volume, Begin::TakeOver);
    }
}
