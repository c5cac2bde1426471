//! The types that are generated of our definitions: what they read they have to write again, with nothing lost.
use std::collections::BTreeMap;
use std::fmt::Debug;

use anyhow::{Context, Result};
use prost_reflect::prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};

use crate::samples::Sample;
use crate::{Outcome, lines, messages};

/// What a generated type makes of bytes.
pub struct Again {
    pub bytes: Vec<u8>,
    pub text: String,
}

type Read = fn(&[u8]) -> Result<Again>;

fn again<M: Message + Default + Debug>(bytes: &[u8]) -> Result<Again> {
    let message = M::decode(bytes)?;
    Ok(Again { bytes: message.encode_to_vec(), text: format!("{message:?}") })
}

macro_rules! types {
    ($($path:path),+ $(,)?) => {
        &[$((stringify!($path), {
            use proto::csi::*;
            again::<$path>
        })),+]
    };
}

/// One that is missing here fails the check.
const TYPES: &[(&str, Read)] = types![
    BlockMetadata,
    CapacityRange,
    ControllerExpandVolumeRequest,
    ControllerExpandVolumeResponse,
    ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse,
    ControllerGetVolumeRequest,
    ControllerGetVolumeResponse,
    controller_get_volume_response::VolumeStatus,
    ControllerModifyVolumeRequest,
    ControllerModifyVolumeResponse,
    ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse,
    ControllerServiceCapability,
    controller_service_capability::Rpc,
    ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse,
    CreateSnapshotRequest,
    CreateSnapshotResponse,
    CreateVolumeGroupSnapshotRequest,
    CreateVolumeGroupSnapshotResponse,
    CreateVolumeRequest,
    CreateVolumeResponse,
    DeleteSnapshotRequest,
    DeleteSnapshotResponse,
    DeleteVolumeGroupSnapshotRequest,
    DeleteVolumeGroupSnapshotResponse,
    DeleteVolumeRequest,
    DeleteVolumeResponse,
    GetCapacityRequest,
    GetCapacityResponse,
    GetMetadataAllocatedRequest,
    GetMetadataAllocatedResponse,
    GetMetadataDeltaRequest,
    GetMetadataDeltaResponse,
    GetPluginCapabilitiesRequest,
    GetPluginCapabilitiesResponse,
    GetPluginInfoRequest,
    GetPluginInfoResponse,
    GetSnapshotRequest,
    GetSnapshotResponse,
    GetVolumeGroupSnapshotRequest,
    GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest,
    GroupControllerGetCapabilitiesResponse,
    GroupControllerServiceCapability,
    group_controller_service_capability::Rpc,
    ListSnapshotsRequest,
    ListSnapshotsResponse,
    list_snapshots_response::Entry,
    ListVolumesRequest,
    ListVolumesResponse,
    list_volumes_response::Entry,
    list_volumes_response::VolumeStatus,
    NodeExpandVolumeRequest,
    NodeExpandVolumeResponse,
    NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse,
    NodeGetInfoRequest,
    NodeGetInfoResponse,
    NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest,
    NodePublishVolumeResponse,
    NodeServiceCapability,
    node_service_capability::Rpc,
    NodeStageVolumeRequest,
    NodeStageVolumeResponse,
    NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse,
    PluginCapability,
    plugin_capability::Service,
    plugin_capability::VolumeExpansion,
    ProbeRequest,
    ProbeResponse,
    Snapshot,
    Topology,
    TopologyRequirement,
    ValidateVolumeCapabilitiesRequest,
    ValidateVolumeCapabilitiesResponse,
    validate_volume_capabilities_response::Confirmed,
    Volume,
    VolumeCapability,
    volume_capability::AccessMode,
    volume_capability::BlockVolume,
    volume_capability::MountVolume,
    VolumeCondition,
    VolumeContentSource,
    volume_content_source::SnapshotSource,
    volume_content_source::VolumeSource,
    VolumeGroupSnapshot,
    VolumeUsage,
];

/// Both spellings of a name in one: `volume_capability::AccessMode` is `VolumeCapability.AccessMode`.
fn plain(name: &str) -> String {
    let name = name.strip_prefix("csi.v1.").unwrap_or(name);
    name.replace("::", ".").replace(['_', ' '], "").to_lowercase()
}

/// The type of a message by its full name.
pub fn read(message: &str) -> Option<Read> {
    let wanted = plain(message);
    TYPES.iter().find(|(name, _)| plain(name) == wanted).map(|(_, read)| *read)
}

pub fn check(pool: &DescriptorPool, samples: BTreeMap<&str, Vec<&Sample>>) -> Vec<Outcome> {
    let outcomes = messages(pool).into_iter().map(|message| {
        let message = message.full_name();
        let samples = samples.get(message).map_or(&[][..], Vec::as_slice);
        let wrong = match read(message) {
            None => vec!["TYPES of this check lack it".to_owned()],
            Some(_) if samples.is_empty() => vec!["there is no sample of it".to_owned()],
            Some(read) => samples.iter().filter_map(|sample| lost(pool, read, sample)).collect(),
        };
        (format!("{message}: read and written again by the generated type"), wrong)
    });
    outcomes.collect()
}

/// What a type does not bring back.
pub fn lost(pool: &DescriptorPool, read: Read, sample: &Sample) -> Option<String> {
    let reread = || -> Result<Vec<String>> {
        let again = read(&sample.bytes()?)?;
        let message = pool.get_message_by_name(&sample.message).context("no such message")?;
        Ok(lines::of(&DynamicMessage::decode(message, again.bytes.as_slice())?))
    };
    match reread() {
        Ok(lines) => sample.difference(&lines),
        Err(error) => Some(format!("{}: {error:#}", sample.variant)),
    }
}
