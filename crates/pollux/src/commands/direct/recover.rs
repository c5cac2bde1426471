//! A volume whose quorum is lost for good (Q12): shows what each replica has, and goes on with one of
//! them if an operator says so.
use anyhow::{Context, Result, ensure};
use comfy_table::Table;
use control::steps::Site;
use proto::v1;
use serde::Serialize;

use super::status::mode;
use crate::confirm::confirm;
use crate::render::{self, Answer, Output, say};

#[derive(Debug, Serialize)]
struct Candidate {
    replica: u64,
    incarnation: u64,
    mode: &'static str,
    votes: bool,
    term: Option<u64>,
    seq: Option<u64>,
    /// It cannot prove that it lost nothing.
    regressed: bool,
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct Candidates {
    volume: String,
    serving: bool,
    held_because: Option<String>,
    replicas: Vec<Candidate>,
}

impl Answer for Candidates {
    fn table(&self) -> Table {
        let header = ["REPLICA", "MODE", "VOTES", "TERM", "SEQ", "SURE", "REASON"];
        let mut table = render::plain(&header);
        for it in &self.replicas {
            let number = |number: Option<u64>| number.map_or("-".into(), |it| it.to_string());
            table.add_row([
                it.replica.to_string(),
                it.mode.into(),
                if it.votes { "yes" } else { "no" }.into(),
                number(it.term),
                number(it.seq),
                if it.regressed { "no" } else { "yes" }.into(),
                it.reason.clone().unwrap_or_else(|| "-".into()),
            ]);
        }
        table
    }
}

pub async fn run(
    site: &Site,
    name: &str,
    choose: Option<u64>,
    yes: bool,
    output: Output,
) -> Result<()> {
    let target = site.target(name).await?;
    let found = Candidates {
        volume: name.into(),
        serving: target.serving,
        held_because: target.held_because.clone(),
        replicas: target.peers.iter().map(candidate).collect(),
    };
    let Some(chosen) = choose else {
        render::show(&found, output)?;
        if target.serving {
            return say("the volume is served: there is nothing to choose");
        }
        let why = found.held_because.unwrap_or_default();
        return say(&format!(
            "the volume is not served: {why}\nbring replicas back if you can; otherwise go on with the one that has the \
             highest TERM and SEQ: --choose REPLICA"
        ));
    };
    ensure!(!target.serving, "the volume is served: nothing is lost, and nothing is to be chosen");
    let member = target.peers.iter().filter_map(|peer| peer.member);
    let member = member.into_iter().find(|member| member.replica == chosen);
    let member = member.with_context(|| format!("{name} has no replica {chosen}"))?;
    if !yes {
        render::show(&found, output)?;
        let lost =
            format!("Whatever other replicas have beyond replica {chosen} is lost for good.");
        confirm(&lost, "volume", name)?;
    }
    site.choose(name, member).await?;
    say(&format!("{name} goes on with what replica {chosen} has"))
}

fn candidate(peer: &v1::PeerStatus) -> Candidate {
    let member = peer.member.unwrap_or_default();
    Candidate {
        replica: member.replica,
        incarnation: member.incarnation,
        mode: mode(peer.standing()),
        votes: peer.votes,
        term: peer.welcomed_at.map(|at| at.term),
        seq: peer.welcomed_at.map(|at| at.seq),
        regressed: peer.regressed,
        reason: peer.reason.clone(),
    }
}
