//! Protects from words that do not fit what is: people act on them.
use super::*;

fn peer(replica: u64, standing: Standing) -> v1::PeerStatus {
    let member = Some(v1::Member { replica, incarnation: 1 });
    let mut peer = v1::PeerStatus { member, votes: true, ..Default::default() };
    peer.set_standing(standing);
    peer
}

fn volume() -> v1::Volume {
    let membership = Some(v1::Membership { version: 1, ..Default::default() });
    let place = |replica| v1::Place { replica, node: replica, pool: "main".into() };
    v1::Volume {
        name: "db".into(),
        size: 4096,
        replicas: 3,
        quorum: Some(v1::Quorum { holder: 1, membership, ..Default::default() }),
        places: (1..=3).map(place).collect(),
        ..Default::default()
    }
}

fn target(standings: [Standing; 3]) -> v1::TargetStatus {
    let peers = (1..).zip(standings).map(|(replica, it)| peer(replica, it)).collect();
    v1::TargetStatus { serving: true, peers, ..Default::default() }
}

fn state_of(volume: &v1::Volume, target: Option<&v1::TargetStatus>, away: &[u64]) -> State {
    let now = Instant::now();
    let since = now - Duration::from_secs(10);
    let presence = |node: u64| match away.contains(&node) {
        true => Presence::Away { since },
        false => Presence::Here,
    };
    let grace = Duration::from_secs(600);
    let node_name = |node: u64| format!("node-{node}");
    let seen =
        Seen { now, grace, presence: &presence, node_name: &node_name, target, trouble: None };
    of_volume(volume, &seen)
}

#[test]
fn a_volume_says_how_it_is_and_what_to_do() {
    use Standing::{Healthy, Offline, Rebuilding};
    let whole = target([Healthy, Healthy, Healthy]);
    assert_eq!(state_of(&volume(), Some(&whole), &[]).health, Health::Healthy);

    let behind = target([Healthy, Rebuilding, Healthy]);
    let state = state_of(&volume(), Some(&behind), &[]);
    assert_eq!((state.health, state.reason.as_str()), (Health::Degraded, "ReplicasMissing"));
    assert!(state.message.contains("`node-2` is Rebuilding"), "{}", state.message);
    assert_eq!(state.advice, "", "it catches up by itself");

    let away = target([Healthy, Healthy, Offline]);
    let state = state_of(&volume(), Some(&away), &[3]);
    assert!(state.next.contains("590 s") && state.advice.contains("node-3"), "{state:?}");

    let state = state_of(&volume(), Some(&whole), &[1]);
    assert_eq!((state.health, state.reason.as_str()), (Health::Offline, "TargetAway"));

    let held = v1::TargetStatus { held_because: Some("no quorum".into()), ..Default::default() };
    let state = state_of(&volume(), Some(&held), &[]);
    assert_eq!((state.health, state.reason.as_str()), (Health::Offline, "QuorumLost"));
    assert!(state.message.contains("no quorum"), "{}", state.message);

    // Its reign goes on, and nothing can be written in it.
    let alone = v1::TargetStatus {
        without_quorum_ms: Some(4000),
        held_because: held.held_because,
        ..whole
    };
    let state = state_of(&volume(), Some(&alone), &[]);
    assert_eq!((state.health, state.reason.as_str()), (Health::Offline, "QuorumLost"));

    let going = v1::Volume { deleting: true, ..volume() };
    let state = state_of(&going, None, &[2]);
    assert!(state.health == Health::Deleting && state.message.contains("node-2"), "{state:?}");
}

#[test]
fn writes_that_were_lost_are_told_before_anything_else() {
    let stages = Some(v1::Stages { plain_refused: true, ..Default::default() });
    let lost = v1::TargetStatus { stages, ..target([Standing::Healthy; 3]) };
    let state = state_of(&volume(), Some(&lost), &[]);
    assert_eq!(state.reason, "UnflushedWritesLost");
    assert!(state.advice.contains("take-note"), "{}", state.advice);
}

#[test]
fn since_when_is_kept_until_the_reason_changes() {
    let mut chronicle = Chronicle::default();
    assert_eq!(chronicle.since("volume", "a", "Healthy", 5), 5);
    assert_eq!(chronicle.since("volume", "a", "Healthy", 9), 5);
    assert_eq!(chronicle.since("volume", "a", "QuorumLost", 12), 12);
    assert_eq!(chronicle.since("node", "a", "Away", 20), 20);
    chronicle.forget("volume", |_| false);
    assert_eq!(chronicle.since("volume", "a", "QuorumLost", 30), 30);
    assert_eq!(chronicle.since("node", "a", "Away", 31), 20);
}

#[test]
fn a_failed_pool_says_what_to_do() {
    let mut pool = v1::Pool { name: "main".into(), path: "/dev/sdb".into(), ..Default::default() };
    pool.set_state(PoolState::Failed);
    pool.failed = Some("a flush failed".into());
    let state = of_pool(&pool, "node-1", Presence::Here);
    assert_eq!((state.health, state.reason.as_str()), (Health::Offline, "Failed"));
    assert!(state.message.contains("a flush failed"), "{}", state.message);
    for words in ["/dev/sdb", "start `node-1` again", "replace the device"] {
        assert!(state.advice.contains(words), "{words}: {}", state.advice);
    }
}
