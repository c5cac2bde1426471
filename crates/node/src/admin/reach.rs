//! Which replicas of a volume a target on this node would reach.
//!
//! Each replica is called on the peer address of its node exactly as a target calls it: connection, TLS, greeting. Nothing
//! less says whether a target could work here: a node that serves no target keeps no connections to its peers, and
//! the address by which it is administered may be on another network. The connection is closed after the greeting,
//! before a hello: the replica promises no term and leaves no other target.
use std::time::Duration;

use certs::{Name, peer};
use proto::v1;
use replication::words::{NodeId, ReplicaId, VolumeUid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tonic::Status;

use super::Admin;
use crate::net::greeting::{ANSWER_LEN, Answered, Call, REASON_MAX};

/// For connection, TLS and greeting. A lost packet is sent again after a second.
const PATIENCE: Duration = Duration::from_secs(2);

/// As many places as a volume has.
const REPLICAS_MAX: usize = 16;

impl Admin {
    pub(super) async fn reach_replicas(
        &self,
        request: v1::ReachReplicasRequest,
    ) -> Result<v1::ReachReplicasResponse, Status> {
        if request.replicas.len() > REPLICAS_MAX {
            let have = request.replicas.len();
            let message =
                format!("`replicas` has {have} entries, and a volume at most {REPLICAS_MAX}");
            return Err(Status::invalid_argument(message));
        }
        let name = request.volume.as_ref().map(|it| it.name.clone()).unwrap_or_default();
        let volume = self.volume(request.volume).await?;
        let known = self.books.volume(&name).await?;
        let places = known.map(|known| known.record.places).unwrap_or_default();
        let mut calls = JoinSet::new();
        for replica in request.replicas {
            let (this, place) = (self.clone(), places.get(&ReplicaId(replica)).copied());
            calls.spawn(async move {
                let call = this.reach(volume, ReplicaId(replica), place);
                let late = || format!("it did not answer within {} s", PATIENCE.as_secs());
                let reached = tokio::time::timeout(PATIENCE, call).await;
                (replica, reached.unwrap_or_else(|_| Err(late())))
            });
        }
        let mut response = v1::ReachReplicasResponse::default();
        for (replica, reached) in calls.join_all().await {
            match reached {
                Ok(()) => response.reached.push(replica),
                Err(reason) => response.unreached.push(v1::UnreachedReplica { replica, reason }),
            }
        }
        response.reached.sort_unstable();
        response.unreached.sort_unstable_by_key(|it| it.replica);
        Ok(response)
    }

    async fn reach(
        &self,
        volume: VolumeUid,
        replica: ReplicaId,
        place: Option<NodeId>,
    ) -> Result<(), String> {
        let node = place.ok_or("the volume has no such replica")?;
        if node == self.node {
            return self.has_replica(volume).await;
        }
        let address = self.books.nodes().get(&node).copied();
        let address = address.ok_or("the catalog does not say where its node is")?;
        let server = Name::node(node.0);
        let opened = peer::connect(address, &server, self.identity.as_ref()).await;
        let mut connection = opened.map_err(|error| error.to_string())?;
        let call = Call { from: self.node, volume, replica };
        let sent = connection.write_all(&call.to_bytes()).await;
        sent.map_err(|error| error.to_string())?;
        let mut answered = Answered::default();
        let mut bytes = [0; ANSWER_LEN + REASON_MAX];
        loop {
            let read = connection.read(&mut bytes).await.map_err(|error| error.to_string())?;
            if read == 0 {
                return Err("it closed the connection without an answer".into());
            }
            let answer = answered.receive(&bytes[..read]).map_err(|error| error.to_string())?;
            if answer.is_some() {
                return Ok(());
            }
        }
    }

    async fn has_replica(&self, volume: VolumeUid) -> Result<(), String> {
        let found = self.replicas_of(Some(volume)).await;
        let found = found.map_err(|status| status.message().to_owned())?;
        match found.first() {
            None => Err("the volume has no replica here".into()),
            Some(replica) => replica.failed.clone().map_or(Ok(()), Err),
        }
    }
}
