//! Snapshots, clones' marks, size and stages: commands that the target of a volume runs.
use block::ByteLen;
use proto::v1;
use replication::client::{Command, CommandAnswer};
use replication::state::SnapshotSpec;
use replication::words::{SnapshotUid, VolumeUid};
use tonic::{Code, Status};

use super::{Admin, statuses, uid};

impl Admin {
    pub(super) async fn create_snapshot(
        &self,
        request: v1::CreateSnapshotRequest,
    ) -> Result<v1::Snapshot, Status> {
        let volume = self.volume(request.volume).await?;
        let spec = snapshot_spec(request.spec)?;
        let wanted = spec.uid;
        match self.run(volume, Command::Snapshot(spec.clone())).await {
            Ok(CommandAnswer::Done { at }) => Ok(statuses::new_snapshot(&spec, at)),
            Ok(_) => Err(Status::internal("a snapshot was answered with something else")),
            // The same call again, or another snapshot of this name.
            Err(status) if status.code() == Code::AlreadyExists => {
                let all = self.snapshots_of(volume).await?;
                let same = |it: &v1::Snapshot| it.uid == wanted.0 && it.name == spec.name;
                all.into_iter().find(same).ok_or(status)
            }
            Err(status) => Err(status),
        }
    }

    pub(super) async fn delete_snapshot(
        &self,
        request: v1::DeleteSnapshotRequest,
    ) -> Result<v1::Done, Status> {
        let volume = self.volume(request.volume).await?;
        let snapshot = SnapshotUid(uid(&request.snapshot, "snapshot")?);
        match self.done(volume, Command::DeleteSnapshot(snapshot)).await {
            // Done before.
            Err(status) if status.code() == Code::NotFound && self.serves(volume).await? => {
                Ok(v1::Done { at: None })
            }
            other => other,
        }
    }

    async fn serves(&self, volume: VolumeUid) -> Result<bool, Status> {
        Ok(!self.targets_of(Some(volume)).await?.is_empty())
    }

    pub(super) async fn list_snapshots(
        &self,
        request: v1::ListSnapshotsRequest,
    ) -> Result<v1::ListSnapshotsResponse, Status> {
        let volume = self.volume(request.volume).await?;
        Ok(v1::ListSnapshotsResponse { snapshots: self.snapshots_of(volume).await? })
    }

    async fn snapshots_of(&self, volume: VolumeUid) -> Result<Vec<v1::Snapshot>, Status> {
        let targets = self.targets_of(Some(volume)).await?;
        let found = targets
            .first()
            .ok_or_else(|| Status::not_found("the volume's target does not run on this node"))?;
        Ok(found.snapshots.iter().map(|it| statuses::snapshot(it, &found.clones)).collect())
    }

    pub(super) async fn rollback(&self, request: v1::RollbackRequest) -> Result<v1::Done, Status> {
        let volume = self.volume(request.volume).await?;
        let to = SnapshotUid(uid(&request.snapshot, "snapshot")?);
        self.done(volume, Command::Rollback { to }).await
    }

    pub(super) async fn resize(&self, request: v1::ResizeRequest) -> Result<v1::Done, Status> {
        let volume = self.volume(request.volume).await?;
        self.done(volume, Command::Resize { size: ByteLen(request.size) }).await
    }

    pub(super) async fn mark_clone(
        &self,
        request: v1::MarkCloneRequest,
    ) -> Result<v1::Done, Status> {
        let volume = self.volume(request.volume).await?;
        let snapshot = SnapshotUid(uid(&request.snapshot, "snapshot")?);
        let clone = VolumeUid(uid(&request.clone, "clone")?);
        self.done(volume, Command::MarkClone { snapshot, clone }).await
    }

    pub(super) async fn unmark_clone(
        &self,
        request: v1::UnmarkCloneRequest,
    ) -> Result<v1::Done, Status> {
        let volume = self.volume(request.volume).await?;
        let clone = VolumeUid(uid(&request.clone, "clone")?);
        self.done(volume, Command::UnmarkClone { clone }).await
    }

    pub(super) async fn new_stage(
        &self,
        request: v1::NewStageRequest,
    ) -> Result<v1::NewStageResponse, Status> {
        let volume = self.volume(request.volume).await?;
        match self.run(volume, Command::NewStage).await? {
            CommandAnswer::Stage(stage) => Ok(v1::NewStageResponse { stage: stage.0 }),
            _ => Err(Status::internal("a stage was answered with something else")),
        }
    }
}

pub(super) fn snapshot_spec(spec: Option<v1::SnapshotSpec>) -> Result<SnapshotSpec, Status> {
    let spec = spec.ok_or_else(|| Status::invalid_argument("`spec` is missing"))?;
    if spec.name.is_empty() || spec.name.len() > replication::state::NAME_MAX {
        return Err(Status::invalid_argument("`spec.name` has 1 to 255 bytes"));
    }
    let uid = SnapshotUid(uid(&spec.uid, "spec.uid")?);
    Ok(SnapshotSpec { uid, name: spec.name, created: spec.created_ms })
}
