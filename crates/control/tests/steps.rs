//! Steps by hand between a real catalog and false nodes: what is done when others do something at the
//! same time, or a step was interrupted.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod false_node;
mod site;

use std::time::Duration;

use control::steps::{Found, NewClone, NewVolume, Site, StepError};
use proto::v1;
use proto::v1::swap_request::Change;
use tonic::Status;

use false_node::{FalseNode, State, listed};
use site::{Running, Scratch};

const UID: [u8; 16] = [1; 16];
const CLONE: [u8; 16] = [2; 16];
const SNAPSHOT: [u8; 16] = [7; 16];

/// Two nodes, and a volume `db` that has a replica on both and is served by the first.
struct Bench {
    site: Site,
    nodes: [FalseNode; 2],
    catalog: Running,
    _scratch: Scratch,
}

fn wanted(name: &str, uid: [u8; 16]) -> NewVolume {
    NewVolume {
        name: name.into(),
        uid,
        size: 1 << 20,
        block_size: 4096,
        compression: "off".into(),
        places: ["node-1", "node-2"].map(|node| (node.into(), "main".into())).into(),
        hold_deadline_ms: 1000,
        zvol_workers: 0,
        chap: None,
        allowed_initiators: Vec::new(),
    }
}

fn clone_wanted() -> NewClone {
    let (source, snapshot) = ("db".into(), "monday".into());
    NewClone { name: "trial".into(), uid: CLONE, source, snapshot, size: None }
}

fn snapshot(uid: [u8; 16]) -> v1::Snapshot {
    let position = Some(v1::Position { term: 256, seq: 4 });
    v1::Snapshot { uid: uid.into(), name: "monday".into(), position, ..v1::Snapshot::default() }
}

/// The catalog ends when nobody speaks to it any more, so it goes after the nodes.
fn play(run: impl AsyncFnOnce(&Bench)) {
    drop(site::block_on(async {
        let bench = Bench::new().await;
        run(&bench).await;
        bench
    }));
}

impl Bench {
    async fn new() -> Bench {
        let scratch = Scratch::new();
        let catalog = site::start(site::plain(scratch.path("catalog"), 0)).unwrap();
        let client = site::client(catalog.address);
        let (one, first) = FalseNode::start(1, site::client(catalog.address)).await;
        let (two, second) = FalseNode::start(2, site::client(catalog.address)).await;
        for node in [first, second, listed(3, "127.0.0.1:1".into())] {
            let key = v1::Key { kind: v1::Kind::Node.into(), name: node.name.clone() };
            client.swap(&key, 0, Change::Node(node)).await.unwrap();
        }
        let site = Site::new(&catalog.address.to_string(), None).unwrap();
        site.create(&wanted("db", UID)).await.unwrap();
        let bench = Bench { site, nodes: [one, two], catalog, _scratch: scratch };
        bench.served_by(1).await;
        bench.nodes.iter().for_each(|it| it.with(|it| it.snapshots = vec![snapshot(SNAPSHOT)]));
        bench
    }

    /// Another who is at work on the same site.
    fn other(&self) -> Site {
        Site::new(&self.catalog.address.to_string(), None).unwrap()
    }

    async fn served_by(&self, node: u64) {
        let take = |volume: &mut v1::Volume| {
            let quorum = volume.quorum.get_or_insert_default();
            (quorum.holder, quorum.grant) = (node, quorum.grant + 256);
            Ok(())
        };
        self.site.change("db", take).await.unwrap();
    }

    fn second<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        self.nodes[1].with(look)
    }

    async fn desired(&self) -> Vec<u64> {
        let found = self.site.known("db").await.unwrap();
        found.volume.quorum.unwrap().desired.iter().map(|it| it.incarnation).collect()
    }
}

/// Only these replicas vote from now on.
async fn vote(site: &Site, replicas: &[u64]) {
    let change = |volume: &mut v1::Volume| {
        let node = |replica: u64| replica * 100 + 1;
        let member = |it: &u64| v1::Member { replica: *it, incarnation: node(*it) };
        let members = replicas.iter().map(member).collect();
        let membership = volume.quorum.as_mut().unwrap().membership.as_mut().unwrap();
        membership.version += 1;
        membership.voters = Some(v1::Voters { members, rf: 2 });
        Ok(())
    };
    site.change("db", change).await.unwrap();
}

/// Protects from a vote that is given to a replica while its content goes.
#[test]
fn a_replica_that_is_renewed_is_not_wanted_meanwhile() {
    play(async |bench| {
        let votes = bench.site.renew_replica("db", "node-2").await;
        assert!(matches!(votes, Err(StepError::StillVotes { .. })), "{votes:?}");
        assert_eq!(bench.desired().await, [101, 201]);
        vote(&bench.site, &[1]).await;
        bench.site.renew_replica("db", "node-2").await.unwrap();
        assert_eq!(bench.second(|it| it.wiped_while_wanted.clone()), [false]);
        assert_eq!(bench.desired().await, [101, 202]);
    });
}

/// Protects from content that is wiped by what was true before.
#[test]
fn a_vote_that_comes_while_a_replica_is_renewed_keeps_its_content() {
    play(async |bench| {
        vote(&bench.site, &[1]).await;
        let other = bench.other();
        let comes = Box::pin(async move { vote(&other, &[1, 2]).await });
        bench.second(|it| it.when = Some(("delete_replica", comes)));
        let votes = bench.site.renew_replica("db", "node-2").await;
        assert!(matches!(votes, Err(StepError::StillVotes { .. })), "{votes:?}");
        assert_eq!(bench.second(|it| it.replicas.get(UID.as_slice()).copied()), Some(201));
    });
}

/// Protects from an incarnation that is wanted and nowhere.
#[test]
fn who_renews_a_replica_at_the_same_time_as_somebody_else_is_told() {
    play(async |bench| {
        vote(&bench.site, &[1]).await;
        let other = bench.other();
        let comes = Box::pin(async move {
            let renewed = |volume: &mut v1::Volume| {
                let quorum = volume.quorum.as_mut().unwrap();
                quorum.desired.push(v1::Member { replica: 2, incarnation: 900 });
                Ok(())
            };
            other.change("db", renewed).await.unwrap();
        });
        bench.second(|it| it.when = Some(("create_replica", comes)));
        let told = bench.site.renew_replica("db", "node-2").await;
        assert!(matches!(told, Err(StepError::MadeTwice { replica: 2, .. })), "{told:?}");
        assert_eq!(bench.desired().await, [101, 900]);
    });
}

/// Protects from a replica that is taken for new and has the content that was to go, and from one that cannot
/// come back because something is in its place.
#[test]
fn what_was_left_in_the_place_of_a_renewed_replica_goes() {
    play(async |bench| {
        vote(&bench.site, &[1]).await;
        // A removal that was interrupted: it is not wanted any more, and still there.
        let interrupted = |volume: &mut v1::Volume| {
            volume.quorum.as_mut().unwrap().desired.retain(|it| it.replica == 1);
            Ok(())
        };
        bench.site.change("db", interrupted).await.unwrap();
        bench.site.renew_replica("db", "node-2").await.unwrap();
        assert_eq!(bench.desired().await, [101, 202]);
        // A copy of a snapshot that was begun.
        bench.second(|it| (it.replicas.clear(), it.half_made.insert(UID.into())));
        bench.site.renew_replica("db", "node-2").await.unwrap();
        assert_eq!(bench.desired().await, [101, 203]);
        bench.site.change("db", interrupted).await.unwrap();
        bench.second(|it| (it.replicas.clear(), it.half_made.insert(UID.into())));
        bench.site.add_replica("db", "node-2", "main").await.unwrap();
        assert!(bench.second(|it| it.half_made.is_empty()));
    });
}

/// Protects from a volume that has the name of one that is gone: it loses a replica.
#[test]
fn a_replica_is_taken_from_the_volume_that_was_meant() {
    play(async |bench| {
        let other = bench.other();
        let (removed, ()) = tokio::join!(bench.site.remove_replica("db", "node-2"), async {
            tokio::time::sleep(Duration::from_millis(150)).await;
            other.delete("db").await.unwrap();
            let intent = NewVolume {
                places: vec![("node-2".into(), "main".into())],
                ..wanted("db", [9; 16])
            };
            other.create(&intent).await.unwrap();
            // Its replica has the number of the one that was to go, and has no vote.
            let change = |volume: &mut v1::Volume| {
                volume.places[0].replica = 2;
                let quorum = volume.quorum.as_mut().unwrap();
                quorum.membership =
                    Some(v1::Membership { version: 2, ..v1::Membership::default() });
                quorum.desired.clear();
                volume.deleting = true;
                Ok(())
            };
            other.change("db", change).await.unwrap();
        });
        assert!(matches!(removed, Err(StepError::NoVolume { .. })), "{removed:?}");
        assert_eq!(bench.second(|it| it.replicas.len()), 1, "it is another volume's");
    });
}

/// Protects from a clone that can neither be made nor is gone.
#[test]
fn an_intent_to_clone_goes_with_its_snapshot() {
    play(async |bench| {
        // The snapshot is deleted, and another one has its name.
        let state = std::sync::Arc::clone(&bench.nodes[0].state);
        let replaced = async move { state.lock().unwrap().snapshots = vec![snapshot([8; 16])] };
        bench.nodes[0].with(|it| it.when = Some(("mark_clone", Box::pin(replaced))));
        let made = bench.site.clone_volume(&clone_wanted()).await;
        assert!(matches!(made, Err(StepError::NoSnapshot { .. })), "{made:?}");
        assert!(bench.site.volume("trial").await.unwrap().is_none());
    });
}

#[test]
fn an_intent_to_clone_goes_if_there_is_no_room_for_its_mark() {
    play(async |bench| {
        let full = Status::resource_exhausted("a volume has at most 32 clones");
        bench.nodes[0].with(|it| it.no_mark = Some(full));
        let made = bench.site.clone_volume(&clone_wanted()).await;
        assert!(made.unwrap_err().to_string().contains("32 clones"));
        assert!(bench.site.volume("trial").await.unwrap().is_none());
        bench.site.clone_volume(&clone_wanted()).await.unwrap();
    });
}

/// Protects from a snapshot that is kept for ever, for a clone that nobody has.
#[test]
fn a_clone_that_is_deleted_while_it_is_made_leaves_nothing() {
    for call in ["mark_clone", "create_replica"] {
        play(async |bench| {
            let other = bench.other();
            let deleted = Box::pin(async move { other.delete("trial").await.unwrap() });
            bench.nodes[0].with(|it| it.when = Some((call, deleted)));
            let made = bench.site.clone_volume(&clone_wanted()).await;
            assert!(matches!(made, Err(StepError::NoVolume { .. })), "{call}: {made:?}");
            assert!(bench.nodes[0].with(|it| it.marks.is_empty()), "{call}");
            let left = |it: &mut State| it.replicas.contains_key(CLONE.as_slice());
            assert!(!bench.nodes.iter().any(|it| it.with(left)), "{call}");
        });
    }
}

/// Protects from an empty volume that takes up what was to be a clone, and the other way round.
#[test]
fn a_volume_and_a_clone_do_not_take_each_other_up() {
    play(async |bench| {
        bench.nodes[0].with(|it| it.no_mark = Some(Status::unavailable("not now")));
        let begun = bench.site.clone_volume(&clone_wanted()).await;
        assert!(matches!(begun, Err(StepError::Node(_))), "{begun:?}");
        let intent = bench.site.known("trial").await.unwrap();
        let made = bench.site.create(&wanted("trial", CLONE)).await;
        assert!(matches!(made, Err(StepError::VolumeExists { .. })), "{made:?}");
        assert_eq!(bench.site.known("trial").await.unwrap().version, intent.version);
        let over = NewClone { name: "db".into(), uid: UID, ..clone_wanted() };
        let made = bench.site.clone_volume(&over).await;
        assert!(matches!(made, Err(StepError::VolumeExists { .. })), "{made:?}");
        let Found { volume, .. } = bench.site.clone_volume(&clone_wanted()).await.unwrap();
        assert_eq!(volume.uid, CLONE);
    });
}

/// Protects from a volume that can be served by nobody any more, because somebody began to delete it.
#[test]
fn a_volume_whose_target_cannot_be_stopped_is_not_deleted() {
    play(async |bench| {
        bench.served_by(3).await;
        let away = bench.site.delete("db").await;
        assert!(matches!(away, Err(StepError::Node(_))), "{away:?}");
        let found = bench.site.known("db").await.unwrap();
        assert!(!found.volume.deleting, "it can be served elsewhere");
        assert_eq!(bench.second(|it| it.replicas.len()), 1);
        bench.served_by(2).await;
        bench.site.delete("db").await.unwrap();
        assert!(bench.site.volume("db").await.unwrap().is_none());
        assert!(bench.nodes.iter().all(|it| it.with(|it| it.replicas.is_empty())));
    });
}

/// Protects a caller that repeats a call which it gave up: the first may store its intent after the second has looked.
#[test]
fn an_intent_that_landed_late_is_the_callers_own() {
    play(async |bench| {
        let own = bench.site.plan_clone(&clone_wanted()).await.unwrap();
        let first = bench.site.intend(&own).await.unwrap();
        assert_eq!(bench.site.intend(&own).await.unwrap().version, first.version);
        let other = v1::Volume { uid: vec![9; 16], ..own };
        let refused = bench.site.intend(&other).await.unwrap_err();
        assert!(matches!(refused, StepError::VolumeExists { .. }), "{refused}");
    });
}
