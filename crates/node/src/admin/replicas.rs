//! Replicas: made, wiped, looked at.
#[cfg(test)]
mod tests;

use block::{ByteLen, Position, Seq, Term};
use engine::{BlockSize, Compression};
use proto::v1;
use replication::membership::Membership;
use replication::state::Origin;
use replication::words::{Incarnation, NodeId, ReplicaId, SnapshotUid, VolumeUid};
use tonic::Status;

use super::{Admin, statuses, uid};
use crate::catalog::{Known, Listing};
use crate::random;
use crate::shard::{Order, ReplicaSpec};

impl Admin {
    pub(super) async fn create_replica(
        &self,
        request: v1::CreateReplicaRequest,
    ) -> Result<v1::CreateReplicaResponse, Status> {
        let of = request.volume.clone().unwrap_or_default();
        let replica = ReplicaId(request.replica);
        let spec = spec(request)?;
        // Asked anew: what nobody lists would be found by nobody, and be deleted by nobody.
        let known = self.books.fetch(&of.name).await?;
        may_make(known.as_ref(), &spec, replica, self.node)?;
        let volume = spec.volume;
        let begins = spec.origin.map_or_else(Position::default, |origin| origin.at);
        let made = self.order(|answer| Order::CreateReplica { spec, answer }).await;
        let incarnation = match made {
            // The same call again: what it made is as it began.
            Err(status) if status.code() == tonic::Code::AlreadyExists => {
                self.untouched(volume, begins).await?.ok_or(status)?
            }
            other => other?.0,
        };
        Ok(v1::CreateReplicaResponse { incarnation })
    }

    /// The incarnation of a replica to which nothing has happened yet.
    async fn untouched(&self, volume: VolumeUid, at: Position) -> Result<Option<u64>, Status> {
        let replicas = self.replicas_of(Some(volume)).await?;
        let untouched = replicas.first().filter(|replica| replica.position == at);
        Ok(untouched.map(|replica| replica.incarnation.0))
    }

    pub(super) async fn replica_snapshot(
        &self,
        request: v1::GetReplicaSnapshotRequest,
    ) -> Result<v1::ReplicaSnapshot, Status> {
        let volume = self.volume(request.volume).await?;
        let snapshot = SnapshotUid(uid(&request.snapshot, "snapshot")?);
        let cut = self.order(|answer| Order::ReplicaSnapshot { volume, snapshot, answer }).await?;
        let (at, size) = (Some(statuses::position(cut.position)), cut.shared.size.0);
        Ok(v1::ReplicaSnapshot { at, size })
    }

    pub(super) async fn delete_replica(
        &self,
        request: v1::DeleteReplicaRequest,
    ) -> Result<v1::DeleteReplicaResponse, Status> {
        let of = request.volume.clone().unwrap_or_default();
        let volume = VolumeUid(uid(&of.uid, "volume.uid")?);
        // Asked anew: what is destroyed is judged by what the catalog has now, not by what the
        // caller or this node remembers.
        let listing = self.books.look_up(&of.name, volume).await?;
        let membership = may_wipe(listing, &of.name, request.catalog_version)?;
        let (replica, incarnation) = (ReplicaId(request.replica), Incarnation(request.incarnation));
        let deleted = self
            .order(|answer| Order::DeleteReplica {
                volume,
                replica,
                incarnation,
                membership,
                answer,
            })
            .await;
        match deleted {
            // Done before.
            Err(status) if status.code() == tonic::Code::NotFound => {}
            other => other?,
        }
        Ok(v1::DeleteReplicaResponse {})
    }

    pub(super) async fn replicas(&self, of: Option<VolumeUid>) -> Result<Vec<v1::Replica>, Status> {
        let mut replicas = Vec::new();
        for replica in &self.replicas_of(of).await? {
            let place = self.books.place_of(replica.volume, self.node);
            replicas.push(statuses::replica(replica, place));
        }
        Ok(replicas)
    }

    pub(super) async fn replica(
        &self,
        request: v1::GetReplicaRequest,
    ) -> Result<v1::Replica, Status> {
        let of = request.volume.unwrap_or_default();
        let uid = of.uid.as_slice().try_into().ok().map(VolumeUid);
        let all = self.replicas(uid).await?;
        let is_it = |found: &v1::Replica| {
            found.volume.as_ref().is_some_and(|volume| {
                volume.name == of.name && (of.uid.is_empty() || of.uid == volume.uid)
            })
        };
        all.into_iter().find(is_it).ok_or_else(|| {
            Status::not_found(format!("the volume `{}` has no replica on this node", of.name))
        })
    }
}

/// Whether the catalog wants this replica here.
fn may_make(
    known: Option<&Known>,
    spec: &ReplicaSpec,
    replica: ReplicaId,
    node: NodeId,
) -> Result<(), Status> {
    let (name, pool, NodeId(id)) = (&spec.name, &spec.pool, node);
    let Some(known) = known.filter(|known| known.record.uid == spec.volume) else {
        return Err(Status::failed_precondition(format!(
            "the catalog has no volume `{name}` with this uid: store its object first"
        )));
    };
    if known.deleting {
        return Err(Status::failed_precondition(format!(
            "the volume `{name}` is being deleted: finish that first"
        )));
    }
    let is_here = known.record.places.get(&replica) == Some(&node);
    match is_here && known.pools.get(&replica) == Some(pool) {
        true => Ok(()),
        false => Err(Status::failed_precondition(format!(
            "the catalog has no replica {replica} of `{name}` in the pool `{pool}` of node {id}: \
             list its place first",
            replica = replica.0
        ))),
    }
}

/// Whether content may be destroyed, and who votes. That the catalog has no object permits nothing: it may have been
/// restored, or be another one. The object permits it, or the mark that the object was deleted.
fn may_wipe(listing: Listing, name: &str, given: u64) -> Result<Membership, Status> {
    match listing {
        Listing::Listed(known) => {
            let has = known.record.object.version.0;
            match given < has {
                true => Err(Status::failed_precondition(format!(
                    "the volume's object has version {has} and the command knows {given}: look again"
                ))),
                false => Ok(known.record.object.membership.clone()),
            }
        }
        // Nobody votes any more.
        Listing::Deleted => Ok(Membership { version: u64::MAX, ..Membership::default() }),
        Listing::Unknown => Err(Status::failed_precondition(format!(
            "the replica of `{name}` is kept: the catalog has no such volume, and no mark that it was deleted, so it may \
             have lost it; bring it back with `pollux site restore` or `pollux site rebuild`, and delete it then"
        ))),
    }
}

fn spec(request: v1::CreateReplicaRequest) -> Result<ReplicaSpec, Status> {
    let of = request.volume.unwrap_or_default();
    let block_size = u64::from(request.block_size);
    let block_size = BlockSize::new(block_size).ok_or_else(|| {
        Status::invalid_argument(format!(
            "`block_size` is {block_size}: it is a power of two from 512 to 131072"
        ))
    })?;
    let compression: Compression = request.compression.parse().map_err(|_| {
        Status::invalid_argument(format!("`compression`: there is no `{}`", request.compression))
    })?;
    if of.name.is_empty() {
        return Err(Status::invalid_argument("`volume.name` is empty"));
    }
    let origin = request.origin.as_ref().map(origin).transpose()?;
    Ok(ReplicaSpec {
        origin,
        volume: VolumeUid(uid(&of.uid, "volume.uid")?),
        name: of.name,
        pool: request.pool,
        size: ByteLen(request.size),
        block_size,
        compression,
        incarnation: Incarnation(random::number()),
        workers: match request.zvol_workers {
            0 => None,
            workers => usize::try_from(workers).ok(),
        },
    })
}

fn origin(origin: &v1::Origin) -> Result<Origin, Status> {
    let volume = origin.volume.as_ref().map(|volume| volume.uid.as_slice()).unwrap_or_default();
    let at = origin.at.ok_or_else(|| Status::invalid_argument("`origin.at` is missing"))?;
    Ok(Origin {
        volume: VolumeUid(uid(volume, "origin.volume.uid")?),
        snapshot: SnapshotUid(uid(&origin.snapshot, "origin.snapshot")?),
        at: Position { term: Term(at.term), seq: Seq(at.seq) },
    })
}
