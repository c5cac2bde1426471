#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::path::PathBuf;

use certs::Name;
use mio::Poll;
use replication::catalog::CatalogAnswer;
use replication::words::CatalogVersion;

use super::*;
use crate::shard::{Sender, Shard};

const HERE: NodeId = NodeId(1);

struct Bench {
    folder: PathBuf,
    books: Books,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Bench {
    /// Books of node 1, whose catalog is never reached.
    fn new(name: &str) -> Bench {
        let file = format!("pollux-books-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(file);
        Bench { books: books(&folder), folder }
    }
}

fn books(state: &std::path::Path) -> Books {
    let channel = certs::channel("127.0.0.1:1", &Name::catalog(), None).unwrap();
    Books::new(Client::new(channel), HERE, Arc::new(Memory::open(state).unwrap()))
}

fn attached(host: &str) -> v1::Attachment {
    let (host, initiator) = (host.into(), format!("iqn.{host}"));
    v1::Attachment { host, initiator, ..v1::Attachment::default() }
}

/// `db`, granted to this node, and attached to one host.
fn db(version: u64, host: &str) -> v1::Object {
    let membership = v1::Membership {
        version: 1,
        voters: Some(v1::Voters {
            members: vec![v1::Member { replica: 1, incarnation: 1 }],
            rf: 1,
        }),
        next: None,
    };
    let quorum = v1::Quorum {
        grant: 3,
        holder: HERE.0,
        membership: Some(membership),
        ..v1::Quorum::default()
    };
    let volume = v1::Volume {
        uid: vec![7; 16],
        name: "db".into(),
        size: 1 << 20,
        block_size: 4096,
        quorum: Some(quorum),
        places: vec![v1::Place { replica: 1, node: HERE.0, pool: "main".into() }],
        attached_only: true,
        attachments: vec![attached(host)],
        ..v1::Volume::default()
    };
    let (key, body) = (Some(volume_key("db")), Some(Body::Volume(volume)));
    v1::Object { key, version, revision: version, body, ..v1::Object::default() }
}

fn hosts(known: &Known) -> Vec<&str> {
    known.record.access.stages.keys().map(String::as_str).collect()
}

/// Protects from a get that was overtaken by a watch, or a watch by a get: in memory, on the disk, and in what
/// callers are told.
#[tokio::test]
async fn what_is_known_of_a_volume_never_goes_back() {
    let bench = Bench::new("order");
    let newer = bench.books.usable(&db(7, "b")).unwrap();
    assert_eq!(hosts(&newer), ["iqn.b"]);
    let told = bench.books.usable(&db(6, "a")).unwrap();
    assert_eq!(hosts(&told), ["iqn.b"], "the caller is told the newer one");
    assert_eq!(hosts(bench.books.copy().volume("db").unwrap()), ["iqn.b"]);
    let remembered = bench.books.remembered();
    assert_eq!(hosts(&remembered[0]), ["iqn.b"], "after a restart");

    let old = convert::known(&db(6, "a")).unwrap().record;
    let mut sent = None;
    bench.books.send_newest(old, |record| sent = Some(record.object.version));
    assert_eq!(sent, Some(CatalogVersion(7)), "a target starts with the newest record");
    let unheard = convert::known(&db(8, "c")).unwrap().record;
    bench.books.send_newest(unheard, |record| sent = Some(record.object.version));
    assert_eq!(sent, Some(CatalogVersion(8)));
    assert_eq!(hosts(&bench.books.usable(&db(8, "c")).unwrap()), ["iqn.c"], "and goes on");
}

fn left(version: u64, deleted: u8) -> v1::Object {
    let deleted_uids = vec![vec![deleted; 16]];
    v1::Object { key: Some(volume_key("db")), version, deleted_uids, ..v1::Object::default() }
}

/// Protects from the news that an object is gone, when its name has another one by now.
#[tokio::test]
async fn a_late_deletion_does_not_take_the_successor_away() {
    let bench = Bench::new("deletion");
    bench.books.usable(&db(9, "b")).unwrap();
    let known = || bench.books.copy().volume("db").is_some();
    bench.books.delete(&volume_key("db"), &left(8, 6));
    assert!(known() && !bench.books.remembered().is_empty(), "that was another one");
    bench.books.delete(&volume_key("db"), &left(10, 7));
    assert!(!known() && bench.books.remembered().is_empty());
}

/// Protects from what is left of another volume of the name in a catalog that began anew; and from a catalog of an earlier
/// version, which does not say which one it deleted.
#[tokio::test]
async fn only_the_mark_of_this_volume_deletes_it() {
    let bench = Bench::new("marks");
    bench.books.usable(&db(9, "b")).unwrap();
    let known = || bench.books.copy().volume("db").is_some();
    bench.books.delete(&volume_key("db"), &left(40, 6));
    assert!(known(), "whatever its version is");
    let bare = |version| v1::Object { deleted_uids: Vec::new(), ..left(version, 0) };
    bench.books.delete(&volume_key("db"), &bare(9));
    assert!(known());
    bench.books.delete(&volume_key("db"), &bare(10));
    assert!(!known(), "a catalog of an earlier version");
}

/// Protects from a catalog that was lost, and begins anew: what it does not have was not deleted.
#[tokio::test]
async fn what_an_empty_catalog_does_not_tell_is_lost_and_kept() {
    let bench = Bench::new("lost");
    let books = &bench.books;
    books.usable(&db(9, "b")).unwrap();
    let place = copy::place(&volume_key("db"));
    let told = |version| BTreeMap::from([(place.clone(), version)]);
    assert!(books.copy().compare(&told(9)).is_empty());
    assert_eq!(books.copy().compare(&BTreeMap::new()), ["db"]);
    assert_eq!(books.lost().1, 1);
    assert!(books.copy().compare(&BTreeMap::new()).is_empty(), "it is said once");
    assert_eq!(books.granted_to(HERE).len(), 1, "and it is started again");

    let mut other = db(2, "c");
    let Some(Body::Volume(volume)) = &mut other.body else { panic!("it is a volume") };
    volume.uid = vec![8; 16];
    assert!(books.usable(&other).is_none(), "its name is not given to another");
    assert_eq!(hosts(books.copy().volume("db").unwrap()), ["iqn.b"]);
    other.deleted_uids = vec![vec![7; 16]];
    assert!(books.usable(&other).is_some(), "unless it was deleted");
    assert_eq!(books.lost().1, 0);
}

/// Protects from a catalog that was restored from a backup: the newer object is what counts, until an operator has
/// confirmed the restored one with a higher grant.
#[tokio::test]
async fn an_older_object_of_a_restored_catalog_is_not_obeyed() {
    let bench = Bench::new("restored");
    let books = &bench.books;
    books.usable(&db(9, "b")).unwrap();
    let of = Of { name: "db", uid: VolumeUid([7; 16]) };
    let before = convert::known(&db(9, "b")).unwrap().record.object;
    let ask = |found: Found| books.judge(of, Some(&before), &found);
    assert_eq!(ask(Found::Object(db(5, "a"))), Some(CatalogAnswer::Missing));
    assert_eq!(books.lost().1, 1);
    assert_eq!(ask(Found::Nothing), Some(CatalogAnswer::Missing));
    assert_eq!(ask(Found::Deleted(left(12, 6))), Some(CatalogAnswer::Missing), "another one was");
    assert!(matches!(ask(Found::Object(db(9, "b"))), Some(CatalogAnswer::Object(_))));
    assert_eq!(books.lost().1, 0);

    let mut confirmed = db(6, "a");
    let Some(Body::Volume(volume)) = &mut confirmed.body else { panic!("it is a volume") };
    volume.quorum.as_mut().unwrap().grant = 4;
    assert_eq!(hosts(&books.usable(&confirmed).unwrap()), ["iqn.a"]);
    assert_eq!(ask(Found::Deleted(left(12, 7))), Some(CatalogAnswer::Deleted));
    assert!(books.copy().volume("db").is_none() && books.remembered().is_empty());
}

/// Protects from deleted objects that come back from an older copy when the catalog is rebuilt.
#[tokio::test]
async fn what_is_left_of_deleted_objects_is_told() {
    let bench = Bench::new("marks");
    let marks = || {
        let objects = bench.books.objects().into_iter();
        objects.filter(|it| it.body.is_none()).map(|it| it.version).collect::<Vec<u64>>()
    };
    bench.books.usable(&db(9, "b")).unwrap();
    bench.books.delete(&volume_key("db"), &left(10, 7));
    assert_eq!(marks(), [10]);
    bench.books.delete(&volume_key("db"), &left(9, 6));
    assert_eq!(marks(), [10], "the latest");
    let mut again = db(11, "b");
    again.deleted_uids = vec![vec![7; 16]];
    bench.books.usable(&again).unwrap();
    assert!(marks().is_empty(), "the object itself has them");
}

fn node(id: u64, version: u64, port: u16) -> v1::Object {
    let (name, peer_address) = (format!("node-{id}"), format!("10.0.0.{id}:{port}"));
    let key = Some(node_key(&name));
    let node = v1::Node { id, name, peer_address, ..v1::Node::default() };
    v1::Object { key, version, body: Some(Body::Node(node)), ..v1::Object::default() }
}

fn forgotten(id: u64, version: u64) -> v1::Object {
    v1::Object { body: None, ..node(id, version, 0) }
}

/// What a watch tells books.
struct Telling<'a> {
    books: &'a Books,
    shard: Sender,
}

impl Telling<'_> {
    fn new(books: &Books) -> Telling<'_> {
        let (shard, _orders) = Sender::new(Shard::waker(&Poll::new().unwrap()).unwrap());
        Telling { books, shard }
    }

    fn news(&self, object: &v1::Object) {
        self.books.take(object, &self.shard);
    }

    fn everything(&self, objects: &[v1::Object]) {
        let place = |object: &v1::Object| copy::place(object.key.as_ref().unwrap());
        objects.iter().for_each(|object| self.news(object));
        self.books.compare(&objects.iter().map(|it| (place(it), it.version)).collect());
    }

    fn port(&self, id: u64) -> Option<u16> {
        self.books.nodes().get(&NodeId(id)).map(SocketAddr::port)
    }

    /// Whether this node was to register again since it was last asked.
    async fn is_unlisted(&self) -> bool {
        tokio::select! {
            biased;
            () = self.books.unlisted() => true,
            () = std::future::ready(()) => false,
        }
    }
}

/// Protects from a catalog that was restored from a backup: peers would be called where they were long ago.
#[tokio::test]
async fn an_older_record_of_a_node_does_not_move_it() {
    let bench = Bench::new("moved");
    let told = Telling::new(&bench.books);
    told.everything(&[node(1, 3, 70), node(2, 9, 81)]);
    told.everything(&[node(1, 3, 70), node(2, 4, 80)]);
    assert_eq!(told.port(2), Some(81));
    told.everything(&[node(1, 3, 70), node(2, 4, 80)]);
    assert_eq!(told.port(2), Some(81), "also when it is told again");

    told.news(&node(2, 5, 82));
    assert_eq!(told.port(2), Some(82), "it has registered in the restored catalog");
    told.everything(&[node(1, 3, 70), node(2, 6, 83)]);
    assert_eq!(told.port(2), Some(83), "and again");
    told.news(&forgotten(2, 7));
    assert_eq!(told.port(2), None);
}

/// Protects from nodes that do not find each other any more because the catalog began anew.
#[tokio::test]
async fn an_empty_catalog_leaves_the_addresses_known() {
    let bench = Bench::new("addresses");
    let told = Telling::new(&bench.books);
    told.everything(&[node(1, 3, 70), node(2, 9, 80), node(3, 5, 90)]);
    told.everything(&[]);
    assert_eq!([1, 2, 3].map(|id| told.port(id)), [Some(70), Some(80), Some(90)]);

    told.news(&node(2, 1, 81));
    assert_eq!(told.port(2), Some(81), "it has registered in the empty catalog");
    told.news(&forgotten(2, 2));
    told.everything(&[forgotten(2, 2), forgotten(3, 6)]);
    assert_eq!([1, 2, 3].map(|id| told.port(id)), [Some(70), None, None], "a mark deletes");
}

/// Protects from a node that finds an old address of its own in a restored catalog, and leaves it there.
#[tokio::test]
async fn a_node_that_the_catalog_has_in_an_older_version_or_not_at_all_is_unlisted() {
    let bench = Bench::new("unlisted");
    let told = Telling::new(&bench.books);
    told.everything(&[node(1, 9, 71)]);
    assert!(!told.is_unlisted().await);
    told.everything(&[node(1, 4, 70)]);
    assert!(told.is_unlisted().await, "an older record");
    told.news(&node(1, 5, 71));
    told.everything(&[node(1, 5, 71)]);
    assert!(!told.is_unlisted().await, "it has registered again");
    told.everything(&[]);
    assert!(told.is_unlisted().await, "an empty catalog");
    told.everything(&[forgotten(1, 6)]);
    assert!(told.is_unlisted().await, "a mark");
}

/// Protects from an old address that was stored again, in a version that is later than the right one.
#[tokio::test]
async fn a_node_that_the_catalog_has_elsewhere_is_unlisted() {
    let bench = Bench::new("elsewhere");
    let told = Telling::new(&bench.books);
    let registered = node(1, 0, 71);
    let Some(Body::Node(own)) = registered.body else { panic!("it is a node") };
    bench.books.set_registered(own.clone());
    told.everything(&[node(1, 9, 71)]);
    assert!(!told.is_unlisted().await);
    told.everything(&[node(1, 10, 70)]);
    assert!(told.is_unlisted().await);
    let body = Some(Body::Node(v1::Node { cordoned: true, ..own }));
    told.everything(&[v1::Object { body, ..node(1, 11, 71) }]);
    assert!(!told.is_unlisted().await, "others may cordon it");
}

/// Protects from a node that was away while its volume and many later ones of the name were deleted: it would never obey
/// the last one. That a mark was dropped wipes nothing.
#[tokio::test]
async fn a_volume_whose_mark_was_dropped_gives_its_name_away_and_is_not_wiped_for_it() {
    let bench = Bench::new("dropped");
    let books = &bench.books;
    books.usable(&db(9, "b")).unwrap();
    let mut last = db(60, "c");
    last.deleted_uids = (101..=116).map(|uid| vec![uid; 16]).collect();
    let Some(Body::Volume(volume)) = &mut last.body else { panic!("it is a volume") };
    volume.uid = vec![8; 16];
    assert!(!is_deleted(&last, VolumeUid([7; 16]), None), "nothing is wiped by it");
    let of = Of { name: "db", uid: VolumeUid([7; 16]) };
    let before = convert::known(&db(9, "b")).unwrap().record.object;
    let answer = books.judge(of, Some(&before), &Found::Object(last.clone()));
    assert_eq!(answer, Some(CatalogAnswer::Missing), "nor is its target told so");
    let mut fewer = last.clone();
    fewer.deleted_uids.pop();
    assert!(books.usable(&fewer).is_none(), "its own mark would be there");
    assert_eq!(books.usable(&last).unwrap().record.uid, VolumeUid([8; 16]));
    assert_eq!(books.lost().1, 0);
}
