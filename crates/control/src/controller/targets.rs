//! Who serves a volume.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proto::v1;

use super::books::Known;
use super::{Answer, Controller};
use crate::api::{ApiError, Code};
use crate::steps::{Admin, Found, StepError, faults, reference};

/// Between two questions whether a target serves; doubled up to the last.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(50);

impl Controller {
    /// Has it served by somebody, and waits until it is.
    pub(super) async fn serve(&self, volume: &v1::Volume) -> Answer<()> {
        let found = self.site.known(&volume.name).await?;
        let node = match self
            .books
            .node(holder(&found.volume))
            .filter(|it| !self.presence(it.id).is_away())
        {
            Some(node) => node,
            None => {
                let node = self.server_for(&found.volume, None)?;
                self.start_target(&found.volume, &node).await?;
                node
            }
        };
        self.wait_serving(&found.volume, &node, None).await
    }

    /// Has this node serve it, whoever did before. A node that does not reach a quorum for `away_after` is not waited for
    /// any longer: another one may reach it.
    pub(super) async fn serve_on(&self, volume: &v1::Volume, node: &v1::Node) -> Answer<()> {
        self.start_target(volume, node).await?;
        self.wait_serving(volume, node, Some(self.settings.away_after)).await
    }

    async fn start_target(&self, volume: &v1::Volume, node: &v1::Node) -> Answer<()> {
        let request = v1::StartTargetRequest { volume: Some(reference(volume)), take_over: true };
        self.site.admin(node)?.start_target(request).await?;
        self.site.fault(faults::TARGET_STARTED).await;
        Ok(())
    }

    /// Until it is served: by this node, or by another that has got the grant meanwhile. One that was asked by
    /// an earlier controller may have asked the catalog only now. Not longer than `without_quorum` while too few
    /// replicas answer.
    async fn wait_serving(
        &self,
        volume: &v1::Volume,
        node: &v1::Node,
        without_quorum: Option<Duration>,
    ) -> Answer<()> {
        let name = &volume.name;
        let before = holder(volume);
        let until = Instant::now() + self.settings.patience;
        let mut pause = PAUSE;
        let is_stranded = |target: &v1::TargetStatus| {
            let lost = target.without_quorum_ms.map(Duration::from_millis);
            lost.zip(without_quorum).is_some_and(|(lost, limit)| lost >= limit)
        };
        loop {
            let now = self.books.get::<v1::Volume>(name).map_or(before, |it| holder(&it));
            let other = self.books.node(now).filter(|it| now != before && it.id != node.id);
            let (why, is_stranded) =
                match self.ask_target(volume, other.as_deref().unwrap_or(node)).await {
                    Ok(target) if target.serving => {
                        // It has the grant: who looks at the volume now is to see that.
                        self.fresh::<v1::Volume>(name).await?;
                        return Ok(());
                    }
                    Ok(target) => {
                        let is_stranded = is_stranded(&target);
                        let why =
                            target.held_because.unwrap_or_else(|| "it is not ready yet".into());
                        (why, is_stranded)
                    }
                    Err(error) => (error.message, false),
                };
            if is_stranded || Instant::now() > until {
                let message = format!("the volume `{name}` is not served yet: {why}");
                return Err(ApiError::new(Code::Unavailable, message));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn ask_target(&self, volume: &v1::Volume, node: &v1::Node) -> Answer<v1::TargetStatus> {
        let asked = Instant::now();
        let request = v1::GetTargetRequest { volume: Some(reference(volume)) };
        let target = self.site.admin(node)?.get_target(request).await?.into_inner();
        if target.serving {
            self.pulse.heard_target(node.id, asked, target.clone());
        }
        Ok(target)
    }

    /// The target of a volume that can do something now. One that waits for a quorum would keep whoever
    /// asks waiting, and everybody behind him.
    pub(super) async fn ready_target(&self, name: &str) -> Answer<(Found, Admin)> {
        let (found, mut admin) = self.site.holder(name).await?;
        let unavailable = |why: String| {
            let message = format!("the volume `{name}` is not served now: {why}");
            ApiError::new(Code::Unavailable, message)
        };
        if self.presence(holder(&found.volume)).is_away() {
            return Err(unavailable("its node is away".into()));
        }
        let request = v1::GetTargetRequest { volume: Some(reference(&found.volume)) };
        let target = match admin.get_target(request).await {
            Ok(target) => target.into_inner(),
            Err(status) if status.code() == tonic::Code::NotFound => {
                return Err(StepError::NotServed { name: name.into() }.into());
            }
            Err(status) => return Err(status.into()),
        };
        match target.serving && has_quorum(&target) {
            true => Ok((found, admin)),
            false => {
                let why = target.held_because.unwrap_or_else(|| "its target is not ready".into());
                Err(unavailable(why))
            }
        }
    }

    /// Where a target is best: with a replica that votes, in a node that is there, with the fewest
    /// others.
    pub(super) fn server_for(
        &self,
        volume: &v1::Volume,
        not: Option<u64>,
    ) -> Answer<Known<v1::Node>> {
        let membership = volume.quorum.as_ref().and_then(|quorum| quorum.membership.as_ref());
        let voters = membership.and_then(|membership| membership.voters.as_ref());
        let votes = |place: &&v1::Place| {
            voters.is_some_and(|it| it.members.iter().any(|it| it.replica == place.replica))
        };
        let mut load = BTreeMap::<u64, usize>::new();
        for other in self.books.all::<v1::Volume>() {
            *load.entry(other.quorum.as_ref().map_or(0, |it| it.holder)).or_default() += 1;
        }
        let voters = volume.places.iter().filter(votes).map(|place| place.node);
        let voters: Vec<u64> = voters.collect();
        let here = voters.iter().filter(|node| self.presence(**node).is_here());
        let here = here.filter(|node| Some(**node) != not);
        let best = here.min_by_key(|node| (load.get(node).copied().unwrap_or(0), **node));
        best.and_then(|node| self.books.node(*node)).ok_or_else(|| {
            let missing = |node: &&u64| !self.presence(**node).is_here() || Some(**node) == not;
            let missing = voters.iter().filter(missing);
            let names: Vec<String> =
                missing.map(|node| format!("`{}`", self.node_name(*node))).collect();
            let message = format!(
                "no node can serve `{}`: its replicas that vote are on {}, which cannot be reached; start one of them",
                volume.name,
                names.join(", ")
            );
            ApiError::new(Code::Unavailable, message)
        })
    }
}

/// The node that has the grant; 0: none.
fn holder(volume: &v1::Volume) -> u64 {
    volume.quorum.as_ref().map_or(0, |quorum| quorum.holder)
}

/// Whether so many replicas follow that what is done now becomes durable; while the membership changes, of
/// the next voters too.
fn has_quorum(target: &v1::TargetStatus) -> bool {
    let membership = target.membership.clone().unwrap_or_default();
    let follows = |member: &&v1::Member| {
        let is_it = |peer: &&v1::PeerStatus| peer.member.as_ref() == Some(*member);
        let peer = target.peers.iter().find(is_it);
        peer.is_some_and(|peer| peer.standing() == v1::Standing::Healthy)
    };
    let mut sets = membership.voters.iter().chain(&membership.next);
    sets.all(|voters| {
        let needed = usize::try_from(voters.rf / 2 + 1).unwrap_or(usize::MAX);
        voters.members.iter().filter(follows).count() >= needed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(replicas: &[u64], rf: u32) -> Option<v1::Voters> {
        let member = |replica: &u64| v1::Member { replica: *replica, incarnation: 1 };
        Some(v1::Voters { members: replicas.iter().map(member).collect(), rf })
    }

    fn target(next: Option<v1::Voters>, healthy: &[u64]) -> v1::TargetStatus {
        let peer = |replica: u64| {
            let mut peer = v1::PeerStatus {
                member: Some(v1::Member { replica, incarnation: 1 }),
                ..v1::PeerStatus::default()
            };
            peer.set_standing(match healthy.contains(&replica) {
                true => v1::Standing::Healthy,
                false => v1::Standing::Offline,
            });
            peer
        };
        let membership = v1::Membership { version: 2, voters: voters(&[1, 2, 3], 3), next };
        v1::TargetStatus {
            membership: Some(membership),
            peers: (1..=4).map(peer).collect(),
            ..v1::TargetStatus::default()
        }
    }

    #[test]
    fn a_quorum_is_more_than_half_of_those_who_vote() {
        assert!(has_quorum(&target(None, &[1, 2, 3])));
        assert!(has_quorum(&target(None, &[1, 3])));
        assert!(!has_quorum(&target(None, &[1])));
        assert!(!has_quorum(&target(None, &[1, 4])), "the fourth does not vote");
        assert!(!has_quorum(&target(None, &[])));
        let next = || voters(&[1, 2, 4], 3);
        assert!(has_quorum(&target(next(), &[1, 2])));
        assert!(!has_quorum(&target(next(), &[1, 3])), "the next voters count too");
    }
}
