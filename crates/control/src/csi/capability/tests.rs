use proto::csi::volume_capability::{AccessMode, BlockVolume};
use tonic::Code;

use super::*;

fn block() -> Option<AccessType> {
    Some(AccessType::Block(BlockVolume {}))
}

fn mount(fs_type: &str) -> Option<AccessType> {
    Some(AccessType::Mount(MountVolume { fs_type: fs_type.into(), ..MountVolume::default() }))
}

fn with(access_type: Option<AccessType>, mode: i32) -> VolumeCapability {
    VolumeCapability { access_type, access_mode: Some(AccessMode { mode }) }
}

#[test]
fn what_can_be_done_with_a_volume() {
    let (none, reads, shares, both) = ((false, false), (true, false), (false, true), (true, true));
    for (mode, flags, mountable) in [
        (Mode::SingleNodeWriter, none, true),
        (Mode::SingleNodeReaderOnly, reads, true),
        (Mode::SingleNodeSingleWriter, none, true),
        (Mode::SingleNodeMultiWriter, none, true),
        (Mode::MultiNodeReaderOnly, both, true),
        (Mode::MultiNodeSingleWriter, shares, false),
        (Mode::MultiNodeMultiWriter, shares, false),
    ] {
        let (read_only, shared) = flags;
        let single_writer = mode == Mode::MultiNodeSingleWriter;
        let wanted = |access| Use { access, read_only, shared, single_writer };
        let as_block = one("it", Some(&with(block(), mode.into())));
        assert_eq!(as_block, Ok(wanted(Access::Block)), "{mode:?}");
        let as_mount = one("it", Some(&with(mount(""), mode.into())));
        match mountable {
            true => assert_eq!(as_mount, Ok(wanted(Access::Mount)), "{mode:?}"),
            false => {
                let status = Status::from(as_mount.unwrap_err());
                assert_eq!(status.code(), Code::InvalidArgument);
                assert!(status.message().contains("MULTI_NODE_READER_ONLY"), "{status}");
            }
        }
    }
}

#[test]
fn file_systems_that_nodes_make_and_no_others() {
    for fs_type in ["", "ext4", "xfs", "btrfs"] {
        assert!(one("it", Some(&with(mount(fs_type), 1))).is_ok(), "{fs_type}");
    }
    for fs_type in ["ext3", "XFS", "ntfs", " "] {
        let misfit = one("it", Some(&with(mount(fs_type), 1))).unwrap_err();
        let status = Status::from(misfit);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("it.mount.fs_type"), "{status}");
        assert!(status.message().contains("ext4, xfs, btrfs"), "{status}");
    }
}

#[test]
fn what_is_not_said_is_named() {
    let mode = VolumeCapability { access_type: block(), access_mode: None };
    for (capability, field) in [
        (None, "it"),
        (Some(with(None, 1)), "it.access_type"),
        (Some(mode), "it.access_mode"),
        (Some(with(block(), 0)), "it.access_mode.mode"),
    ] {
        let misfit = one("it", capability.as_ref()).unwrap_err();
        assert_eq!(misfit, Misfit::Missing { field: field.into() });
    }
    assert_eq!(uses("all", &[]), Err(Misfit::Missing { field: "all".into() }));
    let misfit = uses("all", &[with(block(), 1), with(None, 1)]).unwrap_err();
    assert_eq!(misfit, Misfit::Missing { field: "all[1].access_type".into() });
    let misfit = one("it", Some(&with(block(), 99))).unwrap_err();
    assert!(matches!(misfit, Misfit::Unsupported { .. }), "{misfit:?}");
}
