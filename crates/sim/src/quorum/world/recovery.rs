//! A quorum that is lost for good, and an operator who goes on with one of the copies that are left
//! (Q12).
//!
//! So many voters vanish with their devices that the others are no quorum, but at least one is left,
//! whether it had everything or was behind. The volume serves nothing until the operator chooses. The
//! target may die in the middle of it, and the operator asks again, perhaps for another copy.
use std::collections::{BTreeMap, BTreeSet};

use replication::catalog::VolumeObject;
use replication::client::{Command, RequestId};
use replication::membership::{Member, Voters};
use replication::words::{NodeId, ReplicaId};

use super::clients::COORDINATOR;
use super::event::{RunAt, What};
use super::{World, place_of};
use crate::quorum::clients::{Fact, VolumeNo};

/// So long before the end of all faults: the operator takes a while, and has to get through.
const BEFORE_END: u64 = 20_000_000;

/// Until the operator looks for the first time: longer than any lease.
const LOOKS_AFTER: u64 = 3_000_000;

#[derive(Debug)]
pub(super) struct Loss {
    survivors: Vec<Member>,
    /// Copies that the operator asked to go on with.
    asked: BTreeSet<ReplicaId>,
    chosen: bool,
}

pub(super) type Losses = BTreeMap<VolumeNo, Loss>;

impl World {
    /// Once in a volume's life, and only where nothing else is wrong with its copies.
    fn may_lose_quorum(&self, volume: VolumeNo) -> bool {
        let membership = &self.catalog.objects[&volume].membership;
        let rotten = self.rotten.keys().any(|(of, _)| *of == volume);
        let late = self.now.after(BEFORE_END) >= self.plan.heals;
        let healthy = |member: &Member| {
            let (node, _) = place_of(member.replica);
            let pool = &self.nodes[&node].pool;
            !pool.is_failed() && self.member_on(node, volume) == Some(*member)
        };
        !late
            && !rotten
            && !self.losses.contains_key(&volume)
            && membership.next.is_none()
            && membership.voters.cf() > 1
            && membership.voters.members.iter().all(healthy)
    }

    /// Those that are to be left may be away for a while before: then they have not all that was
    /// acknowledged, nor the reigns that came meanwhile.
    pub(super) fn lose_quorum(&mut self, volume: VolumeNo) {
        if !self.may_lose_quorum(volume) {
            return;
        }
        let voters = self.catalog.objects[&volume].membership.voters.clone();
        let mut members = voters.members.clone();
        self.rng.shuffle(&mut members);
        members.truncate(1 + self.rng.index(voters.cf() - 1));
        let fall_behind = self.rng.chance(2, 3);
        let loss = Loss { survivors: members.clone(), asked: BTreeSet::new(), chosen: false };
        self.losses.insert(volume, loss);
        if !fall_behind {
            return self.lose_others(volume);
        }
        self.note("those that will be left fall behind");
        for member in members {
            self.kill_node(place_of(member.replica).0);
        }
        for (at, what) in
            [(2_000_000, What::StartAnew { volume }), (6_000_000, What::QuorumGoes { volume })]
        {
            let at = self.soon(at / 2).after(at / 2);
            self.push(at, what);
        }
    }

    /// Another start of the holder's process: a reign of its own, under the same grant.
    pub(super) fn start_anew(&mut self, volume: VolumeNo) {
        let holder = self.catalog.objects[&volume].holder;
        self.disturb_volume(volume);
        self.drop_target(holder, volume);
    }

    /// All voters but those that are to be left vanish; unless membership changed meanwhile.
    pub(super) fn lose_others(&mut self, volume: VolumeNo) {
        let membership = self.catalog.objects[&volume].membership.clone();
        let loss = self.losses.get_mut(&volume).expect("it is planned");
        loss.survivors.retain(|member| membership.voters.has(*member));
        let left = loss.survivors.clone();
        let gone = membership.voters.members.iter().filter(|member| !left.contains(member));
        let gone: Vec<NodeId> = gone.map(|member| place_of(member.replica).0).collect();
        let failed = gone.iter().any(|node| self.nodes[node].pool.is_failed());
        for member in &left {
            let at = self.soon(2_000_000);
            self.push(at, What::Restart { node: place_of(member.replica).0 });
        }
        let few = !left.is_empty() && left.len() < membership.voters.cf();
        if failed || !few || membership.next.is_some() {
            self.losses.remove(&volume);
            return;
        }
        self.say(|| format!("v{} loses its quorum: {left:?} are left", volume.0));
        self.note("quorum lost for good");
        for node in gone {
            self.cut_power(node);
            self.nodes.get_mut(&node).expect("a node").pool.remove(volume);
            self.restart_later(node);
        }
        self.disturb_all(self.now);
        self.observed.quorum_lost(volume, self.now);
        let at = self.soon(5_000_000).after(LOOKS_AFTER);
        self.push(at, What::Recover { volume });
    }

    /// The operator looks at the volume, and goes on with one of its copies.
    pub(super) fn recover(&mut self, volume: VolumeNo) {
        let Some(loss) = self.losses.get(&volume).filter(|loss| !loss.chosen) else { return };
        let survivors = loss.survivors.clone();
        let again = self.soon(1_000_000).after(500_000);
        self.push(again, What::Recover { volume });
        let holder = self.catalog.objects[&volume].holder;
        let Some(target) = self.nodes[&holder].targets.get(&volume) else { return };
        let run = RunAt { node: holder, run: target.run };
        if target.machine.status(self.nodes[&holder].moment(self.now)).serving {
            // A target that had a quorum once waits for another: it is started again.
            self.note("target without a quorum started again");
            return self.drop_target(holder, volume);
        }
        let held = |member: &Member| self.nodes[&place_of(member.replica).0].pool.held(volume);
        let best = survivors.iter().max_by_key(|member| held(member)).copied();
        let chosen = match self.rng.chance(2, 3) {
            true => best.expect("one is left"),
            false => *self.rng.pick(&survivors),
        };
        let loss = self.losses.get_mut(&volume).expect("looked at");
        loss.asked.insert(chosen.replica);
        let id = RequestId(COORDINATOR - 1 - self.number());
        let command = Command::Choose { replica: chosen.replica };
        let at = self.soon(3_000);
        self.note("choice asked for");
        self.push(at, What::Commanded { volume, to: run, id, command });
        if self.rng.chance(1, 3) {
            let at = at.after(self.rng.below(15_000));
            self.push(at, What::Interrupt { run, volume });
        }
    }

    /// The target dies in the middle of a choice.
    pub(super) fn interrupt(&mut self, run: RunAt, volume: VolumeNo) {
        if self.is_running(run, volume) {
            self.note("choice interrupted");
            self.disturb_volume(volume);
            self.drop_target(run.node, volume);
        }
    }

    /// The catalog has a choice. From here on the content is what this copy has, and all that was
    /// acknowledged and is not there is lost, which everybody has to be told.
    pub(super) fn choice_made(
        &mut self,
        volume: VolumeNo,
        before: &VolumeObject,
        after: &VolumeObject,
    ) {
        let membership = &after.membership;
        let Some(loss) = self.losses.get_mut(&volume) else {
            return self.fail(format!("Q12: a choice that no operator made: {after:?}"));
        };
        let only = loss.survivors.iter().find(|it| membership.voters == Voters::of(&[**it]));
        let Some(member) = only.copied().filter(|it| loss.asked.contains(&it.replica)) else {
            return self.fail(format!("Q12: not what an operator chose: {after:?}"));
        };
        if membership.version <= before.membership.version || membership.next.is_some() {
            return self.fail(format!("Q12: a choice is no new membership: {before:?} {after:?}"));
        }
        let again = std::mem::replace(&mut loss.chosen, true);
        self.note(if again { "copy chosen anew" } else { "copy chosen" });
        self.observed.quorum_chosen(volume);
        self.groups.forget();
        let (node, _) = place_of(member.replica);
        if let Err(violation) = self.judge_copy(node, volume) {
            return self.fail(violation);
        }
        let pool = &mut self.nodes.get_mut(&node).expect("a node").pool;
        let snapshots = pool.snapshots(volume).iter().map(|snapshot| snapshot.uid).collect();
        match pool.read_all(volume, None) {
            Ok(content) => {
                let (at, bytes) = (self.now, content.bytes);
                self.clients.fact(&Fact::Chosen { volume, at, bytes, snapshots });
            }
            Err(error) => self.fail(format!("the chosen copy cannot be read: {error}")),
        }
    }
}
