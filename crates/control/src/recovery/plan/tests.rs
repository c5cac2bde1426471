use std::slice::from_ref;

use super::*;
use crate::catalog::judge::{Present, Swap, Verdict, change_of, judge};

fn object(version: u64, volume: v1::Volume) -> v1::Object {
    let key = Some(v1::Key { kind: v1::Kind::Volume.into(), name: volume.name.clone() });
    v1::Object { key, version, body: Some(Body::Volume(volume)), ..v1::Object::default() }
}

/// A volume that the catalog takes. Nobody votes in it yet.
fn body(name: &str, uid: u8) -> v1::Volume {
    let membership = Some(v1::Membership::default());
    let role = v1::Role::Primary.into();
    v1::Volume {
        uid: vec![uid; 16],
        name: name.into(),
        size: 1 << 20,
        block_size: 4096,
        compression: "off".into(),
        quorum: Some(v1::Quorum { membership, role, ..v1::Quorum::default() }),
        ..v1::Volume::default()
    }
}

fn volume(version: u64, format: Option<v1::FormatMark>) -> v1::Object {
    object(version, v1::Volume { format, ..body("db", 7) })
}

fn find<'a>(plan: &'a Plan, name: &str) -> Option<&'a v1::Object> {
    plan.objects.iter().find(|object| object.key.as_ref().is_some_and(|key| key.name == name))
}

fn find_volume<'a>(plan: &'a Plan, name: &str) -> &'a v1::Volume {
    match find(plan, name).and_then(|object| object.body.as_ref()) {
        Some(Body::Volume(volume)) => volume,
        _ => panic!("no volume `{name}`: {:?}", plan.steps),
    }
}

/// What the catalog's service asks of every object before it stores any of them.
fn assert_acceptable(plan: &Plan) {
    for object in &plan.objects {
        if let Err(wrong) = crate::catalog::restore::check(object) {
            panic!("{wrong}: {object:?}");
        }
    }
}

/// Protects what was written after a mkfs that a copy of the catalog takes for unfinished.
#[test]
fn what_is_brought_back_has_no_format_mark() {
    let mark = v1::FormatMark { stage: 7, verified: true, ..v1::FormatMark::default() };
    let marked = volume(4, Some(mark));
    let copy = [Source { what: "a copy".into(), objects: vec![marked.clone()] }];
    let plan_over = |present: &[v1::Object]| plan(present, &copy, &BTreeMap::new(), 1);
    for present in [&[][..], &[volume(3, None)]] {
        let planned = plan_over(present);
        let Some(Body::Volume(restored)) = &planned.objects[0].body else { panic!("no volume") };
        assert_eq!(restored.format, None);
        assert_eq!(planned.objects[0].version, 5, "it is another state than the one with the mark");
        assert!(planned.steps[0].notes.iter().any(|note| note.contains("format mark")));
    }
    let unchanged = plan_over(&[marked]);
    assert!(unchanged.objects.is_empty(), "a mkfs under way is left alone");
    assert_eq!(unchanged.steps[0].action, Action::Keep);
}

fn token(name: &str, digest: u8, version: u64) -> v1::Object {
    let key = Some(v1::Key { kind: v1::Kind::Token.into(), name: name.into() });
    let (name, digest) = (name.to_owned(), vec![digest; 32]);
    let role = v1::TokenRole::Admin.into();
    let body = Some(Body::Token(v1::Token { name, digest, role, ..v1::Token::default() }));
    v1::Object { key, version, body, ..v1::Object::default() }
}

/// Protects the operator's scripts from a site whose first token was made anew, and the new token from the old one.
#[test]
fn a_token_whose_name_is_taken_comes_back_under_another() {
    let copy = [Source { what: "a copy".into(), objects: vec![token("admin", 7, 5)] }];
    let plan_over = |present: &[v1::Object]| plan(present, &copy, &BTreeMap::new(), 1);
    let planned = plan_over(&[token("admin", 8, 1)]);
    assert_eq!(planned.objects, [token("admin.old", 7, 5)]);
    assert_eq!(planned.steps[0].action, Action::Restore);
    let again = plan_over(&[token("admin", 8, 1), token("admin.old", 7, 5)]);
    assert!(again.objects.is_empty(), "once is enough");
    let mut taken_away = token("admin", 8, 2);
    taken_away.deleted_uids = vec![vec![7; 32]];
    assert!(plan_over(&[taken_away]).objects.is_empty(), "it was deleted before");
}

/// Protects from a volume that was deleted after a copy was taken, whichever source is read first.
#[test]
fn what_a_node_knows_to_be_deleted_does_not_come_back_from_a_copy() {
    let left = v1::Object { body: None, deleted_uids: vec![vec![7; 16]], ..volume(5, None) };
    let source = |what: &str, object| Source { what: what.into(), objects: vec![object] };
    let (copy, node) = (source("a copy", volume(4, None)), source("a node", left));
    for sources in [[copy.clone(), node.clone()], [node, copy]] {
        let planned = plan(&[], &sources, &BTreeMap::new(), 1);
        assert!(planned.steps.is_empty(), "{:?}", planned.steps);
        assert!(planned.objects.iter().all(|object| object.body.is_none()));
    }
}

fn membership(version: u64, members: &[(u64, u64)]) -> v1::Membership {
    let member = |(replica, incarnation): &(u64, u64)| v1::Member {
        replica: *replica,
        incarnation: *incarnation,
    };
    let rf = u32::try_from(members.len()).unwrap();
    let voters = Some(v1::Voters { members: members.iter().map(member).collect(), rf });
    v1::Membership { version, voters, next: None }
}

/// Protects the restore of a whole site: the catalog refuses all objects if one of them lists a pool twice.
#[test]
fn a_replica_that_was_added_again_in_the_same_pool_takes_the_place_of_the_removed_one() {
    let mut moved = body("moved", 8);
    let old = membership(2, &[(1, 10), (2, 20), (3, 30)]);
    moved.quorum.as_mut().unwrap().membership = Some(old);
    let place = |n| v1::Place { replica: n, node: n, pool: "main".into() };
    moved.places = (1..=3).map(place).collect();
    let objects = vec![object(4, moved), volume(4, None)];
    let copy = [Source { what: "a copy".into(), objects }];
    let applied = membership(5, &[(1, 10), (3, 30), (4, 40)]);
    let replica = |(node, incarnation)| {
        let (pool, membership) = ("main".into(), Some(applied.clone()));
        (node, v1::Replica { incarnation, pool, membership, ..v1::Replica::default() })
    };
    let replicas = [(1, 10), (2, 40), (3, 30)].map(replica).into();
    let evidence = BTreeMap::from([(vec![8; 16], Evidence { replicas, targets: Vec::new() })]);

    let planned = plan(&[], &copy, &evidence, 1);
    let places = find_volume(&planned, "moved").places.iter();
    let places: Vec<_> = places.map(|place| (place.replica, place.node)).collect();
    assert_eq!(places, [(1, 1), (3, 3), (4, 2)]);
    find_volume(&planned, "db");
    assert_acceptable(&planned);
}

/// Protects the restore of a whole site from a volume that was being deleted, and that only the memory of a node has.
#[test]
fn a_volume_that_is_being_deleted_comes_back_without_credentials_whose_secret_is_unknown() {
    let chap = Some(v1::Chap { user: "host".into(), ..v1::Chap::default() });
    let leaving = v1::Volume { deleting: true, chap, ..body("leaving", 8) };
    let objects = vec![object(4, leaving.clone()), volume(4, None)];
    let node = [Source { what: "a node".into(), objects }];
    let planned = plan(&[], &node, &BTreeMap::new(), 1);
    let restored = find_volume(&planned, "leaving");
    assert!(restored.chap.is_none() && restored.attached_only && restored.deleting);
    assert_eq!(find(&planned, "leaving").unwrap().version, 5, "it is another state");
    find_volume(&planned, "db");
    assert_acceptable(&planned);

    let known = v1::Chap { secret: "twelve bytes".into(), ..leaving.chap.clone().unwrap() };
    let there = object(4, v1::Volume { chap: Some(known), ..leaving });
    let over = plan(&[there], &node, &BTreeMap::new(), 1);
    assert_eq!(find(&over, "leaving"), None, "the catalog has it with its secret");
}

/// Protects the restore of a whole site from an object that no rule here foresaw.
#[test]
fn an_object_that_the_catalog_would_refuse_is_refused_alone() {
    let odd = v1::Volume { block_size: 3, ..body("odd", 8) };
    let objects = vec![object(4, odd), volume(4, None)];
    let copy = [Source { what: "a copy".into(), objects }];
    let planned = plan(&[], &copy, &BTreeMap::new(), 1);
    find_volume(&planned, "db");
    assert_acceptable(&planned);
    let step = planned.steps.iter().find(|step| step.name == "odd").unwrap();
    assert_eq!(step.action, Action::Refuse);
    assert!(step.notes[0].contains("volume.block_size"), "{:?}", step.notes);

    let applied = membership(1, &[(1, 10)]);
    let volume = Some(v1::VolumeRef { name: "No Name".into(), uid: vec![9; 16] });
    let replica = v1::Replica {
        volume,
        incarnation: 10,
        pool: "main".into(),
        membership: Some(applied),
        ..v1::Replica::default()
    };
    let evidence = Evidence { replicas: vec![(1, replica)], targets: Vec::new() };
    let planned = plan(&[], &copy, &BTreeMap::from([(vec![9; 16], evidence)]), 1);
    find_volume(&planned, "db");
    assert_acceptable(&planned);
    let refused = planned.steps.iter().filter(|step| step.action == Action::Refuse);
    assert_eq!(refused.map(|step| step.name.as_str()).collect::<Vec<_>>(), ["odd", "No Name"]);
}

/// What a catalog has of a name after it deleted what had it, and stored another object.
fn replace(present: v1::Object, next: v1::Object) -> v1::Object {
    let swap = |present: v1::Object, expected, change| {
        let key = present.key.clone().unwrap();
        let swap = Swap { kind: key.kind(), name: key.name, expected, change, controller: None };
        match judge(&Present { object: Some(present) }, swap, 1) {
            Verdict::Done(object) => v1::Object { revision: 0, ..*object },
            other => panic!("{other:?}"),
        }
    };
    let version = present.version;
    let deletion = v1::swap_request::Change::Delete(v1::Deletion {});
    let left = swap(present, version, deletion);
    swap(left, 0, change_of(next.body.unwrap()))
}

/// Protects from a token that somebody took away because it had leaked, and that is valid again after a restore.
#[test]
fn a_token_that_was_replaced_seventeen_times_does_not_come_back_under_another_name() {
    let first = token("admin", 1, 5);
    let rotated = (2..=18).fold(first.clone(), |it, digest| replace(it, token("admin", digest, 0)));
    assert!(!rotated.deleted_uids.contains(&vec![1; 32]), "its mark is gone");
    let source = |what: &str, object: &v1::Object| {
        let objects = vec![object.clone()];
        Source { what: what.into(), objects }
    };
    let (old, new) = (source("an old copy", &first), source("a new copy", &rotated));
    let planned = plan(from_ref(&rotated), from_ref(&old), &BTreeMap::new(), 1);
    assert_eq!((planned.objects.len(), planned.steps.len()), (0, 0), "{:?}", planned.steps);
    for sources in [[old.clone(), new.clone()], [new, old]] {
        let planned = plan(&[], &sources, &BTreeMap::new(), 1);
        assert_eq!(planned.objects, from_ref(&rotated));
    }
}

/// Protects from a deleted volume that comes back, or keeps the last one of its name from coming back, whichever source is
/// read first.
#[test]
fn of_two_copies_the_one_that_knows_sixteen_later_deletions_counts() {
    let first = volume(5, None);
    let next = |uid| object(0, body("db", uid));
    let last = (101..=117).fold(first.clone(), |it, uid| replace(it, next(uid)));
    let left = v1::Object { body: None, ..last.clone() };
    for later in [last, left] {
        let source = |object: &v1::Object| {
            let objects = vec![object.clone()];
            Source { what: "a copy".into(), objects }
        };
        let (old, new) = (source(&first), source(&later));
        for sources in [[old.clone(), new.clone()], [new, old]] {
            let planned = plan(&[], &sources, &BTreeMap::new(), 1);
            assert_eq!(planned.objects, from_ref(&later), "{:?}", planned.steps);
        }
    }
}

/// Protects from the same where versions say nothing, since the catalog began anew in between.
#[test]
fn no_token_comes_back_under_another_name_where_the_marks_are_full() {
    let first = token("admin", 1, 50);
    let anew = token("admin", 2, 1);
    let rotated = (3..=18).fold(anew, |it, digest| replace(it, token("admin", digest, 0)));
    assert_eq!(rotated.deleted_uids.len(), 16);
    let copy = [Source { what: "a copy".into(), objects: vec![first] }];
    let planned = plan(&[rotated], &copy, &BTreeMap::new(), 1);
    assert!(planned.objects.is_empty(), "{:?}", planned.objects);
    let step = &planned.steps[0];
    assert_eq!((step.name.as_str(), step.action), ("admin.old", Action::Refuse));
    assert!(step.notes[0].contains("a copy") && step.notes[0].contains("16"), "{:?}", step.notes);
}

/// Protects a volume that was made after everything that a copy knows of its name, and of which only replicas are left.
#[test]
fn a_volume_of_replicas_alone_comes_back_though_the_marks_of_its_name_are_full() {
    let full = (1..=16).map(|uid| vec![100 + uid; 16]).collect();
    let left = v1::Object { body: None, deleted_uids: full, ..volume(33, None) };
    let replica = v1::Replica {
        volume: Some(v1::VolumeRef { name: "db".into(), uid: vec![7; 16] }),
        incarnation: 10,
        pool: "main".into(),
        size: 1 << 20,
        block_size: 4096,
        compression: "off".into(),
        membership_version: 1,
        membership: Some(membership(1, &[(1, 10)])),
        ..v1::Replica::default()
    };
    let evidence = Evidence { replicas: vec![(1, replica)], targets: Vec::new() };
    let planned = plan(from_ref(&left), &[], &BTreeMap::from([(vec![7; 16], evidence)]), 1);
    find_volume(&planned, "db");
    assert_acceptable(&planned);
    let stored = restore(&Present { object: Some(left) }, planned.objects[0].clone(), 1);
    assert!(matches!(&stored, Restored::Stored(it) if it.body.is_some()), "{stored:?}");
}
