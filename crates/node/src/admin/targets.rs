//! Targets: started, stopped, looked at; and what an operator decides.
use proto::v1;
use replication::client::{Command, CommandAnswer};
use replication::target::Begin;
use replication::words::{ReplicaId, VolumeUid};
use tonic::{Code, Status};

use super::{Admin, statuses};
use crate::shard::Order;

impl Admin {
    pub(super) async fn start_target(
        &self,
        request: v1::StartTargetRequest,
    ) -> Result<v1::StartTargetResponse, Status> {
        let volume = self.volume(request.volume.clone()).await?;
        let name = request.volume.map(|volume| volume.name).unwrap_or_default();
        let known = self.books.fetch(&name).await?.filter(|known| known.record.uid == volume);
        let known = known.ok_or_else(|| Status::not_found("the volume was deleted meanwhile"))?;
        if known.deleting {
            return Err(Status::failed_precondition("the volume is being deleted"));
        }
        let begin = if request.take_over { Begin::TakeOver } else { Begin::Granted };
        let (answer, answered) = self.answer();
        self.books.send_newest(known.record, |record| {
            let record = Box::new(record);
            self.shard.send(Order::StartTarget { record, begin, answer });
        });
        let started = answered.await;
        match started {
            // It runs: the call was made before.
            Err(status) if status.code() == Code::FailedPrecondition => {}
            other => other?,
        }
        Ok(v1::StartTargetResponse {})
    }

    pub(super) async fn stop_target(
        &self,
        request: v1::StopTargetRequest,
    ) -> Result<v1::StopTargetResponse, Status> {
        let volume = self.volume(request.volume).await?;
        let clean = match self.run(volume, Command::Close).await {
            Ok(CommandAnswer::Done { .. }) => true,
            Ok(_) => false,
            Err(status) if status.code() == Code::NotFound => false,
            Err(status) => return Err(status),
        };
        Ok(v1::StopTargetResponse { clean })
    }

    pub(super) async fn targets(&self) -> Result<Vec<v1::TargetStatus>, Status> {
        let targets = self.targets_of(None).await?;
        Ok(targets.iter().map(|target| statuses::target(target, self.node)).collect())
    }

    pub(super) async fn target(
        &self,
        request: v1::GetTargetRequest,
    ) -> Result<v1::TargetStatus, Status> {
        let of = request.volume.unwrap_or_default();
        let uid = of.uid.as_slice().try_into().ok().map(VolumeUid);
        let targets = self.targets_of(uid).await?;
        let is_it =
            |name: &str, uid: [u8; 16]| name == of.name && (of.uid.is_empty() || of.uid == uid);
        let found = targets.iter().find(|target| is_it(&target.name, target.volume.0));
        found.map(|target| statuses::target(target, self.node)).ok_or_else(|| {
            Status::not_found(format!("the target of `{}` does not run on this node", of.name))
        })
    }

    pub(super) async fn choose(&self, request: v1::ChooseRequest) -> Result<v1::Done, Status> {
        let of = request.volume.clone().unwrap_or_default();
        let volume = self.volume(request.volume).await?;
        let known = self.books.fetch(&of.name).await?;
        let version = known.map_or(0, |known| known.record.object.version.0);
        if version != request.catalog_version {
            return Err(Status::failed_precondition(format!(
                "the volume's object has version {version}, and you looked at {}: look again",
                request.catalog_version
            )));
        }
        let targets = self.targets_of(Some(volume)).await?;
        let mut peers = targets.iter().flat_map(|target| &target.status.peers);
        let same = peers.any(|peer| {
            peer.member.replica.0 == request.replica
                && peer.member.incarnation.0 == request.incarnation
        });
        if !same {
            return Err(Status::failed_precondition(
                "no replica of the volume has this number and incarnation: look again",
            ));
        }
        self.done(volume, Command::Choose { replica: ReplicaId(request.replica) }).await
    }
}
