//! `pollux site`: who controls it, and what it has.
use anyhow::Result;
use comfy_table::Table;
use control::api::Client;
use control::api::types::Site;
use serde::Serialize;

use super::yes_no;
use crate::clock;
use crate::render::{self, Answer, Output};

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Overview(Site);

impl Answer for Overview {
    fn table(&self) -> Table {
        let it = &self.0;
        render::facts([
            ("version", it.version.clone()),
            ("nodes", it.nodes.to_string()),
            ("volumes", it.volumes.to_string()),
            ("ready", yes_no(it.ready)),
            ("controller since", clock::utc(it.since_ms)),
            ("generation", it.generation.to_string()),
        ])
    }
}

pub async fn run(client: &Client, output: Output) -> Result<()> {
    render::show(&Overview(client.site().await?), output)
}
