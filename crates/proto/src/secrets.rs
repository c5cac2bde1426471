//! Messages that hold a secret, as text without it: what is logged is read by others.
use std::fmt;

use crate::csi::volume_capability::MountVolume;
use crate::csi::*;
use crate::v1::Chap;

impl fmt::Debug for Chap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chap")
            .field("user", &self.user)
            .field("mutual_user", &self.mutual_user)
            .finish_non_exhaustive()
    }
}

/// A mount option may be a password.
impl fmt::Debug for MountVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MountVolume { fs_type, volume_mount_group, mount_flags: _ } = self;
        f.debug_struct("MountVolume")
            .field("fs_type", fs_type)
            .field("volume_mount_group", volume_mount_group)
            .finish_non_exhaustive()
    }
}

/// All fields but `secrets`, and publish contexts, in which targets have their passwords. Whoever adds a
/// field to a message has to say here whether it may be seen.
macro_rules! shown {
    ($($message:ident { $($seen:ident),* } hides $($hidden:ident),+;)+) => {$(
        impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $message { $($seen,)* $($hidden: _),+ } = self;
                f.debug_struct(stringify!($message))
                    $(.field(stringify!($seen), $seen))*
                    .finish_non_exhaustive()
            }
        }
    )+

    /// Each of these messages as text, with a secret in everything that it hides.
    #[cfg(test)]
    #[expect(clippy::needless_update, reason = "one message has nothing but what it hides")]
    fn with_secrets(secret: &std::collections::HashMap<String, String>) -> Vec<String> {
        vec![$(format!("{:?}", $message { $($hidden: secret.clone(),)+ ..Default::default() })),+]
    }
    };
}

shown! {
    CreateVolumeRequest {
        name, capacity_range, volume_capabilities, parameters, volume_content_source,
        accessibility_requirements, mutable_parameters
    } hides secrets;
    DeleteVolumeRequest { volume_id } hides secrets;
    ControllerPublishVolumeRequest {
        volume_id, node_id, volume_capability, readonly, volume_context
    } hides secrets;
    ControllerUnpublishVolumeRequest { volume_id, node_id } hides secrets;
    ValidateVolumeCapabilitiesRequest {
        volume_id, volume_context, volume_capabilities, parameters, mutable_parameters
    } hides secrets;
    ControllerModifyVolumeRequest { volume_id, mutable_parameters } hides secrets;
    CreateSnapshotRequest { source_volume_id, name, parameters } hides secrets;
    DeleteSnapshotRequest { snapshot_id } hides secrets;
    ListSnapshotsRequest {
        max_entries, starting_token, source_volume_id, snapshot_id
    } hides secrets;
    GetSnapshotRequest { snapshot_id } hides secrets;
    ControllerExpandVolumeRequest { volume_id, capacity_range, volume_capability } hides secrets;
    CreateVolumeGroupSnapshotRequest { name, source_volume_ids, parameters } hides secrets;
    DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids } hides secrets;
    GetVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids } hides secrets;
    GetMetadataAllocatedRequest { snapshot_id, starting_offset, max_results } hides secrets;
    GetMetadataDeltaRequest {
        base_snapshot_id, target_snapshot_id, starting_offset, max_results
    } hides secrets;
    NodeStageVolumeRequest {
        volume_id, staging_target_path, volume_capability, volume_context
    } hides secrets, publish_context;
    NodePublishVolumeRequest {
        volume_id, staging_target_path, target_path, volume_capability, readonly, volume_context
    } hides secrets, publish_context;
    NodeExpandVolumeRequest {
        volume_id, volume_path, capacity_range, staging_target_path, volume_capability
    } hides secrets;
    ControllerPublishVolumeResponse {} hides publish_context;
}

#[cfg(test)]
mod tests {
    use crate::csi::volume_capability::{AccessType, MountVolume};
    use crate::csi::{CreateVolumeRequest, VolumeCapability};
    use crate::v1::{Chap, Volume};

    #[test]
    fn a_volume_as_text_shows_no_secret() {
        let chap = Chap {
            user: "somebody".into(),
            secret: "open sesame".into(),
            mutual_user: "target".into(),
            mutual_secret: "close sesame".into(),
        };
        let text = format!("{:?}", Volume { chap: Some(chap), ..Volume::default() });
        assert!(text.contains("somebody") && !text.contains("sesame"), "{text}");
    }

    #[test]
    fn requests_as_text_show_no_secret() {
        let secret = [("password".to_owned(), "open sesame".to_owned())].into();
        for text in super::with_secrets(&secret) {
            assert!(text.contains("..") && !text.contains("sesame"), "{text}");
        }
    }

    #[test]
    fn a_capability_as_text_shows_no_mount_option() {
        let mount = MountVolume {
            fs_type: "ext4".into(),
            mount_flags: vec!["password=open sesame".into()],
            ..MountVolume::default()
        };
        let access_type = Some(AccessType::Mount(mount));
        let request = CreateVolumeRequest {
            volume_capabilities: vec![VolumeCapability { access_type, ..Default::default() }],
            ..Default::default()
        };
        let text = format!("{request:?}");
        assert!(text.contains("ext4") && !text.contains("sesame"), "{text}");
    }
}
