//! The replicas of this node: their machines between links and pools.
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use engine::VolumeSpec;
use replication::membership::{Member, Membership};
use replication::message::ForTarget;
use replication::replica::{CREDIT, Event, LinkId, Output, Replica, Run, WipeRefusal};
use replication::store::{StoreError, StoreOp};
use replication::words::{Incarnation, ReplicaId, SnapshotUid, VolumeUid};
use tracing::{error, info};

use super::Shard;
use super::orders::{Answer, Refusal, ReplicaSpec};
use super::pools::{OwnWork, PoolRun};
use super::volumes::VolumeNo;
use super::workers::Workers;
use crate::store::Cut;

/// The other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In this shard: messages are handed over as they are.
    Here,
    Line(usize),
}

pub struct ReplicaRun {
    pub machine: Replica,
    pub pool: usize,
    pub events: Vec<Event>,
    pub links: HashMap<LinkId, End>,
    pub workers: Workers,
    out: Vec<Output>,
    pub closed: bool,
}

/// A replica that is being made.
pub struct Creation {
    pub volume: VolumeNo,
    pub incarnation: Incarnation,
    pub workers: Option<usize>,
    pub answer: Answer<Incarnation>,
}

/// A replica that is being deleted.
pub struct Deletion {
    volume: VolumeNo,
    /// For a replica that is taken up again.
    workers: Option<usize>,
    /// Everybody who asked for it.
    answers: Vec<Answer<()>>,
}

impl ReplicaRun {
    pub fn answered(&mut self) {
        self.workers.answered();
    }
}

impl Shard {
    /// Opens a replica that a pool has.
    pub(super) fn open_replica(&mut self, pool: usize, uid: VolumeUid) {
        let Some(facts) = self.pools[pool].host.facts(uid) else { return };
        let number = self.volumes.number(uid);
        let place = &self.pools[pool].place;
        let run = Run { boot: self.config.boot, powered: place.powered, credit: CREDIT };
        let mut out = Vec::new();
        match Replica::open(facts, run, self.now, &mut out) {
            Ok(machine) => {
                info!(pool = place.name, position = ?machine.position(), "replica opened");
                self.volumes.get_mut(number).replica = Some(ReplicaRun {
                    machine,
                    pool,
                    events: Vec::new(),
                    links: HashMap::new(),
                    workers: Workers::default(),
                    out,
                    closed: false,
                });
                self.carry_replica(number);
            }
            Err(reason) => {
                error!(pool = place.name, %reason, "a replica's state cannot be read: it stays out");
            }
        }
    }

    pub(super) fn run_replica(&mut self, number: VolumeNo) {
        let now = self.now;
        let Some(replica) = self.volumes.replica(number) else { return };
        replica.machine.step_all(now, &mut replica.events, &mut replica.out);
        self.carry_replica(number);
    }

    fn carry_replica(&mut self, number: VolumeNo) {
        let Some(replica) = self.volumes.replica(number) else { return };
        let mut out = std::mem::take(&mut replica.out);
        for output in out.drain(..) {
            match output {
                Output::Store { tag, op } => {
                    let run = self.volumes.get_mut(number);
                    let replica = run.replica.as_mut().expect("it is running");
                    let (pool, uid) = (replica.pool, run.uid);
                    if let Some((tag, op)) = replica.workers.begin(tag, op) {
                        self.submit(pool, uid, tag, op);
                    }
                }
                Output::Send { link, message } => self.replica_says(number, link, message),
                Output::Drop { link } => self.replica_drops(number, link),
                Output::Closed => {
                    if let Some(replica) = self.volumes.replica(number) {
                        replica.closed = true;
                    }
                }
            }
        }
        if let Some(replica) = self.volumes.replica(number) {
            replica.out = out;
        }
    }

    /// Also of one that is being made, or that comes back because it could not be deleted.
    pub(super) fn bound_workers(&mut self, number: VolumeNo, limit: Option<usize>) {
        for (_, work) in self.pools.iter_mut().flat_map(|pool| &mut pool.own) {
            match work {
                OwnWork::Create(it) if it.volume == number => it.workers = limit,
                OwnWork::Delete(it) if it.volume == number => it.workers = limit,
                _ => {}
            }
        }
        if let Some(replica) = self.volumes.replica(number) {
            replica.workers.set_limit(limit);
            self.submit_waiting(number);
        }
    }

    /// What waited because of the bound on concurrent operations.
    pub(super) fn submit_waiting(&mut self, number: VolumeNo) {
        while let Some(replica) = self.volumes.replica(number)
            && let Some((tag, op)) = replica.workers.next()
        {
            let (pool, uid) = (replica.pool, self.volumes.get(number).uid);
            self.submit(pool, uid, tag, op);
        }
    }

    fn replica_says(&mut self, number: VolumeNo, link: LinkId, message: ForTarget) {
        let Some(replica) = self.volumes.replica(number) else { return };
        match replica.links.get(&link) {
            Some(End::Here) => self.tell_local_target(number, link, message),
            Some(End::Line(line)) => {
                let line = *line;
                self.send_frame(line, replication::message::encode_to_target(&message));
            }
            None => {}
        }
    }

    fn replica_drops(&mut self, number: VolumeNo, link: LinkId) {
        let end = self.volumes.replica(number).and_then(|replica| replica.links.remove(&link));
        match end {
            Some(End::Here) => self.local_link_lost(number, link),
            Some(End::Line(line)) => {
                // What it said last is why: a target that never hears of a refusal asks for ever.
                self.flush_line(line);
                self.close_line(line, "the replica follows another target");
            }
            None => {}
        }
    }

    /// To the replica, from whoever is at the other end.
    pub(super) fn tell_replica(&mut self, number: VolumeNo, event: Event) {
        if let Some(replica) = self.volumes.replica(number) {
            replica.events.push(event);
            self.volumes.wake(number);
        }
    }

    pub(super) fn create_replica(&mut self, spec: ReplicaSpec, answer: Answer<Incarnation>) {
        let Some(pool) = self.pools.iter().position(|pool| pool.place.name == spec.pool) else {
            return answer(Err(Refusal::UnknownPool { pool: spec.pool }));
        };
        let number = self.volumes.number(spec.volume);
        if let Some(replica) = &self.volumes.get(number).replica {
            let pool = replica.pool;
            return self.settle_replica(pool, spec.volume, answer, Err(Refusal::ReplicaExists));
        }
        let tag = self.own_tag();
        let (incarnation, workers) = (spec.incarnation, spec.workers);
        let creation = Creation { volume: number, incarnation, workers, answer };
        self.pools[pool].own.push((tag, OwnWork::Create(creation)));
        let wanted = VolumeSpec {
            name: spec.name,
            size: spec.size,
            block_size: spec.block_size,
            compression: spec.compression,
            uid: spec.volume.0,
        };
        self.pools[pool].asked = true;
        self.pools[pool].host.create_from(spec.volume, tag, wanted, incarnation, spec.origin);
    }

    pub(super) fn created(
        &mut self,
        pool: usize,
        uid: VolumeUid,
        creation: Creation,
        result: Result<(), StoreError>,
    ) {
        let answer = creation.answer;
        if let Err(error) = result {
            return match self.volumes.replica(creation.volume).is_some() {
                // The same call was under way already, and has made it.
                true => self.settle_replica(pool, uid, answer, Err(Refusal::ReplicaExists)),
                false => answer(Err(Refusal::Store(error))),
            };
        }
        self.open_replica(pool, uid);
        if let Some(replica) = self.volumes.replica(creation.volume) {
            replica.workers.set_limit(creation.workers);
        }
        self.volumes.wake(creation.volume);
        self.settle_replica(pool, uid, answer, Ok(creation.incarnation));
    }

    /// Told when it cannot be lost any more: a vote may be given to it from then on.
    fn settle_replica(
        &mut self,
        pool: usize,
        uid: VolumeUid,
        answer: Answer<Incarnation>,
        made: Result<Incarnation, Refusal>,
    ) {
        let tag = self.own_tag();
        self.pools[pool].own.push((tag, OwnWork::Settle(answer, made)));
        self.submit(pool, uid, tag, StoreOp::Flush);
    }

    pub(super) fn replica_snapshot(
        &self,
        volume: VolumeUid,
        snapshot: SnapshotUid,
    ) -> Result<Cut, Refusal> {
        let number = self.volumes.known(volume).ok_or(Refusal::NoReplica)?;
        let replica = self.volumes.get(number).replica.as_ref().ok_or(Refusal::NoReplica)?;
        self.pools[replica.pool].host.snapshot(volume, snapshot).map_err(Refusal::Store)
    }

    /// Q13: only a content that has no vote, and only the one that is meant.
    pub(super) fn delete_replica(
        &mut self,
        volume: VolumeUid,
        (replica, incarnation): (ReplicaId, Incarnation),
        membership: &Membership,
        answer: Answer<()>,
    ) {
        let found = self.volumes.known(volume).filter(|at| self.volumes.get(*at).replica.is_some());
        let Some(number) = found else {
            return self.delete_left(volume, replica, membership, answer);
        };
        let run = self.volumes.replica(number).expect("it was found");
        if let Err(refusal) = run.machine.may_wipe(Member { replica, incarnation }, membership) {
            return answer(Err(Refusal::Wipe(refusal)));
        }
        let run = self.volumes.get_mut(number).replica.take().expect("it was found");
        for (link, end) in run.links {
            match end {
                End::Here => self.local_link_lost(number, link),
                End::Line(line) => self.close_line(line, "the replica is deleted"),
            }
        }
        let (workers, answers) = (run.workers.limit(), vec![answer]);
        self.ask_deletion(run.pool, volume, Deletion { volume: number, workers, answers });
    }

    fn ask_deletion(&mut self, pool: usize, volume: VolumeUid, deletion: Deletion) {
        let tag = self.own_tag();
        let pool = &mut self.pools[pool];
        pool.own.push((tag, OwnWork::Delete(deletion)));
        pool.asked = true;
        pool.host.delete(volume, tag);
    }

    /// There is no replica that runs, and still there may be content.
    fn delete_left(
        &mut self,
        volume: VolumeUid,
        replica: ReplicaId,
        membership: &Membership,
        answer: Answer<()>,
    ) {
        let number = self.volumes.number(volume);
        // It will have a vote: whoever deletes must not go on without it.
        let makes = |work: &OwnWork| matches!(work, OwnWork::Create(it) if it.volume == number);
        if self.pools.iter().flat_map(|pool| &pool.own).any(|(_, work)| makes(work)) {
            return answer(Err(Refusal::BeingMade));
        }
        // Not gone before the first call is answered: until then it may come back.
        for (_, work) in self.pools.iter_mut().flat_map(|pool| &mut pool.own) {
            match work {
                OwnWork::Delete(it) if it.volume == number => return it.answers.push(answer),
                OwnWork::Create(_)
                | OwnWork::Delete(_)
                | OwnWork::Settle(..)
                | OwnWork::Look(_) => {}
            }
        }
        let holds = |pool: &PoolRun| pool.host.has(volume);
        // Its state cannot be read, so nobody knows whose vote it has: none of this number may vote.
        let votes = membership.everybody().iter().any(|member| member.replica == replica);
        if votes && self.pools.iter().any(holds) {
            return answer(Err(Refusal::Wipe(WipeRefusal::Voter)));
        }
        // What a crash left of a replica that was to be made never had an incarnation, and so no vote.
        let left = |pool: &PoolRun| holds(pool) || pool.host.has_half_made(volume);
        let Some(pool) = self.pools.iter().position(left) else {
            return answer(Err(Refusal::NoReplica));
        };
        let deletion = Deletion { volume: number, workers: None, answers: vec![answer] };
        self.ask_deletion(pool, volume, deletion);
    }

    pub(super) fn deleted(
        &mut self,
        pool: usize,
        deletion: Deletion,
        result: Result<(), StoreError>,
    ) {
        let Deletion { volume: number, workers, answers } = deletion;
        let uid = self.volumes.get(number).uid;
        info!(volume = ?uid, ok = result.is_ok(), "replica deleted");
        // What is still there must be seen, and be deleted by the same call. Not on the way to the
        // end: nobody would close it.
        if result.is_err() && self.ending.is_none() {
            self.open_replica(pool, uid);
            if let Some(replica) = self.volumes.replica(number) {
                replica.workers.set_limit(workers);
            }
            self.volumes.wake(number);
        }
        for answer in answers {
            answer(result.clone().map_err(Refusal::Store));
        }
    }
}
