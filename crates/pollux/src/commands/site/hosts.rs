//! `pollux host`.
use anyhow::Result;
use comfy_table::Table;
use control::api::Client;
use control::api::types::Host as Found;
use serde::Serialize;

use super::{deleted, or_dash, pairs};
use crate::cli::site::Host;
use crate::clock;
use crate::render::{self, Answer, Output};

pub async fn run(client: &Client, command: Host, output: Output) -> Result<()> {
    match command {
        Host::List => render::show(&Rows(client.hosts().await?.items), output),
        Host::Get { name } => render::show(&One(client.host(&name).await?), output),
        Host::Delete { name } => {
            // The site is content if there is none; whoever mistyped a name is not.
            client.host(&name).await?;
            client.delete_host(&name).await?;
            deleted(name, output)
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Rows(Vec<Found>);

impl Answer for Rows {
    fn table(&self) -> Table {
        let mut table = render::plain(&["NAME", "VOLUMES", "SEEN", "TOPOLOGY"]);
        for it in &self.0 {
            table.add_row([
                it.name.clone(),
                it.volumes.len().to_string(),
                clock::utc(it.seen_ms),
                pairs(&it.topology),
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
        render::facts([
            ("name", it.name.clone()),
            ("initiator", or_dash(&it.initiator)),
            ("topology", pairs(&it.topology)),
            ("seen", clock::utc(it.seen_ms)),
            ("created", clock::utc(it.created_ms)),
            ("volumes", or_dash(&it.volumes.join(", "))),
        ])
    }
}
