//! What a node keeps of the catalog for the day when that is lost.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod process;

use std::path::Path;
use std::time::{Duration, Instant};

use proto::v1;
use proto::v1::object::Body;

use process::{FalseCatalog, Process, folder, make, volume};

const MIB: u64 = 1 << 20;

fn often(options: &mut node::process::Options) {
    options.copies_every = Duration::from_millis(50);
}

/// Whether a copy on the disk has a volume.
fn is_kept(folder: &Path, name: &str) -> bool {
    let files = std::fs::read_dir(folder.join("state/catalog")).unwrap();
    let mut bytes = files.filter_map(|file| std::fs::read(file.unwrap().path()).ok());
    bytes.any(|bytes| {
        proto::copy::decode(&bytes, certs::sha256).is_ok_and(|it| has(&it.objects, name))
    })
}

fn wait(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

async fn recalled(node: &Process) -> Vec<v1::Object> {
    let mut admin = node.admin().await;
    let mut parts = admin.recall_catalog(v1::RecallCatalogRequest {}).await.unwrap().into_inner();
    let mut objects = Vec::new();
    while let Some(part) = parts.message().await.unwrap() {
        objects.extend(part.objects);
    }
    objects
}

fn has(objects: &[v1::Object], name: &str) -> bool {
    objects
        .iter()
        .any(|it| it.body.is_some() && it.key.as_ref().is_some_and(|key| key.name == name))
}

/// Protects from a catalog whose loss takes tokens, groups and snapshots with it: nodes have them, also after a restart
/// that an empty catalog answers.
#[tokio::test]
async fn a_node_can_tell_what_a_lost_catalog_had() {
    let (catalog, place) = (FalseCatalog::default(), folder("copies"));
    let token = v1::Token { name: "auditor".into(), ..v1::Token::default() };
    catalog.put(v1::Kind::Token, "auditor", Body::Token(token));
    let node = Process::start_with(&place, &catalog, often);
    let mut admin = node.admin().await;
    make(&catalog, &mut admin, volume("db", 16 * MIB)).await;
    wait("no copy is taken", || is_kept(&place, "db"));
    let objects = recalled(&node).await;
    assert!(has(&objects, "db") && has(&objects, "auditor"));
    node.stop();

    let empty = FalseCatalog::default();
    let node = Process::start_with(&place, &empty, often);
    for turn in 1..=6 {
        // A catalog that changes, and would push the copies out one by one.
        let token = v1::Token { name: "new".into(), created_ms: turn, ..v1::Token::default() };
        empty.put(v1::Kind::Token, "new", Body::Token(token));
        let before = empty.backups();
        wait("it is asked for copies", || empty.backups() > before);
    }
    let objects = recalled(&node).await;
    assert!(has(&objects, "db") && has(&objects, "auditor"), "the copy that has them stays");
    node.stop();
}
