//! How things are, why, since when, what happens next, and what to do. No IO.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proto::v1::{self, PoolState, Standing};

use super::presence::Presence;
use crate::api::types::{Health, State};

/// Remembers since when something is as it is.
#[derive(Debug, Default)]
pub struct Chronicle {
    since: BTreeMap<(&'static str, String), (String, u64)>,
}

impl Chronicle {
    /// Since when this has been so, as far as this controller has seen.
    pub fn since(&mut self, kind: &'static str, id: &str, reason: &str, now_ms: u64) -> u64 {
        let entry = self.since.entry((kind, id.into())).or_insert_with(|| (reason.into(), now_ms));
        if entry.0 != reason {
            *entry = (reason.into(), now_ms);
        }
        entry.1
    }

    pub fn forget(&mut self, kind: &'static str, is_there: impl Fn(&str) -> bool) {
        self.since.retain(|(of, id), _| *of != kind || is_there(id));
    }
}

/// A state whose beginning is not known yet.
fn state(health: Health, reason: &str, message: impl Into<String>) -> State {
    State {
        health,
        reason: reason.into(),
        message: message.into(),
        since_ms: 0,
        next: String::new(),
        advice: String::new(),
    }
}

impl State {
    fn next(self, next: impl Into<String>) -> State {
        State { next: next.into(), ..self }
    }

    fn advice(self, advice: impl Into<String>) -> State {
        State { advice: advice.into(), ..self }
    }
}

/// What is seen of a volume.
pub struct Seen<'a> {
    pub now: Instant,
    pub grace: Duration,
    pub presence: &'a dyn Fn(u64) -> Presence,
    pub node_name: &'a dyn Fn(u64) -> String,
    pub target: Option<&'a v1::TargetStatus>,
    /// What the controller could not do for it last.
    pub trouble: Option<&'a str>,
}

pub fn of_volume(volume: &v1::Volume, seen: &Seen<'_>) -> State {
    let quorum = volume.quorum.clone().unwrap_or_default();
    let made = quorum.membership.as_ref().is_some_and(|it| it.version > 0);
    if volume.deleting {
        return deleting(volume, seen);
    }
    if !made {
        let why = seen.trouble.unwrap_or("its replicas are being made");
        return state(Health::Pending, "Creating", why).next("its creation goes on by itself");
    }
    if quorum.holder == 0 {
        let why = seen.trouble.unwrap_or("nobody serves it yet");
        return state(Health::Pending, "NotServed", why).next("a target is started");
    }
    let holder = (seen.node_name)(quorum.holder);
    if (seen.presence)(quorum.holder).is_away() {
        let message = format!("`{holder}`, which serves it, is away");
        return match seen.trouble {
            None => state(Health::Offline, "TargetAway", message)
                .next("its target moves to another node; IO waits meanwhile"),
            Some(trouble) => state(Health::Offline, "TargetAway", format!("{message}; {trouble}"))
                .next("its target moves as soon as a node with a replica that votes is there")
                .advice(format!("start `{holder}` or another node with a replica")),
        };
    }
    match seen.target {
        None => state(Health::Offline, "Starting", format!("`{holder}` is about to serve it"))
            .next("its target is started"),
        Some(target) if !target.serving || target.without_quorum_ms.is_some() => {
            not_serving(target, &holder, seen.trouble)
        }
        Some(target) => serving(volume, target, seen),
    }
}

fn deleting(volume: &v1::Volume, seen: &Seen<'_>) -> State {
    let away = volume.places.iter().filter(|it| (seen.presence)(it.node).is_away());
    let nodes: Vec<String> = away.map(|it| (seen.node_name)(it.node)).collect();
    let gone = state(Health::Deleting, "Deleting", "it is on its way out");
    match (nodes.is_empty(), seen.trouble) {
        (true, None) => gone.next("its replicas are wiped, then it is gone"),
        (true, Some(trouble)) => {
            State { message: trouble.into(), ..gone }.next("it is tried again")
        }
        (false, _) => State {
            message: format!("what it has on {} goes when they are back", nodes.join(", ")),
            ..gone
        }
        .advice("start those nodes, or `pollux node forget` what is lost for good"),
    }
}

fn not_serving(target: &v1::TargetStatus, holder: &str, trouble: Option<&str>) -> State {
    let why = target.held_because.clone().unwrap_or_else(|| "its target is not ready yet".into());
    let trouble = trouble.map(|trouble| format!("; {trouble}")).unwrap_or_default();
    let message = format!("it is not served on `{holder}`: {why}{trouble}");
    state(Health::Offline, "QuorumLost", message)
        .next(
            "IO waits for the volume's hold deadline, then fails; it comes back by itself with a quorum, \
             and its target moves if another node reaches one",
        )
        .advice("start the nodes that have its replicas, and look at the network between them")
}

fn serving(volume: &v1::Volume, target: &v1::TargetStatus, seen: &Seen<'_>) -> State {
    if target.catalog_lost {
        return state(
            Health::Degraded,
            "CatalogLost",
            "its target acted on a newer object than the catalog has: the catalog was restored, or is another one",
        )
        .next("it is served on; nothing of it can be moved or changed")
        .advice("`pollux site restore` with a backup, or `pollux site rebuild` from what nodes know");
    }
    if target.stages.is_some_and(|stages| stages.plain_refused) {
        return state(
            Health::Offline,
            "UnflushedWritesLost",
            "power was lost on so many replicas that writes which nobody flushed may be gone",
        )
        .next("a fresh stage of the volume is served; plain initiators are refused")
        .advice(format!(
            "check the file system, then `pollux direct volume take-note {}`",
            volume.name
        ));
    }
    let want = usize::try_from(volume.replicas).unwrap_or(0).max(1);
    let healthy = target.peers.iter().filter(|it| it.votes && it.standing() == Standing::Healthy);
    let healthy = healthy.count();
    let worst = target.peers.iter().find(|it| !it.votes || it.standing() != Standing::Healthy);
    if healthy >= want && worst.is_none() {
        return match volume.wanted_size > volume.size {
            true => {
                state(Health::Healthy, "Growing", format!("it grows to {}", volume.wanted_size))
            }
            false => {
                state(Health::Healthy, "Healthy", format!("{healthy} replicas are up to date"))
            }
        };
    }
    let message = match worst {
        Some(peer) => {
            format!("{healthy} of {want} replicas are up to date; {}", about(volume, peer, seen))
        }
        None => format!("{healthy} of {want} replicas are there"),
    };
    let degraded = state(Health::Degraded, "ReplicasMissing", message);
    match (seen.trouble, away_member(volume, seen)) {
        (Some(trouble), _) => degraded.next("it is tried again").advice(trouble),
        (None, Some((node, left))) => degraded
            .next(format!(
                "its replica is placed elsewhere in {} s unless `{node}` is back",
                left.as_secs()
            ))
            .advice(format!("start `{node}`")),
        (None, None) => degraded.next("replicas catch up by themselves"),
    }
}

fn about(volume: &v1::Volume, peer: &v1::PeerStatus, seen: &Seen<'_>) -> String {
    let replica = peer.member.map_or(0, |member| member.replica);
    let place = volume.places.iter().find(|place| place.replica == replica);
    let node = place.map_or_else(|| format!("replica {replica}"), |it| (seen.node_name)(it.node));
    let mode = mode(peer.standing());
    let progress = peer.progress.as_ref().filter(|it| it.of > 0).map(|it| it.at * 100 / it.of);
    let progress = progress.map(|percent| format!(", {percent} % looked at")).unwrap_or_default();
    let reason = peer.reason.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
    format!("`{node}` is {mode}{progress}{reason}")
}

/// A member whose node is away, and how long until it is replaced.
fn away_member(volume: &v1::Volume, seen: &Seen<'_>) -> Option<(String, Duration)> {
    volume.places.iter().find_map(|place| match (seen.presence)(place.node) {
        Presence::Away { since } => {
            let left = seen.grace.saturating_sub(seen.now.duration_since(since));
            Some(((seen.node_name)(place.node), left))
        }
        Presence::Here | Presence::Unknown => None,
    })
}

/// The names of the replica resource.
pub fn mode(standing: Standing) -> &'static str {
    match standing {
        Standing::Unspecified => "Unknown",
        Standing::Healthy => "Healthy",
        Standing::Degraded => "Degraded",
        Standing::Rebuilding => "Rebuilding",
        Standing::NewReplicaDegraded => "NewReplicaDegraded",
        Standing::ReconstructingNewReplica => "ReconstructingNewReplica",
        Standing::Offline => "Offline",
        Standing::Error => "Error",
    }
}

pub fn of_node(node: &v1::Node, presence: Presence, trouble: &str, grace: Duration) -> State {
    match presence {
        Presence::Here if node.cordoned => {
            state(Health::Healthy, "Cordoned", "it is there, and gets no new replicas")
                .advice(format!("`pollux node uncordon {}` when it may", node.name))
        }
        Presence::Here => state(Health::Healthy, "Healthy", "it is there"),
        Presence::Unknown => state(Health::Pending, "Unknown", "it has not been heard of yet"),
        Presence::Away { .. } => {
            state(Health::Offline, "Away", format!("it does not answer: {trouble}"))
                .next(format!(
                    "its targets have moved; its replicas are replaced after {} s",
                    grace.as_secs()
                ))
                .advice(format!(
                    "start it; if it is lost for good, `pollux node forget {}`",
                    node.name
                ))
        }
    }
}

/// A node that knows what the catalog has lost.
pub fn of_witness(lost: u64) -> State {
    let volumes = if lost == 1 { "volume" } else { "volumes" };
    state(
        Health::Degraded,
        "CatalogLost",
        format!(
            "it knows {lost} {volumes} of which the catalog has no object, or an older one, and nothing says that they were \
             deleted: the catalog was restored or lost, or is another one"
        ),
    )
    .next("what it serves, it serves on; nothing of it can be moved or changed")
    .advice("`pollux site restore` with a backup, or `pollux site rebuild` from what nodes know")
}

pub fn of_pool(pool: &v1::Pool, node: &str, presence: Presence) -> State {
    if presence.is_away() {
        return state(Health::Offline, "NodeAway", format!("`{node}` is away"))
            .advice(format!("start `{node}`"));
    }
    match pool.state() {
        PoolState::Open if pool.free <= pool.reserved => {
            state(Health::Degraded, "Full", "it has no space: writes are refused, deletes are not")
                .advice(
                    "delete volumes or snapshots, or `pollux disk grow` while its node is stopped",
                )
        }
        PoolState::Open => state(Health::Healthy, "Healthy", "it is open"),
        PoolState::Opening => state(Health::Pending, "Opening", "its journal is being read"),
        PoolState::Failed => {
            let why = pool.failed.clone().unwrap_or_default();
            state(Health::Offline, "Failed", format!("its device failed: {why}"))
                .next("its replicas are placed in other pools, as far as there is room")
                .advice(format!(
                    "look at the device {} and at the kernel's log on `{node}`. If the device works, start `{node}` \
                     again, which opens the pool anew; if not, replace the device, make a pool on it \
                     (`pollux disk create`), and start `{node}` with that",
                    pool.path
                ))
        }
        PoolState::Unspecified => state(Health::Pending, "Unknown", "it says nothing of itself"),
    }
}

#[cfg(test)]
mod tests;
