//! How a volume and its replicas are, as its target sees them.
use anyhow::Result;
use block::ByteLen;
use comfy_table::Table;
use control::steps::Site;
use proto::v1;
use serde::Serialize;

use super::clone;
use crate::render::{self, Answer, Output};

#[derive(Debug, Serialize)]
pub struct Status {
    pub name: String,
    pub phase: &'static str,
    pub term: u64,
    pub size: u64,
    pub sessions: usize,
    pub held_because: Option<String>,
    /// The snapshot that it began as.
    pub origin: Option<String>,
    pub replicas: Vec<Replica>,
}

#[derive(Debug, Serialize)]
pub struct Replica {
    pub replica: u64,
    pub incarnation: u64,
    pub mode: &'static str,
    pub votes: bool,
    pub held: u64,
    pub durable: u64,
    pub lag: u64,
    pub progress: Option<Progress>,
    pub reason: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Progress {
    pub brought: u64,
    pub percent: u64,
    pub rate: u64,
    pub seconds_left: Option<u64>,
}

impl Answer for Status {
    fn table(&self) -> Table {
        let header = ["REPLICA", "MODE", "VOTES", "HELD", "DURABLE", "LAG", "PROGRESS", "REASON"];
        let mut table = render::plain(&header);
        for replica in &self.replicas {
            table.add_row([
                replica.replica.to_string(),
                replica.mode.into(),
                if replica.votes { "yes" } else { "no" }.into(),
                replica.held.to_string(),
                replica.durable.to_string(),
                ByteLen(replica.lag).to_string(),
                replica.progress.as_ref().map_or_else(|| "-".into(), Progress::text),
                replica.reason.clone().unwrap_or_else(|| "-".into()),
            ]);
        }
        let why = self.held_because.as_ref().map_or(String::new(), |why| format!(": {why}"));
        let origin = self.origin.as_ref().map_or(String::new(), |of| format!("; a clone of {of}"));
        table.add_row([format!("{} is {}{why}{origin}", self.name, self.phase)]);
        table
    }
}

impl Progress {
    fn text(&self) -> String {
        let left = self.seconds_left.map_or(String::new(), |left| format!(", {left} s left"));
        format!("{} % at {}/s{left}", self.percent, ByteLen(self.rate))
    }
}

pub fn mode(standing: v1::Standing) -> &'static str {
    match standing {
        v1::Standing::Healthy => "Healthy",
        v1::Standing::Degraded => "Degraded",
        v1::Standing::Rebuilding => "Rebuilding",
        v1::Standing::NewReplicaDegraded => "NewReplicaDegraded",
        v1::Standing::ReconstructingNewReplica => "ReconstructingNewReplica",
        v1::Standing::Offline => "Offline",
        v1::Standing::Error => "Error",
        v1::Standing::Unspecified => "Unknown",
    }
}

/// A volume is as good as what its voters make of it.
pub fn phase(target: &v1::TargetStatus) -> &'static str {
    let voters = || target.peers.iter().filter(|peer| peer.votes);
    match target.serving {
        true if voters().all(|peer| peer.standing() == v1::Standing::Healthy) => "Healthy",
        true => "Degraded",
        false => "Offline",
    }
}

pub async fn run(site: &Site, name: &str, output: Output) -> Result<()> {
    let (found, target) = (site.known(name).await?, site.target(name).await?);
    render::show(&Status { origin: clone::origin(&found.volume), ..of(name, &target) }, output)
}

pub fn of(name: &str, target: &v1::TargetStatus) -> Status {
    Status {
        name: name.into(),
        phase: phase(target),
        term: target.term,
        size: target.size,
        sessions: target.sessions.len(),
        held_because: target.held_because.clone(),
        origin: None,
        replicas: target.peers.iter().map(replica).collect(),
    }
}

fn replica(peer: &v1::PeerStatus) -> Replica {
    let member = peer.member.unwrap_or_default();
    Replica {
        replica: member.replica,
        incarnation: member.incarnation,
        mode: mode(peer.standing()),
        votes: peer.votes,
        held: peer.held,
        durable: peer.durable,
        lag: peer.lag,
        progress: peer.progress.as_ref().map(|progress| Progress {
            brought: progress.brought,
            percent: (progress.at * 100).checked_div(progress.of).unwrap_or(0),
            rate: progress.rate,
            seconds_left: progress.left_us.map(|left| left / 1_000_000),
        }),
        reason: peer.reason.clone(),
    }
}
