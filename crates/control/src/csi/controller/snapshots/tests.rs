use tonic::Code;

use super::*;
use crate::csi::fixture::{GROUP, VOLUME, map, secrets, snapshot};

fn request() -> CreateSnapshotRequest {
    CreateSnapshotRequest {
        source_volume_id: VOLUME.into(),
        name: "s-1".into(),
        secrets: secrets(),
        parameters: map(&[("csi.storage.k8s.io/volumesnapshot/name", "mine")]),
    }
}

#[test]
fn a_snapshot_is_asked_for_with_all_that_is_said() {
    let wanted = wanted(request()).unwrap();
    assert_eq!((wanted.name.as_str(), wanted.volume.as_str()), ("s-1", VOLUME));
    assert_eq!(wanted.parameters["csi.storage.k8s.io/volumesnapshot/name"], "mine");
    assert!(wanted.credential.is_some());
}

#[test]
fn snapshots_that_cannot_be_asked_for() {
    type Change = fn(&mut CreateSnapshotRequest);
    let rows: [(Change, Code, &str); 6] = [
        (|it| it.name.clear(), Code::InvalidArgument, "name"),
        (|it| it.name = "x".repeat(129), Code::InvalidArgument, "name"),
        (|it| it.source_volume_id.clear(), Code::InvalidArgument, "source_volume_id"),
        (|it| it.source_volume_id = "nothing".into(), Code::NotFound, "nothing"),
        (|it| it.parameters = map(&[("replicas", "2")]), Code::InvalidArgument, "replicas"),
        (|it| it.secrets = map(&[("password", "x")]), Code::InvalidArgument, "password"),
    ];
    for (change, code, text) in rows {
        let mut request = request();
        change(&mut request);
        let status = wanted(request).unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{text}: {status}");
    }
}

#[test]
fn a_part_of_a_group_is_not_deleted_alone() {
    assert!(stands_alone(&snapshot()).is_ok());
    let part = Snapshot { group_snapshot_uid: Some(GROUP.into()), ..snapshot() };
    let status = stands_alone(&part).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains(GROUP), "{status}");
}
