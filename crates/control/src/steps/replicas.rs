//! Replicas of a volume that is served: one more, one less, one for another.
use std::time::{Duration, Instant};

use proto::v1;
use proto::v1::Place;
use tonic::Code;

use super::create::{NOT_YET, deletion, present};
use super::{Found, Site, StepError, faults};

pub(super) const PAUSE: Duration = Duration::from_millis(100);

impl Site {
    /// One more replica; it votes when it has caught up.
    pub async fn add_replica(&self, name: &str, node: &str, pool: &str) -> Result<(), StepError> {
        let found = self.known(name).await?;
        let member = self.place_replica(&found.volume, node, pool).await?;
        self.desire(&found.volume, member, None).await
    }

    /// From now on it is wanted, in the place of another one if that is told.
    async fn desire(
        &self,
        of: &v1::Volume,
        member: v1::Member,
        instead: Option<u64>,
    ) -> Result<(), StepError> {
        self.change_kept(of, |volume| {
            let quorum = volume.quorum.get_or_insert_default();
            let other = |it: &v1::Member| it.replica == member.replica && *it != member;
            if quorum.desired.iter().any(other) {
                let (name, replica) = (of.name.clone(), member.replica);
                return Err(StepError::MadeTwice { name, replica });
            }
            quorum.desired.retain(|known| Some(known.replica) != instead && *known != member);
            quorum.desired.push(member);
            Ok(())
        })
        .await?;
        self.fault(faults::REPLICA_WANTED).await;
        Ok(())
    }

    async fn place_replica(
        &self,
        of: &v1::Volume,
        node: &str,
        pool: &str,
    ) -> Result<v1::Member, StepError> {
        let at = self.node_named(node).await?.id;
        let there = || StepError::ReplicaThere { name: of.name.clone(), node: node.into() };
        let found = self
            .change_kept(of, |volume| {
                if volume.places.iter().any(|place| place.node == at && place.pool != pool) {
                    return Err(there());
                }
                if !volume.places.iter().any(|place| place.node == at) {
                    let last = volume.places.iter().map(|place| place.replica).max();
                    let replica = last.unwrap_or(0) + 1;
                    volume.places.push(v1::Place { replica, node: at, pool: pool.into() });
                }
                Ok(())
            })
            .await?;
        self.fault(faults::REPLICA_PLACED).await;
        let place = found.volume.places.iter().find(|place| place.node == at).ok_or_else(there)?;
        self.make_replica(&found, place).await
    }

    /// One replica less: its vote goes, then its content.
    pub async fn remove_replica(&self, name: &str, node: &str) -> Result<(), StepError> {
        let (found, place) = self.replica_on(name, node).await?;
        self.change_of(&found.volume, |volume| {
            undesired(volume, place.replica);
            Ok(())
        })
        .await?;
        self.forget_replica(&found.volume, place.replica).await
    }

    /// One for another, in one step of the membership.
    pub async fn replace_replica(
        &self,
        name: &str,
        old: &str,
        node: &str,
        pool: &str,
    ) -> Result<(), StepError> {
        let (found, gone) = self.replica_on(name, old).await?;
        let member = self.place_replica(&found.volume, node, pool).await?;
        self.desire(&found.volume, member, Some(gone.replica)).await?;
        self.forget_replica(&found.volume, gone.replica).await
    }

    /// A replica without a vote, for want of space for instance: its content goes, and it comes back
    /// as new in the same place. It is not wanted meanwhile, so that nobody gives it a vote.
    pub async fn renew_replica(&self, name: &str, node: &str) -> Result<(), StepError> {
        let (found, place) = self.replica_on(name, node).await?;
        let replica = place.replica;
        let still = || StepError::StillVotes { name: name.into(), node: node.into() };
        self.change_kept(&found.volume, |volume| {
            if votes(volume, replica) {
                return Err(still());
            }
            undesired(volume, replica);
            Ok(())
        })
        .await?;
        self.wipe_voteless(&found.volume, replica).await?.ok_or_else(still)?;
        let found = self.kept(&found.volume).await?;
        let member = self.make_replica(&found, &place).await?;
        self.desire(&found.volume, member, None).await
    }

    /// One for another: the new one votes when it has arrived, and the old one does not from then on.
    pub async fn begin_replacing(
        &self,
        of: &v1::Volume,
        old: u64,
        node: &str,
        pool: &str,
    ) -> Result<(), StepError> {
        let member = self.place_replica(of, node, pool).await?;
        self.desire(of, member, Some(old)).await
    }

    /// It loses its vote; its content goes later.
    pub async fn unwant_replica(&self, of: &v1::Volume, replica: u64) -> Result<(), StepError> {
        self.change_kept(of, |volume| {
            undesired(volume, replica);
            Ok(())
        })
        .await?;
        self.fault(faults::REPLICA_UNWANTED).await;
        Ok(())
    }

    /// One that still votes is wanted again, and its successor is not.
    pub async fn want_instead(
        &self,
        of: &v1::Volume,
        replica: u64,
        successor: u64,
    ) -> Result<(), StepError> {
        self.change_kept(of, |volume| {
            let quorum = volume.quorum.get_or_insert_default();
            let membership = quorum.membership.clone().unwrap_or_default();
            let voters = membership.voters.unwrap_or_default().members;
            // A step that has begun comes to its end first.
            if membership.next.is_none()
                && let Some(member) = voters.iter().find(|it| it.replica == replica)
            {
                quorum.desired.retain(|it| it.replica != successor && it.replica != replica);
                quorum.desired.push(*member);
            }
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Wipes what is left in a place that has no vote, and takes the place out of the object.
    pub async fn clear_place(&self, of: &v1::Volume, replica: u64) -> Result<(), StepError> {
        if self.wipe_voteless(of, replica).await?.is_none() {
            return Ok(());
        }
        self.fault(faults::REPLICA_WIPED).await;
        self.change_of(of, |volume| {
            if !votes(volume, replica) {
                volume.places.retain(|place| place.replica != replica);
            }
            Ok(())
        })
        .await?;
        Ok(())
    }

    async fn replica_on(&self, name: &str, node: &str) -> Result<(Found, Place), StepError> {
        let (found, at) = (self.known(name).await?, self.node_named(node).await?.id);
        let place = found.volume.places.iter().find(|place| place.node == at).cloned();
        let none = || StepError::NoReplica { name: name.into(), node: node.into() };
        Ok((found, place.ok_or_else(none)?))
    }

    /// Waits until a replica has no vote, wipes it, and takes its place out of the object.
    async fn forget_replica(&self, of: &v1::Volume, replica: u64) -> Result<(), StepError> {
        let patience = Duration::from_secs(600);
        let gone = |volume: &v1::Volume| volume.uid != of.uid || !votes(volume, replica);
        loop {
            self.wait(&of.name, "the replica's vote to go", patience, gone).await?;
            if self.wipe_voteless(of, replica).await?.is_some() {
                break;
            }
        }
        self.change_of(of, |volume| {
            volume.places.retain(|place| place.replica != replica);
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Wipes a replica by the object in which it has no vote. `None`: it has one.
    async fn wipe_voteless(&self, of: &v1::Volume, replica: u64) -> Result<Option<()>, StepError> {
        loop {
            let found = self.this(of).await?;
            if votes(&found.volume, replica) {
                return Ok(None);
            }
            match self.wipe(&found, replica).await {
                Ok(()) => return Ok(Some(())),
                // The target may change votes at any moment, and then nothing is wiped.
                Err(StepError::Node(status))
                    if status.code() == Code::FailedPrecondition
                        && self.this(of).await?.version != found.version => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Until the votes are as they are wanted.
    pub async fn settled(&self, name: &str, patience: Duration) -> Result<Found, StepError> {
        self.wait(name, "the change of replicas", patience, |volume| {
            let quorum = volume.quorum.clone().unwrap_or_default();
            let membership = quorum.membership.unwrap_or_default();
            let mut members = membership.voters.unwrap_or_default().members;
            let mut desired = quorum.desired;
            members.sort_by_key(|member| (member.replica, member.incarnation));
            desired.sort_by_key(|member| (member.replica, member.incarnation));
            membership.next.is_none() && members == desired
        })
        .await
    }

    pub(super) async fn wait(
        &self,
        name: &str,
        what: &'static str,
        patience: Duration,
        is_so: impl Fn(&v1::Volume) -> bool,
    ) -> Result<Found, StepError> {
        let begun = Instant::now();
        loop {
            let found = self.known(name).await?;
            if is_so(&found.volume) {
                return Ok(found);
            }
            if begun.elapsed() >= patience {
                let seconds = patience.as_secs();
                return Err(StepError::TooLong { what, name: name.into(), seconds });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Destroys the content of a replica that has no vote.
    pub(super) async fn wipe(&self, found: &Found, replica: u64) -> Result<(), StepError> {
        let place = found.volume.places.iter().find(|place| place.replica == replica);
        let Some(place) = place else { return Ok(()) };
        let node = match self.node_of_id(place.node).await {
            Ok(node) => node,
            // Forgotten, and whatever it had with it.
            Err(StepError::NoNode { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut admin = self.admin(&node)?;
        let there = present(&mut admin, &found.volume).await?;
        let incarnation = there.map_or(NOT_YET, |present| present.incarnation);
        admin.delete_replica(deletion(found, replica, incarnation)).await?;
        Ok(())
    }
}

fn undesired(volume: &mut v1::Volume, replica: u64) {
    let quorum = volume.quorum.get_or_insert_default();
    quorum.desired.retain(|member| member.replica != replica);
}

fn votes(volume: &v1::Volume, replica: u64) -> bool {
    let membership = volume.quorum.as_ref().and_then(|quorum| quorum.membership.as_ref());
    let sets = membership.into_iter().flat_map(|it| it.voters.iter().chain(&it.next));
    sets.flat_map(|voters| &voters.members).any(|member| member.replica == replica)
}
