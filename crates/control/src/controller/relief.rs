//! Moves a target whose node answers the controller but cannot reach a quorum of voters: its data network is gone, and
//! its heartbeats come over another one.
//!
//! A candidate is asked before it gets the grant which replicas it reaches, by calling each of them as its target
//! would. Nothing moves unless one of them reaches a quorum: a move that does not help costs a lease and the next
//! one. After a move the volume rests, longer each time that it is needed again soon.
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proto::v1;

use super::books::Known;
use super::{Answer, Controller};
use crate::api::{ApiError, Code};
use crate::steps::reference;

/// How long a volume rests after a move. Doubled up to the last while moves follow one another.
#[derive(Clone, Copy, Debug)]
pub struct Rests {
    pub first: Duration,
    pub last: Duration,
}

/// What a site's controller goes by: the first is as long as two takeovers on a slow network.
pub const RESTS: Rests = Rests { first: Duration::from_secs(10), last: Duration::from_secs(300) };

/// A move that comes after so many rests has nothing to do with the one before.
const FORGOTTEN_AFTER: u32 = 10;

/// A candidate's answer takes as long as one call to a peer, which has 2 s; more is a node that hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// When a target was moved for want of a quorum, and how long it stays where it is.
#[derive(Clone, Copy, Debug)]
pub struct Relief {
    at: Instant,
    rest: Duration,
}

impl Relief {
    pub fn after(before: Option<Relief>, now: Instant, rests: Rests) -> Relief {
        let recent = before.filter(|it| now.duration_since(it.at) < FORGOTTEN_AFTER * it.rest);
        let rest = recent.map_or(rests.first, |it| (it.rest * 2).min(rests.last));
        Relief { at: now, rest }
    }

    pub fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.at) >= self.rest
    }
}

/// Whether these replicas are a quorum of those that vote; while the membership changes, of the next voters too.
pub fn is_quorum(quorum: &v1::Quorum, replicas: &BTreeSet<u64>) -> bool {
    let membership = quorum.membership.iter();
    let mut sets = membership.flat_map(|it| it.voters.iter().chain(&it.next)).peekable();
    sets.peek().is_some()
        && sets.all(|voters| {
            let needed = usize::try_from(voters.rf / 2 + 1).unwrap_or(usize::MAX);
            let has = voters.members.iter().filter(|it| replicas.contains(&it.replica)).count();
            has >= needed
        })
}

/// What a candidate said.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub node: u64,
    /// Targets that it has already.
    pub load: usize,
    pub reached: BTreeSet<u64>,
    /// Why it does not reach others.
    pub why: String,
}

/// Of those that reach a quorum the one with the fewest targets.
pub fn choose<'a>(quorum: &v1::Quorum, candidates: &'a [Candidate]) -> Option<&'a Candidate> {
    let reaching = candidates.iter().filter(|it| is_quorum(quorum, &it.reached));
    reaching.min_by_key(|it| (it.load, it.node))
}

/// How many targets each node has.
fn targets_by_node<'a>(all: impl Iterator<Item = &'a v1::Quorum>) -> BTreeMap<u64, usize> {
    let mut load = BTreeMap::new();
    for quorum in all {
        *load.entry(quorum.holder).or_default() += 1;
    }
    load
}

impl Controller {
    /// A node that reaches a quorum of the volume's voters.
    pub(super) async fn relief_for(&self, volume: &v1::Volume) -> Answer<Known<v1::Node>> {
        let quorum = volume.quorum.clone().unwrap_or_default();
        let sets = quorum.membership.iter().flat_map(|it| it.voters.iter().chain(&it.next));
        let voters: BTreeSet<u64> =
            sets.flat_map(|voters| &voters.members).map(|member| member.replica).collect();
        let others = self.books.all::<v1::Volume>();
        let load = targets_by_node(others.iter().filter_map(|other| other.quorum.as_ref()));
        // A replica whose pool failed answers a call, and is of no use.
        let places = volume.places.iter().filter(|place| voters.contains(&place.replica));
        let places: Vec<&v1::Place> = places.filter(|place| !self.has_failed(place)).collect();
        let useful: BTreeSet<u64> = places.iter().map(|place| place.replica).collect();
        let nodes: BTreeSet<u64> = places.iter().map(|place| place.node).collect();
        let asked = nodes
            .into_iter()
            .filter(|node| *node != quorum.holder && self.presence(*node).is_here())
            .map(|node| self.ask_reach(volume, node, &useful, load.get(&node).copied()));
        let candidates = futures_util::future::join_all(asked).await;
        if let Some(best) = choose(&quorum, &candidates)
            && let Some(node) = self.books.node(best.node)
        {
            return Ok(node);
        }
        let name = |candidate: &Candidate| {
            let (node, reached) = (self.node_name(candidate.node), candidate.reached.len());
            let why = match candidate.why.as_str() {
                "" => String::new(),
                why => format!(" ({why})"),
            };
            format!("`{node}` reaches {reached} of {} replicas{why}", voters.len())
        };
        let others: Vec<String> = candidates.iter().map(name).collect();
        let message = format!(
            "`{}` does not reach a quorum of its replicas, and no other node does: {}",
            self.node_name(quorum.holder),
            others.join("; ")
        );
        Err(ApiError::new(Code::Unavailable, message))
    }

    async fn ask_reach(
        &self,
        volume: &v1::Volume,
        node: u64,
        replicas: &BTreeSet<u64>,
        load: Option<usize>,
    ) -> Candidate {
        let replicas = replicas.iter().copied().collect();
        let request = v1::ReachReplicasRequest { volume: Some(reference(volume)), replicas };
        let ask = async {
            let known = self.books.node(node).ok_or("the catalog does not have the node")?;
            let mut admin = self.site.admin(&known).map_err(|error| error.to_string())?;
            let told = admin.reach_replicas(request).await;
            told.map(|it| it.into_inner()).map_err(|status| status.message().to_owned())
        };
        let told = tokio::time::timeout(PATIENCE, ask).await;
        let told = told.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")));
        let at = |replica: u64| {
            let place = volume.places.iter().find(|place| place.replica == replica);
            place.map_or_else(|| format!("replica {replica}"), |it| self.node_name(it.node))
        };
        let (reached, why) = match told {
            Ok(told) => {
                let why =
                    |it: &v1::UnreachedReplica| format!("`{}`: {}", at(it.replica), it.reason);
                let why: Vec<String> = told.unreached.iter().map(why).collect();
                (told.reached.into_iter().collect(), why.join(", "))
            }
            Err(why) => (BTreeSet::new(), why),
        };
        Candidate { node, load: load.unwrap_or(0), reached, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(replicas: &[u64]) -> Option<v1::Voters> {
        let member = |replica: &u64| v1::Member { replica: *replica, incarnation: 1 };
        Some(v1::Voters { members: replicas.iter().map(member).collect(), rf: 3 })
    }

    fn quorum(next: Option<v1::Voters>) -> v1::Quorum {
        let membership = v1::Membership { version: 2, voters: voters(&[1, 2, 3]), next };
        v1::Quorum { holder: 1, membership: Some(membership), ..Default::default() }
    }

    fn candidate(node: u64, load: usize, reached: &[u64]) -> Candidate {
        let reached = reached.iter().copied().collect();
        Candidate { node, load, reached, why: String::new() }
    }

    /// Protects from a move that does not help, and from one to a node that is loaded more than another.
    #[test]
    fn targets_are_counted_by_the_node_that_has_them() {
        let held_by = |holder| v1::Quorum { holder, ..v1::Quorum::default() };
        let all = [held_by(1), held_by(3), held_by(1)];
        let load = targets_by_node(all.iter());
        assert_eq!(load.into_iter().collect::<Vec<_>>(), [(1, 2), (3, 1)]);
    }

    #[test]
    fn only_a_node_that_reaches_a_quorum_takes_over() {
        let plain = quorum(None);
        let node = |candidates: &[Candidate]| choose(&plain, candidates).map(|it| it.node);
        assert_eq!(node(&[]), None);
        assert_eq!(node(&[candidate(2, 0, &[2]), candidate(3, 0, &[3])]), None, "all are apart");
        assert_eq!(node(&[candidate(2, 0, &[2]), candidate(3, 9, &[3, 1])]), Some(3));
        assert_eq!(node(&[candidate(2, 5, &[2, 3]), candidate(3, 4, &[2, 3])]), Some(3));
        assert_eq!(node(&[candidate(2, 0, &[2, 9])]), None, "replica 9 does not vote");
        let changing = quorum(voters(&[1, 2, 4]));
        assert!(choose(&changing, &[candidate(2, 0, &[2, 3])]).is_none(), "both quorums count");
        assert!(choose(&changing, &[candidate(2, 0, &[2, 3, 4])]).is_some());
        assert!(!is_quorum(&v1::Quorum::default(), &BTreeSet::from([1])), "nothing votes");
    }

    #[test]
    fn moves_that_follow_one_another_come_later_and_later() {
        let begun = Instant::now();
        let (rest, rest_max) = (RESTS.first, RESTS.last);
        let after = |before, now| Relief::after(before, now, RESTS);
        let first = after(None, begun);
        assert!(!first.is_over(begun + rest / 2));
        assert!(first.is_over(begun + rest));
        let second = after(Some(first), begun + rest);
        assert!(!second.is_over(begun + rest * 2));
        assert!(second.is_over(begun + rest * 3));
        let much_later = begun + rest + second.rest * FORGOTTEN_AFTER;
        let fresh = after(Some(second), much_later);
        assert_eq!(fresh.rest, rest, "that was another trouble");
        let mut last = first;
        for _ in 0..20 {
            last = after(Some(last), last.at + last.rest);
        }
        assert_eq!(last.rest, rest_max);
    }
}
