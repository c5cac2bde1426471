//! A volume that is served over NBD by shards with real pools and sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod site;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use node::shard::Refusal;
use replication::state::Origin;
use replication::target::Begin;
use replication::words::{NodeId, SnapshotUid, Span};

use site::Site;

const MIB: u64 = 1 << 20;

fn dir(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Three replicas come together, and the target serves.
#[test]
fn three_replicas_become_healthy() {
    let dir = dir("healthy");
    let mut site = Site::new(&dir);
    (1..=3).for_each(|id| site.start(id, 256 * MIB));
    let volume = site.create("db", 64 * MIB, &[1, 2, 3]);
    site.serve(volume, 1);
    site.wait_healthy(1);
    (1..=3).for_each(|id| site.stop(id));
}

/// Asks for a volume by NBD's option GO; the connection, and the type of the answer.
fn go(address: std::net::SocketAddr, name: &str) -> (TcpStream, u32) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    let mut option = 3_u32.to_be_bytes().to_vec();
    option.extend_from_slice(b"IHAVEOPT");
    option.extend_from_slice(&7_u32.to_be_bytes());
    let len = u32::try_from(name.len()).unwrap();
    option.extend_from_slice(&(len + 6).to_be_bytes());
    option.extend_from_slice(&len.to_be_bytes());
    option.extend_from_slice(name.as_bytes());
    option.extend_from_slice(&[0; 2]);
    stream.write_all(&option).unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    (stream, u32::from_be_bytes(reply[12..16].try_into().unwrap()))
}

/// Protects from a client that hangs for ever because nobody can serve its volume (P6).
#[test]
fn a_login_without_a_quorum_fails_when_its_time_is_over() {
    let dir = dir("no-quorum");
    let mut site = Site::new(&dir);
    site.hold = Span::secs(1);
    (1..=3).for_each(|id| site.start(id, 256 * MIB));
    let volume = site.create("log", 64 * MIB, &[1, 2, 3]);
    site.stop(2);
    site.stop(3);
    site.serve(volume, 1);
    let begun = Instant::now();
    let nbd = site.nodes[&NodeId(1)].nbd;
    let (mut silent, answer) = go(nbd, "log");
    assert!(answer & 1 << 31 != 0, "an error");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert!(go(nbd, "other").1 & 1 << 31 != 0, "there is no such volume");
    // Who was refused may ask for something else, for as long as others may negotiate.
    silent.set_read_timeout(Some(Duration::from_secs(12))).unwrap();
    let rest = std::io::copy(&mut silent, &mut std::io::sink());
    assert!(rest.is_ok(), "a refused client that says nothing more keeps its connection");
    site.stop(1);
}

/// Protects from a bound that is forgotten when a node starts again, and from one at which nothing
/// moves any more.
#[test]
fn the_catalog_bounds_concurrent_operations_of_a_replica() {
    let dir = dir("workers");
    let mut site = Site::new(&dir);
    (1..=3).for_each(|id| site.start(id, 256 * MIB));
    let volume = site.create("table", 64 * MIB, &[1, 2, 3]);
    (1..=3).for_each(|id| site.bound_workers(volume, id, Some(1)));
    let bound = |site: &Site, id| site.status(id).replicas[0].workers;
    assert_eq!((1..=3).map(|id| bound(&site, id)).collect::<Vec<_>>(), [Some(1); 3]);
    site.serve(volume, 1);
    site.wait_healthy(1);
    site.stop(3);
    site.start(3, 256 * MIB);
    assert_eq!(bound(&site, 3), None, "its pool does not know of the bound");
    site.bound_workers(volume, 3, Some(1));
    assert_eq!(bound(&site, 3), Some(1), "the catalog's first word brings it back");
    site.wait_healthy(1);
    site.bound_workers(volume, 3, None);
    assert_eq!(bound(&site, 3), None);
    (1..=3).for_each(|id| site.stop(id));
}

/// Protects from a target that never hears why it is refused: all its replicas are on other nodes,
/// and have promised the start that it claims first to its predecessor.
#[test]
fn a_target_without_a_replica_of_its_own_starts_again_under_its_grant() {
    let dir = dir("again");
    let mut site = Site::new(&dir);
    (1..=4).for_each(|id| site.start(id, 256 * MIB));
    let volume = site.create("table", 64 * MIB, &[2, 3, 4]);
    site.serve(volume, 1);
    site.wait_healthy(1);
    site.stop(1);
    site.start(1, 256 * MIB);
    site.begin(volume, 1, Begin::Granted);
    site.wait_healthy(1);
    (1..=4).for_each(|id| site.stop(id));
}

/// Protects from a takeover that is confirmed and never happens: the node has a run of the target
/// from its memory, which waits for a grant that another node has.
#[test]
fn a_node_that_waits_for_its_grant_takes_over_when_it_is_told_to() {
    let dir = dir("waits");
    let mut site = Site::new(&dir);
    (1..=3).for_each(|id| site.start(id, 256 * MIB));
    let volume = site.create("table", 64 * MIB, &[1, 2, 3]);
    site.serve(volume, 2);
    site.wait_healthy(2);
    site.begin(volume, 1, Begin::Granted);
    let again = site.try_begin(volume, 1, Begin::TakeOver);
    assert!(matches!(again, Err(Refusal::TargetRuns)), "{again:?}");
    site.wait_healthy(1);
    (1..=3).for_each(|id| site.stop(id));
}

/// Protects from a clone that does not agree with itself, and from a replica without its content that has
/// a vote: node 3 has not the snapshot when the clone is made, so it catches up first.
#[test]
fn a_clone_is_served_without_a_resync_and_an_empty_replica_catches_up() {
    let dir = dir("clone");
    let mut site = Site::new(&dir);
    (1..=3).for_each(|id| site.start(id, 256 * MIB));
    let volume = site.create("db", 64 * MIB, &[1, 2, 3]);
    site.serve(volume, 1);
    site.wait_healthy(1);
    let at = site.snapshot(volume, 1, [5; 16]);
    let clone = site.clone("copy", 64 * MIB, Origin { volume, snapshot: SnapshotUid([5; 16]), at });
    site.serve(clone, 2);
    site.wait_healthy(2);
    let status = site.status(2);
    let target = &status.targets.iter().find(|target| target.volume == clone).unwrap().status;
    assert!(target.last.term > at.term && target.last.seq > at.seq, "{target:?}");
    let welcomed: Vec<_> = target.peers.iter().map(|peer| peer.welcomed_at).collect();
    assert_eq!(welcomed[..2], [Some(at), Some(at)], "made of the snapshot");
    assert!(target.rounds <= 2, "only for the one that was empty: {target:?}");
    site.wait_voters(clone, 3);
    (1..=3).for_each(|id| site.stop(id));
}
