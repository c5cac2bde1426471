//! The driver as an orchestrator sees it: through its socket, over an API that answers from a table.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod false_api;

use std::collections::HashMap;
use std::fs;

use control::api::{ApiError, Code as ApiCode};
use proto::csi::controller_client::ControllerClient;
use proto::csi::group_controller_client::GroupControllerClient;
use proto::csi::identity_client::IdentityClient;
use proto::csi::node_client::NodeClient;
use proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, access_mode};
use proto::csi::*;
use serde_json::json;
use tonic::Code;
use tonic::transport::Channel;

use false_api::{
    Driver, GROUP, LATER, Mode, OTHER, SNAPSHOT, VOLUME, group_snapshot, snapshot, volume,
};

fn block() -> VolumeCapability {
    let mode = access_mode::Mode::SingleNodeWriter.into();
    VolumeCapability {
        access_type: Some(AccessType::Block(BlockVolume {})),
        access_mode: Some(AccessMode { mode }),
    }
}

fn secrets() -> HashMap<String, String> {
    let both = [("username", "ann"), ("password", "open sesame open")];
    both.map(|(key, value)| (format!("node.session.auth.{key}"), value.to_owned())).into()
}

fn create() -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: "pvc-1".into(),
        volume_capabilities: vec![block()],
        secrets: secrets(),
        ..CreateVolumeRequest::default()
    }
}

fn publish() -> ControllerPublishVolumeRequest {
    ControllerPublishVolumeRequest {
        volume_id: VOLUME.into(),
        node_id: "worker-1".into(),
        volume_capability: Some(block()),
        secrets: secrets(),
        ..ControllerPublishVolumeRequest::default()
    }
}

fn expand() -> ControllerExpandVolumeRequest {
    ControllerExpandVolumeRequest {
        volume_id: VOLUME.into(),
        capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
        ..ControllerExpandVolumeRequest::default()
    }
}

async fn controller() -> (Driver, ControllerClient<Channel>) {
    let driver = Driver::start(Mode::Controller).await;
    let client = ControllerClient::new(driver.channel.clone());
    (driver, client)
}

#[tokio::test]
async fn each_mode_serves_its_services() {
    for (mode, controls, is_node) in
        [(Mode::Controller, true, false), (Mode::Node, false, true), (Mode::All, true, true)]
    {
        let driver = Driver::start(mode).await;
        let mut identity = IdentityClient::new(driver.channel.clone());
        let info = identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
        assert_eq!(info.name, "csi.pollux.io");
        let mut controller = ControllerClient::new(driver.channel.clone());
        let told =
            controller.controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await;
        let code = told.map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!(code, if controls { Code::Ok } else { Code::Unimplemented });
        let mut node = NodeClient::new(driver.channel.clone());
        match node.node_get_info(NodeGetInfoRequest {}).await {
            Ok(told) => {
                let told = told.into_inner();
                assert!(is_node && told.node_id == "worker-1");
                assert_eq!(told.accessible_topology.unwrap().segments["zone"], "a");
            }
            Err(status) => assert!(!is_node && status.code() == Code::Unimplemented, "{status}"),
        }
    }
}

#[tokio::test]
async fn a_probe_tells_how_the_site_is() {
    let driver = Driver::start(Mode::All).await;
    let mut identity = IdentityClient::new(driver.channel.clone());
    for ready in [false, true] {
        driver.api.forget("GET /v1/site");
        let site = json!({
            "version": "1", "generation": 1, "sinceMs": 1, "nodes": 3, "volumes": 0, "ready": ready
        });
        driver.api.answer("GET /v1/site", site);
        let told = identity.probe(ProbeRequest {}).await.unwrap().into_inner();
        assert_eq!(told.ready, Some(ready));
    }
    let away = ApiError::new(ApiCode::Unavailable, "no leader");
    driver.api.refuse("GET /v1/site", &away);
    let told = identity.probe(ProbeRequest {}).await.unwrap().into_inner();
    assert_eq!(told.ready, Some(false));
    fs::write(driver.folder.join("token"), "another").unwrap();
    let told = identity.probe(ProbeRequest {}).await.unwrap_err();
    assert_eq!(told.code(), Code::FailedPrecondition);
    fs::remove_file(driver.folder.join("token")).unwrap();
    let told = identity.probe(ProbeRequest {}).await.unwrap_err();
    assert_eq!(told.code(), Code::FailedPrecondition);
}

/// Protects from a driver that has to be restarted when its token is exchanged.
#[tokio::test]
async fn a_token_that_was_exchanged_counts_at_once() {
    let (driver, mut client) = controller().await;
    let line = format!("GET /v1/volumes/{VOLUME}");
    driver.api.answer(&line, volume(VOLUME));
    let get = || ControllerGetVolumeRequest { volume_id: VOLUME.into() };
    client.controller_get_volume(get()).await.unwrap();
    for wrong in ["old", "", "two words", "\u{fc}"] {
        fs::write(driver.folder.join("token"), wrong).unwrap();
        let status = client.controller_get_volume(get()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{wrong}");
        assert!(status.message().contains("token"), "{status}");
    }
    fs::write(driver.folder.join("token"), false_api::TOKEN).unwrap();
    client.controller_get_volume(get()).await.unwrap();
}

/// Protects from a pod that fails to start during a failover, which takes a few seconds.
#[tokio::test]
async fn a_publish_waits_for_a_target_that_is_about_to_serve() {
    let (driver, mut client) = controller().await;
    let mut moving = volume(VOLUME);
    moving["target"]["serving"] = false.into();
    driver.api.answer(&format!("POST /v1/volumes/{VOLUME}/attach"), moving.clone());
    let get = format!("GET /v1/volumes/{VOLUME}");
    driver.api.answer(&get, moving);
    driver.api.answer(&get, volume(VOLUME));
    let context = client.controller_publish_volume(publish()).await.unwrap().into_inner();
    assert_eq!(context.publish_context["portal"], "10.0.0.1:3260");
    let asked = driver.api.asked();
    assert_eq!(asked.iter().filter(|asked| asked.line == get).count(), 2);
}

#[tokio::test]
async fn a_volume_lives() {
    let (driver, mut client) = controller().await;
    let of = |word: &str| format!("POST /v1/volumes/{VOLUME}/{word}");
    driver.api.answer("POST /v1/volumes", volume(VOLUME));
    let made = client.create_volume(create()).await.unwrap().into_inner().volume.unwrap();
    assert_eq!((made.volume_id.as_str(), made.capacity_bytes), (VOLUME, 1 << 30));
    let asked = driver.api.asked();
    assert_eq!(asked.len(), 1);
    let body = &asked[0].body;
    assert_eq!((&body["name"], &body["attachedOnly"]), (&json!("pvc-1"), &json!(true)));
    assert_eq!(body["chap"]["secret"], "open sesame open");

    driver.api.answer(&of("attach"), volume(VOLUME));
    let context = client.controller_publish_volume(publish()).await.unwrap().into_inner();
    assert_eq!(context.publish_context["portal"], "10.0.0.1:3260");
    let asked = driver.api.asked();
    assert_eq!(asked[0].body["host"], "worker-1");
    assert_eq!(asked[0].body["credential"]["user"], "ann");

    driver.api.answer(&format!("GET /v1/volumes/{VOLUME}"), volume(VOLUME));
    let get = ControllerGetVolumeRequest { volume_id: VOLUME.into() };
    let status = client.controller_get_volume(get).await.unwrap().into_inner().status.unwrap();
    assert_eq!(status.published_node_ids, ["worker-1"]);
    let condition = status.volume_condition.unwrap();
    assert!(condition.abnormal && condition.message.starts_with("ReplicaAway"));

    driver.api.answer(&of("resize"), volume(VOLUME));
    client.controller_expand_volume(expand()).await.unwrap();
    driver.api.answer(&of("modify"), volume(VOLUME));
    let mutable_parameters = [("replicas".to_owned(), "2".to_owned())].into();
    let volume_id = VOLUME.to_owned();
    let modify =
        ControllerModifyVolumeRequest { volume_id, mutable_parameters, secrets: secrets() };
    client.controller_modify_volume(modify).await.unwrap();
    assert_eq!(driver.api.asked().last().unwrap().body["replicas"], 2);

    driver.api.answer(&of("detach"), volume(VOLUME)).answer(&of("delete"), json!({}));
    let volume_id = VOLUME.to_owned();
    let node_id = "worker-1".to_owned();
    let unpublish = ControllerUnpublishVolumeRequest { volume_id, node_id, secrets: secrets() };
    client.controller_unpublish_volume(unpublish).await.unwrap();
    let delete = DeleteVolumeRequest { volume_id: VOLUME.into(), secrets: secrets() };
    client.delete_volume(delete).await.unwrap();
    assert_eq!(driver.api.asked().len(), 2);
}

/// Protects from a caller that reaches by name what it can only mean by id.
#[tokio::test]
async fn what_is_no_uid_is_not_asked_for() {
    let (driver, mut client) = controller().await;
    let mut group = GroupControllerClient::new(driver.channel.clone());
    let id = "pvc-1".to_owned();
    let secrets = HashMap::new();
    let delete = DeleteVolumeRequest { volume_id: id.clone(), secrets: secrets.clone() };
    client.delete_volume(delete).await.unwrap();
    let delete = DeleteSnapshotRequest { snapshot_id: id.clone(), secrets: secrets.clone() };
    client.delete_snapshot(delete).await.unwrap();
    let delete = DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: id.clone(),
        ..DeleteVolumeGroupSnapshotRequest::default()
    };
    group.delete_volume_group_snapshot(delete).await.unwrap();
    let unpublish = ControllerUnpublishVolumeRequest {
        volume_id: id.clone(),
        ..ControllerUnpublishVolumeRequest::default()
    };
    client.controller_unpublish_volume(unpublish).await.unwrap();
    let get = ControllerGetVolumeRequest { volume_id: id.clone() };
    assert_eq!(client.controller_get_volume(get).await.unwrap_err().code(), Code::NotFound);
    let get = GetSnapshotRequest { snapshot_id: id.clone(), secrets };
    assert_eq!(client.get_snapshot(get).await.unwrap_err().code(), Code::NotFound);
    let get = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: id.clone(),
        ..GetVolumeGroupSnapshotRequest::default()
    };
    let status = group.get_volume_group_snapshot(get).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    for list in [
        ListSnapshotsRequest { snapshot_id: id.clone(), ..ListSnapshotsRequest::default() },
        ListSnapshotsRequest { source_volume_id: id, ..ListSnapshotsRequest::default() },
    ] {
        assert!(client.list_snapshots(list).await.unwrap().into_inner().entries.is_empty());
    }
    assert_eq!(driver.api.count(), 0);
}

#[tokio::test]
async fn what_is_gone_already_is_deleted() {
    let (driver, mut client) = controller().await;
    let mut group = GroupControllerClient::new(driver.channel.clone());
    let delete = DeleteVolumeRequest { volume_id: VOLUME.into(), secrets: HashMap::new() };
    client.delete_volume(delete).await.unwrap();
    let delete = DeleteSnapshotRequest { snapshot_id: SNAPSHOT.into(), secrets: HashMap::new() };
    client.delete_snapshot(delete).await.unwrap();
    let delete = DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: GROUP.into(),
        ..DeleteVolumeGroupSnapshotRequest::default()
    };
    group.delete_volume_group_snapshot(delete).await.unwrap();
    assert_eq!(driver.api.count(), 3);
}

#[tokio::test]
async fn refusals_of_the_site_reach_the_caller() {
    let (driver, mut client) = controller().await;
    for (code, told) in [
        (ApiCode::AlreadyExists, Code::AlreadyExists),
        (ApiCode::Busy, Code::Aborted),
        (ApiCode::OutOfSpace, Code::ResourceExhausted),
        (ApiCode::OutOfRange, Code::OutOfRange),
        (ApiCode::InUse, Code::FailedPrecondition),
        (ApiCode::Unavailable, Code::Unavailable),
        (ApiCode::Internal, Code::Internal),
    ] {
        let error = ApiError::new(code, "the reason");
        driver.api.refuse("POST /v1/volumes", &error);
        driver.api.refuse(&format!("POST /v1/volumes/{VOLUME}/attach"), &error);
        driver.api.refuse(&format!("POST /v1/volumes/{VOLUME}/delete"), &error);
        let delete = DeleteVolumeRequest { volume_id: VOLUME.into(), secrets: HashMap::new() };
        for status in [
            client.create_volume(create()).await.unwrap_err(),
            client.controller_publish_volume(publish()).await.unwrap_err(),
            client.delete_volume(delete).await.unwrap_err(),
        ] {
            assert_eq!((status.code(), status.message()), (told, "the reason"));
        }
    }
    for unknown in [
        client.controller_expand_volume(expand()).await.unwrap_err(),
        client
            .validate_volume_capabilities(ValidateVolumeCapabilitiesRequest {
                volume_id: VOLUME.into(),
                volume_capabilities: vec![block()],
                ..ValidateVolumeCapabilitiesRequest::default()
            })
            .await
            .unwrap_err(),
    ] {
        assert_eq!(unknown.code(), Code::NotFound);
    }
}

#[tokio::test]
async fn lists_go_through_all_pages() {
    let (driver, mut client) = controller().await;
    let page = |uid: &str, next: Option<&str>| json!({"items": [volume(uid)], "next": next});
    driver.api.answer("GET /v1/volumes", page(VOLUME, Some("pvc-1")));
    driver.api.answer("GET /v1/volumes", page(OTHER, None));
    let all = client.list_volumes(ListVolumesRequest::default()).await.unwrap().into_inner();
    assert_eq!((all.entries.len(), all.next_token.as_str()), (2, ""));
    let asked = driver.api.asked();
    assert_eq!(asked[1].line, "GET /v1/volumes?after=pvc-1&limit=500");

    driver.api.forget("GET /v1/volumes");
    driver.api.answer("GET /v1/volumes", page(VOLUME, Some("pvc-1")));
    let some = ListVolumesRequest { max_entries: 1, starting_token: String::new() };
    let some = client.list_volumes(some).await.unwrap().into_inner();
    assert_eq!(some.entries.len(), 1);
    let rest = ListVolumesRequest { max_entries: 1, starting_token: some.next_token };
    driver.api.forget("GET /v1/volumes");
    driver.api.answer("GET /v1/volumes", page(OTHER, None));
    let rest = client.list_volumes(rest).await.unwrap().into_inner();
    assert_eq!(rest.next_token, "");
    let starting_token = "invalid-token".to_owned();
    let strange = ListVolumesRequest { starting_token, max_entries: 0 };
    assert_eq!(client.list_volumes(strange).await.unwrap_err().code(), Code::Aborted);
}

/// Protects from a volume that is there again after it was deleted, because a node was away.
#[tokio::test]
async fn a_volume_on_its_way_out_is_gone() {
    let (driver, mut client) = controller().await;
    let mut leaving = volume(VOLUME);
    leaving["state"]["health"] = "Deleting".into();
    driver.api.answer("GET /v1/volumes", json!({"items": [leaving.clone(), volume(OTHER)]}));
    let told = client.list_volumes(ListVolumesRequest::default()).await.unwrap().into_inner();
    assert_eq!(told.entries.len(), 1);
    driver.api.answer(&format!("GET /v1/volumes/{VOLUME}"), leaving);
    let get = ControllerGetVolumeRequest { volume_id: VOLUME.into() };
    assert_eq!(client.controller_get_volume(get).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn snapshots_are_listed_when_they_are_cut_and_deleted_with_their_group() {
    let (driver, mut client) = controller().await;
    let mut uncut = snapshot(LATER, 6);
    uncut["ready"] = false.into();
    let page = json!({"items": [snapshot(SNAPSHOT, 5), uncut]});
    driver.api.answer("GET /v1/snapshots", page);
    let of_volume =
        ListSnapshotsRequest { source_volume_id: VOLUME.into(), ..ListSnapshotsRequest::default() };
    let told = client.list_snapshots(of_volume).await.unwrap().into_inner();
    assert_eq!(told.entries.len(), 1);
    let line = format!("GET /v1/snapshots?after=&limit=500&volume={VOLUME}");
    assert_eq!(driver.api.asked()[0].line, line);

    let line = format!("GET /v1/snapshots/{SNAPSHOT}");
    driver.api.answer(&line, snapshot(SNAPSHOT, 5));
    for (source_volume_id, count) in [("", 1), (VOLUME, 1), (OTHER, 0)] {
        let one = ListSnapshotsRequest {
            snapshot_id: SNAPSHOT.into(),
            source_volume_id: source_volume_id.into(),
            ..ListSnapshotsRequest::default()
        };
        assert_eq!(client.list_snapshots(one).await.unwrap().into_inner().entries.len(), count);
    }
    let of_missing =
        ListSnapshotsRequest { snapshot_id: LATER.into(), ..ListSnapshotsRequest::default() };
    assert!(client.list_snapshots(of_missing).await.unwrap().into_inner().entries.is_empty());

    let mut in_group = snapshot(SNAPSHOT, 5);
    in_group["groupSnapshotUid"] = GROUP.into();
    driver.api.forget(&line);
    driver.api.answer(&line, in_group);
    driver.api.asked();
    let delete = DeleteSnapshotRequest { snapshot_id: SNAPSHOT.into(), secrets: HashMap::new() };
    let status = client.delete_snapshot(delete).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(driver.api.count(), 1, "nothing was deleted");
}

#[tokio::test]
async fn a_group_snapshot_lives() {
    let driver = Driver::start(Mode::Controller).await;
    let mut client = GroupControllerClient::new(driver.channel.clone());
    driver.api.answer("POST /v1/group-snapshots", group_snapshot());
    let made = client
        .create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest {
            name: "g-1".into(),
            source_volume_ids: vec![OTHER.into(), VOLUME.into()],
            ..CreateVolumeGroupSnapshotRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    let made = made.group_snapshot.unwrap();
    assert!(made.ready_to_use && made.snapshots.iter().all(|it| it.group_snapshot_id == GROUP));
    assert_eq!(driver.api.asked()[0].body["volumes"], json!([VOLUME, OTHER]));

    driver.api.answer(&format!("GET /v1/group-snapshots/{GROUP}"), group_snapshot());
    driver.api.answer(&format!("POST /v1/group-snapshots/{GROUP}/delete"), json!({}));
    for (snapshot_ids, code) in [
        (vec![], Code::InvalidArgument),
        (vec![SNAPSHOT.to_owned()], Code::InvalidArgument),
        (vec![LATER.to_owned(), SNAPSHOT.to_owned()], Code::Ok),
    ] {
        let get = GetVolumeGroupSnapshotRequest {
            group_snapshot_id: GROUP.into(),
            snapshot_ids: snapshot_ids.clone(),
            secrets: HashMap::new(),
        };
        let told = client.get_volume_group_snapshot(get).await;
        assert_eq!(told.map_or_else(|status| status.code(), |_| Code::Ok), code);
        let delete = DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: GROUP.into(),
            snapshot_ids,
            secrets: secrets(),
        };
        let told = client.delete_volume_group_snapshot(delete).await;
        assert_eq!(told.map_or_else(|status| status.code(), |_| Code::Ok), code);
    }
    assert_eq!(driver.api.asked().last().unwrap().body["credential"]["user"], "ann");
}

/// Protects from a socket that nobody serves, and from a driver that waits for idle callers.
#[tokio::test]
async fn a_driver_that_stops_takes_its_socket_along() {
    let mut driver = Driver::start(Mode::Node).await;
    let mut node = NodeClient::new(driver.channel.clone());
    node.node_get_info(NodeGetInfoRequest {}).await.unwrap();
    driver.stop().await;
    assert!(!driver.folder.join("csi.sock").exists());
    assert!(node.node_get_info(NodeGetInfoRequest {}).await.is_err());
}
