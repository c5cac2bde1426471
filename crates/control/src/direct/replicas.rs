//! Replicas of a volume that is served: one more, one less, one for another.
use std::time::{Duration, Instant};

use proto::v1;

use super::create::present;
use super::{DirectError, Found, Site, reference};

pub(super) const PAUSE: Duration = Duration::from_millis(100);

impl Site {
    /// One more replica; it votes when it has caught up.
    pub async fn add_replica(&self, name: &str, node: &str, pool: &str) -> Result<(), DirectError> {
        let member = self.place_replica(name, node, pool).await?;
        self.change(name, |volume| {
            let quorum = volume.quorum.get_or_insert_default();
            if !quorum.desired.contains(&member) {
                quorum.desired.push(member);
            }
            Ok(())
        })
        .await?;
        Ok(())
    }

    async fn place_replica(
        &self,
        name: &str,
        node: &str,
        pool: &str,
    ) -> Result<v1::Member, DirectError> {
        let at = self.node_named(node).await?.id;
        let there = || DirectError::ReplicaThere { name: name.into(), node: node.into() };
        let found = self
            .change(name, |volume| {
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
        let place = found.volume.places.iter().find(|place| place.node == at).ok_or_else(there)?;
        self.make_replica(&found.volume, place).await
    }

    /// One replica less: its vote goes, then its content.
    pub async fn remove_replica(&self, name: &str, node: &str) -> Result<(), DirectError> {
        let replica = self.replica_on(name, node).await?;
        self.change(name, |volume| {
            let quorum = volume.quorum.get_or_insert_default();
            quorum.desired.retain(|member| member.replica != replica);
            Ok(())
        })
        .await?;
        self.forget_replica(name, replica).await
    }

    /// One for another, in one step of the membership.
    pub async fn replace_replica(
        &self,
        name: &str,
        old: &str,
        node: &str,
        pool: &str,
    ) -> Result<(), DirectError> {
        let gone = self.replica_on(name, old).await?;
        let member = self.place_replica(name, node, pool).await?;
        self.change(name, |volume| {
            let quorum = volume.quorum.get_or_insert_default();
            quorum.desired.retain(|known| known.replica != gone && *known != member);
            quorum.desired.push(member);
            Ok(())
        })
        .await?;
        self.forget_replica(name, gone).await
    }

    /// A replica without a vote, for want of space for instance: its content goes, and it comes back
    /// as new in the same place.
    pub async fn renew_replica(&self, name: &str, node: &str) -> Result<(), DirectError> {
        let replica = self.replica_on(name, node).await?;
        let found = self.known(name).await?;
        if votes(&found.volume, replica) {
            return Err(DirectError::StillVotes { name: name.into(), node: node.into() });
        }
        let places = &found.volume.places;
        let place = places.iter().find(|place| place.replica == replica);
        let place =
            place.ok_or_else(|| DirectError::NoReplica { name: name.into(), node: node.into() })?;
        let desired = found.volume.quorum.as_ref().map_or(&[][..], |quorum| &quorum.desired);
        let mut admin = self.admin(&self.node_of_id(place.node).await?)?;
        let there = present(&mut admin, &found.volume).await?;
        // One that is not listed was made by the same step before it was interrupted.
        let listed = |it: &v1::Replica| {
            desired.contains(&v1::Member { replica, incarnation: it.incarnation })
        };
        if there.as_ref().is_some_and(listed) {
            self.wipe(&found, replica).await?;
        }
        let member = self.make_replica(&found.volume, place).await?;
        self.change(name, |volume| {
            let quorum = volume.quorum.get_or_insert_default();
            quorum.desired.retain(|known| known.replica != replica);
            quorum.desired.push(member);
            Ok(())
        })
        .await?;
        Ok(())
    }

    async fn replica_on(&self, name: &str, node: &str) -> Result<u64, DirectError> {
        let (found, at) = (self.known(name).await?, self.node_named(node).await?.id);
        let place = found.volume.places.iter().find(|place| place.node == at);
        place
            .map(|place| place.replica)
            .ok_or_else(|| DirectError::NoReplica { name: name.into(), node: node.into() })
    }

    /// Waits until a replica has no vote, wipes it, and takes its place out of the object.
    async fn forget_replica(&self, name: &str, replica: u64) -> Result<(), DirectError> {
        let patience = Duration::from_secs(600);
        let found =
            self.wait(name, "the replica's vote to go", patience, |volume| !votes(volume, replica));
        let found = found.await?;
        self.wipe(&found, replica).await?;
        self.change(name, |volume| {
            volume.places.retain(|place| place.replica != replica);
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Until the votes are as they are wanted.
    pub async fn settled(&self, name: &str, patience: Duration) -> Result<Found, DirectError> {
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
    ) -> Result<Found, DirectError> {
        let begun = Instant::now();
        loop {
            let found = self.known(name).await?;
            if is_so(&found.volume) {
                return Ok(found);
            }
            if begun.elapsed() >= patience {
                let seconds = patience.as_secs();
                return Err(DirectError::TooLong { what, name: name.into(), seconds });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Destroys the content of a replica that has no vote.
    pub(super) async fn wipe(&self, found: &Found, replica: u64) -> Result<(), DirectError> {
        let place = found.volume.places.iter().find(|place| place.replica == replica);
        let Some(place) = place else { return Ok(()) };
        let mut admin = self.admin(&self.node_of_id(place.node).await?)?;
        let volume = Some(reference(&found.volume));
        let all = admin.list_replicas(v1::ListReplicasRequest {}).await?.into_inner().replicas;
        let is_it = |it: &&v1::Replica| {
            it.volume.as_ref().is_some_and(|volume| volume.uid == found.volume.uid)
        };
        // A crash may have left something that is no replica yet; that has no incarnation.
        let incarnation = all.iter().find(is_it).map_or(0, |present| present.incarnation);
        let request = v1::DeleteReplicaRequest {
            volume,
            replica,
            incarnation,
            catalog_version: found.version,
        };
        admin.delete_replica(request).await?;
        Ok(())
    }
}

fn votes(volume: &v1::Volume, replica: u64) -> bool {
    let membership = volume.quorum.as_ref().and_then(|quorum| quorum.membership.as_ref());
    let sets = membership.into_iter().flat_map(|it| it.voters.iter().chain(&it.next));
    sets.flat_map(|voters| &voters.members).any(|member| member.replica == replica)
}
