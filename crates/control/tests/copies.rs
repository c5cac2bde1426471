//! Copies of a whole catalog that runs: taken at one moment, and brought back all or none.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod site;

use proto::catalog_client::{CallError, Found, News};
use proto::v1::{Kind, Object};
use site::{Scratch, block_on, client, deletion, key, plain, start, volume};
use tonic::Code;

fn versions(objects: &[Object]) -> Vec<(String, u64, bool)> {
    let of = |object: &Object| {
        let name = object.key.as_ref().map(|key| key.name.clone()).unwrap_or_default();
        (name, object.version, object.body.is_some())
    };
    let mut all: Vec<_> = objects.iter().map(of).collect();
    all.sort();
    all
}

/// Protects from a catalog that is brought back and hands out versions, or deleted volumes, that nodes have seen before.
#[test]
fn a_copy_goes_into_an_empty_catalog_with_versions_and_deletions() {
    let scratch = Scratch::new();
    block_on(async {
        let first = start(plain(scratch.path("from"), 0)).unwrap();
        let from = client(first.address);
        from.swap(&key("a"), 0, volume("a", 1)).await.unwrap();
        from.swap(&key("a"), 1, volume("a", 2)).await.unwrap();
        from.swap(&key("b"), 0, volume("b", 1)).await.unwrap();
        from.swap(&key("b"), 1, deletion()).await.unwrap();
        let Found::Deleted(left) = from.find(&key("b")).await.unwrap() else {
            panic!("it was deleted")
        };
        assert_eq!(left.deleted_uids.len(), 1, "which one, too");
        assert_eq!(from.find(&key("c")).await.unwrap(), Found::Nothing);
        let (revision, objects) = from.backup().await.unwrap();
        assert_eq!(revision, 4);
        let all = [("a".to_owned(), 2, true), ("b".to_owned(), 2, false)];
        assert_eq!(versions(&objects), all);

        let second = start(plain(scratch.path("to"), 0)).unwrap();
        let to = client(second.address);
        let mut watch = to.watch(Kind::Volume, None);
        while !matches!(watch.next().await, News::Current { .. }) {}
        let done = to.restore(objects.clone()).await.unwrap();
        assert_eq!((done.stored, done.kept), (2, 0));
        let News::Object(told) = watch.next().await else { panic!("watchers are told") };
        assert_eq!((told.version, told.body.is_some()), (2, true));
        let (_, restored) = to.backup().await.unwrap();
        assert_eq!(versions(&restored), all);
        assert_eq!(restored[1].deleted_uids, left.deleted_uids);
        to.swap(&key("a"), 2, volume("a", 3)).await.unwrap();
        let again = to.restore(objects).await.unwrap();
        assert_eq!((again.stored, again.kept), (0, 2), "what is newer stays");
        assert_eq!(to.get(&key("a")).await.unwrap().unwrap().version, 3);
    });
}

/// Protects from half a catalog.
#[test]
fn what_cannot_be_brought_back_as_a_whole_is_not_at_all() {
    let scratch = Scratch::new();
    block_on(async {
        let running = start(plain(scratch.path("catalog"), 0)).unwrap();
        let to = client(running.address);
        to.swap(&key("b"), 0, volume("b", 1)).await.unwrap();
        let present = to.get(&key("b")).await.unwrap().unwrap();
        let mut other = present.clone();
        let Some(proto::v1::object::Body::Volume(body)) = &mut other.body else {
            panic!("a volume")
        };
        body.uid[0] ^= 1;
        other.version = 9;
        let mut new = present.clone();
        new.key = Some(key("a"));
        let Some(proto::v1::object::Body::Volume(body)) = &mut new.body else { panic!("a volume") };
        body.name = "a".into();
        let refused = to.restore(vec![new.clone(), other]).await.unwrap_err();
        let CallError::Refused { code, reason } = refused else { panic!("{refused}") };
        assert!(code == Code::FailedPrecondition && reason.contains("`b`"), "{reason}");
        let mut wrong = new.clone();
        wrong.version = 0;
        let refused = to.restore(vec![wrong]).await.unwrap_err();
        assert!(matches!(refused, CallError::Refused { code: Code::InvalidArgument, .. }));
        assert_eq!(to.get(&key("a")).await.unwrap(), None, "nothing of it is there");
        assert_eq!(to.restore(vec![new]).await.unwrap().stored, 1);
    });
}
