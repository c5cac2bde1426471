//! Compiles our own definitions, without a compiler that somebody would have to install.
use std::error::Error;
use std::path::PathBuf;

const FILES: [&str; 9] = [
    "csi/v1/words.proto",
    "csi/v1/identity.proto",
    "csi/v1/controller.proto",
    "csi/v1/group.proto",
    "csi/v1/snapshot_metadata.proto",
    "csi/v1/node.proto",
    "pollux/v1/words.proto",
    "pollux/v1/catalog.proto",
    "pollux/v1/node.proto",
];

/// Messages whose text would show a secret; `src/secrets.rs` writes it for them.
const SECRET: [&str; 22] = [
    ".pollux.v1.Chap",
    ".csi.v1.VolumeCapability.MountVolume",
    ".csi.v1.CreateVolumeRequest",
    ".csi.v1.DeleteVolumeRequest",
    ".csi.v1.ControllerPublishVolumeRequest",
    ".csi.v1.ControllerPublishVolumeResponse",
    ".csi.v1.ControllerUnpublishVolumeRequest",
    ".csi.v1.ValidateVolumeCapabilitiesRequest",
    ".csi.v1.ControllerModifyVolumeRequest",
    ".csi.v1.CreateSnapshotRequest",
    ".csi.v1.DeleteSnapshotRequest",
    ".csi.v1.ListSnapshotsRequest",
    ".csi.v1.GetSnapshotRequest",
    ".csi.v1.ControllerExpandVolumeRequest",
    ".csi.v1.CreateVolumeGroupSnapshotRequest",
    ".csi.v1.DeleteVolumeGroupSnapshotRequest",
    ".csi.v1.GetVolumeGroupSnapshotRequest",
    ".csi.v1.GetMetadataAllocatedRequest",
    ".csi.v1.GetMetadataDeltaRequest",
    ".csi.v1.NodeStageVolumeRequest",
    ".csi.v1.NodePublishVolumeRequest",
    ".csi.v1.NodeExpandVolumeRequest",
];

fn main() -> Result<(), Box<dyn Error>> {
    // Where it runs, not where it was compiled: those may be two clones that share a cache.
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile(FILES, [root])?;
    tonic_prost_build::configure()
        .btree_map(".pollux.v1")
        .skip_debug(SECRET)
        .compile_fds(descriptors)?;
    Ok(())
}
