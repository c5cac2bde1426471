//! The node's part of the driver through its socket, as far as nothing is attached: what it is, what it refuses,
//! and that it keeps nothing of what it refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
#[allow(dead_code, reason = "what other parts of the driver are tested with")]
mod false_api;

use std::fs;

use control::api::{ApiError, Code as ApiCode};
use proto::csi::node_client::NodeClient;
use proto::csi::node_service_capability::Type;
use proto::csi::node_service_capability::rpc::Type as Rpc;
use proto::csi::volume_capability::{AccessMode, AccessType, MountVolume, access_mode};
use proto::csi::*;
use serde_json::json;
use tonic::Code;
use tonic::transport::Channel;

use false_api::{Driver, Mode, OTHER, VOLUME, volume};

async fn node() -> (Driver, NodeClient<Channel>) {
    let driver = Driver::start(Mode::Node).await;
    let client = NodeClient::new(driver.channel.clone());
    (driver, client)
}

fn mounted() -> VolumeCapability {
    let mode = access_mode::Mode::SingleNodeWriter.into();
    VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode }),
    }
}

fn stage(path: &str) -> NodeStageVolumeRequest {
    NodeStageVolumeRequest {
        volume_id: VOLUME.into(),
        staging_target_path: path.into(),
        volume_capability: Some(mounted()),
        ..NodeStageVolumeRequest::default()
    }
}

fn publish(path: &str) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_id: VOLUME.into(),
        staging_target_path: "/staging".into(),
        target_path: path.into(),
        volume_capability: Some(mounted()),
        ..NodePublishVolumeRequest::default()
    }
}

/// No record, no lock, no folder.
fn keeps_nothing(driver: &Driver) {
    let kept = fs::read_dir(driver.folder.join("attachments"));
    assert_eq!(kept.map_or(0, Iterator::count), 0);
}

#[tokio::test]
async fn a_node_tells_the_site_that_it_is_there_and_what_it_can() {
    let (driver, mut node) = node().await;
    node.node_get_info(NodeGetInfoRequest {}).await.unwrap();
    let asked = driver.api.asked();
    assert_eq!(asked.len(), 1);
    let place = json!({"zone": "a", "topology.pollux.io/node": "worker-1"});
    assert_eq!(asked[0].body["name"], "worker-1");
    assert_eq!(asked[0].body["topology"], place);
    let told = node.node_get_capabilities(NodeGetCapabilitiesRequest {}).await.unwrap();
    let told: Vec<i32> = told.into_inner().capabilities.into_iter().map(rpc).collect();
    let wanted = [
        Rpc::StageUnstageVolume,
        Rpc::GetVolumeStats,
        Rpc::ExpandVolume,
        Rpc::VolumeCondition,
        Rpc::SingleNodeMultiWriter,
    ];
    assert_eq!(told, wanted.map(i32::from));
}

fn rpc(capability: NodeServiceCapability) -> i32 {
    let Type::Rpc(rpc) = capability.r#type.unwrap();
    rpc.r#type
}

#[tokio::test]
async fn what_is_malformed_never_reaches_the_site() {
    let (driver, mut node) = node().await;
    for path in ["", "relative", "/", "/a/../b", "/a\0b"] {
        let staged = node.node_stage_volume(stage(path)).await;
        assert_eq!(staged.unwrap_err().code(), Code::InvalidArgument, "{path:?}");
        let published = node.node_publish_volume(publish(path)).await;
        assert_eq!(published.unwrap_err().code(), Code::InvalidArgument, "{path:?}");
    }
    let nobody = NodeStageVolumeRequest { volume_id: "../etc".into(), ..stage("/staging") };
    assert_eq!(node.node_stage_volume(nobody).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(driver.api.count(), 0);
    keeps_nothing(&driver);
}

#[tokio::test]
async fn what_the_site_says_of_a_volume_decides() {
    let (driver, mut node) = node().await;
    let of = format!("GET /v1/volumes/{VOLUME}");
    let missing = node.node_stage_volume(stage("/staging")).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound, "{missing}");
    driver.api.refuse(&of, &ApiError::new(ApiCode::Unavailable, "there is no controller"));
    let away = node.node_stage_volume(stage("/staging")).await.unwrap_err();
    assert_eq!(away.code(), Code::Unavailable, "{away}");
    // Its node has no NBD, and this machine hardly has the kernel's iSCSI without anything installed for it; in
    // either case no process is there that could be started.
    driver.api.forget(&of);
    driver.api.answer(&of, volume(VOLUME));
    let stages = format!("POST /v1/volumes/{VOLUME}/stages");
    driver.api.refuse(&stages, &ApiError::new(ApiCode::InUse, "it is not attached to worker-1"));
    let refused = node.node_stage_volume(stage("/staging")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    keeps_nothing(&driver);
}

#[tokio::test]
async fn what_was_never_there_is_gone_and_cannot_be_asked() {
    let (driver, mut node) = node().await;
    let path = driver.folder.join("nothing").display().to_string();
    for volume in [VOLUME, OTHER, "no-id-of-ours"] {
        let (volume_id, target_path) = (volume.to_owned(), path.clone());
        let gone = NodeUnpublishVolumeRequest { volume_id, target_path };
        node.node_unpublish_volume(gone).await.unwrap();
        let (volume_id, staging_target_path) = (volume.to_owned(), path.clone());
        let gone = NodeUnstageVolumeRequest { volume_id, staging_target_path };
        node.node_unstage_volume(gone).await.unwrap();
        let (volume_id, volume_path) = (volume.to_owned(), path.clone());
        let stats = NodeGetVolumeStatsRequest { volume_id, volume_path, ..Default::default() };
        let status = node.node_get_volume_stats(stats).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{status}");
        let (volume_id, volume_path) = (volume.to_owned(), path.clone());
        let expand = NodeExpandVolumeRequest { volume_id, volume_path, ..Default::default() };
        let status = node.node_expand_volume(expand).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{status}");
    }
    let early = node.node_publish_volume(publish(&path)).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition, "{early}");
    assert_eq!(driver.api.count(), 0);
    keeps_nothing(&driver);
}
