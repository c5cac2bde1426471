//! The node's own part: who it is and where. What it does with volumes comes with the attach.
use proto::csi::node_server::Node;
use proto::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeStageVolumeRequest, NodeStageVolumeResponse,
    NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse,
};
use tonic::{Request, Response, Status};

use super::fields::given;
use super::topology;
use crate::api::types::Pairs;
use crate::controller::NODE_KEY;

/// A machine that volumes are attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As the orchestrator calls it; the host of attachments.
    pub name: String,
    /// Beside its name, which is a place too.
    pub place: Pairs,
}

pub struct NodeService {
    pub host: Host,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Answer<NodeGetInfoResponse> {
        let mut place = self.host.place.clone();
        // So that a replica can be asked for where its volume is used.
        place.insert(NODE_KEY.into(), self.host.name.clone());
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.host.name.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(topology::told(&place)),
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Answer<NodeGetCapabilitiesResponse> {
        Ok(Response::new(NodeGetCapabilitiesResponse::default()))
    }

    async fn node_stage_volume(
        &self,
        _: Request<NodeStageVolumeRequest>,
    ) -> Answer<NodeStageVolumeResponse> {
        Err(unable("staged"))
    }

    async fn node_unstage_volume(
        &self,
        _: Request<NodeUnstageVolumeRequest>,
    ) -> Answer<NodeUnstageVolumeResponse> {
        Err(unable("unstaged"))
    }

    async fn node_publish_volume(
        &self,
        _: Request<NodePublishVolumeRequest>,
    ) -> Answer<NodePublishVolumeResponse> {
        Err(unable("published"))
    }

    /// Done: this version publishes nothing, so that nothing is published anywhere. Orchestrators ask for it
    /// before they delete a volume.
    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Answer<NodeUnpublishVolumeResponse> {
        let NodeUnpublishVolumeRequest { volume_id, target_path } = request.into_inner();
        given("volume_id", &volume_id)?;
        given("target_path", &target_path)?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        _: Request<NodeGetVolumeStatsRequest>,
    ) -> Answer<NodeGetVolumeStatsResponse> {
        Err(unable("measured"))
    }

    async fn node_expand_volume(
        &self,
        _: Request<NodeExpandVolumeRequest>,
    ) -> Answer<NodeExpandVolumeResponse> {
        Err(unable("made larger"))
    }
}

fn unable(what: &str) -> Status {
    Status::unimplemented(format!("volumes cannot be {what} on a node by this version"))
}
