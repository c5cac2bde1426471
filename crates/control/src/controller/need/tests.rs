//! Protects from a controller that does nothing, or too much: each need follows from what is there.
use std::collections::{BTreeMap, BTreeSet};

use super::*;

const GRACE: Duration = Duration::from_secs(60);
const AWAY_AFTER: Duration = Duration::from_secs(5);

/// A volume with replicas 1 to 3 on nodes of the same numbers, served by node 1; and how the site is.
struct Case {
    volume: v1::Volume,
    away: BTreeMap<u64, Duration>,
    unknown: BTreeSet<u64>,
    failed: BTreeSet<u64>,
    ill: BTreeSet<u64>,
    target: Option<v1::TargetStatus>,
    told: Duration,
    touched: Option<Duration>,
    may_relieve: bool,
}

fn member(replica: u64) -> Member {
    Member { replica, incarnation: 10 + replica }
}

fn members(replicas: &[u64]) -> Vec<Member> {
    replicas.iter().copied().map(member).collect()
}

fn peer(replica: u64, standing: Standing, votes: bool) -> v1::PeerStatus {
    let mut peer = v1::PeerStatus { member: Some(member(replica)), votes, ..Default::default() };
    peer.set_standing(standing);
    peer
}

impl Case {
    fn healthy() -> Case {
        let voters = Some(v1::Voters { members: members(&[1, 2, 3]), rf: 3 });
        let membership = Some(v1::Membership { version: 1, voters, next: None });
        let desired = members(&[1, 2, 3]);
        let quorum = v1::Quorum { grant: 1, holder: 1, membership, desired, ..Default::default() };
        let place = |replica| v1::Place { replica, node: replica, pool: "main".into() };
        let volume = v1::Volume {
            name: "db".into(),
            size: 4096,
            replicas: 3,
            quorum: Some(quorum),
            places: (1..=3).map(place).collect(),
            ..Default::default()
        };
        let peers = (1..=3).map(|it| peer(it, Standing::Healthy, true)).collect();
        let target = v1::TargetStatus { node: 1, serving: true, peers, ..Default::default() };
        Case {
            volume,
            away: BTreeMap::new(),
            unknown: BTreeSet::new(),
            failed: BTreeSet::new(),
            ill: BTreeSet::new(),
            target: Some(target),
            told: Duration::from_secs(1000),
            touched: None,
            may_relieve: true,
        }
    }

    fn quorum(&mut self) -> &mut v1::Quorum {
        self.volume.quorum.as_mut().expect("it has one")
    }

    fn voters(&mut self, replicas: &[u64]) {
        let membership = self.quorum().membership.as_mut().expect("it has one");
        membership.voters = Some(v1::Voters { members: members(replicas), rf: 3 });
    }

    fn peers(&mut self, peers: Vec<v1::PeerStatus>) {
        self.target.as_mut().expect("it is served").peers = peers;
    }

    fn place(&mut self, replica: u64, node: u64) {
        self.volume.places.push(v1::Place { replica, node, pool: "main".into() });
    }

    fn needs(&self) -> Option<Need> {
        let begun = Instant::now();
        let now = begun + Duration::from_secs(1001);
        let presence = |node: u64| match self.away.get(&node) {
            _ if self.unknown.contains(&node) => Presence::Unknown,
            Some(time) => Presence::Away { since: now - *time },
            None => Presence::Here,
        };
        let view = View {
            now,
            grace: GRACE,
            away_after: AWAY_AFTER,
            resuming: RESUMING,
            renewing: RENEWING,
            may_relieve: self.may_relieve,
            presence: &presence,
            is_failed: &|place| self.failed.contains(&place.node),
            is_ill: &|replica| self.ill.contains(&replica),
            target: Some((begun + self.told, self.target.as_ref())),
            touched: self.touched.map(|touched| begun + touched),
        };
        need(&self.volume, &view)
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_healthy_volume_needs_nothing() {
    assert_eq!(Case::healthy().needs(), None);
    let mut by_hand = Case::healthy();
    by_hand.volume.replicas = 0;
    by_hand.away.insert(1, seconds(10_000));
    assert_eq!(by_hand.needs(), None, "that is an operator's own affair");
}

#[test]
fn what_was_begun_is_finished() {
    let mut case = Case::healthy();
    case.quorum().membership = Some(v1::Membership::default());
    assert_eq!(case.needs(), Some(Need::Make));
    case.volume.deleting = true;
    assert_eq!(case.needs(), Some(Need::Delete));
    let mut case = Case::healthy();
    case.quorum().holder = 0;
    assert_eq!(case.needs(), Some(Need::Serve));
    let mut case = Case::healthy();
    case.volume.wanted_size = 8192;
    assert_eq!(case.needs(), Some(Need::Grow));
    case.target.as_mut().expect("served").serving = false;
    assert_eq!(case.needs(), None, "it grows when it is served");
}

#[test]
fn a_target_moves_when_its_node_is_away_and_not_before() {
    let mut case = Case::healthy();
    case.unknown.insert(1);
    assert_eq!(case.needs(), None, "a controller that has just begun knows nothing");
    case.unknown.clear();
    case.away.insert(1, seconds(5));
    assert_eq!(case.needs(), Some(Need::Serve));
    case.away.clear();
    case.target = None;
    assert_eq!(case.needs(), Some(Need::Resume { node: 1 }));
    case.touched = Some(seconds(999));
    assert_eq!(case.needs(), None, "it was started a moment ago");
}

/// Node 1 serves, answers the controller, and has not reached a quorum for so long.
fn stranded(without: Duration) -> Case {
    let mut case = Case::healthy();
    let target = case.target.as_mut().expect("served");
    target.without_quorum_ms = u64::try_from(without.as_millis()).ok();
    case
}

/// Protects from a node that lost the network to its peers and keeps a volume that others could serve.
#[test]
fn a_target_without_a_quorum_moves_when_others_may_have_one() {
    assert_eq!(stranded(seconds(6)).needs(), Some(Need::Relieve));
    let mut starting = stranded(seconds(6));
    starting.target.as_mut().expect("there").serving = false;
    assert_eq!(starting.needs(), Some(Need::Relieve), "also one that never reached a quorum");
    let mut one_less = stranded(seconds(6));
    one_less.volume.replicas = 5;
    let membership = one_less.quorum().membership.as_mut().expect("there");
    membership.voters = Some(v1::Voters { members: members(&[1, 2, 3]), rf: 5 });
    assert_eq!(one_less.needs(), Some(Need::Add), "two of five are no quorum");
}

#[test]
fn a_target_stays_where_a_move_would_not_help() {
    assert_eq!(stranded(seconds(4)).needs(), None, "it may be over in a moment");
    let mut away = stranded(seconds(6));
    away.away.insert(3, seconds(1));
    assert_eq!(away.needs(), None, "node 2 alone is no quorum");
    let mut unknown = stranded(seconds(6));
    unknown.unknown.insert(2);
    assert_eq!(unknown.needs(), None, "node 2 was not heard of yet");
    let mut failed = stranded(seconds(6));
    failed.failed.insert(2);
    assert_ne!(failed.needs(), Some(Need::Relieve), "the pool of node 2 failed");
    let mut moved = stranded(seconds(6));
    moved.may_relieve = false;
    assert_eq!(moved.needs(), None, "it was moved a moment ago");
    let mut stale = stranded(seconds(6));
    stale.told = seconds(990);
    assert_eq!(stale.needs(), None, "that was 11 s ago");
    let mut gone = stranded(seconds(6));
    gone.away.insert(1, seconds(5));
    assert_eq!(gone.needs(), Some(Need::Serve), "its node is away: that is known to be so");
}

#[test]
fn a_replica_is_replaced_after_the_grace_time() {
    let mut case = Case::healthy();
    case.away.insert(3, seconds(59));
    assert_eq!(case.needs(), None);
    case.away.insert(3, seconds(61));
    assert_eq!(case.needs(), Some(Need::Replace { replica: 3 }));
    case.target = None;
    case.touched = Some(seconds(999));
    assert_eq!(case.needs(), None, "nobody serves it: nothing is known of its replicas");
    let mut case = Case::healthy();
    case.failed.insert(2);
    assert_eq!(case.needs(), Some(Need::Replace { replica: 2 }));
    let mut case = Case::healthy();
    case.ill.insert(2);
    assert_eq!(case.needs(), Some(Need::Replace { replica: 2 }), "its content is gone");
}

/// Replica 3 is away, and replica 4 on node 4 is to take its place.
fn replacing() -> Case {
    let mut case = Case::healthy();
    case.place(4, 4);
    case.quorum().desired = members(&[1, 2, 4]);
    case.away.insert(3, seconds(100));
    case.peers(vec![
        peer(1, Standing::Healthy, true),
        peer(2, Standing::Healthy, true),
        peer(3, Standing::Offline, true),
        peer(4, Standing::ReconstructingNewReplica, false),
    ]);
    case
}

#[test]
fn a_replacement_goes_its_way() {
    let mut case = replacing();
    assert_eq!(case.needs(), None, "the target takes the steps");
    case.voters(&[1, 2, 4]);
    case.peers([1, 2, 4].map(|it| peer(it, Standing::Healthy, true)).into());
    assert_eq!(case.needs(), None, "what replica 3 left is in a node that is away");
    case.away.clear();
    assert_eq!(case.needs(), Some(Need::Wipe { replica: 3 }));
    case.peers([1, 2, 4].map(|it| peer(it, Standing::Degraded, true)).into());
    assert_eq!(case.needs(), None, "it may be what is left in the end");
}

#[test]
fn a_node_that_is_back_in_time_keeps_its_replica() {
    let mut case = replacing();
    case.away.clear();
    let take_back = Need::TakeBack { replica: 3, successor: 4 };
    assert_eq!(case.needs(), None, "it has not been connected yet");
    case.target.as_mut().expect("served").peers[2] = peer(3, Standing::Rebuilding, true);
    assert_eq!(case.needs(), Some(take_back));
    let next = v1::Voters { members: members(&[1, 2, 4]), rf: 3 };
    case.quorum().membership.as_mut().expect("there").next = Some(next);
    assert_eq!(case.needs(), None, "the step has begun");
}

#[test]
fn a_replacement_that_is_lost_too_is_given_up() {
    let mut case = replacing();
    case.away.insert(4, seconds(61));
    assert_eq!(case.needs(), Some(Need::Remove { replica: 4 }));
    case.quorum().desired = members(&[1, 2]);
    assert_eq!(case.needs(), None, "the target takes replica 3 out");
    case.voters(&[1, 2]);
    assert_eq!(case.needs(), Some(Need::Add));
}

#[test]
fn the_number_of_replicas_is_kept() {
    let mut case = Case::healthy();
    case.volume.replicas = 4;
    assert_eq!(case.needs(), Some(Need::Add));
    case.volume.replicas = 2;
    assert_eq!(case.needs(), Some(Need::Remove { replica: 3 }), "the newest, and not the target's");
    case.target.as_mut().expect("served").peers[1] = peer(2, Standing::Degraded, true);
    assert_eq!(case.needs(), Some(Need::Remove { replica: 2 }), "rather one that is behind");
    case.away.insert(3, seconds(1));
    assert_eq!(case.needs(), Some(Need::Remove { replica: 3 }), "rather one that is away");
    case.away.insert(3, seconds(100));
    assert_eq!(case.needs(), Some(Need::Remove { replica: 3 }), "it is not replaced before");
}

#[test]
fn what_gave_up_its_vote_is_renewed() {
    let mut case = Case::healthy();
    case.voters(&[1, 2]);
    let given_up = v1::PeerStatus { gives_up: true, ..peer(3, Standing::Error, false) };
    case.peers(vec![peer(1, Standing::Healthy, true), peer(2, Standing::Healthy, true), given_up]);
    assert_eq!(case.needs(), Some(Need::Renew { replica: 3 }));
}
