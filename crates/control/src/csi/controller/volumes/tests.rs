use proto::csi::volume_capability::access_mode::Mode;
use proto::csi::volume_content_source::{SnapshotSource, VolumeSource};
use proto::csi::{CapacityRange, Topology, TopologyRequirement, VolumeCapability};
use tonic::Code;

use super::*;
use crate::api::types::Credential;
use crate::csi::fixture::{OTHER, SNAPSHOT, VOLUME, block, map, mount, secrets, volume};

fn request() -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: "pvc-1".into(),
        volume_capabilities: vec![mount(Mode::SingleNodeWriter)],
        ..CreateVolumeRequest::default()
    }
}

fn from(kind: Option<Type>) -> Option<VolumeContentSource> {
    Some(VolumeContentSource { r#type: kind })
}

fn of_snapshot(snapshot_id: &str) -> Option<VolumeContentSource> {
    from(Some(Type::Snapshot(SnapshotSource { snapshot_id: snapshot_id.into() })))
}

fn of_volume(volume_id: &str) -> Option<VolumeContentSource> {
    from(Some(Type::Volume(VolumeSource { volume_id: volume_id.into() })))
}

#[test]
fn a_plain_volume_has_the_defaults_and_only_attached_hosts() {
    let wanted = wanted(request()).unwrap();
    assert_eq!((wanted.name.as_str(), wanted.size), ("pvc-1", 1 << 30));
    assert_eq!((wanted.replicas, wanted.block_size), (Some(3), Some(4096)));
    assert_eq!(wanted.compression.as_deref(), Some("off"));
    assert!(wanted.attached_only && wanted.chap.is_none() && wanted.source.is_none());
}

#[test]
fn everything_that_is_said_reaches_the_site() {
    let zone = |name: &str| Topology { segments: map(&[("zone", name)]) };
    let wanted = wanted(CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes: 5 << 30, limit_bytes: 6 << 30 }),
        parameters: map(&[
            ("replicas", "3"),
            ("pools", "fast"),
            ("spread", "zone"),
            ("group", "shop"),
            ("csi.storage.k8s.io/pvc/name", "claim"),
        ]),
        mutable_parameters: map(&[("replicas", "2"), ("holdDeadline", "5m")]),
        secrets: secrets(),
        accessibility_requirements: Some(TopologyRequirement {
            requisite: vec![zone("a"), zone("b")],
            preferred: vec![zone("b")],
        }),
        ..request()
    })
    .unwrap();
    assert_eq!((wanted.size, wanted.size_limit), (5 << 30, Some(6 << 30)));
    assert_eq!((wanted.replicas, wanted.hold_deadline_ms), (Some(2), Some(300_000)));
    assert_eq!((wanted.pools, wanted.spread), (vec!["fast".into()], Some("zone".into())));
    assert_eq!(wanted.group.as_deref(), Some("shop"));
    assert_eq!((wanted.accessible.len(), wanted.preferred[0]["zone"].as_str()), (2, "b"));
    assert_eq!(wanted.parameters["csi.storage.k8s.io/pvc/name"], "claim");
    assert_eq!(wanted.parameters["replicas"], "3", "kept as they were given");
    let (user, secret) = ("ann".into(), "open sesame open".into());
    assert!(wanted.chap == Some(Credential { user, secret, ..Credential::default() }));
}

/// Protects from a clone that is refused for a block size that nobody asked for.
#[test]
fn what_a_clone_is_not_told_is_left_to_the_site() {
    for (source, id) in [(of_snapshot(SNAPSHOT), SNAPSHOT), (of_volume(OTHER), OTHER)] {
        let request = CreateVolumeRequest { volume_content_source: source, ..request() };
        let wanted = wanted(request).unwrap();
        assert_eq!((wanted.size, wanted.size_limit), (0, None));
        assert_eq!((wanted.block_size, wanted.compression), (None, None));
        assert_eq!((wanted.replicas, wanted.hold_deadline_ms), (Some(3), Some(60_000)));
        match wanted.source.unwrap() {
            Source::Snapshot { id: told } | Source::Volume { id: told } => assert_eq!(told, id),
        }
    }
}

#[test]
fn volumes_that_cannot_be_asked_for() {
    type Change = fn(&mut CreateVolumeRequest);
    let rows: [(Change, Code, &str); 16] = [
        (|it| it.name.clear(), Code::InvalidArgument, "name is missing"),
        (|it| it.name = "x".repeat(129), Code::InvalidArgument, "name"),
        (|it| it.name = "a\0b".into(), Code::InvalidArgument, "name"),
        (|it| it.volume_capabilities.clear(), Code::InvalidArgument, "volume_capabilities"),
        (
            |it| it.volume_capabilities = vec![VolumeCapability::default()],
            Code::InvalidArgument,
            "volume_capabilities[0].access_type",
        ),
        (
            |it| it.volume_capabilities.push(mount(Mode::MultiNodeMultiWriter)),
            Code::InvalidArgument,
            "volume_capabilities[1].access_mode",
        ),
        (|it| it.parameters = map(&[("replica", "3")]), Code::InvalidArgument, "replicas"),
        (|it| it.parameters = map(&[("replicas", "9")]), Code::InvalidArgument, "1 to 7"),
        (
            |it| it.mutable_parameters = map(&[("XXX_FakeKey", "x")]),
            Code::InvalidArgument,
            "XXX_FakeKey",
        ),
        (
            |it| it.mutable_parameters = map(&[("blockSize", "4Ki")]),
            Code::InvalidArgument,
            "blockSize",
        ),
        (|it| it.secrets = map(&[("password", "x")]), Code::InvalidArgument, "password"),
        (|it| it.volume_content_source = from(None), Code::InvalidArgument, "type"),
        (|it| it.volume_content_source = of_snapshot(""), Code::InvalidArgument, "snapshot_id"),
        (|it| it.volume_content_source = of_snapshot("nothing"), Code::NotFound, "nothing"),
        (|it| it.volume_content_source = of_volume("nothing"), Code::NotFound, "nothing"),
        (
            |it| it.capacity_range = Some(CapacityRange { required_bytes: 2, limit_bytes: 1 }),
            Code::OutOfRange,
            "capacity_range",
        ),
    ];
    for (change, code, text) in rows {
        let mut request = request();
        change(&mut request);
        let status = wanted(request).unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{text}: {status}");
    }
}

fn larger(volume_capability: Option<VolumeCapability>) -> ControllerExpandVolumeRequest {
    ControllerExpandVolumeRequest {
        volume_id: VOLUME.into(),
        capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
        secrets: secrets(),
        volume_capability,
    }
}

#[test]
fn a_file_system_has_to_follow_a_larger_volume_and_a_device_does_not() {
    for (capability, by_node) in [
        (None, true),
        (Some(mount(Mode::SingleNodeWriter)), true),
        (Some(block(Mode::SingleNodeWriter)), false),
    ] {
        let asked = resize(larger(capability)).unwrap();
        assert_eq!((asked.uid.as_str(), asked.to.size), (VOLUME, 1 << 30));
        assert!(asked.to.credential.is_some());
        let told = asked.told(&volume()).unwrap();
        assert_eq!((told.capacity_bytes, told.node_expansion_required), (1 << 30, by_node));
        let growing = Volume { size: 1 << 29, wanted_size: Some(1 << 30), ..volume() };
        assert_eq!(asked.told(&growing).unwrap_err().code(), Code::Aborted);
    }
}

#[test]
fn volumes_that_cannot_be_made_larger() {
    type Change = fn(&mut ControllerExpandVolumeRequest);
    let rows: [(Change, Code, &str); 7] = [
        (|it| it.volume_id.clear(), Code::InvalidArgument, "volume_id"),
        (|it| it.volume_id = "nothing".into(), Code::NotFound, "nothing"),
        (|it| it.capacity_range = None, Code::InvalidArgument, "capacity_range"),
        (
            |it| it.capacity_range = Some(CapacityRange::default()),
            Code::InvalidArgument,
            "capacity_range",
        ),
        (
            |it| it.capacity_range = Some(CapacityRange { required_bytes: 2, limit_bytes: 1 }),
            Code::OutOfRange,
            "capacity_range",
        ),
        (
            |it| it.volume_capability = Some(mount(Mode::MultiNodeMultiWriter)),
            Code::InvalidArgument,
            "volume_capability",
        ),
        (|it| it.secrets = map(&[("password", "x")]), Code::InvalidArgument, "secrets"),
    ];
    for (change, code, text) in rows {
        let mut request = larger(None);
        change(&mut request);
        let status = resize(request).unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{text}: {status}");
    }
}

#[test]
fn only_what_can_be_changed_is_changed() {
    let request = |volume_id: &str, of: &[(&str, &str)]| ControllerModifyVolumeRequest {
        volume_id: volume_id.into(),
        secrets: secrets(),
        mutable_parameters: map(of),
    };
    let (uid, to) = modify(request(VOLUME, &[("zvolWorkers", "9")])).unwrap();
    assert_eq!(uid, VOLUME);
    assert_eq!((to.zvol_workers, to.replicas, to.hold_deadline_ms), (Some(9), None, None));
    assert!(to.credential.is_some());
    let (_, to) = modify(request(VOLUME, &[])).unwrap();
    assert_eq!((to.zvol_workers, to.replicas, to.hold_deadline_ms), (None, None, None));
    for (volume_id, of, code) in [
        ("", &[("replicas", "2")][..], Code::InvalidArgument),
        ("nothing", &[("replicas", "2")], Code::NotFound),
        ("nothing", &[], Code::NotFound),
        (VOLUME, &[("XXX_FakeKey", "x")], Code::InvalidArgument),
        (VOLUME, &[("compression", "lz4")], Code::InvalidArgument),
        (VOLUME, &[("replicas", "0")], Code::InvalidArgument),
    ] {
        assert_eq!(modify(request(volume_id, of)).unwrap_err().code(), code, "{of:?}");
    }
}

#[test]
fn room_is_that_for_the_class_and_the_place() {
    let query = room(GetCapacityRequest {
        volume_capabilities: vec![block(Mode::MultiNodeMultiWriter)],
        parameters: map(&[("replicas", "2"), ("pools", "fast,slow")]),
        accessible_topology: Some(Topology { segments: map(&[("zone", "a")]) }),
    })
    .unwrap();
    assert_eq!((query.replicas, query.pools.len()), (Some(2), 2));
    assert_eq!(query.accessible[0]["zone"], "a");
    let query = room(GetCapacityRequest::default()).unwrap();
    assert_eq!((query.replicas, query.accessible.len()), (Some(3), 0));
    let unknown = GetCapacityRequest { parameters: map(&[("x", "y")]), ..Default::default() };
    assert_eq!(room(unknown).unwrap_err().code(), Code::InvalidArgument);
    let told = told_room(Capacity { available: 9, largest: 5, smallest: 1 });
    assert_eq!((told.available_capacity, told.maximum_volume_size), (9, Some(5)));
    assert_eq!(told.minimum_volume_size, Some(1));
}
