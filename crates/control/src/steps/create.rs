//! Volumes: made and served.
use std::time::Duration;

use futures_util::future::try_join_all;
use proto::v1;
use tonic::Code;

use super::{Admin, Found, Site, StepError, faults, reference};

/// Replicas of one volume at the most; the membership has room for one more that comes before
/// another goes.
pub const REPLICAS_MAX: usize = 7;

/// A grant is one swap of the catalog.
const GRANT_PATIENCE: Duration = Duration::from_secs(30);

/// A volume that is wanted.
#[derive(Clone, Debug)]
pub struct NewVolume {
    pub name: String,
    pub uid: [u8; 16],
    pub size: u64,
    pub block_size: u32,
    pub compression: String,
    /// Node and pool of each replica.
    pub places: Vec<(String, String)>,
    pub hold_deadline_ms: u64,
    pub zvol_workers: u32,
    pub chap: Option<v1::Chap>,
    pub allowed_initiators: Vec<String>,
}

impl Site {
    /// The intent first, then the replicas, then their votes.
    pub async fn create(&self, wanted: &NewVolume) -> Result<Found, StepError> {
        let volume = self.intended(wanted).await?;
        let found = match self.volume(&wanted.name).await? {
            Some(found) if is_same(&found.volume, &volume) => found,
            Some(_) => return Err(StepError::VolumeExists { name: wanted.name.clone() }),
            None => self.intend(&volume).await?,
        };
        if found.volume.deleting {
            return Err(StepError::Deleting { name: wanted.name.clone() });
        }
        self.make(&found).await
    }

    /// The intent of a new volume. A call that was given up may have stored the same intent meanwhile.
    pub async fn intend(&self, volume: &v1::Volume) -> Result<Found, StepError> {
        if let Some(found) = self.swap(0, volume).await? {
            return Ok(found);
        }
        let found = self.volume(&volume.name).await?;
        let own = found.filter(|found| found.volume.uid == volume.uid);
        own.ok_or_else(|| StepError::VolumeExists { name: volume.name.clone() })
    }

    /// The replicas of a volume that is intended, and their votes.
    pub async fn make(&self, found: &Found) -> Result<Found, StepError> {
        self.fault(faults::VOLUME_INTENDED).await;
        if has_votes(&found.volume) {
            return Ok(found.clone());
        }
        let places = found.volume.places.iter();
        let members = try_join_all(places.map(|place| self.make_replica(found, place))).await?;
        self.fault(faults::REPLICAS_MADE).await;
        self.change_kept(&found.volume, |volume| {
            let rf = u32::try_from(members.len()).unwrap_or(u32::MAX);
            let voters = v1::Voters { members: members.clone(), rf };
            if !has_votes(volume) {
                let quorum = volume.quorum.get_or_insert_default();
                let voters = Some(voters);
                quorum.membership = Some(v1::Membership { version: 1, voters, next: None });
                quorum.desired = members.clone();
            }
            Ok(())
        })
        .await?;
        self.fault(faults::VOTES_GIVEN).await;
        self.kept(&found.volume).await
    }

    async fn intended(&self, wanted: &NewVolume) -> Result<v1::Volume, StepError> {
        let count = wanted.places.len();
        if count == 0 || count > REPLICAS_MAX {
            return Err(StepError::BadReplicas);
        }
        let mut places: Vec<v1::Place> = Vec::new();
        for (number, (node, pool)) in wanted.places.iter().enumerate() {
            let node = self.node_named(node).await?.id;
            if places.iter().any(|place| place.node == node) {
                return Err(StepError::BadReplicas);
            }
            places.push(v1::Place { replica: number as u64 + 1, node, pool: pool.clone() });
        }
        Ok(v1::Volume {
            uid: wanted.uid.to_vec(),
            name: wanted.name.clone(),
            size: wanted.size,
            block_size: wanted.block_size,
            compression: wanted.compression.clone(),
            quorum: Some(v1::Quorum {
                role: v1::Role::Primary.into(),
                membership: Some(nobody()),
                ..v1::Quorum::default()
            }),
            places,
            hold_deadline_ms: wanted.hold_deadline_ms,
            chap: wanted.chap.clone(),
            allowed_initiators: wanted.allowed_initiators.clone(),
            zvol_workers: wanted.zvol_workers,
            ..v1::Volume::default()
        })
    }

    /// An empty replica where the volume's object wants one.
    pub(super) async fn make_replica(
        &self,
        found: &Found,
        place: &v1::Place,
    ) -> Result<v1::Member, StepError> {
        let volume = &found.volume;
        let node = self.node_of_id(place.node).await?;
        let mut admin = self.admin(&node)?;
        let mut made = admin.create_replica(request(volume, place, None)).await;
        if made.as_ref().is_err_and(|status| status.code() == Code::FailedPrecondition) {
            // What was begun as a copy of a snapshot is in the way of an empty one, and is no replica.
            let left = deletion(found, place.replica, NOT_YET);
            if admin.delete_replica(left).await.is_ok() {
                made = admin.create_replica(request(volume, place, None)).await;
            }
        }
        let incarnation = match made {
            Ok(made) => made.into_inner().incarnation,
            // Made by the same step before it was interrupted, and in use since.
            Err(status) if status.code() == Code::AlreadyExists => {
                present(&mut admin, volume).await?.ok_or(status)?.incarnation
            }
            Err(status) => return Err(status.into()),
        };
        self.fault(faults::REPLICA_MADE).await;
        Ok(v1::Member { replica: place.replica, incarnation })
    }

    /// Starts the target on a node, which takes the grant over.
    pub async fn serve(&self, name: &str, on: &str) -> Result<(), StepError> {
        let found = self.known(name).await?;
        let node = self.node_named(on).await?;
        let volume = Some(reference(&found.volume));
        let request = v1::StartTargetRequest { volume, take_over: true };
        self.admin(&node)?.start_target(request).await?;
        self.fault(faults::TARGET_STARTED).await;
        // Who asks for the volume now is sent to the node that has the grant.
        self.wait(name, "the grant", GRANT_PATIENCE, |volume| {
            volume.quorum.as_ref().is_some_and(|quorum| quorum.holder == node.id)
        })
        .await?;
        Ok(())
    }

    /// Ends the target cleanly; whether it was.
    pub async fn stop(&self, name: &str) -> Result<bool, StepError> {
        let (found, mut admin) = self.holder(name).await?;
        let request = v1::StopTargetRequest { volume: Some(reference(&found.volume)) };
        Ok(admin.stop_target(request).await?.into_inner().clean)
    }
}

/// What a node is asked to make.
pub(super) fn request(
    volume: &v1::Volume,
    place: &v1::Place,
    origin: Option<v1::Origin>,
) -> v1::CreateReplicaRequest {
    v1::CreateReplicaRequest {
        volume: Some(reference(volume)),
        replica: place.replica,
        pool: place.pool.clone(),
        size: volume.size,
        block_size: volume.block_size,
        compression: volume.compression.clone(),
        zvol_workers: volume.zvol_workers,
        origin,
    }
}

/// The incarnation of what a crash left before it was a replica.
pub(super) const NOT_YET: u64 = 0;

pub(super) fn deletion(found: &Found, replica: u64, incarnation: u64) -> v1::DeleteReplicaRequest {
    let (volume, catalog_version) = (Some(reference(&found.volume)), found.version);
    v1::DeleteReplicaRequest { volume, replica, incarnation, catalog_version }
}

/// The volume's replica on a node.
pub(super) async fn present(
    admin: &mut Admin,
    volume: &v1::Volume,
) -> Result<Option<v1::Replica>, StepError> {
    let all = admin.list_replicas(v1::ListReplicasRequest {}).await?.into_inner().replicas;
    let is_it = |it: &v1::Replica| it.volume.as_ref().is_some_and(|found| found.uid == volume.uid);
    Ok(all.into_iter().find(is_it))
}

/// The membership of a volume whose replicas are not made yet.
pub fn nobody() -> v1::Membership {
    v1::Membership { version: 0, voters: Some(v1::Voters::default()), next: None }
}

/// Whether its replicas were made.
pub fn has_votes(volume: &v1::Volume) -> bool {
    let membership = volume.quorum.as_ref().and_then(|quorum| quorum.membership.as_ref());
    membership.is_some_and(|membership| membership.version > 0)
}

/// Whether somebody votes now.
pub(super) fn has_voters(volume: &v1::Volume) -> bool {
    let membership = volume.quorum.as_ref().and_then(|quorum| quorum.membership.as_ref());
    let voters = membership.and_then(|membership| membership.voters.as_ref());
    voters.is_some_and(|voters| !voters.members.is_empty())
}

/// The same call again.
fn is_same(found: &v1::Volume, wanted: &v1::Volume) -> bool {
    found.uid == wanted.uid
        && found.size == wanted.size
        && found.block_size == wanted.block_size
        && found.compression == wanted.compression
        && found.places == wanted.places
        && found.origin == wanted.origin
}
