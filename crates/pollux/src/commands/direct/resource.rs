//! The status of volumes in the words of their resource: `volumeStatus`, for tools that know it.
use anyhow::{Context, Result};
use control::steps::Site;
use proto::v1;
use serde::Serialize;

use super::status::{mode, phase};
use crate::render::say;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    volume_status: Vec<VolumeStatus>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VolumeStatus {
    name: String,
    status: &'static str,
    replica_status: Vec<ReplicaStatus>,
}

/// Numbers are text here, except for the time: so the resource has it.
#[derive(Debug, Serialize)]
struct ReplicaStatus {
    #[serde(rename = "replicaId")]
    id: String,
    mode: &'static str,
    #[serde(rename = "checkpointedIOSeq")]
    checkpointed_io_seq: String,
    #[serde(rename = "inflightRead")]
    inflight_read: String,
    #[serde(rename = "inflightWrite")]
    inflight_write: String,
    #[serde(rename = "inflightSync")]
    inflight_sync: String,
    #[serde(rename = "upTime")]
    up_time: u64,
    quorum: &'static str,
}

pub async fn run(site: &Site, name: Option<&str>) -> Result<()> {
    let names = match name {
        Some(name) => vec![name.to_owned()],
        None => site.volumes().await?.into_iter().map(|found| found.volume.name).collect(),
    };
    let mut volume_status = Vec::new();
    for name in names {
        let target = site.target(&name).await?;
        volume_status.push(VolumeStatus {
            status: phase(&target),
            replica_status: target.peers.iter().map(replica).collect(),
            name,
        });
    }
    let text = serde_json::to_string_pretty(&Response { volume_status });
    say(&text.context("the status is no JSON")?)
}

fn replica(peer: &v1::PeerStatus) -> ReplicaStatus {
    ReplicaStatus {
        id: peer.member.unwrap_or_default().replica.to_string(),
        mode: mode(peer.standing()),
        checkpointed_io_seq: peer.checkpointed_io_seq.to_string(),
        inflight_read: peer.inflight_read.to_string(),
        inflight_write: peer.inflight_write.to_string(),
        inflight_sync: peer.inflight_sync.to_string(),
        up_time: peer.up_ms / 1000,
        quorum: if peer.quorum { "1" } else { "0" },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects from field names that the tools of the resource do not know.
    #[test]
    fn the_fields_are_those_of_the_resource() {
        let peer = v1::PeerStatus {
            standing: v1::Standing::Healthy.into(),
            checkpointed_io_seq: 7,
            up_ms: 5_900,
            quorum: true,
            ..v1::PeerStatus::default()
        };
        let status = VolumeStatus {
            name: "db".into(),
            status: "Healthy",
            replica_status: vec![replica(&peer)],
        };
        let json = serde_json::to_value(Response { volume_status: vec![status] }).unwrap();
        let replica = &json["volumeStatus"][0]["replicaStatus"][0];
        let expected = serde_json::json!({
            "replicaId": "0", "mode": "Healthy", "checkpointedIOSeq": "7", "inflightRead": "0",
            "inflightWrite": "0", "inflightSync": "0", "upTime": 5, "quorum": "1"
        });
        assert_eq!(*replica, expected);
    }
}
