//! Protects from a restored catalog whose objects are below what replicas have seen.
use super::*;

fn voters(incarnations: &[u64]) -> v1::Voters {
    let member = |(replica, it): (u64, &u64)| v1::Member { replica, incarnation: *it };
    let members = (1..).zip(incarnations).map(member).collect();
    v1::Voters { members, rf: u32::try_from(incarnations.len()).unwrap() }
}

fn membership(version: u64, incarnations: &[u64]) -> v1::Membership {
    v1::Membership { version, voters: Some(voters(incarnations)), next: None }
}

fn term(grant: u64) -> u64 {
    Grant(grant).term(replication::words::Start(1)).0
}

/// Replica `n` on node `n`, with the incarnation `10 n`.
fn replica(n: u64, grant: u64, seen: u64, applied: &v1::Membership) -> (u64, v1::Replica) {
    let it = v1::Replica {
        volume: Some(v1::VolumeRef { name: "db".into(), uid: vec![7; 16] }),
        incarnation: 10 * n,
        pool: "main".into(),
        size: 1 << 20,
        block_size: 4096,
        compression: "off".into(),
        promised_term: term(grant),
        membership_version: seen,
        membership: Some(applied.clone()),
        ..v1::Replica::default()
    };
    (n, it)
}

fn target(node: u64, grant: u64) -> v1::TargetStatus {
    v1::TargetStatus { node, term: term(grant), serving: true, ..v1::TargetStatus::default() }
}

fn known(version: u64, grant: u64, membership: v1::Membership) -> v1::Object {
    let place = |n| v1::Place { replica: n, node: n, pool: "main".into() };
    let volume = v1::Volume {
        uid: vec![7; 16],
        name: "db".into(),
        quorum: Some(v1::Quorum {
            grant,
            holder: 1,
            membership: Some(membership),
            ..v1::Quorum::default()
        }),
        places: (1..=3).map(place).collect(),
        ..v1::Volume::default()
    };
    v1::Object { version, body: Some(Body::Volume(volume)), ..v1::Object::default() }
}

fn quorum(adopted: &Adopted) -> v1::Quorum {
    let Some(Body::Volume(volume)) = &adopted.object.body else { panic!("it is a volume") };
    volume.quorum.clone().unwrap()
}

#[test]
fn what_replicas_confirm_is_left_as_it_was() {
    let two = membership(2, &[10, 20, 30]);
    let object = known(9, 4, two.clone());
    let replicas = (1..=3).map(|n| replica(n, 4, 2, &two)).collect();
    let evidence = Evidence { replicas, targets: vec![target(1, 4)] };
    let adopted = adopt(&object, &evidence).unwrap();
    assert_eq!((adopted.object, adopted.notes), (object.clone(), Vec::new()));
    let nobody = adopt(&object, &Evidence::default()).unwrap();
    assert_eq!(nobody.object, object, "replicas that are away refuse it later, if they have to");
}

#[test]
fn grants_and_memberships_do_not_go_back() {
    let (two, five) = (membership(2, &[10, 20, 30]), membership(5, &[10, 20, 30]));
    let replicas: Vec<_> = (1..=2).map(|n| replica(n, 6, 7, &five)).collect();
    let evidence = Evidence { replicas, targets: Vec::new() };
    let adopted = adopt(&known(9, 4, two.clone()), &evidence).unwrap();
    let found = quorum(&adopted);
    assert_eq!((found.grant, found.holder), (7, 0), "one more than was promised, and nobody's yet");
    assert_eq!(found.membership.unwrap().version, 8, "one more than was seen");
    assert_eq!(adopted.object.version, 10);

    let served = Evidence { targets: vec![target(2, 6)], ..evidence.clone() };
    let found = quorum(&adopt(&known(9, 4, two.clone()), &served).unwrap());
    assert_eq!((found.grant, found.holder), (6, 2), "it goes on where it is served");

    let one = Evidence { replicas: evidence.replicas[..1].to_vec(), targets: Vec::new() };
    let refused = adopt(&known(9, 4, two), &one).unwrap_err();
    assert!(refused.contains("1 of its replicas answer and 2 are needed"), "{refused}");
}

#[test]
fn a_volume_without_any_object_is_made_of_its_replicas() {
    let five = membership(5, &[10, 20, 30]);
    let replicas: Vec<_> = (1..=2).map(|n| replica(n, 6, 5, &five)).collect();
    let evidence = Evidence { replicas, targets: Vec::new() };
    let refused = adopt_unknown(&[7; 16], &evidence, 1).unwrap_err();
    assert!(refused.contains("replica 3"), "where the third is: {refused}");
    let replicas: Vec<_> = (1..=3).map(|n| replica(n, 6, 5, &five)).collect();
    let evidence = Evidence { replicas, targets: Vec::new() };
    let adopted = adopt_unknown(&[7; 16], &evidence, 1).unwrap();
    let Some(Body::Volume(volume)) = &adopted.object.body else { panic!("it is a volume") };
    assert_eq!((volume.name.as_str(), volume.size, volume.replicas), ("db", 1 << 20, 3));
    assert_eq!(volume.places.len(), 3);
    assert!(volume.attached_only && volume.attachments.is_empty(), "nobody may use it yet");
    let found = quorum(&adopted);
    assert_eq!((found.grant, found.membership.unwrap().version), (7, 5));
}

fn places(adopted: &Adopted) -> Vec<(u64, u64, &str)> {
    let Some(Body::Volume(volume)) = &adopted.object.body else { panic!("it is a volume") };
    volume.places.iter().map(|it| (it.replica, it.node, it.pool.as_str())).collect()
}

/// The replica of this incarnation, wherever it is by now.
fn found(node: u64, pool: &str, incarnation: u64, applied: &v1::Membership) -> (u64, v1::Replica) {
    let (_, it) = replica(node, 4, applied.version, applied);
    (node, v1::Replica { incarnation, pool: pool.into(), ..it })
}

/// Protects from a place on a node that has no such replica: numbers are given again, so the same number may be another
/// replica since the copy was taken.
#[test]
fn a_number_that_was_given_again_has_its_place_where_its_content_is() {
    let (two, five) = (membership(2, &[10, 20, 30]), membership(5, &[10, 20, 31]));
    let object = known(9, 4, two.clone());
    let adopt_with = |third: Option<(u64, v1::Replica)>, applied: &v1::Membership| {
        let mut replicas: Vec<_> =
            (1..=2).map(|n| replica(n, 4, applied.version, applied)).collect();
        replicas.extend(third);
        adopt(&object, &Evidence { replicas, targets: Vec::new() }).unwrap()
    };
    let moved = adopt_with(Some(found(4, "main", 31, &five)), &five);
    assert_eq!(places(&moved), [(1, 1, "main"), (2, 2, "main"), (3, 4, "main")]);
    assert!(moved.notes.iter().any(|note| note.contains("replica 3")), "{:?}", moved.notes);
    assert_eq!(moved.object.version, 10);

    let pool = adopt_with(Some(found(3, "fast", 30, &two)), &two);
    assert_eq!(places(&pool)[2], (3, 3, "fast"), "another pool of its node");
    assert_eq!((pool.notes.len(), pool.object.version), (1, 10), "it is another state");

    let untold = adopt_with(Some(found(3, "", 30, &two)), &two);
    assert_eq!(untold.object, object, "a pool that is not told is no other pool");
    let silent = adopt_with(None, &five);
    assert_eq!(places(&silent)[2], (3, 3, "main"), "nothing better is known");
}

/// Protects from two replicas in one pool, which the catalog refuses: the copy has a place for the one that no node tells
/// of, and another one was found there.
#[test]
fn a_replica_whose_listed_place_another_one_has_is_waited_for() {
    let (two, five) = (membership(2, &[10, 20, 30]), membership(5, &[10, 21, 31]));
    let replicas = vec![found(1, "main", 10, &five), found(2, "main", 31, &five)];
    let evidence = Evidence { replicas, targets: Vec::new() };
    let refused = adopt(&known(9, 4, two), &evidence).unwrap_err();
    assert!(refused.contains("replica 2 votes"), "{refused}");
}
