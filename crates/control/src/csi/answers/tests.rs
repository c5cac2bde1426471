use tonic::Code;

use super::*;
use crate::api::types::{Attachment, Target};
use crate::csi::fixture;

#[test]
fn a_volume_is_told_by_its_uid() {
    let zone: crate::api::types::Pairs = [("zone".to_owned(), "a".to_owned())].into();
    let source = Some(Source::Snapshot { id: fixture::SNAPSHOT.into() });
    let told = volume(&Volume { accessible: vec![zone], source, ..fixture::volume() });
    assert_eq!(told.volume_id, fixture::VOLUME);
    assert_eq!(told.capacity_bytes, 1 << 30);
    assert_eq!(told.accessible_topology[0].segments["zone"], "a");
    let snapshot_id = fixture::SNAPSHOT.to_owned();
    let kind = Some(Type::Snapshot(SnapshotSource { snapshot_id }));
    assert_eq!(told.content_source, Some(VolumeContentSource { r#type: kind }));
    assert!(told.volume_context.is_empty());
}

#[test]
fn a_condition_has_the_reason_of_the_site() {
    for (health, abnormal) in [
        (Health::Healthy, false),
        (Health::Pending, false),
        (Health::Degraded, true),
        (Health::Offline, true),
        (Health::Deleting, true),
    ] {
        assert_eq!(condition(&fixture::state(health)).abnormal, abnormal, "{health:?}");
    }
    let told = condition(&fixture::state(Health::Degraded)).message;
    let wanted = "ReplicaAway: The replica on node-2 is away. It is replaced in 10 minutes.";
    assert_eq!(told, wanted);
}

#[test]
fn a_snapshot_is_told_when_it_is_cut() {
    let told = cut(&fixture::snapshot()).unwrap();
    assert_eq!(told.creation_time, Some(Timestamp { seconds: 1_700_000_000, nanos: 123_000_000 }));
    assert!(told.ready_to_use && told.group_snapshot_id.is_empty());
    let waiting = Snapshot { ready: false, ..fixture::snapshot() };
    assert_eq!(cut(&waiting).unwrap_err().code(), Code::Aborted);
    assert!(!snapshot(&waiting).ready_to_use);
}

#[test]
fn snapshots_of_a_group_have_its_id() {
    let told = group_cut(&fixture::group_snapshot()).unwrap();
    assert!(told.snapshots.iter().all(|one| one.group_snapshot_id == told.group_snapshot_id));
    let mut waiting = fixture::group_snapshot();
    waiting.snapshots[1].ready = false;
    assert_eq!(group_cut(&waiting).unwrap_err().code(), Code::Aborted);
    let told = group_snapshot(&waiting);
    assert!(!told.ready_to_use && told.snapshots[0].ready_to_use);
}

#[test]
fn a_publish_context_says_where_the_volume_is_and_nothing_secret() {
    let mut volume = fixture::volume();
    let wanted = fixture::map(&[
        ("iqn", "iqn.2024-01.io.pollux:pvc-1"),
        ("portal", "10.0.0.1:3260"),
        ("lun", "0"),
        ("chap", "false"),
    ]);
    assert_eq!(publish_context(&volume).unwrap(), wanted);
    volume.chap_user = Some("ann".into());
    volume.target.as_mut().unwrap().nbd = "10.0.0.1:10809".into();
    let told = publish_context(&volume).unwrap();
    assert_eq!((told["chap"].as_str(), told["nbd"].as_str()), ("true", "10.0.0.1:10809"));
    assert!(!told.values().any(|value| value.contains("ann")));
    volume.target.as_mut().unwrap().iscsi.clear();
    let told = publish_context(&volume).unwrap();
    assert!(told.contains_key("nbd") && !told.contains_key("portal"));
}

#[test]
fn nobody_is_sent_where_nobody_serves() {
    let target = fixture::volume().target;
    let with = |change: fn(Target) -> Option<Target>| {
        let target = target.clone().and_then(change);
        publish_context(&Volume { target, ..fixture::volume() }).unwrap_err().code()
    };
    assert_eq!(with(|_| None), Code::Unavailable);
    assert_eq!(with(|target| Some(Target { serving: false, ..target })), Code::Unavailable);
    let closed = with(|target| Some(Target { iscsi: String::new(), ..target }));
    assert_eq!(closed, Code::FailedPrecondition);
}

#[test]
fn hosts_are_those_that_it_is_attached_to() {
    let host = |host: &str| Attachment {
        host: host.into(),
        initiator: "iqn".into(),
        read_only: false,
        since_ms: 0,
    };
    let attachments = vec![host("a"), host("b")];
    assert_eq!(hosts(&Volume { attachments, ..fixture::volume() }), ["a", "b"]);
}
