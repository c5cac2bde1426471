//! `pollux snapshot`.
use anyhow::Result;
use block::ByteLen;
use comfy_table::Table;
use control::api::Client;
use control::api::types::{Extent, NewSnapshot, NewVolume, Proof, Snapshot as Found, Source};
use serde::Serialize;

use super::{PAGE, credential, deleted, or_dash, volumes, yes_no};
use crate::cli::site::Snapshot;
use crate::clock;
use crate::render::{self, Answer, Output};

/// Ranges that are asked for at a time.
const EXTENTS: u32 = 10_000;

pub async fn run(client: &Client, command: Snapshot, output: Output) -> Result<()> {
    match command {
        Snapshot::List { volume } => {
            let volume = volume.as_deref();
            let ask = async |after: String| client.snapshots(volume, &after, PAGE).await;
            render::show(&Rows(super::all(ask).await?), output)
        }
        Snapshot::Get { name } => show(client.snapshot(&name).await?, output),
        Snapshot::Create { volume, name, chap } => {
            let credential = credential(&chap)?;
            let wanted = NewSnapshot { name, volume, credential, ..NewSnapshot::default() };
            show(client.create_snapshot(&wanted).await?, output)
        }
        Snapshot::Delete { name, chap } => {
            client.snapshot(&name).await?;
            client.delete_snapshot(&name, &Proof { credential: credential(&chap)? }).await?;
            deleted(name, output)
        }
        Snapshot::Restore(restore) => {
            let wanted = NewVolume {
                name: restore.volume,
                size: restore.size.unwrap_or_default().0,
                replicas: restore.replicas,
                source: Some(Source::Snapshot { id: restore.snapshot }),
                ..NewVolume::default()
            };
            volumes::make(client, &wanted, restore.wait, output).await
        }
        Snapshot::Extents { name, since } => {
            let extents = extents(client, &name, since.as_deref()).await?;
            render::show(&Ranges(extents), output)
        }
    }
}

async fn extents(client: &Client, name: &str, since: Option<&str>) -> Result<Vec<Extent>> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let part = client.extents(name, since, from, EXTENTS).await?;
        all.extend(part.extents);
        match part.next {
            Some(next) if next > from => from = next,
            _ => return Ok(all),
        }
    }
}

fn show(snapshot: Found, output: Output) -> Result<()> {
    match output {
        Output::Table => render::show(&Rows(vec![snapshot]), output),
        Output::Json | Output::Yaml => render::show(&One(snapshot), output),
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Rows(pub Vec<Found>);

impl Answer for Rows {
    fn table(&self) -> Table {
        let header = ["NAME", "VOLUME", "SIZE", "CREATED", "READY", "GROUP SNAPSHOT"];
        let mut table = render::plain(&header);
        for it in &self.0 {
            table.add_row([
                it.name.clone(),
                it.volume.clone(),
                ByteLen(it.size).to_string(),
                clock::utc(it.created_ms),
                yes_no(it.ready),
                or_dash(it.group_snapshot.as_deref().unwrap_or_default()),
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
        Rows(vec![self.0.clone()]).table()
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Ranges(Vec<Extent>);

impl Answer for Ranges {
    fn table(&self) -> Table {
        let mut table = render::plain(&["OFFSET", "LENGTH"]);
        for it in &self.0 {
            // Exact, for people too: whoever asks wants to read there.
            table.add_row([it.offset.to_string(), it.len.to_string()]);
        }
        table
    }
}
