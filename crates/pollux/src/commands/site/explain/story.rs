//! What is told of one object.
use std::time::Duration;

use block::ByteLen;
use control::api::types::{Copy, Node, Pool, Snapshot, State, Target, Volume};
use serde::Serialize;

use super::super::volumes::{nbd, percent};
use super::super::{health, is_in_order, is_well};
use crate::clock;
use crate::span;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Story {
    kind: &'static str,
    name: String,
    state: State,
    /// What it is like, in a few words.
    summary: String,
    /// What to look at, each with a word for what it is about.
    details: Vec<Detail>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Detail {
    about: &'static str,
    text: String,
}

impl Story {
    /// One line if all is well.
    pub fn text(&self, now_ms: u64) -> String {
        let Story { kind, name, state, summary, details } = self;
        let health = health(state.health);
        if is_well(state) {
            return format!("{kind} {name} is {health}: {summary}");
        }
        let why = if state.message.is_empty() { summary } else { &state.message };
        let mut text = format!("{kind} {name} is {health} ({}): {why}", state.reason);
        let ago = span::rounded(Duration::from_millis(now_ms.saturating_sub(state.since_ms)));
        let mut line = |about: &str, what: &str| text += &format!("\n  {about:<10} {what}");
        line("since", &format!("{}, {ago} ago", clock::utc(state.since_ms)));
        for detail in details {
            line(detail.about, &detail.text);
        }
        line("next", if state.next.is_empty() { "nothing happens by itself" } else { &state.next });
        line("to do", if state.advice.is_empty() { "nothing" } else { &state.advice });
        text
    }
}

fn detail(about: &'static str, text: String) -> Detail {
    Detail { about, text }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

pub fn volume(volume: &Volume) -> Story {
    let served = volume.target.as_ref().map_or("served by nobody".into(), |target| {
        let word = if target.serving { "served by" } else { "to be served by" };
        format!("{word} {}", target.node)
    });
    let well = volume.copies.iter().filter(|copy| is_in_order(copy)).count();
    let well = u64::try_from(well).unwrap_or(u64::MAX);
    let mut details = vec![detail(
        "target",
        volume.target.as_ref().map_or("none".into(), |it| target(it, volume)),
    )];
    details.extend(volume.copies.iter().map(|copy| detail("replica", replica(copy))));
    if let Some(wanted) = volume.wanted_size {
        details.push(detail(
            "size",
            format!("{}, and grows to {}", ByteLen(volume.size), ByteLen(wanted)),
        ));
    }
    Story {
        kind: "volume",
        name: volume.name.clone(),
        state: volume.state.clone(),
        summary: format!("{} in order, {served}", counted(well, "replica")),
        details,
    }
}

fn target(target: &Target, volume: &Volume) -> String {
    let mut text = match target.serving {
        true => format!("on {}", target.node),
        false => format!("on {}, which does not serve it", target.node),
    };
    if target.serving && !target.nbd.is_empty() {
        text += &format!(", {}", nbd(&target.nbd, &volume.name));
    }
    if target.serving && !target.iscsi.is_empty() {
        text += &format!(", {} at {}", target.iqn, target.iscsi);
    }
    text
}

fn replica(copy: &Copy) -> String {
    let mut text = format!("{}:{} {}", copy.node, copy.pool, copy.mode);
    if !copy.votes {
        text += ", does not vote";
    }
    if copy.lag > 0 {
        text += &format!(", {} behind", ByteLen(copy.lag));
    }
    if let Some(progress) = copy.progress {
        text += &format!(", {} done", percent(progress));
    }
    if !copy.reason.is_empty() {
        text += &format!(": {}", copy.reason);
    }
    text
}

pub fn node(node: &Node) -> Story {
    let cordoned = if node.cordoned { ", cordoned: it gets no new replicas" } else { "" };
    let (replicas, targets) = (counted(node.replicas, "replica"), counted(node.targets, "target"));
    Story {
        kind: "node",
        name: node.name.clone(),
        state: node.state.clone(),
        summary: format!("{replicas}, {targets}{cordoned}"),
        details: vec![
            detail("has", format!("{replicas}, {targets}{cordoned}")),
            detail("admin", node.admin.clone()),
        ],
    }
}

pub fn pool(pool: &Pool) -> Story {
    let free = format!("{} of {} free", ByteLen(pool.free), ByteLen(pool.size));
    let mut details = vec![
        detail("device", pool.path.clone()),
        detail("space", format!("{free}, {} of it reserved", ByteLen(pool.reserved))),
        detail("has", counted(pool.replicas, "replica")),
    ];
    if pool.reclaimable > 0 {
        let text = format!("{} come back by themselves", ByteLen(pool.reclaimable));
        details.push(detail("deleted", text));
    }
    Story {
        kind: "pool",
        name: format!("{}:{}", pool.node, pool.name),
        state: pool.state.clone(),
        summary: format!("{free}, {}", counted(pool.replicas, "replica")),
        details,
    }
}

/// A snapshot is there or it is being made; why that takes long, its volume knows.
pub fn snapshot(snapshot: &Snapshot, of: Option<&Volume>) -> Story {
    use control::api::types::Health;
    let (taken, name) = (clock::utc(snapshot.created_ms), &snapshot.volume);
    let (health, reason, message) = match snapshot.ready {
        true => (Health::Healthy, "Ready", String::new()),
        false => (Health::Pending, "BeingTaken", format!("it is being taken of `{name}`")),
    };
    let (next, advice) = match of {
        _ if snapshot.ready => (String::new(), String::new()),
        Some(volume) if is_well(&volume.state) => ("it is ready in a moment".into(), String::new()),
        Some(volume) => {
            ("it is taken when its volume is served".into(), volume.state.advice.clone())
        }
        None => ("nothing: its volume is gone".into(), "delete it".into()),
    };
    let since_ms = snapshot.created_ms;
    let state = State { health, reason: reason.into(), message, since_ms, next, advice };
    Story {
        kind: "snapshot",
        name: snapshot.name.clone(),
        state,
        summary: format!("{} of `{name}`, taken {taken}", ByteLen(snapshot.size)),
        details: of
            .map(|volume| detail("volume", super::story::volume(volume).text(since_ms)))
            .into_iter()
            .collect(),
    }
}

#[cfg(test)]
mod tests;
