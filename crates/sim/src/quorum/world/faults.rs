//! Bad things, one by one, as the plan says; and their end.
use replication::client::{Command, RequestId};
use replication::membership::Member;
use replication::message::ToTarget;
use replication::words::NodeId;

use super::clients::COORDINATOR;
use super::event::What;
use super::{World, place_of};
use crate::quorum::clients::VolumeNo;
use crate::quorum::plan::Fault;
use crate::quorum::store::Rotten;

/// What a fault waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trap {
    Welcome,
    /// Of something that is not durable.
    Ack,
}

impl World {
    pub(super) fn plan_fault(&mut self, index: usize) {
        let mean = self.plan.faults[index].1;
        let at = self.soon(2 * mean).after(500_000);
        if at < self.plan.heals {
            self.push(at, What::Fault { index });
        }
    }

    pub(super) fn fault(&mut self, index: usize) {
        self.plan_fault(index);
        let (fault, _) = self.plan.faults[index];
        self.note(fault.name());
        self.say(|| format!("FAULT {fault:?}"));
        let nodes = self.node_ids();
        let node = *self.rng.pick(&nodes);
        let volume = VolumeNo(self.rng.index(self.plan.volumes.len()));
        match fault {
            Fault::Kill => self.kill_for_a_while(node),
            Fault::PowerCut => {
                self.cut_power(node);
                self.restart_later(node);
            }
            Fault::SitePowerCut => self.cut_site(),
            Fault::Pause => {
                let until = self.soon(6_000_000);
                self.pause_node(node, until);
            }
            Fault::Stall => self.arm_stall(node, volume),
            Fault::CleanStop => {
                self.stop_node(node);
                self.restart_later(node);
            }
            Fault::KillTarget => {
                let runs = self.runs(volume);
                if let Some(run) = runs.first() {
                    self.disturb_volume(volume);
                    self.drop_target(run.node, volume);
                }
            }
            Fault::CloseTarget => {
                self.disturb_volume(volume);
                let id = RequestId(COORDINATOR - 1 - self.number());
                self.command(volume, id, Command::Close);
            }
            Fault::TakeOver if self.nodes[&node].is_up() => self.take_over(node, volume),
            Fault::BreakLink => self.break_some_link(),
            Fault::Partition => self.raise_walls(&nodes),
            Fault::CutOff => self.cut_off(volume),
            Fault::Stranded => self.strand(volume),
            Fault::KillAtWelcome => self.armed = Some(Trap::Welcome),
            Fault::PowerCutAtAck => self.armed = Some(Trap::Ack),
            Fault::SlowLinks => {
                self.slow_links_until = self.soon(6_000_000);
                self.disturb_all(self.slow_links_until);
            }
            Fault::CorruptByte => self.corrupt_next = true,
            Fault::FullPool if self.rng.chance(1, 3) => self.fill_all_pools(),
            Fault::SlowDisk | Fault::FullPool | Fault::FailPool => self.spoil_disk(node, fault),
            Fault::FlushFails => self.fail_flushes(node),
            Fault::Rot => self.rot(node, volume),
            Fault::CatalogAway => self.catalog_goes(),
            Fault::BreakClient => self.break_client(),
            Fault::CatalogRolledBack if !self.catalog.away => self.roll_back(volume),
            Fault::ObjectMissing => self.hide(volume),
            Fault::Scale if !self.catalog.away && !self.is_lost(volume) => self.scale(volume),
            Fault::Replace if !self.catalog.away && !self.is_lost(volume) => self.replace(volume),
            Fault::GroupCut => self.begin_group(),
            Fault::QuorumLost if !self.is_lost(volume) => self.lose_quorum(volume),
            Fault::TakeOver
            | Fault::Scale
            | Fault::Replace
            | Fault::CatalogRolledBack
            | Fault::QuorumLost => {}
            Fault::Clone => self.begin_clone(volume),
        }
    }

    pub(super) fn kill_for_a_while(&mut self, node: NodeId) {
        self.kill_node(node);
        self.restart_later(node);
    }

    pub(super) fn restart_later(&mut self, node: NodeId) {
        let away = *self.rng.pick(&[100_000, 3_000_000, 15_000_000]);
        let at = self.soon(away);
        self.push(at, What::Restart { node });
    }

    fn cut_site(&mut self) {
        for node in self.node_ids() {
            if self.rng.chance(3, 4) {
                self.cut_power(node);
                self.restart_later(node);
            }
        }
    }

    fn break_some_link(&mut self) {
        let links = self.link_ids();
        if !links.is_empty() {
            let link = *self.rng.pick(&links);
            self.break_link(link);
        }
    }

    fn raise_walls(&mut self, nodes: &[NodeId]) {
        let now = self.now;
        self.walls.retain(|(_, _, until)| *until > now);
        let until = self.soon(8_000_000);
        let both = self.rng.chance(2, 3);
        let cut: Vec<NodeId> = nodes.iter().copied().filter(|_| self.rng.chance(1, 2)).collect();
        for a in &cut {
            for b in nodes.iter().filter(|node| !cut.contains(node)) {
                self.walls.push((*a, *b, until));
                if both {
                    self.walls.push((*b, *a, until));
                }
            }
        }
        if self.rng.chance(1, 2) {
            for node in &cut {
                self.exile(*node, until);
            }
        }
        self.disturb_all(until);
        let breaks = self.rng.chance(1, 2);
        for id in self.link_ids() {
            let link = &self.links[&id];
            let across = cut.contains(&link.replica) != cut.contains(&link.target.node);
            if across && breaks {
                self.break_link(id);
            }
        }
        self.say(|| format!("a wall around {cut:?} until {} ms", until.0 / 1000));
    }

    /// The holder does not reach the catalog, and of the others hardly anybody for a while; clients
    /// still reach it. Somebody else takes over meanwhile.
    fn cut_off(&mut self, volume: VolumeNo) {
        let holder = self.catalog.objects[&volume].holder;
        let others = self.node_ids().into_iter().filter(|node| *node != holder);
        let others: Vec<NodeId> = others.filter(|node| self.nodes[node].is_up()).collect();
        if others.is_empty() || !self.nodes.get(&holder).is_some_and(|node| node.is_up()) {
            return;
        }
        let until = self.soon(8_000_000).after(500_000);
        self.exile(holder, until);
        self.disturb(holder, until);
        // One of the others may be within reach, or soon again.
        let near = *self.rng.pick(&others);
        let near_until = match self.rng.below(3) {
            0 => self.now,
            1 => self.soon(1_000_000),
            _ => until,
        };
        for node in self.node_ids() {
            let until = if node == near { near_until } else { until };
            self.walls.push((holder, node, until));
            self.walls.push((node, holder, until));
        }
        let far: Vec<NodeId> = others.iter().copied().filter(|node| *node != near).collect();
        let successor = *self.rng.pick(if far.is_empty() { &others } else { &far });
        self.say(|| format!("{holder} is cut off, but for {near}; {successor} takes over"));
        self.take_over(successor, volume);
        self.stall_at_end_of_lease(holder);
    }

    /// The data network of the holder is gone, for long. Its heartbeats and the catalog go over another one.
    fn strand(&mut self, volume: VolumeNo) {
        let holder = self.catalog.objects[&volume].holder;
        let until = self.soon(20_000_000).after(12_000_000);
        for node in self.node_ids().into_iter().filter(|node| *node != holder) {
            self.walls.push((holder, node, until));
            self.walls.push((node, holder, until));
            self.disturb(node, self.now);
        }
        self.disturb(holder, until);
        self.say(|| format!("{holder} is stranded until {} ms", until.0 / 1000));
    }

    /// A replica has just sent something: what was waiting for it strikes.
    pub(super) fn spring_trap(&mut self, node: NodeId, sent: &ToTarget) {
        let trap = match sent {
            ToTarget::Welcome(_) => Trap::Welcome,
            ToTarget::Ack { held, durable, .. } if held > durable => Trap::Ack,
            _ => return,
        };
        if self.armed == Some(trap) {
            self.armed = None;
            let at = self.soon(2_000);
            self.push(at, What::Strike { node, trap });
        }
    }

    pub(super) fn strike(&mut self, node: NodeId, trap: Trap) {
        match trap {
            Trap::Welcome => self.kill_node(node),
            Trap::Ack => self.cut_power(node),
        }
        let at = self.soon(100_000);
        self.push(at, What::Restart { node });
    }

    fn spoil_disk(&mut self, node: NodeId, fault: Fault) {
        let until = self.soon(8_000_000);
        let delay = *self.rng.pick(&[100_000, 800_000, 800_000, 3_000_000]);
        let mood = &mut self.nodes.get_mut(&node).expect("a node").pool.mood;
        match fault {
            Fault::SlowDisk => mood.delay = delay,
            Fault::FullPool => mood.fill(until),
            _ => mood.failed = true,
        }
        match fault {
            Fault::FullPool => self.disturb_space(node, until),
            _ => self.disturb(node, until),
        }
        self.push(until, What::DiskHeals { node });
    }

    /// No pool has space, for longer than a client waits for it; at times for much longer.
    fn fill_all_pools(&mut self) {
        let least = *self.rng.pick(&[5_000_000, 5_000_000, 5_000_000, 25_000_000]);
        // Copies have to arrive before the end, which takes space.
        let last = self.plan.heals.after(15_000_000);
        let until = self.soon(10_000_000).after(least).min(last);
        self.say(|| format!("all pools are full until {} ms", until.0 / 1000));
        for node in self.node_ids() {
            self.disturb_space(node, until);
            self.nodes.get_mut(&node).expect("a node").pool.mood.fill(until);
            self.push(until, What::DiskHeals { node });
        }
    }

    pub(super) fn disk_heals(&mut self, id: NodeId) {
        let (delay, now) = (self.plan.disk_delay, self.now);
        let mood = &mut self.nodes.get_mut(&id).expect("a node").pool.mood;
        let failed = std::mem::take(&mut mood.failed);
        let only_space = !failed && mood.delay == delay;
        (mood.delay, mood.full) = (delay, mood.full && now < mood.full_until);
        match only_space {
            true => self.disturb_space(id, now),
            false => self.disturb(id, now),
        }
        if failed {
            // A failed pool is opened anew, with what its device kept; at times it kept nothing.
            self.cut_power(id);
            self.restart_later(id);
            if self.rng.chance(1, 3) {
                self.lose_copies(id);
            }
        }
    }

    fn lose_copies(&mut self, id: NodeId) {
        for volume in self.volumes() {
            if self.nodes[&id].pool.has(volume) && self.may_lose_one(volume) {
                self.note("copy lost with its device");
                self.disturb(id, self.now);
                self.nodes.get_mut(&id).expect("a node").pool.remove(volume);
            }
        }
    }

    /// A copy may vanish only while all others are there, and those are a quorum without it: more
    /// than that is not promised. Where a vote was given up, there are fewer than RF.
    fn may_lose_one(&self, volume: VolumeNo) -> bool {
        let membership = &self.catalog.objects[&volume].membership;
        let rotten = self.rotten.keys().any(|(of, _)| *of == volume);
        let lost = self.is_lost(volume) || self.losses.contains_key(&volume);
        let whole = self.is_whole(volume) && !rotten && !lost;
        let voters = &membership.voters;
        whole && membership.next.is_none() && voters.rf >= 3 && voters.members.len() > voters.cf()
    }

    /// No voter has lost its content.
    fn is_whole(&self, volume: VolumeNo) -> bool {
        let there = |member: &Member| {
            let (node, _) = place_of(member.replica);
            self.member_on(node, volume) == Some(*member)
        };
        self.catalog.objects[&volume].membership.everybody().iter().all(there)
    }

    /// Never of the same block on two copies, only where others vote, and only where one of them
    /// has everything that this copy has, durably: what rots on the only copy is gone.
    fn rot(&mut self, node: NodeId, volume: VolumeNo) {
        let object = &self.catalog.objects[&volume];
        let enough = object.membership.voters.rf >= 3 && object.desired.len() >= 3;
        if !enough || self.is_lost(volume) || !self.is_whole(volume) || !self.has_twin(node, volume)
        {
            return;
        }
        let rotten = &self.rotten;
        let pool = &mut self.nodes.get_mut(&node).expect("a node").pool;
        let rot = pool.rot(volume, |granule| !rotten.contains_key(&(volume, granule)));
        if let Some(rot) = rot {
            let granule = rot.granule;
            self.rotten.insert((volume, granule), (node, rot));
            self.note("granule rotted");
            self.say(|| format!("v{} granule {granule} rots on {node}", volume.0));
        }
    }

    fn has_twin(&self, node: NodeId, volume: VolumeNo) -> bool {
        let copy = |id: NodeId| self.nodes[&id].replicas.get(&volume);
        let Some(own) = copy(node).map(|replica| replica.position()) else { return false };
        let voters = &self.catalog.objects[&volume].membership.voters.members;
        voters.iter().map(|member| place_of(member.replica).0).filter(|other| *other != node).any(
            |other| {
                copy(other).is_some_and(|replica| {
                    replica.position() >= own && replica.durable() >= own.seq
                })
            },
        )
    }

    /// What rotted had a twin then. That may have gone on into a tail which lost, while this copy
    /// went back to the end of the history: then nobody else has the bytes any more, and the volume
    /// could not be had without them. More than one loss at a time is not promised.
    fn restore_only_copies(&mut self) {
        for volume in self.volumes() {
            let rotten = std::mem::take(&mut self.rotten);
            let of_volume = rotten.iter().filter(|((of, _), _)| *of == volume);
            let of_volume: Vec<&(NodeId, Rotten)> = of_volume.map(|(_, rot)| rot).collect();
            let mut contents = Vec::new();
            for (id, node) in self.nodes.iter_mut().filter(|_| !of_volume.is_empty()) {
                contents.extend(node.pool.read_all(volume, None).map(|content| (*id, content)));
            }
            for (node, rot) in of_volume {
                let others = contents.iter().filter(|(other, _)| other != node);
                let is_only = !others.map(|(_, content)| content).any(|it| rot.is_in(it));
                let pool = &mut self.nodes.get_mut(node).expect("a node").pool;
                if is_only && pool.restore(rot) {
                    self.note("rot of an only copy restored");
                }
            }
            self.rotten = rotten;
        }
    }

    fn catalog_goes(&mut self) {
        self.catalog.away = true;
        let at = self.soon(8_000_000);
        self.push(at, What::CatalogBack);
    }

    /// From here on nothing bad happens.
    pub(super) fn heal(&mut self) {
        self.healed = true;
        self.walls.clear();
        self.catalog.away = false;
        self.slow_links_until = self.now;
        self.corrupt_next = false;
        self.armed = None;
        self.catalog.exiles.clear();
        for volume in self.volumes() {
            self.object_back(volume);
        }
        for node in self.node_ids() {
            self.disk_heals(node);
            self.push(self.now, What::Restart { node });
            self.nodes.get_mut(&node).expect("a node").pool.spare_flushes();
            let pause = &mut self.nodes.get_mut(&node).expect("a node").life;
            if let super::nodes::Life::Paused { until } = pause {
                *until = (*until).min(self.now);
            }
        }
        self.restore_only_copies();
        self.say(|| "everything heals".to_owned());
    }
}
