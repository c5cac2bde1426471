//! A catalog that has lost objects, or was put back to an earlier moment: nothing is deleted or formatted by its word.
use control::api::ApiError;
use control::api::types::{Members, Modify, NewGroup, Proof, Resize};
use proto::v1::{Position, VolumeGroup, VolumeRef, VolumeSnapshot};

use super::*;

async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Protects a file system that was made and written to: that it was begun must not come back with an old catalog.
#[tokio::test]
async fn a_format_mark_that_was_put_back_permits_nothing() {
    let control = control().await;
    let nodes = control.nodes(1).await;
    nodes[0].with(|state| state.never_serves = false);
    control.volume("db", None).await;
    let (client, stage) = staged(&control).await;
    let snapshot = NewSnapshot { name: "s".into(), volume: "db".into(), ..Default::default() };
    client.create_snapshot(&snapshot).await.unwrap();
    client.begin_format("db", &begin(stage)).await.unwrap();
    let mark_now = async || {
        let found = site::client(control.catalog).get(&site::key("db")).await.unwrap().unwrap();
        let Some(Body::Volume(volume)) = found.body else { panic!("no volume") };
        volume.format.unwrap()
    };
    let put_back = async |mark: &proto::v1::FormatMark| {
        control.change("db", |volume| volume.format = Some(mark.clone())).await;
    };
    let old = mark_now().await;
    nodes[0].with(|state| state.data = vec![proto::v1::Extent { offset: 1 << 19, len: 4096 }]);
    let end = EndFormat { host: "node-1".into(), stage, credential: None };
    client.end_format("db", &end).await.unwrap();
    assert_eq!(nodes[0].with(|state| state.stages), stage + 1, "one that nobody uses");
    client.end_format("db", &end).await.expect("the host's own stage is still its newest");
    assert_eq!(nodes[0].with(|state| state.stages), stage + 1, "there was nothing to end");
    put_back(&old).await;
    let refused = client.begin_format("db", &begin(stage)).await.unwrap_err();
    assert!(refused.message.contains("the first at byte 524288"), "{refused}");
    put_back(&old).await;
    let next = mounts(&client).await;
    assert_eq!(mark(&client).await, None, "for the next mount too");

    nodes[0].with(|state| state.data.clear());
    client.begin_format("db", &begin(next)).await.unwrap();
    let old = mark_now().await;
    client.detach_volume("db", &Detach::default()).await.unwrap();
    client.roll_back_volume("db", &Rollback { snapshot: "s".into() }).await.unwrap();
    put_back(&old).await;
    staged(&control).await;
    assert_eq!(mark(&client).await, None, "it has the content of a snapshot since");
}

fn reference(name: &str) -> VolumeRef {
    let Change::Volume(volume) = site::volume(name, 1) else { panic!("no volume") };
    VolumeRef { name: volume.name, uid: volume.uid }
}

/// Protects snapshots and groups that were brought back, or kept, while their volume was not.
#[tokio::test]
async fn what_belongs_to_a_volume_goes_only_if_that_was_deleted() {
    let control = control().await;
    let catalog = site::client(control.catalog);
    for name in ["deleted", "again"] {
        let stored = catalog.swap(&site::key(name), 0, site::volume(name, 1)).await.unwrap();
        let Swapped::Done(stored) = stored else { panic!("{stored:?}") };
        catalog.swap(&site::key(name), stored.version, site::deletion()).await.unwrap();
    }
    let Change::Volume(mut other) = site::volume("again", 1) else { panic!("no volume") };
    other.uid = vec![9; 16];
    catalog.swap(&site::key("again"), 0, Change::Volume(other)).await.unwrap();
    let (gone, lost) = (["deleted", "again"], "lost");
    for name in gone.into_iter().chain([lost]) {
        let snapshot = VolumeSnapshot {
            uid: reference(name).uid,
            name: format!("of-{name}"),
            volume: Some(reference(name)),
            at: Some(Position { term: 1, seq: 1 }),
            size: 4096,
            ..VolumeSnapshot::default()
        };
        let key = Key { kind: Kind::Snapshot.into(), name: snapshot.name.clone() };
        catalog.swap(&key, 0, Change::Snapshot(snapshot)).await.unwrap();
    }
    let members = gone.into_iter().chain([lost]).map(reference).collect();
    let group =
        VolumeGroup { uid: vec![8; 16], name: "all".into(), members, ..VolumeGroup::default() };
    let key = Key { kind: Kind::Group.into(), name: "all".into() };
    catalog.swap(&key, 0, Change::Group(group)).await.unwrap();
    let members = async || {
        let found = catalog.get(&key).await.unwrap().unwrap();
        let Some(Body::Group(group)) = &found.body else { panic!("no group") };
        (group.members.clone(), found.version)
    };
    let snapshots = async || {
        let all = catalog.list(Kind::Snapshot).await.unwrap();
        all.iter().map(site::name).collect::<Vec<String>>()
    };
    wait_until("care removes what belongs to deleted volumes", async || {
        members().await.0.len() == 1 && snapshots().await.len() == 1
    })
    .await;
    assert_eq!(snapshots().await, ["of-lost"]);
    let (left, version) = members().await;
    assert_eq!(left, [reference("lost")]);
    // Once its deletion is marked, the rest goes too; until then the group is not even touched.
    let stored = catalog.swap(&site::key("lost"), 0, site::volume("lost", 1)).await.unwrap();
    let Swapped::Done(stored) = stored else { panic!("{stored:?}") };
    assert_eq!(members().await, (left, version));
    catalog.swap(&site::key("lost"), stored.version, site::deletion()).await.unwrap();
    wait_until("care removes the rest", async || {
        members().await.0.is_empty() && snapshots().await.is_empty()
    })
    .await;
}

fn is_refused<T>(answer: Result<T, ApiError>, words: &str) {
    let Err(refused) = answer else { panic!("it is done: {words}") };
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
    assert!(refused.message.contains(words), "{refused}");
}

/// Protects from changes on the ground of an object that is older than what nodes have seen.
#[tokio::test]
async fn a_volume_that_nodes_know_better_is_read_and_not_changed() {
    let control = control().await;
    let nodes = control.nodes(1).await;
    nodes[0].with(|state| state.never_serves = false);
    control.volume("db", None).await;
    control.volume("other", None).await;
    let (client, stage_now) = staged(&control).await;
    let snapshot = NewSnapshot { name: "s".into(), volume: "db".into(), ..Default::default() };
    client.create_snapshot(&snapshot).await.unwrap();
    let lost = |lost: Vec<VolumeRef>| {
        nodes[0].with(|state| (state.lost_count, state.lost) = (lost.len() as u64, lost));
    };
    let listed = async || client.node("node-1").await.unwrap().lost_volumes;
    lost(vec![reference("db")]);
    wait_until("a beat tells it", async || listed().await == ["db"]).await;

    assert_eq!(client.volume("db").await.unwrap().name, "db");
    assert_eq!(client.volumes("", 0).await.unwrap().items.len(), 2);
    let words = "the catalog has lost the volume `db`, which `node-1` knows";
    let (here, proof) = ("node-1".to_owned(), Proof::default());
    let other = NewSnapshot { name: "t".into(), ..snapshot };
    let whole = NewVolume { name: "db".into(), size: 1 << 20, ..NewVolume::default() };
    let end = EndFormat { host: here.clone(), stage: stage_now, credential: None };
    let group =
        NewGroup { name: "g".into(), members: vec!["db".into()], parameters: Default::default() };
    is_refused(client.create_volume(&whole).await, words);
    is_refused(client.delete_volume("db", &proof).await, words);
    is_refused(client.modify_volume("db", &Modify::default()).await, words);
    let resize = Resize { size: 2 << 20, size_limit: None, credential: None };
    is_refused(client.resize_volume("db", &resize).await, words);
    is_refused(client.attach_volume("db", &attach_to("node-1")).await, words);
    is_refused(client.detach_volume("db", &Detach::default()).await, words);
    is_refused(client.new_stage("db", &stage("node-1", None)).await, words);
    is_refused(client.begin_format("db", &begin(stage_now)).await, words);
    is_refused(client.end_format("db", &end).await, words);
    is_refused(client.move_volume("db", &Move { node: here }).await, words);
    is_refused(client.roll_back_volume("db", &Rollback { snapshot: "s".into() }).await, words);
    is_refused(client.create_snapshot(&other).await, words);
    is_refused(client.delete_snapshot("s", &proof).await, words);
    is_refused(client.create_group(&group).await, words);
    client.attach_volume("other", &attach_to("node-1")).await.expect("it is not lost");

    lost(Vec::new());
    wait_until("it is back", async || listed().await.is_empty()).await;
    client.detach_volume("db", &Detach::default()).await.unwrap();
    client.create_group(&group).await.unwrap();
    client.set_members("g", &Members { members: Vec::new() }).await.unwrap();
}

/// Protects from a controller that changes the old object of a rolled-back catalog until it is the newest.
#[tokio::test]
async fn nothing_is_done_for_a_volume_that_nodes_know_better() {
    let control = control().await;
    let nodes = control.nodes(1).await;
    control.volume("db", None).await;
    control.volume("other", None).await;
    let client = control.client(&control.token);
    nodes[0].with(|state| (state.lost_count, state.lost) = (1, vec![reference("db")]));
    let listed = async || client.node("node-1").await.unwrap().lost_volumes;
    wait_until("a beat tells it", async || listed().await == ["db"]).await;
    // Each pass of the controller drops such a mark.
    let unverified = proto::v1::FormatMark {
        file_system: "ext4".into(),
        host: "node-1".into(),
        stage: 1,
        ..Default::default()
    };
    let marked = async |name: &str| {
        let found = site::client(control.catalog).get(&site::key(name)).await.unwrap().unwrap();
        let Some(Body::Volume(volume)) = found.body else { panic!("no volume") };
        volume.format.is_some()
    };
    let mark = |volume: &mut Volume| volume.format = Some(unverified.clone());
    control.change("db", mark).await;
    // More than one pass.
    for _ in 0..3 {
        control.change("other", mark).await;
        wait_until("the other volume is seen to", async || !marked("other").await).await;
    }
    assert!(marked("db").await, "the object of a lost volume was changed");
    nodes[0].with(|state| (state.lost_count, state.lost) = (0, Vec::new()));
    wait_until("it is seen to again", async || !marked("db").await).await;
}

/// Protects lost volumes that a beat has no room to name.
#[tokio::test]
async fn while_lost_volumes_are_unnamed_any_unknown_one_may_be_lost() {
    let control = control().await;
    let nodes = control.nodes(1).await;
    control.volume("db", None).await;
    let client = control.client(&control.token);
    nodes[0].with(|state| (state.lost_count, state.lost) = (2, vec![reference("named")]));
    let listed = async || client.node("node-1").await.unwrap().lost_volumes;
    wait_until("a beat tells it", async || listed().await == ["named"]).await;
    let new = NewVolume { name: "new".into(), size: 1 << 20, ..NewVolume::default() };
    let words =
        "the catalog has lost 2 volumes, which `node-1` knows, and `new` may be one of them";
    is_refused(client.create_volume(&new).await, words);
    is_refused(client.delete_volume("new", &Proof::default()).await, words);
    is_refused(
        client.delete_volume("named", &Proof::default()).await,
        "has lost the volume `named`",
    );
    is_refused(
        client.attach_volume("db", &attach_to("node-1")).await,
        "and `db` may be one of them",
    );
    nodes[0].with(|state| state.lost_count = 1);
    wait_until("all of them are named", async || {
        client.delete_volume("new", &Proof::default()).await.is_ok()
    })
    .await;
}
