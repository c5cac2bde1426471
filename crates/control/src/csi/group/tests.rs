use tonic::Code;

use super::*;
use crate::csi::fixture::{LATER, OTHER, SNAPSHOT, VOLUME, group_snapshot, map, secrets};

fn request(volumes: &[&str]) -> CreateVolumeGroupSnapshotRequest {
    CreateVolumeGroupSnapshotRequest {
        name: "g-1".into(),
        source_volume_ids: volumes.iter().map(|id| (*id).to_owned()).collect(),
        secrets: secrets(),
        parameters: map(&[("csi.storage.k8s.io/volumegroupsnapshot/name", "mine")]),
    }
}

#[test]
fn the_order_of_volumes_means_nothing() {
    for volumes in [[VOLUME, OTHER], [OTHER, VOLUME]] {
        let wanted = wanted(request(&volumes)).unwrap();
        assert_eq!(wanted.volumes, [VOLUME, OTHER]);
        assert!(wanted.credential.is_some() && wanted.group.is_none());
        assert_eq!(wanted.parameters.len(), 1);
    }
}

#[test]
fn group_snapshots_that_cannot_be_asked_for() {
    type Change = fn(&mut CreateVolumeGroupSnapshotRequest);
    let rows: [(Change, Code, &str); 7] = [
        (|it| it.name.clear(), Code::InvalidArgument, "name"),
        (|it| it.source_volume_ids.clear(), Code::InvalidArgument, "source_volume_ids"),
        (|it| it.source_volume_ids.push(String::new()), Code::InvalidArgument, "source_volume_ids"),
        (|it| it.source_volume_ids.push(VOLUME.into()), Code::InvalidArgument, "twice"),
        (|it| it.source_volume_ids.push("nothing".into()), Code::NotFound, "nothing"),
        (|it| it.parameters = map(&[("replicas", "2")]), Code::InvalidArgument, "replicas"),
        (|it| it.secrets = map(&[("password", "x")]), Code::InvalidArgument, "password"),
    ];
    for (change, code, text) in rows {
        let mut request = request(&[VOLUME, OTHER]);
        change(&mut request);
        let status = wanted(request).unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{text}: {status}");
    }
}

#[test]
fn the_caller_has_to_know_all_snapshots_of_a_group_and_no_others() {
    let ids = |of: &[&str]| of.iter().map(|id| (*id).to_owned()).collect::<Vec<String>>();
    let found = group_snapshot();
    for same in [&[SNAPSHOT, LATER][..], &[LATER, SNAPSHOT]] {
        assert!(compare(&found, &ids(same)).is_ok());
    }
    for (others, text) in [
        (&[][..], "missing"),
        (&[SNAPSHOT], LATER),
        (&[SNAPSHOT, LATER, VOLUME], VOLUME),
        (&[SNAPSHOT, "nothing"], "nothing"),
    ] {
        let status = compare(&found, &ids(others)).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(text), "{text}: {status}");
    }
}
