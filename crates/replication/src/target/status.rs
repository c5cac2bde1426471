//! What can be seen of a reign from outside: states by the names of the resource schema, figures,
//! and the reason when something does not move.
use block::{ByteLen, ByteOffset, Position, Seq, Term};

use crate::constants::LEASE;
use crate::membership::{Member, Membership};
use crate::state::Stages;
use crate::target::peer::{Peer, Stand};
use crate::target::{Phase, Target};
use crate::words::{Moment, SnapshotUid, Span, VolumeUid};

/// What can be seen of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub brought: ByteLen,
    /// Everything of the volume below this was looked at.
    pub at: ByteOffset,
    pub of: ByteLen,
    /// Bytes in a second.
    pub rate: ByteLen,
    /// Unknown until something was looked at.
    pub left: Option<Span>,
}

/// How a replica stands; the names are those of the replica resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Healthy,
    Degraded,
    Rebuilding,
    NewReplicaDegraded,
    ReconstructingNewReplica,
    Offline,
    Error,
}

#[derive(Clone, Debug)]
pub struct PeerStatus {
    pub member: Member,
    pub standing: Standing,
    pub votes: bool,
    /// Where it was when it welcomed this reign.
    pub welcomed_at: Option<Position>,
    /// It cannot prove that it lost nothing.
    pub regressed: bool,
    pub held: Seq,
    pub durable: Seq,
    pub lag: ByteLen,
    pub progress: Option<Progress>,
    pub reads: usize,
    /// Entries that were sent and that it does not hold, and flushes among them or behind that
    /// are not durable.
    pub writes: u64,
    pub syncs: u64,
    /// Since it was connected.
    pub up: Option<Span>,
    pub headroom: ByteLen,
    /// It has no space to catch up, or nothing in common: it is to be emptied and come as new.
    pub gives_up: bool,
    pub reason: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Status {
    pub term: Term,
    pub serving: bool,
    pub last: Position,
    pub committed: Seq,
    pub settled: Seq,
    pub size: ByteLen,
    pub membership: Membership,
    pub stages: Stages,
    pub peers: Vec<PeerStatus>,
    pub queued: usize,
    pub waiting_for_lease: u64,
    pub rounds: u64,
    pub holds_broken: u64,
    pub last_hold: Option<Span>,
    /// Why requests wait, if they do.
    pub held_because: Option<String>,
    /// Enough voters answer for a quorum, whether or not they follow. Of a target that does not need one (yet) too.
    pub quorum_answers: bool,
    /// The catalog has lost the volume, or has an older object of it.
    pub catalog_lost: bool,
}

impl Status {
    /// Since when too few voters answer for a quorum. `before`: what this said when it was last looked at.
    pub fn without_quorum(&self, before: Option<Moment>, now: Moment) -> Option<Moment> {
        (!self.quorum_answers).then(|| before.unwrap_or(now))
    }
}

impl Target {
    pub fn status(&self, now: Moment) -> Status {
        let waits = !self.is_serving() || !self.quorum().is_quorum(|it| self.is_following(it));
        Status {
            term: self.term,
            serving: self.is_serving(),
            last: self.sequence.last_position(),
            committed: self.sequence.committed,
            settled: self.sequence.settled,
            size: self.shared.size,
            membership: self.steps.membership.clone(),
            stages: self.shared.stages,
            peers: self.peers.values().map(|peer| self.peer_status(peer, now)).collect(),
            queued: self.front.queued(),
            waiting_for_lease: self.reads.without_lease,
            rounds: self.rounds.committed,
            holds_broken: self.holds.broken,
            catalog_lost: self.steps.lost,
            last_hold: self.holds.last,
            held_because: match waits {
                true => Some(self.why_held(now)),
                false => self.laggard(now).map(|laggard| {
                    format!("writes wait for replica {}, which is behind", laggard.0)
                }),
            },
            quorum_answers: match self.phase {
                // A target that closes waits for a quorum too, and keeps the volume meanwhile.
                Phase::Claiming { .. }
                | Phase::Preparing { .. }
                | Phase::Serving
                | Phase::Closing { .. } => self.quorum().is_quorum(|it| self.answers(it, now)),
                Phase::Asking(_) | Phase::Ended => true,
            },
        }
    }

    /// The membership that this reign acts on.
    pub fn membership(&self) -> &Membership {
        &self.steps.membership
    }

    /// The size of the volume behind the last entry.
    pub fn size(&self) -> ByteLen {
        self.shared.size
    }

    /// Volumes that were cloned from a snapshot of this one.
    pub fn clones(&self) -> &[(SnapshotUid, VolumeUid)] {
        &self.shared.clones
    }

    /// Persistent reservations as they were last stored.
    pub fn reservations(&self) -> &[u8] {
        &self.shared.reservations
    }

    fn is_following(&self, member: Member) -> bool {
        self.voter(member).is_some_and(|peer| peer.is_in_stream())
    }

    /// Whether the network between here and there works, as far as this target can tell. Who has welcomed it confirms
    /// the lease four times in its length; of others the connection is all that is known.
    fn answers(&self, member: Member, now: Moment) -> bool {
        let Some(peer) = self.voter(member).filter(|peer| peer.link.is_some()) else {
            return false;
        };
        match peer.stand {
            Stand::Away => false,
            Stand::Greeting | Stand::Refusing(_) | Stand::Stranger | Stand::Implausible(_) => true,
            Stand::Welcoming(_)
            | Stand::Apart(_)
            | Stand::CatchingUp(_)
            | Stand::InStream { .. } => now < peer.heard + LEASE,
        }
    }

    fn peer_status(&self, peer: &Peer, now: Moment) -> PeerStatus {
        let votes = self.steps.membership.has(peer.member);
        let (standing, reason) = standing_of(&peer.stand, votes);
        let progress = match &peer.stand {
            Stand::CatchingUp(round) => Some(round.progress(now)),
            _ => None,
        };
        // Before a history is chosen, its own word is all that is known (Q12).
        let (held, durable, regressed) = match &peer.stand {
            Stand::Welcoming(it) => (it.position.seq, it.position.seq, it.regressed),
            _ => (peer.held, peer.durable, peer.regressed.is_some()),
        };
        let sent = match peer.stand {
            Stand::InStream { sent } => sent,
            _ => peer.held,
        };
        let welcomed_at = match &peer.stand {
            Stand::Welcoming(welcome) => Some(welcome.position),
            _ => peer.facts.as_ref().map(|facts| facts.position),
        };
        PeerStatus {
            member: peer.member,
            standing,
            votes,
            welcomed_at,
            regressed,
            held,
            durable,
            lag: ByteLen(self.sequence.bytes_above(peer.held)),
            progress,
            reads: peer.reads,
            writes: sent.0.saturating_sub(peer.held.0),
            syncs: self.sequence.flushes_between(peer.durable, sent),
            up: peer.linked.filter(|_| peer.link.is_some()).map(|linked| now.since(linked)),
            headroom: peer.headroom,
            gives_up: peer.gives_up,
            reason,
        }
    }

    /// Why requests are held now, in words (P6).
    pub(super) fn why_held(&self, now: Moment) -> String {
        let quorum = self.quorum();
        let following = quorum.everybody().into_iter().filter(|it| self.is_following(*it)).count();
        let needed = quorum.voters.cf();
        match &self.phase {
            Phase::Asking(_) => "the catalog has not granted the volume to this node".into(),
            Phase::Claiming { .. } if self.steps.is_catalog_older(self.object.grant) => format!(
                "replicas have seen version {} of the membership and grant {}, the catalog has {} and \
                 {}: it was restored; an operator has to confirm it",
                self.steps.seen_version.max(self.steps.membership.version),
                self.steps.seen_grant.max(self.object.grant).0,
                self.steps.membership.version,
                self.object.grant.0
            ),
            Phase::Claiming { .. } => {
                let welcomed = self.peers.values();
                let count = welcomed.filter(|it| matches!(it.stand, Stand::Welcoming(_))).count();
                format!("{count} replicas answered, {needed} are needed")
            }
            Phase::Preparing { serve_from, .. } if now < *serve_from => {
                format!("an older lease runs out in {} ms", serve_from.since(now).0 / 1000)
            }
            Phase::Preparing { .. } => {
                format!("{following} replicas have the history, {needed} are needed")
            }
            Phase::Serving if following < needed => {
                format!("{following} replicas follow, {needed} are needed")
            }
            Phase::Serving => "replicas did not answer in time".into(),
            Phase::Closing { .. } | Phase::Ended => "this target serves no more".into(),
        }
    }
}

fn standing_of(stand: &Stand, votes: bool) -> (Standing, Option<String>) {
    match stand {
        Stand::InStream { .. } if votes => (Standing::Healthy, None),
        Stand::InStream { .. } => {
            (Standing::NewReplicaDegraded, Some("it has arrived and waits for its vote".into()))
        }
        Stand::CatchingUp(_) if votes => (Standing::Rebuilding, None),
        Stand::CatchingUp(_) => (Standing::ReconstructingNewReplica, None),
        Stand::Apart(apart) => {
            let reason = match &apart.why {
                Some(why) => why.to_string(),
                None => "it waits for somebody to catch up from".to_string(),
            };
            let standing = match votes {
                true => Standing::Degraded,
                false => Standing::NewReplicaDegraded,
            };
            (standing, Some(reason))
        }
        Stand::Refusing(refusal) => (Standing::Error, Some(refusal.to_string())),
        Stand::Stranger => {
            (Standing::Error, Some("it has another content than the one that is listed".into()))
        }
        Stand::Implausible(why) => {
            (Standing::Error, Some(format!("what it says of itself cannot be: {why}")))
        }
        Stand::Away => (Standing::Offline, Some("it cannot be reached".into())),
        Stand::Greeting | Stand::Welcoming(_) => (Standing::Offline, None),
    }
}
