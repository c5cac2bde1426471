//! What a node says of itself to the catalog.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod process;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use node::process::Options;
use proto::v1;
use proto::v1::object::Body;

use process::{Backup, FalseCatalog, Process, folder};

fn registered(catalog: &FalseCatalog) -> v1::Node {
    match catalog.get(v1::Kind::Node, "node-1").and_then(|object| object.body) {
        Some(Body::Node(node)) => node,
        other => panic!("the catalog has {other:?}"),
    }
}

fn in_zone(zone: &str) -> impl FnOnce(&mut Options) {
    let pair = format!("topology.pollux.io/zone={zone}").parse().unwrap();
    |options: &mut Options| options.topology.push(pair)
}

/// Protects from a node that loses its mark when it starts again, and gets replicas that nobody wants there.
#[test]
fn a_node_that_starts_again_says_where_it_is_and_stays_cordoned() {
    let (catalog, place) = (FalseCatalog::default(), folder("register"));
    let node = Process::start_with(&place, &catalog, in_zone("east"));
    let first = registered(&catalog);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let own = pair("topology.pollux.io/node", "node-1");
    let east = [own.clone(), pair("topology.pollux.io/zone", "east")];
    assert_eq!(first.topology, BTreeMap::from(east));
    assert!(!first.cordoned && first.admin_address == node.at.admin.to_string());
    node.stop();

    catalog.put(v1::Kind::Node, "node-1", Body::Node(v1::Node { cordoned: true, ..first }));
    let node = Process::start_with(&place, &catalog, in_zone("west"));
    let second = registered(&catalog);
    let west = [own.clone(), pair("topology.pollux.io/zone", "west")];
    assert_eq!(second.topology, BTreeMap::from(west));
    assert!(second.cordoned && second.admin_address == node.at.admin.to_string());
    node.stop();

    let node = Process::start(&place, &catalog);
    assert_eq!(registered(&catalog).topology, BTreeMap::from([own]), "it is nowhere in particular");
    node.stop();
}

/// Until the catalog has a node as it was before.
fn wait_registered(catalog: &FalseCatalog, wanted: &v1::Node) {
    let begun = Instant::now();
    loop {
        let object = catalog.get(v1::Kind::Node, "node-1");
        if object.as_ref().and_then(|object| object.body.as_ref())
            == Some(&Body::Node(wanted.clone()))
        {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "the catalog has {object:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Protects from a node that moved, and that nobody finds after the catalog was restored from a backup of before.
#[test]
fn a_node_registers_its_present_address_again_when_the_catalog_goes_back() {
    let (catalog, place) = (FalseCatalog::default(), folder("register-again"));
    Process::start(&place, &catalog).stop();
    let (old, backup) = (registered(&catalog), catalog.backup_file());
    // A free port is another one each time.
    let node = Process::start(&place, &catalog);
    let present = registered(&catalog);
    assert_ne!(old, present);
    catalog.go_back(backup);
    wait_registered(&catalog, &present);
    catalog.go_back(Backup::default());
    wait_registered(&catalog, &present);
    node.stop();
}
