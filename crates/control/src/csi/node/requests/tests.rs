use proto::csi::CapacityRange;
use proto::csi::volume_capability::{AccessMode, MountVolume};
use tonic::Code;

use super::*;
use crate::csi::fixture::{VOLUME, block, map, mount as mounted, secrets, volume};

const STAGING: &str = "/var/lib/pods/staging";
const TARGET: &str = "/var/lib/pods/1/target";

/// Paths that are none: each could mean another place later, or the whole machine.
const NO_PATHS: [&str; 7] = ["relative/path", ".", "..", "/", "/a/../b", "/a/..", "/a\0b"];

fn to_stage() -> NodeStageVolumeRequest {
    NodeStageVolumeRequest {
        volume_id: VOLUME.into(),
        staging_target_path: STAGING.into(),
        volume_capability: Some(mounted(Mode::SingleNodeWriter)),
        secrets: secrets(),
        ..NodeStageVolumeRequest::default()
    }
}

fn to_publish() -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_id: VOLUME.into(),
        staging_target_path: STAGING.into(),
        target_path: TARGET.into(),
        volume_capability: Some(mounted(Mode::SingleNodeWriter)),
        ..NodePublishVolumeRequest::default()
    }
}

/// A sound request with one thing wrong, the code, and what the text has to name.
type Row<R> = (fn(&mut R), Code, &'static str);

fn refused<R, T: std::fmt::Debug>(
    rows: &[Row<R>],
    sound: impl Fn() -> R,
    read: impl Fn(R) -> Result<T, Status>,
) {
    for (change, code, text) in rows {
        let mut request = sound();
        change(&mut request);
        let status = read(request).unwrap_err();
        assert_eq!(status.code(), *code, "{text}: {status}");
        assert!(status.message().contains(text), "{text}: {status}");
    }
}

#[test]
fn what_is_to_be_staged_is_understood() {
    let stage_of = |mode, is_block| {
        let capability = if is_block { block(mode) } else { mounted(mode) };
        stage(NodeStageVolumeRequest { volume_capability: Some(capability), ..to_stage() }).unwrap()
    };
    for (mode, read_only) in [
        (Mode::SingleNodeWriter, false),
        (Mode::SingleNodeSingleWriter, false),
        (Mode::SingleNodeMultiWriter, false),
        (Mode::SingleNodeReaderOnly, true),
        (Mode::MultiNodeReaderOnly, true),
    ] {
        let staged = stage_of(mode, false);
        assert_eq!((&*staged.uid, &*staged.path), (VOLUME, Path::new(STAGING)));
        assert_eq!((staged.mount.is_some(), staged.read_only), (true, read_only), "{mode:?}");
        assert!(staged.credential.is_some());
        assert!(stage_of(mode, true).mount.is_none(), "{mode:?}");
    }
    assert!(!stage_of(Mode::MultiNodeMultiWriter, true).read_only);
}

#[test]
fn what_cannot_be_staged() {
    use Code::{InvalidArgument, NotFound};
    let rows: &[Row<NodeStageVolumeRequest>] = &[
        (|it| it.volume_id.clear(), InvalidArgument, "volume_id"),
        (|it| it.staging_target_path.clear(), InvalidArgument, "staging_target_path"),
        (|it| it.volume_capability = None, InvalidArgument, "volume_capability"),
        (|it| capability_of(it).access_type = None, InvalidArgument, "access_type"),
        (|it| capability_of(it).access_mode = None, InvalidArgument, "access_mode"),
        (|it| with_mode(it, 0), InvalidArgument, "access_mode.mode"),
        (|it| with_mode(it, 99), InvalidArgument, "access_mode.mode"),
        (
            |it| with_mode(it, Mode::MultiNodeMultiWriter.into()),
            InvalidArgument,
            "access_mode.mode",
        ),
        (|it| with_kind(it, "ntfs"), InvalidArgument, "mount.fs_type"),
        (|it| it.secrets = map(&[("password", "x")]), InvalidArgument, "password"),
        (|it| it.volume_id = "nothing".into(), NotFound, "nothing"),
        (|it| it.volume_id = "../../etc".into(), NotFound, "../../etc"),
    ];
    refused(rows, to_stage, stage);
    for path in NO_PATHS {
        let request = NodeStageVolumeRequest { staging_target_path: path.into(), ..to_stage() };
        let status = stage(request).unwrap_err();
        assert_eq!(status.code(), InvalidArgument, "{path}: {status}");
        assert!(status.message().starts_with("staging_target_path"), "{path}: {status}");
    }
    // A field that is missing counts more than an id that leads nowhere.
    let mut request = to_stage();
    (request.volume_id, request.volume_capability) = ("nothing".into(), None);
    assert_eq!(stage(request).unwrap_err().code(), InvalidArgument);
}

fn capability_of(request: &mut NodeStageVolumeRequest) -> &mut VolumeCapability {
    request.volume_capability.as_mut().unwrap()
}

fn with_mode(request: &mut NodeStageVolumeRequest, mode: i32) {
    capability_of(request).access_mode = Some(AccessMode { mode });
}

fn with_kind(request: &mut NodeStageVolumeRequest, kind: &str) {
    let mount = MountVolume { fs_type: kind.into(), ..MountVolume::default() };
    capability_of(request).access_type = Some(AccessType::Mount(mount));
}

#[test]
fn the_file_system_is_the_capabilitys_then_the_classs_then_ext4() {
    for (by_capability, by_class, wanted) in [
        ("", None, Kind::Ext4),
        ("", Some("xfs"), Kind::Xfs),
        ("btrfs", None, Kind::Btrfs),
        ("btrfs", Some("xfs"), Kind::Btrfs),
    ] {
        let mut request = to_stage();
        with_kind(&mut request, by_capability);
        let mut volume = volume();
        volume.parameters.extend(by_class.map(|kind| (FS_TYPE.to_owned(), kind.to_owned())));
        let found = kind(&stage(request).unwrap(), &volume).unwrap();
        assert_eq!(found, wanted, "{by_capability:?} {by_class:?}");
    }
}

/// Protects from a class of a newer version: what is not known is not taken for ext4.
#[test]
fn a_class_with_an_unknown_file_system_is_refused() {
    let mut volume = volume();
    volume.parameters.insert(FS_TYPE.into(), "zfs".into());
    let status = kind(&stage(to_stage()).unwrap(), &volume).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[test]
fn what_is_to_be_published_is_understood() {
    for (mode, readonly, read_only, alone) in [
        (Mode::SingleNodeWriter, false, false, false),
        (Mode::SingleNodeWriter, true, true, false),
        (Mode::SingleNodeReaderOnly, false, true, false),
        (Mode::SingleNodeSingleWriter, false, false, true),
        (Mode::SingleNodeMultiWriter, false, false, false),
    ] {
        let capability = Some(mounted(mode));
        let request =
            NodePublishVolumeRequest { volume_capability: capability, readonly, ..to_publish() };
        let wanted = publish(request).unwrap();
        assert_eq!((&*wanted.uid, wanted.mounted), (VOLUME, true));
        assert_eq!((&*wanted.staging, &*wanted.to), (Path::new(STAGING), Path::new(TARGET)));
        assert_eq!((wanted.read_only, wanted.alone), (read_only, alone), "{mode:?}");
    }
    let capability = Some(block(Mode::SingleNodeWriter));
    let request = NodePublishVolumeRequest { volume_capability: capability, ..to_publish() };
    assert!(!publish(request).unwrap().mounted);
}

#[test]
fn what_cannot_be_published() {
    use Code::{FailedPrecondition, InvalidArgument, NotFound};
    let rows: &[Row<NodePublishVolumeRequest>] = &[
        (|it| it.volume_id.clear(), InvalidArgument, "volume_id"),
        (|it| it.target_path.clear(), InvalidArgument, "target_path"),
        (|it| it.volume_capability = None, InvalidArgument, "volume_capability"),
        (|it| it.staging_target_path.clear(), FailedPrecondition, "staging_target_path"),
        (|it| it.staging_target_path = "a/b".into(), InvalidArgument, "staging_target_path"),
        (|it| it.volume_id = "nothing".into(), NotFound, "nothing"),
    ];
    refused(rows, to_publish, publish);
    for path in NO_PATHS {
        let request = NodePublishVolumeRequest { target_path: path.into(), ..to_publish() };
        let status = publish(request).unwrap_err();
        assert_eq!(status.code(), InvalidArgument, "{path}: {status}");
        assert!(status.message().starts_with("target_path"), "{path}: {status}");
    }
}

#[test]
fn what_is_to_be_gone_may_be_of_no_volume_but_not_without_a_path() {
    let unstaged = |volume_id: &str, path: &str| {
        let (volume_id, staging_target_path) = (volume_id.into(), path.into());
        unstage(&NodeUnstageVolumeRequest { volume_id, staging_target_path })
    };
    let unpublished = |volume_id: &str, path: &str| {
        let (volume_id, target_path) = (volume_id.into(), path.into());
        unpublish(&NodeUnpublishVolumeRequest { volume_id, target_path })
    };
    type Gone<'a> = &'a dyn Fn(&str, &str) -> Result<Option<Staged>, Status>;
    let both: [(&str, Gone<'_>); 2] =
        [("staging_target_path", &unstaged), ("target_path", &unpublished)];
    for (field, gone) in both {
        let staged = Staged { uid: VOLUME.into(), path: TARGET.into() };
        assert_eq!(gone(VOLUME, TARGET).unwrap(), Some(staged), "{field}");
        assert_eq!(gone("nothing", TARGET).unwrap(), None, "{field}");
        for (volume, path, names) in [("", TARGET, "volume_id"), (VOLUME, "", field)] {
            let status = gone(volume, path).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert!(status.message().contains(names), "{names}: {status}");
        }
        for path in NO_PATHS {
            let status = gone(VOLUME, path).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{path}: {status}");
            assert!(status.message().starts_with(field), "{path}: {status}");
        }
    }
}

#[test]
fn what_is_asked_of_a_place_where_no_volume_can_be_is_not_found() {
    let asked = |volume_id: &str, path: &str| {
        let (volume_id, volume_path) = (volume_id.into(), path.into());
        stats(&NodeGetVolumeStatsRequest {
            volume_id,
            volume_path,
            ..NodeGetVolumeStatsRequest::default()
        })
    };
    assert_eq!(asked(VOLUME, TARGET).unwrap().path, Path::new(TARGET));
    for path in NO_PATHS {
        assert_eq!(asked(VOLUME, path).unwrap_err().code(), Code::NotFound, "{path}");
    }
    for (volume, path, code) in [
        ("", TARGET, Code::InvalidArgument),
        (VOLUME, "", Code::InvalidArgument),
        ("nothing", TARGET, Code::NotFound),
        ("nothing", "", Code::InvalidArgument),
    ] {
        assert_eq!(asked(volume, path).unwrap_err().code(), code, "{volume} {path}");
    }
}

#[test]
fn an_expansion_may_say_how_much_is_required() {
    let asked = |required_bytes: Option<i64>| {
        let range =
            required_bytes.map(|required_bytes| CapacityRange { required_bytes, limit_bytes: 0 });
        expand(&NodeExpandVolumeRequest {
            volume_id: VOLUME.into(),
            volume_path: TARGET.into(),
            capacity_range: range,
            ..NodeExpandVolumeRequest::default()
        })
    };
    assert_eq!(asked(None).unwrap().required, 0);
    assert_eq!(asked(Some(1 << 40)).unwrap().required, 1 << 40);
    let status = asked(Some(-1)).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("required_bytes"), "{status}");
}
