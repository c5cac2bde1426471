//! Volumes as the catalog has them.
use anyhow::Result;
use block::ByteLen;
use comfy_table::Table;
use control::steps::{Found, Site};
use serde::Serialize;

use super::clone;
use crate::render::{self, Answer, Output};

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    size: u64,
    block_size: u32,
    compression: String,
    replicas: usize,
    desired_replicas: usize,
    node: Option<String>,
    origin: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Rows(Vec<Row>);

impl Answer for Rows {
    fn table(&self) -> Table {
        let mut table =
            render::plain(&["NAME", "SIZE", "BLOCK", "COMPRESSION", "REPLICAS", "NODE", "ORIGIN"]);
        for row in &self.0 {
            let replicas = match row.replicas == row.desired_replicas {
                true => row.replicas.to_string(),
                false => format!("{} of {}", row.replicas, row.desired_replicas),
            };
            table.add_row([
                row.name.clone(),
                ByteLen(row.size).to_string(),
                ByteLen(u64::from(row.block_size)).to_string(),
                row.compression.clone(),
                replicas,
                row.node.clone().unwrap_or_else(|| "-".into()),
                row.origin.clone().unwrap_or_else(|| "-".into()),
            ]);
        }
        table
    }
}

pub async fn run(site: &Site, output: Output) -> Result<()> {
    show(site, site.volumes().await?, output).await
}

pub async fn one(site: &Site, name: &str, output: Output) -> Result<()> {
    show(site, vec![site.known(name).await?], output).await
}

async fn show(site: &Site, found: Vec<Found>, output: Output) -> Result<()> {
    let nodes = site.nodes().await?;
    let row = |found: Found| {
        let origin = clone::origin(&found.volume);
        let quorum = found.volume.quorum.unwrap_or_default();
        let voters = quorum.membership.unwrap_or_default().voters.unwrap_or_default();
        Row {
            name: found.volume.name,
            size: found.volume.size,
            block_size: found.volume.block_size,
            compression: found.volume.compression,
            replicas: voters.members.len(),
            desired_replicas: quorum.desired.len(),
            node: nodes.iter().find(|node| node.id == quorum.holder).map(|it| it.name.clone()),
            origin,
        }
    };
    render::show(&Rows(found.into_iter().map(row).collect()), output)
}
