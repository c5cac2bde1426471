//! What a node tells whoever administers it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod nbd;
mod process;

use proto::v1;
use tonic::Code;

use nbd::Nbd;
use process::{FalseCatalog, Process, folder, make, served, volume, volume_ref, vote};

const MIB: u64 = 1 << 20;

fn spec(uid: u8) -> v1::CreateSnapshotRequest {
    let spec = v1::SnapshotSpec { uid: vec![uid; 16], name: format!("s{uid}"), created_ms: 1 };
    v1::CreateSnapshotRequest { volume: Some(volume_ref("db")), spec: Some(spec) }
}

fn extents(of: &v1::Snapshot, base: Option<&v1::Snapshot>) -> v1::ListExtentsRequest {
    v1::ListExtentsRequest {
        volume: Some(volume_ref("db")),
        snapshot: of.uid.clone(),
        at: of.position,
        base: base.map(|base| base.uid.clone()).unwrap_or_default(),
        base_at: base.and_then(|base| base.position),
        ..v1::ListExtentsRequest::default()
    }
}

fn extent(offset: u64, len: u64) -> v1::Extent {
    v1::Extent { offset, len }
}

#[tokio::test]
async fn snapshots_are_compared_and_what_cannot_be_is_said() {
    let catalog = FalseCatalog::default();
    let node = Process::start(&folder("told"), &catalog);
    let mut admin = node.admin().await;
    let incarnation = make(&catalog, &mut admin, volume("db", 16 * MIB)).await;
    vote(&catalog, "db", incarnation);
    let start = v1::StartTargetRequest { volume: Some(volume_ref("db")), take_over: true };
    admin.start_target(start).await.unwrap();
    served(&mut admin, "db").await;
    let mut nbd = Nbd::open(node.at.nbd.unwrap(), "db");
    nbd.write(0, &[1; 8192]);
    nbd.write(5 * MIB, &[1; 4096]);
    let first = admin.create_snapshot(spec(1)).await.unwrap().into_inner();
    nbd.trim(4096, 4096);
    nbd.write(9 * MIB, &[2; 512]);
    let second = admin.create_snapshot(spec(2)).await.unwrap().into_inner();

    let told = admin.list_extents(extents(&second, Some(&first))).await.unwrap().into_inner();
    assert_eq!(told.extents, [extent(4096, 4096), extent(9 * MIB, 4096)]);
    assert_eq!((told.size, told.next), (16 * MIB, None));
    let told = admin.list_extents(extents(&first, None)).await.unwrap().into_inner();
    assert_eq!(told.extents, [extent(0, 8192), extent(5 * MIB, 4096)]);
    let behind = v1::ListExtentsRequest { from: MIB, limit: 1, ..extents(&first, None) };
    let told = admin.list_extents(behind).await.unwrap().into_inner();
    assert_eq!(told.extents, [extent(5 * MIB, 4096)]);

    let newer = admin.list_extents(extents(&first, Some(&second))).await.unwrap_err();
    assert_eq!(newer.code(), Code::InvalidArgument);
    let moved = v1::Snapshot { position: Some(v1::Position { term: 1, seq: 1 }), ..first.clone() };
    let elsewhere = admin.list_extents(extents(&second, Some(&moved))).await.unwrap_err();
    assert_eq!(elsewhere.code(), Code::NotFound);
    assert!(elsewhere.message().contains("has the base at"), "{elsewhere:?}");
    let unknown = v1::Snapshot { uid: vec![9; 16], ..first };
    let unknown = admin.list_extents(extents(&unknown, None)).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);

    let pulse = admin.beat(v1::BeatRequest { controller: 0 }).await.unwrap().into_inner();
    let pools = admin.list_pools(v1::ListPoolsRequest {}).await.unwrap().into_inner().pools;
    let names = |pools: &[v1::Pool]| pools.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&pulse.pools), names(&pools));
    assert_eq!((pulse.replicas, pulse.targets, pools[0].replicas), (1, 1, 1));
    assert!(pulse.boot != 0 && pulse.pools[0].free > 0);
    node.stop();
}
