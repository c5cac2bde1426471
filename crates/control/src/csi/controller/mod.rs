//! The controller service: each call is read into one of the API, and its answer told.
mod capabilities;
mod publish;
mod snapshots;
mod validate;
mod volumes;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proto::csi::controller_server::Controller;
use proto::csi::*;
use tonic::{Code, Request, Response, Status};

use super::answers;
use super::fields::{given, id, uid};
use super::paging::{List, part};
use super::secrets::credential;
use super::site::Site;
use super::status::{refused, unless_missing};
use crate::api::types::{self, Proof};

pub struct ControllerService {
    pub site: Site,
}

type Answer<T> = Result<Response<T>, Status>;

/// How long a target that is about to serve is waited for: a failover takes less.
const SERVED_MAX: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(200);

impl ControllerService {
    /// How it is reached, as soon as somebody serves it.
    async fn served(&self, mut volume: types::Volume) -> Result<HashMap<String, String>, Status> {
        let begun = Instant::now();
        loop {
            match answers::publish_context(&volume) {
                Err(status)
                    if status.code() == Code::Unavailable && begun.elapsed() < SERVED_MAX =>
                {
                    tokio::time::sleep(ASK_EVERY).await;
                    volume = self.site.client()?.volume(&volume.uid).await.map_err(refused)?;
                }
                answer => return answer,
            }
        }
    }
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Answer<CreateVolumeResponse> {
        let request = request.into_inner();
        let asked = request.volume_content_source.clone();
        let wanted = volumes::wanted(request)?;
        let made = self.site.client()?.create_volume(&wanted).await.map_err(refused)?;
        let volume = answers::volume(&made);
        let volume = Volume { content_source: asked.or(volume.content_source), ..volume };
        Ok(Response::new(CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Answer<DeleteVolumeResponse> {
        let DeleteVolumeRequest { volume_id, secrets } = request.into_inner();
        given("volume_id", &volume_id)?;
        let proof = Proof { credential: credential(secrets)? };
        if let Some(uid) = uid(&volume_id) {
            unless_missing(self.site.client()?.delete_volume(uid, &proof).await)?;
        }
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Answer<ControllerPublishVolumeResponse> {
        let (uid, attach) = publish::attach(request.into_inner())?;
        let volume = self.site.client()?.attach_volume(&uid, &attach).await.map_err(refused)?;
        let publish_context = self.served(volume).await?;
        Ok(Response::new(ControllerPublishVolumeResponse { publish_context }))
    }

    /// What is not there is attached nowhere.
    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Answer<ControllerUnpublishVolumeResponse> {
        if let Some((uid, detach)) = publish::detach(request.into_inner())? {
            unless_missing(self.site.client()?.detach_volume(&uid, &detach).await)?;
        }
        Ok(Response::new(ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<ValidateVolumeCapabilitiesResponse> {
        let asked = validate::read(request.into_inner())?;
        let volume = self.site.client()?.volume(&asked.uid).await.map_err(refused)?;
        Ok(Response::new(asked.judge(&answers::there(volume)?)))
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Answer<ListVolumesResponse> {
        let ListVolumesRequest { max_entries, starting_token } = request.into_inner();
        let mut part = part(List::Volumes, max_entries, &starting_token)?;
        let client = self.site.client()?;
        while let Some((after, limit)) = part.question() {
            part.take(client.volumes(&after, limit).await, answers::is_there)?;
        }
        let (found, next_token) = part.end();
        let entries = found.iter().map(volumes::entry).collect();
        Ok(Response::new(ListVolumesResponse { entries, next_token }))
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Answer<GetCapacityResponse> {
        let query = volumes::room(request.into_inner())?;
        let room = self.site.client()?.capacity(&query).await.map_err(refused)?;
        Ok(Response::new(volumes::told_room(room)))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Answer<ControllerGetCapabilitiesResponse> {
        let capabilities = capabilities::all();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Answer<CreateSnapshotResponse> {
        let wanted = snapshots::wanted(request.into_inner())?;
        let made = self.site.client()?.create_snapshot(&wanted).await.map_err(refused)?;
        Ok(Response::new(CreateSnapshotResponse { snapshot: Some(answers::cut(&made)?) }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Answer<DeleteSnapshotResponse> {
        let DeleteSnapshotRequest { snapshot_id, secrets } = request.into_inner();
        given("snapshot_id", &snapshot_id)?;
        let proof = Proof { credential: credential(secrets)? };
        let done = Response::new(DeleteSnapshotResponse {});
        let Some(uid) = uid(&snapshot_id) else { return Ok(done) };
        let client = self.site.client()?;
        // Whether it belongs to a group is fixed: it cannot change before it is deleted.
        let Some(found) = unless_missing(client.snapshot(uid).await)? else { return Ok(done) };
        snapshots::stands_alone(&found)?;
        unless_missing(client.delete_snapshot(uid, &proof).await)?;
        Ok(done)
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Answer<ListSnapshotsResponse> {
        let answer = snapshots::list(&self.site.client()?, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Answer<GetSnapshotResponse> {
        let GetSnapshotRequest { snapshot_id, secrets } = request.into_inner();
        let uid = id("snapshot", "snapshot_id", &snapshot_id)?;
        credential(secrets)?;
        let found = self.site.client()?.snapshot(uid).await.map_err(refused)?;
        Ok(Response::new(GetSnapshotResponse { snapshot: Some(answers::snapshot(&found)) }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Answer<ControllerExpandVolumeResponse> {
        let asked = volumes::resize(request.into_inner())?;
        let client = self.site.client()?;
        let volume = client.resize_volume(&asked.uid, &asked.to).await.map_err(refused)?;
        Ok(Response::new(asked.told(&volume)?))
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Answer<ControllerGetVolumeResponse> {
        let ControllerGetVolumeRequest { volume_id } = request.into_inner();
        let uid = id("volume", "volume_id", &volume_id)?;
        let volume = self.site.client()?.volume(uid).await.map_err(refused)?;
        Ok(Response::new(volumes::told(&answers::there(volume)?)))
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Answer<ControllerModifyVolumeResponse> {
        let (uid, to) = volumes::modify(request.into_inner())?;
        self.site.client()?.modify_volume(&uid, &to).await.map_err(refused)?;
        Ok(Response::new(ControllerModifyVolumeResponse {}))
    }
}
