//! What a node is asked for: fields that must be there, and what they mean.
use std::path::{Path, PathBuf};

use attach::filesystem::Kind;
use attach::host::{HostError, checked};
use proto::csi::volume_capability::AccessType;
use proto::csi::volume_capability::access_mode::Mode;
use proto::csi::{
    NodeExpandVolumeRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
};
use tonic::Status;

use crate::api::types::{Credential, Volume};
use crate::csi::capability::{self, Access};
use crate::csi::fields::{given, id, uid};
use crate::csi::secrets::credential;
use crate::csi::status::{invalid, missing, unable};
use crate::parameters::FS_TYPE;

/// A volume that is to be brought to a place.
#[derive(Debug)]
pub struct Stage {
    pub uid: String,
    pub path: PathBuf,
    /// `None`: as a device.
    pub mount: Option<Mount>,
    pub read_only: bool,
    pub credential: Option<Credential>,
}

#[derive(Debug)]
pub struct Mount {
    /// As the capability says; empty: as the volume's class says.
    pub kind: String,
    pub flags: Vec<String>,
}

#[derive(Debug)]
pub struct Publish {
    pub uid: String,
    pub staging: PathBuf,
    pub to: PathBuf,
    pub mounted: bool,
    pub read_only: bool,
    pub alone: bool,
}

/// A volume at a place.
#[derive(Debug, PartialEq, Eq)]
pub struct Staged {
    pub uid: String,
    pub path: PathBuf,
}

#[derive(Debug)]
pub struct Expand {
    pub uid: String,
    pub path: PathBuf,
    pub required: u64,
}

pub fn stage(request: NodeStageVolumeRequest) -> Result<Stage, Status> {
    let NodeStageVolumeRequest {
        volume_id, staging_target_path, volume_capability, secrets, ..
    } = request;
    given("volume_id", &volume_id)?;
    given("staging_target_path", &staging_target_path)?;
    let how = capability::one("volume_capability", volume_capability.as_ref())?;
    let path = checked("staging_target_path", &staging_target_path).map_err(unable)?.to_owned();
    let credential = credential(secrets)?;
    let uid = id("volume", "volume_id", &volume_id)?.to_owned();
    let mount = mount(volume_capability.as_ref());
    let says_ro =
        |mount: &Mount| mount.flags.iter().any(|flags| flags.split(',').any(|it| it == "ro"));
    let read_only = how.read_only || mount.as_ref().is_some_and(says_ro);
    Ok(Stage { uid, path, mount, read_only, credential })
}

fn mount(of: Option<&VolumeCapability>) -> Option<Mount> {
    match of?.access_type.as_ref()? {
        AccessType::Block(_) => None,
        AccessType::Mount(mount) => {
            Some(Mount { kind: mount.fs_type.clone(), flags: mount.mount_flags.clone() })
        }
    }
}

/// The file system that is wanted: by the capability, by the class, or the one that all have.
pub fn kind(wanted: &Stage, volume: &Volume) -> Result<Kind, Status> {
    let by_capability = wanted.mount.as_ref().map(|mount| mount.kind.as_str());
    let by_class = volume.parameters.get(FS_TYPE).map(String::as_str);
    let name = by_capability.filter(|kind| !kind.is_empty()).or(by_class).unwrap_or("ext4");
    Kind::named(name).ok_or_else(|| invalid("volume_capability.mount.fs_type", "it is not known"))
}

pub fn publish(request: NodePublishVolumeRequest) -> Result<Publish, Status> {
    let NodePublishVolumeRequest {
        volume_id,
        staging_target_path,
        target_path,
        volume_capability,
        readonly,
        ..
    } = request;
    given("volume_id", &volume_id)?;
    given("target_path", &target_path)?;
    let how = capability::one("volume_capability", volume_capability.as_ref())?;
    if staging_target_path.is_empty() {
        // The one field whose lack is another code by the specification.
        return Err(Status::failed_precondition(missing("staging_target_path").message()));
    }
    let staging = checked("staging_target_path", &staging_target_path).map_err(unable)?.to_owned();
    let to = checked("target_path", &target_path).map_err(unable)?.to_owned();
    let uid = id("volume", "volume_id", &volume_id)?.to_owned();
    let mode = volume_capability.as_ref().and_then(|it| it.access_mode).map(|it| it.mode);
    let alone = mode == Some(Mode::SingleNodeSingleWriter.into());
    let (mounted, read_only) = (how.access == Access::Mount, readonly || how.read_only);
    Ok(Publish { uid, staging, to, mounted, read_only, alone })
}

/// `None`: there can be no such volume, and so it is nowhere.
pub fn unstage(request: &NodeUnstageVolumeRequest) -> Result<Option<Staged>, Status> {
    gone(&request.volume_id, "staging_target_path", &request.staging_target_path)
}

/// The same.
pub fn unpublish(request: &NodeUnpublishVolumeRequest) -> Result<Option<Staged>, Status> {
    gone(&request.volume_id, "target_path", &request.target_path)
}

fn gone(volume: &str, field: &'static str, path: &str) -> Result<Option<Staged>, Status> {
    given("volume_id", volume)?;
    given(field, path)?;
    let path = checked(field, path).map_err(unable)?.to_owned();
    Ok(uid(volume).map(|uid| Staged { uid: uid.to_owned(), path }))
}

pub fn stats(request: &NodeGetVolumeStatsRequest) -> Result<Staged, Status> {
    let NodeGetVolumeStatsRequest { volume_id, volume_path, .. } = request;
    found(volume_id, volume_path)
}

pub fn expand(request: &NodeExpandVolumeRequest) -> Result<Expand, Status> {
    let NodeExpandVolumeRequest { volume_id, volume_path, capacity_range, .. } = request;
    let Staged { uid, path } = found(volume_id, volume_path)?;
    let required = capacity_range.as_ref().map_or(0, |range| range.required_bytes);
    let required = u64::try_from(required)
        .map_err(|_| invalid("capacity_range.required_bytes", "it is below zero"))?;
    Ok(Expand { uid, path, required })
}

/// A place that no volume can be at is one where this one is not.
fn found(volume: &str, path: &str) -> Result<Staged, Status> {
    given("volume_id", volume)?;
    given("volume_path", path)?;
    let uid = id("volume", "volume_id", volume)?.to_owned();
    match checked("volume_path", path) {
        Ok(path) => Ok(Staged { uid, path: path.to_owned() }),
        Err(_) => Err(unable(HostError::NotThere { path: Path::new(path).to_owned() })),
    }
}

#[cfg(test)]
mod tests;
