//! Protects from a restored copy that takes something back which happened after it was made.
use proto::v1::swap_request::Change;
use proto::v1::{Controller, Deletion, Key, Membership, Quorum, Token, Volume};

use super::*;
use crate::catalog::judge::{Swap, Verdict, judge};

fn volume(uid: u8, grant: u64) -> Option<Body> {
    let quorum = Some(Quorum { grant, ..Quorum::default() });
    Some(Body::Volume(Volume { uid: vec![uid; 16], quorum, ..Volume::default() }))
}

fn object(kind: Kind, version: u64, body: Option<Body>, deleted: &[u8]) -> Object {
    Object {
        key: Some(Key { kind: kind.into(), name: "db".into() }),
        version,
        revision: 1,
        body,
        deleted_uids: deleted.iter().map(|uid| vec![*uid; 16]).collect(),
    }
}

fn of_volume(version: u64, body: Option<Body>, deleted: &[u8]) -> Object {
    object(Kind::Volume, version, body, deleted)
}

/// The version that is stored; `None`: what was there is kept.
fn stored(present: Option<Object>, given: Object) -> Option<u64> {
    match restore(&Present { object: present }, given, 50) {
        Restored::Stored(object) => {
            assert_eq!(object.revision, 50);
            Some(object.version)
        }
        Restored::Kept => None,
        Restored::Refused(wrong) => panic!("{wrong}"),
    }
}

#[test]
fn the_newer_state_of_an_object_wins() {
    let at = |version, grant| of_volume(version, volume(7, grant), &[]);
    assert_eq!(stored(None, at(9, 3)), Some(9), "its version goes on where it was");
    assert_eq!(stored(Some(at(5, 3)), at(9, 3)), Some(9));
    assert_eq!(stored(Some(at(9, 3)), at(9, 3)), None);
    assert_eq!(stored(Some(at(9, 3)), at(5, 3)), None);
    assert_eq!(stored(Some(at(6, 4)), at(9, 3)), None, "a higher grant was given since");
    assert_eq!(stored(Some(at(9, 3)), at(6, 4)), Some(10), "versions do not go back");
    let confirmed = |version, membership| {
        let membership = Some(Membership { version: membership, ..Membership::default() });
        let quorum = Some(Quorum { grant: 8, membership, ..Quorum::default() });
        let volume = Volume { uid: vec![7; 16], quorum, ..Volume::default() };
        of_volume(version, Some(Body::Volume(volume)), &[])
    };
    assert_eq!(stored(Some(confirmed(6, 2)), confirmed(8, 1)), None, "an operator confirmed it");
    assert_eq!(stored(Some(confirmed(8, 1)), confirmed(6, 2)), Some(9));
    let controller = |version, generation| {
        let body = Body::Controller(Controller { generation, ..Controller::default() });
        object(Kind::Controller, version, Some(body), &[])
    };
    assert_eq!(
        stored(Some(controller(1, 90)), controller(40, 80)),
        None,
        "the site has a later one"
    );
}

#[test]
fn what_was_deleted_stays_deleted() {
    let db = || of_volume(9, volume(7, 3), &[]);
    assert_eq!(stored(Some(of_volume(10, None, &[7])), db()), None);
    assert_eq!(stored(Some(db()), of_volume(10, None, &[7])), Some(10), "and is deleted again");
    assert_eq!(stored(Some(of_volume(3, None, &[6])), db()), Some(9), "that was another one");
    let Restored::Stored(kept) =
        restore(&Present { object: Some(db()) }, of_volume(10, None, &[6]), 50)
    else {
        panic!("the mark of the other one is stored")
    };
    assert_eq!((kept.body, kept.deleted_uids), (volume(7, 3), vec![vec![6; 16]]), "and no more");
    assert_eq!(
        stored(Some(of_volume(12, volume(8, 1), &[7])), db()),
        None,
        "its successor is there"
    );
    assert_eq!(stored(Some(db()), of_volume(12, volume(8, 1), &[7])), Some(12));
    let token = |version, body: bool| {
        object(Kind::Token, version, body.then(|| Body::Token(Token::default())), &[])
    };
    assert_eq!(stored(Some(token(5, false)), token(4, true)), None, "a token that was taken away");
}

#[test]
fn a_name_is_not_taken_from_what_has_it() {
    let (there, given) = (of_volume(1, volume(8, 1), &[]), of_volume(9, volume(7, 3), &[]));
    let refused = restore(&Present { object: Some(there) }, given, 50);
    assert!(
        matches!(&refused, Restored::Refused(wrong) if wrong.problem.contains("`db`")),
        "{refused:?}"
    );
}

/// Protects from a token that was taken away and is back, and from one that a later one of its name takes away.
#[test]
fn another_digest_is_another_token() {
    let token = |version, digest: u8, deleted: &[u8]| {
        let token = Token { digest: vec![digest; 16], ..Token::default() };
        object(Kind::Token, version, Some(Body::Token(token)), deleted)
    };
    let refused = restore(&Present { object: Some(token(1, 8, &[])) }, token(9, 7, &[]), 50);
    assert!(matches!(refused, Restored::Refused(_)), "{refused:?}");
    assert_eq!(stored(Some(token(1, 8, &[7])), token(9, 7, &[])), None, "it was deleted");
    assert_eq!(stored(Some(token(2, 7, &[])), token(9, 7, &[])), Some(9));
}

/// Protects from deletions that are forgotten because the rest of what tells of them is older.
#[test]
fn marks_of_an_older_state_are_kept() {
    let present = Present { object: Some(of_volume(9, volume(7, 3), &[2])) };
    let older = of_volume(4, volume(7, 2), &[1, 2]);
    let Restored::Stored(object) = restore(&present, older.clone(), 50) else {
        panic!("its marks are stored")
    };
    assert_eq!(object.deleted_uids, [vec![1; 16], vec![2; 16]]);
    assert_eq!((object.version, object.body.clone()), (10, volume(7, 3)));
    assert_eq!(restore(&Present { object: Some(*object) }, older, 51), Restored::Kept);
}

#[test]
fn marks_of_deletion_are_kept_together() {
    let given = of_volume(9, volume(7, 3), &[1, 2]);
    let present = Present { object: Some(of_volume(4, None, &[2, 3])) };
    let Restored::Stored(object) = restore(&present, given, 50) else { panic!("it is stored") };
    assert_eq!(object.deleted_uids, [vec![3; 16], vec![1; 16], vec![2; 16]], "older ones first");
}

/// Protects `pollux site forget`: nodes wipe by the very mark that it stores.
#[test]
fn a_new_mark_replaces_the_oldest_of_a_full_list() {
    let full: Vec<u8> = (1..=16).collect();
    let present = Present { object: Some(of_volume(33, None, &full)) };
    let Restored::Stored(object) = restore(&present, of_volume(34, None, &[99]), 50) else {
        panic!("the mark is stored")
    };
    assert_eq!(object.deleted_uids.len(), DELETED_UIDS_MAX);
    assert!(has_mark(&object, &[99; 16]) && !has_mark(&object, &[1; 16]), "{object:?}");
}

/// What a catalog has of a name after it deleted what had it, and stored another volume.
fn replace(present: Object, uid: u8) -> Object {
    let swap = |present: Object, expected, change| {
        let (kind, name) = (Kind::Volume, "db".to_owned());
        let swap = Swap { kind, name, expected, change, controller: None };
        match judge(&Present { object: Some(present) }, swap, 1) {
            Verdict::Done(object) => *object,
            other => panic!("{other:?}"),
        }
    };
    let version = present.version;
    let left = swap(present, version, Change::Delete(Deletion {}));
    swap(left, 0, change_of(volume(uid, 1).unwrap()))
}

/// Protects from a volume that was deleted so long ago that its mark is gone, and that comes back from a copy.
#[test]
fn what_sixteen_later_deletions_followed_was_deleted() {
    let first = of_volume(5, volume(1, 3), &[]);
    let later = |cycles: u8| (2..=1 + cycles).fold(first.clone(), replace);
    let left = |object: &Object| Object { body: None, ..object.clone() };
    for now in [later(17), later(40)] {
        assert!(!has_mark(&now, &[1; 16]));
        assert_eq!(stored(Some(now.clone()), first.clone()), None, "a successor is there");
        assert_eq!(stored(Some(left(&now)), first.clone()), None, "nothing is there");
    }
}

/// Protects a volume of a catalog that began anew, whose versions are below those of an old copy.
#[test]
fn what_is_there_is_not_deleted_by_marks_of_others() {
    let marks: Vec<u8> = (101..=116).collect();
    let there = of_volume(1, volume(2, 1), &[]);
    let given = of_volume(40, volume(1, 3), &marks);
    let refused = restore(&Present { object: Some(there.clone()) }, given.clone(), 50);
    assert!(matches!(refused, Restored::Refused(_)), "{refused:?}");
    let left = Object { body: None, ..given };
    let kept = restore(&Present { object: Some(there.clone()) }, left, 50);
    assert!(matches!(&kept, Restored::Stored(it) if it.body == there.body), "{kept:?}");
}

/// Protects a volume that a catalog lost after its name had been used often: its own mark would be the last one.
#[test]
fn marks_from_before_a_volume_do_not_say_that_it_was_deleted() {
    let marks: Vec<u8> = (101..=116).collect();
    let lost = of_volume(40, volume(1, 3), &marks);
    assert_eq!(stored(Some(of_volume(60, None, &marks)), lost.clone()), Some(61), "it comes back");
    let other = of_volume(60, volume(2, 1), &marks);
    let refused = restore(&Present { object: Some(other) }, lost.clone(), 50);
    assert!(matches!(refused, Restored::Refused(_)), "{refused:?}");
    let fresh: Vec<u8> = (121..=136).collect();
    let older = of_volume(39, volume(2, 1), &fresh);
    let refused = restore(&Present { object: Some(older) }, lost, 50);
    assert!(matches!(refused, Restored::Refused(_)), "versions began again: {refused:?}");
}
