//! Controllers that were replaced, at a node that may not have heard of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod process;

use proto::v1;
use tonic::{Code, Request};

use process::{FalseCatalog, Process, folder, make, served, volume, volume_ref, vote};

const MIB: u64 = 1 << 20;

/// As a controller of this generation.
fn by<T>(generation: u64, message: T) -> Request<T> {
    said(&generation.to_string(), message)
}

fn said<T>(text: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("pollux-controller", text.parse().unwrap());
    request
}

fn take_over(name: &str) -> v1::StartTargetRequest {
    v1::StartTargetRequest { volume: Some(volume_ref(name)), take_over: true }
}

fn delete(name: &str, incarnation: u64) -> v1::DeleteReplicaRequest {
    v1::DeleteReplicaRequest {
        volume: Some(volume_ref(name)),
        replica: 1,
        incarnation,
        catalog_version: u64::MAX,
    }
}

fn beat(controller: u64) -> v1::BeatRequest {
    v1::BeatRequest { controller }
}

/// Protects from a controller that was cut off from the catalog, and takes over or destroys what its
/// successor relies on: the node never heard of that one.
#[tokio::test]
async fn what_cannot_be_undone_is_for_the_controller_that_the_catalog_has() {
    let catalog = FalseCatalog::late(v1::Kind::Controller);
    let node = Process::start(&folder("fence-catalog"), &catalog);
    let mut admin = node.admin().await;
    let incarnation = make(&catalog, &mut admin, volume("db", 16 * MIB)).await;
    let spare = make(&catalog, &mut admin, volume("spare", 16 * MIB)).await;
    vote(&catalog, "db", incarnation);
    admin.beat(beat(1)).await.unwrap();
    catalog.control(2);

    let refused = admin.delete_replica(by(1, delete("spare", spare))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    assert!(refused.message().contains("generation 2 controls the site"), "{refused:?}");
    let refused = admin.start_target(by(1, take_over("db"))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    let pulse = admin.beat(beat(2)).await.unwrap().into_inner();
    assert_eq!((pulse.replicas, pulse.targets), (2, 0), "nothing was done");

    catalog.set_away(true);
    let refused = admin.delete_replica(by(2, delete("spare", spare))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "nobody knows who controls: {refused:?}");
    catalog.set_away(false);

    admin.start_target(by(2, take_over("db"))).await.unwrap();
    served(&mut admin, "db").await;
    admin.delete_replica(by(2, delete("spare", spare))).await.unwrap();
    let pulse = admin.beat(beat(2)).await.unwrap().into_inner();
    assert_eq!((pulse.replicas, pulse.targets), (1, 1));
    assert_eq!((pulse.node, pulse.pools.len(), pulse.pools[0].replicas), (1, 1, 1));
    node.stop();
}

/// Protects from two controllers that both move things: who was heard of last is obeyed. And from a node
/// that does not let an operator in.
#[tokio::test]
async fn whoever_was_heard_of_last_is_obeyed() {
    let catalog = FalseCatalog::default();
    let place = folder("fence-beats");
    let node = Process::start(&place, &catalog);
    let mut admin = node.admin().await;
    let incarnation = make(&catalog, &mut admin, volume("db", 16 * MIB)).await;
    vote(&catalog, "db", incarnation);
    // Its name is known by then.
    admin.start_target(take_over("db")).await.unwrap();
    served(&mut admin, "db").await;

    let first = admin.beat(beat(5)).await.unwrap().into_inner();
    let refused = admin.beat(beat(4)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    let resize = |size| v1::ResizeRequest { volume: Some(volume_ref("db")), size };
    let refused = admin.resize(by(4, resize(32 * MIB))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    assert!(refused.message().contains("generation 5 controls the site"), "{refused:?}");
    let stop = v1::StopTargetRequest { volume: Some(volume_ref("db")) };
    assert_eq!(admin.stop_target(by(4, stop.clone())).await.unwrap_err().code(), Code::Aborted);
    for bad in ["", "five", "-1", "0"] {
        let refused = admin.resize(said(bad, resize(32 * MIB))).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{bad:?}");
    }
    admin.list_targets(by(4, v1::ListTargetsRequest {})).await.expect("who looks changes nothing");
    admin.resize(resize(32 * MIB)).await.expect("an operator");
    admin.resize(by(6, resize(48 * MIB))).await.expect("a new controller");
    assert_eq!(admin.beat(beat(5)).await.unwrap_err().code(), Code::Aborted);
    let again = admin.beat(beat(6)).await.unwrap().into_inner();
    assert!(again.boot == first.boot && again.up_ms >= first.up_ms);

    // What a watch tells counts too.
    catalog.control(9);
    let begun = std::time::Instant::now();
    while admin.beat(beat(6)).await.is_ok() {
        assert!(begun.elapsed().as_secs() < 10, "the watch told nothing");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    admin.stop_target(by(9, stop)).await.unwrap();
    node.stop();

    let node = Process::start(&place, &catalog);
    let mut admin = node.admin().await;
    let other = admin.beat(beat(9)).await.unwrap().into_inner();
    assert_ne!(other.boot, first.boot);
    // It has the grant. A target that begins takes longer to end.
    served(&mut admin, "db").await;
    node.stop();
}
