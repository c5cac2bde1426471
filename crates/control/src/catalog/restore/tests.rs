//! Protects from a restored copy that takes something back which happened after it was made.
use proto::v1::{Controller, Key, Membership, Quorum, Token, Volume};

use super::*;

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
    assert_eq!(object.deleted_uids, [vec![1; 16], vec![2; 16], vec![3; 16]]);
}
