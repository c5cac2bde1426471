//! What a volume needs next, given its object and what is seen of the site. No IO, no clock.
//!
//! Level-triggered: it is asked again after every step, after every crash, and every second. So each need is
//! derived from what is there, never from what was done before.
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proto::v1::{self, Member, Standing};

use super::presence::Presence;
use super::relief;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Replicas and votes: its creation was not finished.
    Make,
    /// Somebody who serves it: nobody does, or its node is away.
    Serve,
    /// Another node that serves it: the node that does answers the controller, and has not reached a quorum of voters
    /// for long.
    Relieve,
    /// The target is where it may be, and does not run there.
    Resume {
        node: u64,
    },
    Grow,
    /// One more replica.
    Add,
    /// One replica less.
    Remove {
        replica: u64,
    },
    /// Another one for this: its node is away for too long, or its pool failed.
    Replace {
        replica: u64,
    },
    /// The one that was to be replaced is back before its successor has arrived.
    TakeBack {
        replica: u64,
        successor: u64,
    },
    /// It has nothing in common with the others any more: it is emptied, and comes as new.
    Renew {
        replica: u64,
    },
    /// What is left in a place where no replica is wanted.
    Wipe {
        replica: u64,
    },
    /// Its last step was taken: it is on its way out.
    Delete,
}

/// What is seen of the site.
pub struct View<'a> {
    pub now: Instant,
    pub grace: Duration,
    /// A target without a quorum for so long is to move.
    pub away_after: Duration,
    /// How long a node that has a grant may take to say that its target runs.
    pub resuming: Duration,
    /// Between two times that a replica is emptied and begins anew.
    pub renewing: Duration,
    /// Its target was not moved for want of a quorum a moment ago.
    pub may_relieve: bool,
    pub presence: &'a dyn Fn(u64) -> Presence,
    /// The pool of a place has failed.
    pub is_failed: &'a dyn Fn(&v1::Place) -> bool,
    /// The target has not had this replica for the grace time, though its node is there.
    pub is_ill: &'a dyn Fn(u64) -> bool,
    /// When the holder's targets were told, and what it said of this volume's.
    pub target: Option<(Instant, Option<&'a v1::TargetStatus>)>,
    /// When this volume was last given something to do.
    pub touched: Option<Instant>,
}

/// What a site's controller goes by.
pub const RESUMING: Duration = Duration::from_secs(5);
pub const RENEWING: Duration = Duration::from_secs(60);

pub fn need(volume: &v1::Volume, view: &View<'_>) -> Option<Need> {
    if volume.deleting {
        return Some(Need::Delete);
    }
    if volume.replicas == 0 {
        return None;
    }
    let quorum = volume.quorum.as_ref()?;
    let membership = quorum.membership.as_ref()?;
    if membership.version == 0 {
        return Some(Need::Make);
    }
    serving(volume, quorum, view).or_else(|| {
        let target = view.target.and_then(|(_, target)| target).filter(|target| target.serving);
        let grows = volume.wanted_size > volume.size && target.is_some();
        let grow = grows.then_some(Need::Grow);
        grow.or_else(|| leftover(volume, target?, view)).or_else(|| replicas(volume, target?, view))
    })
}

fn serving(volume: &v1::Volume, quorum: &v1::Quorum, view: &View<'_>) -> Option<Need> {
    if quorum.holder == 0 {
        return Some(Need::Serve);
    }
    match (view.presence)(quorum.holder) {
        Presence::Away { .. } => Some(Need::Serve),
        Presence::Unknown => None,
        Presence::Here => match view.target {
            Some((told, None)) => {
                let since = view.touched.is_none_or(|touched| told > touched + view.resuming);
                since.then_some(Need::Resume { node: quorum.holder })
            }
            Some((told, Some(target))) => {
                is_stranded(volume, quorum, (told, target), view).then_some(Need::Relieve)
            }
            None => None,
        },
    }
}

/// The target has had no quorum for long, and it may be its own node's fault: nodes of enough other voters are there.
fn is_stranded(
    volume: &v1::Volume,
    quorum: &v1::Quorum,
    (told, target): (Instant, &v1::TargetStatus),
    view: &View<'_>,
) -> bool {
    let without = Duration::from_millis(target.without_quorum_ms.unwrap_or(0));
    // What was told long ago may be over.
    let is_fresh = view.now.duration_since(told) < view.away_after;
    let others = volume.places.iter().filter(|place| {
        place.node != quorum.holder
            && (view.presence)(place.node).is_here()
            && !(view.is_failed)(place)
    });
    let others: BTreeSet<u64> = others.map(|place| place.replica).collect();
    without >= view.away_after && is_fresh && view.may_relieve && relief::is_quorum(quorum, &others)
}

fn voters(quorum: &v1::Quorum) -> impl Iterator<Item = &Member> {
    let membership = quorum.membership.iter();
    let sets = membership.flat_map(|it| it.voters.iter().chain(&it.next));
    sets.flat_map(|voters| &voters.members)
}

fn is_voter(quorum: &v1::Quorum, replica: u64) -> bool {
    voters(quorum).any(|member| member.replica == replica)
}

fn is_desired(quorum: &v1::Quorum, replica: u64) -> bool {
    quorum.desired.iter().any(|member| member.replica == replica)
}

/// A place where nothing is wanted, and from where the vote is gone.
fn leftover(volume: &v1::Volume, target: &v1::TargetStatus, view: &View<'_>) -> Option<Need> {
    let quorum = volume.quorum.as_ref()?;
    // Until all who vote have everything, an old copy may be what is left in the end.
    let is_whole = |it: &v1::PeerStatus| !it.votes || it.standing() == Standing::Healthy;
    if !target.peers.iter().all(is_whole) {
        return None;
    }
    let place = volume.places.iter().find(|place| {
        let wanted = is_desired(quorum, place.replica) || is_voter(quorum, place.replica);
        !wanted && (view.presence)(place.node).is_here() && !(view.is_failed)(place)
    })?;
    Some(Need::Wipe { replica: place.replica })
}

fn replicas(volume: &v1::Volume, target: &v1::TargetStatus, view: &View<'_>) -> Option<Need> {
    let quorum = volume.quorum.as_ref()?;
    let place = |replica: u64| volume.places.iter().find(|place| place.replica == replica);
    let peer = |replica: u64| {
        target.peers.iter().find(|peer| peer.member.is_some_and(|it| it.replica == replica))
    };
    let is_lost = |replica: u64| {
        place(replica).is_none_or(|place| {
            (view.is_failed)(place)
                || (view.is_ill)(replica)
                || (view.presence)(place.node).is_away_for(view.grace, view.now)
        })
    };
    let settled = quorum.membership.as_ref().is_some_and(|it| it.next.is_none())
        && quorum.desired.iter().all(|member| is_voter(quorum, member.replica))
        && voters(quorum).all(|member| is_desired(quorum, member.replica));
    if !settled {
        return unsettled(volume, quorum, &place, &peer, &is_lost, view);
    }
    let (have, want) = (quorum.desired.len(), usize::try_from(volume.replicas).unwrap_or(0));
    if let Some(lost) = quorum.desired.iter().find(|member| is_lost(member.replica)) {
        let replica = lost.replica;
        // One too many: it is the one that goes.
        return Some(if have > want {
            Need::Remove { replica }
        } else {
            Need::Replace { replica }
        });
    }
    match have.cmp(&want) {
        std::cmp::Ordering::Less => Some(Need::Add),
        std::cmp::Ordering::Greater => {
            superfluous(quorum, &place, &peer, view).map(|replica| Need::Remove { replica })
        }
        std::cmp::Ordering::Equal => None,
    }
}

/// A change of replicas is under way. The target takes its steps; here is what it cannot know.
fn unsettled<'a>(
    volume: &v1::Volume,
    quorum: &v1::Quorum,
    place: &dyn Fn(u64) -> Option<&'a v1::Place>,
    peer: &dyn Fn(u64) -> Option<&'a v1::PeerStatus>,
    is_lost: &dyn Fn(u64) -> bool,
    view: &View<'_>,
) -> Option<Need> {
    let newcomers = quorum.desired.iter().filter(|member| !is_voter(quorum, member.replica));
    let leaver = voters(quorum).find(|member| !is_desired(quorum, member.replica));
    for newcomer in newcomers {
        let replica = newcomer.replica;
        // Not again and again: it fills its pool each time.
        let rested = view.touched.is_none_or(|at| view.now.duration_since(at) >= view.renewing);
        if rested && peer(replica).is_some_and(|peer| peer.gives_up) {
            return Some(Need::Renew { replica });
        }
        let is_step = quorum.membership.as_ref().is_some_and(|it| it.next.is_some());
        if is_step {
            continue;
        }
        // Its successor is not needed when a member is back, and has all that it had.
        if let Some(leaver) = leaver
            && usize::try_from(volume.replicas).is_ok_and(|want| quorum.desired.len() <= want)
            && place(leaver.replica).is_some_and(|it| (view.presence)(it.node).is_here())
            && peer(leaver.replica).is_some_and(|it| it.votes && is_following(it))
        {
            return Some(Need::TakeBack { replica: leaver.replica, successor: replica });
        }
        if is_lost(replica) {
            return Some(Need::Remove { replica });
        }
    }
    None
}

fn is_following(peer: &v1::PeerStatus) -> bool {
    matches!(peer.standing(), Standing::Healthy | Standing::Degraded | Standing::Rebuilding)
}

/// Which of too many goes: rather one that is behind, rather not where the target is.
fn superfluous<'a>(
    quorum: &v1::Quorum,
    place: &dyn Fn(u64) -> Option<&'a v1::Place>,
    peer: &dyn Fn(u64) -> Option<&'a v1::PeerStatus>,
    view: &View<'_>,
) -> Option<u64> {
    let rank = |member: &&Member| {
        let at = place(member.replica);
        let is_here = at.is_some_and(|at| (view.presence)(at.node).is_here());
        let standing = peer(member.replica).map(v1::PeerStatus::standing);
        let is_healthy = standing == Some(Standing::Healthy);
        let serves = at.is_some_and(|at| at.node == quorum.holder);
        (is_here, is_healthy, serves, std::cmp::Reverse(member.replica))
    };
    quorum.desired.iter().min_by_key(rank).map(|member| member.replica)
}

#[cfg(test)]
mod tests;
