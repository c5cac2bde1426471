//! Snapshots of several volumes at the same instant.
use std::collections::BTreeSet;

use proto::csi::group_controller_server::GroupController;
use proto::csi::group_controller_service_capability::{Rpc, Type, rpc};
use proto::csi::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse,
    DeleteVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotResponse,
    GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse,
    GroupControllerServiceCapability,
};
use tonic::{Request, Response, Status};

use super::answers;
use super::fields::{given, id, name, uid};
use super::secrets::credential;
use super::site::Site;
use super::status::{invalid, missing, refused, unless_missing};
use crate::api::types::{GroupSnapshot, NewGroupSnapshot, Pairs, Proof};
use crate::parameters::{of_snapshot, shown};

pub struct GroupService {
    pub site: Site,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl GroupController for GroupService {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<GroupControllerGetCapabilitiesRequest>,
    ) -> Answer<GroupControllerGetCapabilitiesResponse> {
        let ability = rpc::Type::CreateDeleteGetVolumeGroupSnapshot;
        let r#type = Some(Type::Rpc(Rpc { r#type: ability.into() }));
        let capabilities = vec![GroupControllerServiceCapability { r#type }];
        Ok(Response::new(GroupControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<CreateVolumeGroupSnapshotRequest>,
    ) -> Answer<CreateVolumeGroupSnapshotResponse> {
        let wanted = wanted(request.into_inner())?;
        let made = self.site.client()?.create_group_snapshot(&wanted).await.map_err(refused)?;
        let group_snapshot = Some(answers::group_cut(&made)?);
        Ok(Response::new(CreateVolumeGroupSnapshotResponse { group_snapshot }))
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<DeleteVolumeGroupSnapshotRequest>,
    ) -> Answer<DeleteVolumeGroupSnapshotResponse> {
        let DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, secrets } =
            request.into_inner();
        given("group_snapshot_id", &group_snapshot_id)?;
        let proof = Proof { credential: credential(secrets)? };
        let done = Response::new(DeleteVolumeGroupSnapshotResponse {});
        let Some(uid) = uid(&group_snapshot_id) else { return Ok(done) };
        let client = self.site.client()?;
        let Some(found) = unless_missing(client.group_snapshot(uid).await)? else {
            return Ok(done);
        };
        compare(&found, &snapshot_ids)?;
        unless_missing(client.delete_group_snapshot(uid, &proof).await)?;
        Ok(done)
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<GetVolumeGroupSnapshotRequest>,
    ) -> Answer<GetVolumeGroupSnapshotResponse> {
        let GetVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, secrets } =
            request.into_inner();
        credential(secrets)?;
        let uid = id("group snapshot", "group_snapshot_id", &group_snapshot_id)?;
        let found = self.site.client()?.group_snapshot(uid).await.map_err(refused)?;
        compare(&found, &snapshot_ids)?;
        let group_snapshot = Some(answers::group_snapshot(&found));
        Ok(Response::new(GetVolumeGroupSnapshotResponse { group_snapshot }))
    }
}

/// The order of volumes means nothing, so that it is always the same for the site.
fn wanted(request: CreateVolumeGroupSnapshotRequest) -> Result<NewGroupSnapshot, Status> {
    const VOLUMES: &str = "source_volume_ids";
    let CreateVolumeGroupSnapshotRequest { name: title, source_volume_ids, secrets, parameters } =
        request;
    let title = name("name", &title)?;
    if source_volume_ids.is_empty() {
        return Err(missing(VOLUMES));
    }
    let mut volumes = BTreeSet::new();
    for volume in &source_volume_ids {
        given(VOLUMES, volume)?;
        if !volumes.insert(volume.clone()) {
            return Err(invalid(VOLUMES, format!("`{}` is there twice", shown(volume))));
        }
    }
    let parameters: Pairs = parameters.into_iter().collect();
    of_snapshot(&parameters)?;
    let credential = credential(secrets)?;
    for volume in &source_volume_ids {
        id("volume", VOLUMES, volume)?;
    }
    let volumes = volumes.into_iter().collect();
    Ok(NewGroupSnapshot { name: title, group: None, volumes, credential, parameters })
}

/// Whether the caller knows the snapshots that it speaks of.
fn compare(found: &GroupSnapshot, snapshot_ids: &[String]) -> Result<(), Status> {
    if snapshot_ids.is_empty() {
        return Err(missing("snapshot_ids"));
    }
    let has: BTreeSet<&str> = found.snapshots.iter().map(|one| one.uid.as_str()).collect();
    let told: BTreeSet<&str> = snapshot_ids.iter().map(String::as_str).collect();
    let strange = told.difference(&has).next().map(|id| format!("`{}` is none of its", shown(id)));
    let forgotten = || has.difference(&told).next().map(|id| format!("`{id}` is its too"));
    match strange.or_else(forgotten) {
        Some(why) => Err(invalid("snapshot_ids", format!("{why} ({})", found.name))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
