//! `pollux node` and `pollux pool`.
use anyhow::Result;
use block::ByteLen;
use comfy_table::Table;
use control::api::Client;
use control::api::types::{Node as Found, Pool as FoundPool};
use serde::Serialize;

use super::{health, is_well, or_dash, pairs, standing, yes_no};
use crate::cli::site::Node;
use crate::clock;
use crate::confirm::confirm;
use crate::render::{self, Answer, Output};

pub async fn run(client: &Client, command: Node, output: Output) -> Result<()> {
    let node = match command {
        Node::List => return render::show(&Rows(client.nodes().await?.items), output),
        Node::Get { name } => client.node(&name).await?,
        Node::Cordon { name } => client.cordon_node(&name, true).await?,
        Node::Uncordon { name } => client.cordon_node(&name, false).await?,
        Node::Forget { name, yes } => {
            if !yes {
                let lost =
                    "Whatever only this node has is lost for good, and it may not come back.";
                confirm(lost, "node", &name)?;
            }
            client.node(&name).await?;
            client.forget_node(&name).await?;
            return render::show(&Forgotten { forgotten: name }, output);
        }
    };
    render::show(&One(node), output)
}

pub async fn pools(client: &Client, output: Output) -> Result<()> {
    render::show(&Pools(client.pools().await?.items), output)
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Rows(Vec<Found>);

impl Answer for Rows {
    fn table(&self) -> Table {
        let header = ["NAME", "STATE", "REPLICAS", "TARGETS", "CORDONED", "TOPOLOGY", "WHY"];
        let mut table = render::plain(&header);
        for it in &self.0 {
            table.add_row([
                it.name.clone(),
                health(it.state.health).into(),
                it.replicas.to_string(),
                it.targets.to_string(),
                yes_no(it.cordoned),
                pairs(&it.topology),
                or_dash(if is_well(&it.state) { "" } else { &it.state.message }),
            ]);
        }
        table
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct One(Found);

impl Answer for One {
    fn table(&self) -> Table {
        let it = &self.0;
        let mut rows = vec![
            ("name", it.name.clone()),
            ("id", it.id.to_string()),
            ("state", standing(&it.state)),
            ("since", clock::utc(it.state.since_ms)),
            ("cordoned", yes_no(it.cordoned)),
            ("topology", pairs(&it.topology)),
            ("admin", or_dash(&it.admin)),
            ("peers", or_dash(&it.peers)),
            ("iscsi", or_dash(&it.iscsi)),
            ("nbd", or_dash(&it.nbd)),
            ("replicas", it.replicas.to_string()),
            ("targets", it.targets.to_string()),
        ];
        if !is_well(&it.state) {
            rows.push(("why", it.state.message.clone()));
            rows.push(("next", or_dash(&it.state.next)));
            rows.push(("to do", or_dash(&it.state.advice)));
        }
        render::facts(rows)
    }
}

#[derive(Debug, Serialize)]
struct Forgotten {
    forgotten: String,
}

impl Answer for Forgotten {
    fn table(&self) -> Table {
        render::sentence(format!("{} is forgotten", self.forgotten))
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Pools(Vec<FoundPool>);

impl Answer for Pools {
    fn table(&self) -> Table {
        let header = ["NODE", "NAME", "STATE", "SIZE", "FREE", "USED", "REPLICAS", "WHY"];
        let mut table = render::plain(&header);
        for it in &self.0 {
            let used = it.size.saturating_sub(it.free);
            let percent = used.saturating_mul(100).checked_div(it.size).unwrap_or(0);
            table.add_row([
                it.node.clone(),
                it.name.clone(),
                health(it.state.health).into(),
                ByteLen(it.size).to_string(),
                ByteLen(it.free).to_string(),
                format!("{percent} %"),
                it.replicas.to_string(),
                or_dash(if is_well(&it.state) { "" } else { &it.state.message }),
            ]);
        }
        table
    }
}
