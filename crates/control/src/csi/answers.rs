//! What the site says of volumes and snapshots, in the words of CSI.
use std::collections::HashMap;

use prost_types::Timestamp;
use proto::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
use proto::csi::{self, VolumeCondition, VolumeContentSource, VolumeGroupSnapshot};
use tonic::Status;

use super::capacity::signed;
use super::status::{not_found, not_yet};
use super::topology;
use crate::api::types::{GroupSnapshot, Health, Snapshot, Source, State, Volume};

/// Keys of a publish context. The node reads them; none is secret.
pub mod context {
    pub const IQN: &str = "iqn";
    pub const PORTAL: &str = "portal";
    pub const LUN: &str = "lun";
    pub const NBD: &str = "nbd";
    pub const CHAP: &str = "chap";
}

/// Its context is empty: whatever is fixed for a volume, its id leads to.
pub fn volume(of: &Volume) -> csi::Volume {
    csi::Volume {
        capacity_bytes: signed(of.size),
        volume_id: of.uid.clone(),
        volume_context: HashMap::new(),
        content_source: of.source.as_ref().map(source),
        accessible_topology: of.accessible.iter().map(topology::told).collect(),
    }
}

/// One that is on its way out is gone for whoever asks: only its remains are still there.
pub fn is_there(volume: &Volume) -> bool {
    volume.state.health != Health::Deleting
}

/// A volume that was asked for by its id.
pub fn there(volume: Volume) -> Result<Volume, Status> {
    match is_there(&volume) {
        true => Ok(volume),
        false => Err(not_found("volume", &volume.uid)),
    }
}

fn source(of: &Source) -> VolumeContentSource {
    let kind = match of.clone() {
        Source::Snapshot { id } => Type::Snapshot(SnapshotSource { snapshot_id: id }),
        Source::Volume { id } => Type::Volume(VolumeSource { volume_id: id }),
    };
    VolumeContentSource { r#type: Some(kind) }
}

pub fn hosts(of: &Volume) -> Vec<String> {
    of.attachments.iter().map(|attachment| attachment.host.clone()).collect()
}

/// The reason as the site tells it, with what happens and what to do.
pub fn condition(of: &State) -> VolumeCondition {
    let abnormal = match of.health {
        Health::Healthy | Health::Pending => false,
        Health::Degraded | Health::Offline | Health::Deleting => true,
    };
    let State { reason, message, next, advice, .. } = of;
    let sentences = [message, next, advice].into_iter().filter(|text| !text.is_empty());
    let sentences: Vec<&str> = sentences.map(String::as_str).collect();
    VolumeCondition { abnormal, message: format!("{reason}: {}", sentences.join(" ")) }
}

pub fn snapshot(of: &Snapshot) -> csi::Snapshot {
    csi::Snapshot {
        size_bytes: signed(of.size),
        snapshot_id: of.uid.clone(),
        source_volume_id: of.volume_uid.clone(),
        creation_time: Some(time(of.created_ms)),
        ready_to_use: of.ready,
        group_snapshot_id: of.group_snapshot_uid.clone().unwrap_or_default(),
    }
}

/// One that was just asked for. A call may end only when it is cut, and with us that is when it is ready.
pub fn cut(of: &Snapshot) -> Result<csi::Snapshot, Status> {
    match of.ready {
        true => Ok(snapshot(of)),
        false => Err(not_yet(format!("the snapshot {} is being taken", of.name))),
    }
}

pub fn group_snapshot(of: &GroupSnapshot) -> VolumeGroupSnapshot {
    let in_group =
        |one: &Snapshot| csi::Snapshot { group_snapshot_id: of.uid.clone(), ..snapshot(one) };
    VolumeGroupSnapshot {
        group_snapshot_id: of.uid.clone(),
        snapshots: of.snapshots.iter().map(in_group).collect(),
        creation_time: Some(time(of.created_ms)),
        ready_to_use: of.ready && of.snapshots.iter().all(|snapshot| snapshot.ready),
    }
}

/// The same for one that was just asked for.
pub fn group_cut(of: &GroupSnapshot) -> Result<VolumeGroupSnapshot, Status> {
    let told = group_snapshot(of);
    match told.ready_to_use {
        true => Ok(told),
        false => Err(not_yet(format!("the group snapshot {} is being taken", of.name))),
    }
}

/// How a host reaches a volume that is attached to it.
pub fn publish_context(of: &Volume) -> Result<HashMap<String, String>, Status> {
    let name = &of.name;
    let Some(target) = of.target.as_ref().filter(|target| target.serving) else {
        return Err(Status::unavailable(format!("nobody serves the volume {name} now: ask again")));
    };
    if target.iscsi.is_empty() && target.nbd.is_empty() {
        return Err(Status::failed_precondition(format!(
            "the node {} serves the volume {name} neither with iSCSI nor with NBD: \
             give it one of their addresses",
            target.node
        )));
    }
    let mut context = HashMap::new();
    let mut say = |key: &str, value: &str| context.insert(key.to_owned(), value.to_owned());
    say(context::CHAP, if of.chap_user.is_some() { "true" } else { "false" });
    if !target.iscsi.is_empty() {
        say(context::IQN, &target.iqn);
        say(context::PORTAL, &target.iscsi);
        say(context::LUN, "0");
    }
    if !target.nbd.is_empty() {
        say(context::NBD, &target.nbd);
    }
    Ok(context)
}

pub fn time(ms: u64) -> Timestamp {
    let seconds = i64::try_from(ms / 1000).unwrap_or(i64::MAX);
    let nanos = i32::try_from(ms % 1000).unwrap_or(0) * 1_000_000;
    Timestamp { seconds, nanos }
}

#[cfg(test)]
mod tests;
