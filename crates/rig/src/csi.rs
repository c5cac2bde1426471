//! Somebody who uses the driver as an orchestrator does: calls over its socket, for threads that wait.
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use proto::csi::controller_client::ControllerClient;
use proto::csi::node_client::NodeClient;
use proto::csi::volume_capability::access_mode::Mode;
use proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use proto::csi::volume_content_source::{SnapshotSource, Type};
use proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest,
    ControllerUnpublishVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest,
    DeleteSnapshotRequest, DeleteVolumeRequest, NodeExpandVolumeRequest, NodeGetInfoRequest,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
    VolumeContentSource,
};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// Making a file system and attaching may both wait for a target that moves.
const CALL: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);

/// How a volume is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// With this file system.
    Mount(&'static str),
    Block,
}

impl Access {
    fn capability(self) -> VolumeCapability {
        let access_type = match self {
            Access::Mount(kind) => {
                AccessType::Mount(MountVolume { fs_type: kind.into(), ..MountVolume::default() })
            }
            Access::Block => AccessType::Block(BlockVolume {}),
        };
        let mode = AccessMode { mode: Mode::SingleNodeWriter.into() };
        VolumeCapability { access_type: Some(access_type), access_mode: Some(mode) }
    }
}

/// A volume, and the places where this machine has it.
#[derive(Clone, Debug)]
pub struct Claim {
    pub id: String,
    pub access: Access,
    /// Where it is staged.
    pub staging: PathBuf,
    /// Where a workload has it.
    pub target: PathBuf,
}

#[derive(Debug)]
pub struct Csi {
    runtime: Runtime,
    socket: PathBuf,
    /// The node that volumes are for.
    node: String,
}

type Answer<T> = Result<T, Status>;

fn signed(size: u64) -> i64 {
    i64::try_from(size).expect("sizes of tests are small")
}

fn range(size: u64) -> Option<CapacityRange> {
    Some(CapacityRange { required_bytes: signed(size), limit_bytes: 0 })
}

fn text(path: &Path) -> String {
    path.to_str().expect("paths of tests are text").to_owned()
}

impl Csi {
    pub fn new(socket: &Path, node: &str) -> Result<Csi> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Csi { runtime, socket: socket.into(), node: node.into() })
    }

    /// A connection of its own for every call: none is left over from a driver that was killed.
    fn call<T>(&self, what: impl AsyncFnOnce(Channel) -> Answer<tonic::Response<T>>) -> Answer<T> {
        self.runtime.block_on(async {
            let endpoint = Endpoint::from_shared(format!("unix://{}", self.socket.display()));
            let endpoint = endpoint.map_err(|error| Status::internal(error.to_string()))?;
            let channel = endpoint.timeout(CALL).connect().await;
            let channel = channel.map_err(|error| Status::unavailable(format!("{error:?}")))?;
            Ok(what(channel).await?.into_inner())
        })
    }

    /// Asks again and again while the answer is that it cannot be done now.
    pub fn insist<T>(&self, patience: Duration, what: impl Fn(&Csi) -> Answer<T>) -> Result<T> {
        let begun = Instant::now();
        loop {
            match what(self) {
                Ok(answer) => return Ok(answer),
                Err(error)
                    if begun.elapsed() < patience
                        && matches!(error.code(), Code::Unavailable | Code::Aborted) =>
                {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("after {:?}", begun.elapsed()));
                }
            }
        }
    }

    /// Makes this machine known to the site.
    pub fn info(&self) -> Answer<()> {
        let ask =
            async |channel| NodeClient::new(channel).node_get_info(NodeGetInfoRequest {}).await;
        self.call(ask).map(drop)
    }

    /// The id of a volume with three replicas; of a snapshot, if one is named.
    pub fn create(
        &self,
        name: &str,
        size: u64,
        access: Access,
        of: Option<&str>,
    ) -> Answer<String> {
        let source = |id: &str| VolumeContentSource {
            r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id: id.into() })),
        };
        let request = CreateVolumeRequest {
            name: name.into(),
            capacity_range: range(size),
            volume_capabilities: vec![access.capability()],
            parameters: HashMap::from([("replicas".into(), "3".into())]),
            volume_content_source: of.map(source),
            ..CreateVolumeRequest::default()
        };
        let made =
            self.call(async |channel| ControllerClient::new(channel).create_volume(request).await)?;
        Ok(made.volume.expect("the answer has the volume").volume_id)
    }

    pub fn delete(&self, id: &str) -> Answer<()> {
        let request =
            DeleteVolumeRequest { volume_id: id.into(), ..DeleteVolumeRequest::default() };
        self.call(async |channel| ControllerClient::new(channel).delete_volume(request).await)
            .map(drop)
    }

    /// Lets this machine use it.
    pub fn attach(&self, claim: &Claim) -> Answer<()> {
        let request = ControllerPublishVolumeRequest {
            volume_id: claim.id.clone(),
            node_id: self.node.clone(),
            volume_capability: Some(claim.access.capability()),
            ..ControllerPublishVolumeRequest::default()
        };
        self.call(async |channel| {
            ControllerClient::new(channel).controller_publish_volume(request).await
        })
        .map(drop)
    }

    pub fn detach(&self, claim: &Claim) -> Answer<()> {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: claim.id.clone(),
            node_id: self.node.clone(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        self.call(async |channel| {
            ControllerClient::new(channel).controller_unpublish_volume(request).await
        })
        .map(drop)
    }

    pub fn stage(&self, claim: &Claim) -> Answer<()> {
        let request = NodeStageVolumeRequest {
            volume_id: claim.id.clone(),
            staging_target_path: text(&claim.staging),
            volume_capability: Some(claim.access.capability()),
            ..NodeStageVolumeRequest::default()
        };
        self.call(async |channel| NodeClient::new(channel).node_stage_volume(request).await)
            .map(drop)
    }

    pub fn unstage(&self, claim: &Claim) -> Answer<()> {
        let request = NodeUnstageVolumeRequest {
            volume_id: claim.id.clone(),
            staging_target_path: text(&claim.staging),
        };
        self.call(async |channel| NodeClient::new(channel).node_unstage_volume(request).await)
            .map(drop)
    }

    pub fn publish(&self, claim: &Claim) -> Answer<()> {
        let request = NodePublishVolumeRequest {
            volume_id: claim.id.clone(),
            staging_target_path: text(&claim.staging),
            target_path: text(&claim.target),
            volume_capability: Some(claim.access.capability()),
            ..NodePublishVolumeRequest::default()
        };
        self.call(async |channel| NodeClient::new(channel).node_publish_volume(request).await)
            .map(drop)
    }

    pub fn unpublish(&self, claim: &Claim) -> Answer<()> {
        let request = NodeUnpublishVolumeRequest {
            volume_id: claim.id.clone(),
            target_path: text(&claim.target),
        };
        self.call(async |channel| NodeClient::new(channel).node_unpublish_volume(request).await)
            .map(drop)
    }

    pub fn stats(&self, claim: &Claim) -> Answer<NodeGetVolumeStatsResponse> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: claim.id.clone(),
            volume_path: text(&claim.target),
            ..NodeGetVolumeStatsRequest::default()
        };
        self.call(async |channel| NodeClient::new(channel).node_get_volume_stats(request).await)
    }

    /// The id of a snapshot that is ready.
    pub fn snapshot(&self, claim: &Claim, name: &str) -> Answer<String> {
        let request = CreateSnapshotRequest {
            source_volume_id: claim.id.clone(),
            name: name.into(),
            ..CreateSnapshotRequest::default()
        };
        let made = self
            .call(async |channel| ControllerClient::new(channel).create_snapshot(request).await)?;
        let made = made.snapshot.expect("the answer has the snapshot");
        match made.ready_to_use {
            true => Ok(made.snapshot_id),
            false => Err(Status::aborted("it is not ready")),
        }
    }

    pub fn delete_snapshot(&self, id: &str) -> Answer<()> {
        let request =
            DeleteSnapshotRequest { snapshot_id: id.into(), ..DeleteSnapshotRequest::default() };
        self.call(async |channel| ControllerClient::new(channel).delete_snapshot(request).await)
            .map(drop)
    }

    /// The volume first, then what this machine has of it.
    pub fn expand(&self, claim: &Claim, size: u64) -> Answer<()> {
        let volume = ControllerExpandVolumeRequest {
            volume_id: claim.id.clone(),
            capacity_range: range(size),
            ..ControllerExpandVolumeRequest::default()
        };
        self.call(async |channel| {
            ControllerClient::new(channel).controller_expand_volume(volume).await
        })?;
        let here = NodeExpandVolumeRequest {
            volume_id: claim.id.clone(),
            volume_path: text(&claim.target),
            capacity_range: range(size),
            ..NodeExpandVolumeRequest::default()
        };
        self.call(async |channel| NodeClient::new(channel).node_expand_volume(here).await).map(drop)
    }
}
