//! Volumes and the nodes that use them.
use proto::csi::{ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest};
use tonic::Status;

use crate::api::types::{Attach, Detach};
use crate::csi::capability;
use crate::csi::fields::{given, id, uid};
use crate::csi::secrets::credential;

/// Which volume, and to whom. The context of the volume is not looked into: ours is empty, and
/// orchestrators add to it.
pub fn attach(request: ControllerPublishVolumeRequest) -> Result<(String, Attach), Status> {
    let ControllerPublishVolumeRequest {
        volume_id,
        node_id,
        volume_capability,
        readonly,
        secrets,
        volume_context: _,
    } = request;
    given("volume_id", &volume_id)?;
    given("node_id", &node_id)?;
    let how = capability::one("volume_capability", volume_capability.as_ref())?;
    let attach = Attach {
        host: node_id,
        read_only: readonly || how.read_only,
        shared: how.shared,
        single_writer: how.single_writer,
        credential: credential(secrets)?,
    };
    Ok((id("volume", "volume_id", &volume_id)?.to_owned(), attach))
}

/// Which volume, and from whom; nothing if there can be no such volume.
pub fn detach(
    request: ControllerUnpublishVolumeRequest,
) -> Result<Option<(String, Detach)>, Status> {
    let ControllerUnpublishVolumeRequest { volume_id, node_id, secrets } = request;
    given("volume_id", &volume_id)?;
    let detach = Detach { host: node_id, credential: credential(secrets)? };
    Ok(uid(&volume_id).map(|uid| (uid.to_owned(), detach)))
}

#[cfg(test)]
mod tests;
