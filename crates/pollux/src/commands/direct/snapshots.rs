//! Snapshots of a volume that is served.
use anyhow::{Context, Result};
use comfy_table::Table;
use control::steps::Site;
use proto::v1;
use serde::Serialize;

use crate::cli::DirectSnapshot;
use crate::clock;
use crate::render::{self, Answer, Output, say};
use crate::uid;

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    created_ms: u64,
    term: u64,
    seq: u64,
    clones: usize,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Rows(Vec<Row>);

impl Answer for Rows {
    fn table(&self) -> Table {
        let mut table = render::plain(&["NAME", "CREATED", "SEQ", "CLONES"]);
        for row in &self.0 {
            let seq = row.seq.to_string();
            table.add_row([
                row.name.clone(),
                clock::utc(row.created_ms),
                seq,
                row.clones.to_string(),
            ]);
        }
        table
    }
}

pub async fn run(site: &Site, command: DirectSnapshot, output: Output) -> Result<()> {
    match command {
        DirectSnapshot::Create { volume, name } => {
            let uid = uid::fresh()?.to_vec();
            let spec = v1::SnapshotSpec { uid, name, created_ms: clock::now_ms() };
            let made = site.snapshot(&volume, spec).await?;
            render::show(&Rows(vec![row(made)]), output)
        }
        DirectSnapshot::List { volume } => {
            let all = site.snapshots(&volume).await?;
            render::show(&Rows(all.into_iter().map(row).collect()), output)
        }
        DirectSnapshot::Delete { volume, name } => {
            let found = named(site, &volume, &name).await?;
            site.delete_snapshot(&volume, found).await?;
            say(&format!("{volume}@{name} is deleted"))
        }
        DirectSnapshot::Rollback { volume, name } => {
            let found = named(site, &volume, &name).await?;
            site.rollback(&volume, found).await?;
            say(&format!("{volume} is what it was at {name}"))
        }
    }
}

async fn named(site: &Site, volume: &str, name: &str) -> Result<Vec<u8>> {
    let mut all = site.snapshots(volume).await?.into_iter();
    let found = all.find(|snapshot| snapshot.name == name);
    Ok(found.with_context(|| format!("{volume} has no snapshot `{name}`"))?.uid)
}

fn row(snapshot: v1::Snapshot) -> Row {
    let at = snapshot.position.unwrap_or_default();
    Row {
        name: snapshot.name,
        created_ms: snapshot.created_ms,
        term: at.term,
        seq: at.seq,
        clones: snapshot.clones.len(),
    }
}
