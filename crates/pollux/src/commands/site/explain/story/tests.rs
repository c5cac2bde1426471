//! Protects from an explanation that leaves out what somebody at three in the morning has to know.
use control::api::types::Health;

use super::super::super::fake;
use super::*;

const NOW: u64 = 1_700_000_240_000;

#[test]
fn what_is_healthy_takes_one_line() {
    let text = volume(&fake::volume("db", Health::Healthy)).text(NOW);
    assert_eq!(text, "volume db is Healthy: 3 replicas in order, served by node-1");
}

#[test]
fn what_is_not_tells_why_since_when_what_comes_and_what_to_do() {
    let mut found = fake::volume("db", Health::Degraded);
    found.copies[2] = fake::copy("node-3", "Rebuilding", Some(0.4));
    found.copies[2].reason = "its node was away".into();
    let text = volume(&found).text(NOW);
    let expected = "\
volume db is Degraded (Because): this is how it is
  since      2023-11-14 22:13:20, 4 minutes ago
  target     on node-1, nbd://127.0.0.1:10801/db, iqn.2026-11.io.pollux:db at 127.0.0.1:3261
  replica    node-1:main Healthy
  replica    node-2:main Healthy
  replica    node-3:main Rebuilding, does not vote, 3 MiB behind, 40 % done: its node was away
  next       it goes on
  to do      wait";
    assert_eq!(text, expected);
}

#[test]
fn a_volume_that_nobody_serves_says_so() {
    let mut found = fake::volume("db", Health::Offline);
    found.state.next.clear();
    found.state.advice.clear();
    found.target = None;
    let text = volume(&found).text(0);
    for line in
        ["target     none", "0 seconds ago", "nothing happens by itself", "to do      nothing"]
    {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
}

#[test]
fn a_snapshot_that_is_not_ready_points_at_its_volume() {
    let found = Snapshot {
        name: "monday".into(),
        uid: "1".into(),
        title: "monday".into(),
        volume: "db".into(),
        volume_uid: "2".into(),
        created_ms: NOW,
        ready: false,
        size: 0,
        block_size: 4096,
        group_snapshot: None,
        group_snapshot_uid: None,
        parameters: [].into(),
    };
    let of = fake::volume("db", Health::Offline);
    let text = snapshot(&found, Some(&of)).text(NOW);
    assert!(text.starts_with("snapshot monday is Pending (BeingTaken)"), "{text}");
    assert!(text.contains("volume db is Offline") && text.contains("to do      wait"), "{text}");
    let ready = Snapshot { ready: true, size: 1 << 30, ..found };
    let text = snapshot(&ready, None).text(NOW);
    assert_eq!(text, "snapshot monday is Healthy: 1 GiB of `db`, taken 2023-11-14 22:17:20");
}

#[test]
fn nodes_and_pools_tell_what_they_have() {
    let found = Node {
        name: "node-1".into(),
        id: 1,
        state: fake::state(Health::Healthy),
        topology: [].into(),
        cordoned: true,
        admin: "a:1".into(),
        peers: "a:2".into(),
        iscsi: String::new(),
        nbd: String::new(),
        replicas: 1,
        targets: 2,
        lost_volumes: Vec::new(),
    };
    let text = node(&found).text(NOW);
    assert_eq!(
        text,
        "node node-1 is Healthy: 1 replica, 2 targets, cordoned: it gets no new replicas"
    );
    let found = Pool {
        node: "node-1".into(),
        name: "main".into(),
        uuid: "3".into(),
        path: "/dev/sdb".into(),
        state: fake::state(Health::Degraded),
        size: 10 << 30,
        free: 1 << 30,
        reserved: 1 << 20,
        reclaimable: 5 << 20,
        replicas: 7,
        direct_io: true,
    };
    let text = pool(&found).text(NOW);
    for part in
        ["pool node-1:main is Degraded", "/dev/sdb", "1 GiB of 10 GiB free", "5 MiB come back"]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
