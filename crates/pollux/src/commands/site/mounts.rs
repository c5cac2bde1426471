//! `pollux volume mount`: volumes on this machine, without an orchestrator.
use std::fs;

use anyhow::{Context, Result, anyhow};
use attach::host::Unwritten;
use attach::orders::{Health, Status};
use attach::record::Record;
use comfy_table::Table;
use control::csi::{Host, Machine, Mounted, NodeService};
use serde::Serialize;

use super::{credential, find};
use crate::cli::site::{ApiArgs, ChapArgs, HostArgs, VolumeMount};
use crate::commands::attachments;
use crate::render::{self, Answer, Output};

pub async fn mount(api: &ApiArgs, wanted: VolumeMount, output: Output) -> Result<()> {
    let VolumeMount { name, at, fs, read_only, via, host, chap } = wanted;
    let node = node(api, &host, via)?;
    let at = fs::canonicalize(&at).with_context(|| at.display().to_string())?;
    let credential = credential(&chap)?;
    let wanted = Mounted { at: at.clone(), kind: fs, read_only, credential };
    let status =
        node.mount(&name, wanted).await.map_err(|status| anyhow!("{}", status.message()))?;
    let shown = format!("{name} is {} and mounted at {}", status.device, at.display());
    render::show(&Done { done: shown, way: Some(status.way.name()), why: Some(status.why) }, output)
}

pub async fn unmount(
    api: &ApiArgs,
    name: String,
    host: &HostArgs,
    chap: &ChapArgs,
    force: bool,
    output: Output,
) -> Result<()> {
    let node = node(api, host, None)?;
    let credential = credential(chap)?;
    let unwritten = if force { Unwritten::Drop } else { Unwritten::Keep };
    let done = node.unmount(&name, credential, unwritten).await;
    done.map_err(|status| anyhow!("{}", status.message()))?;
    render::show(&Done { done: format!("{name} is unmounted"), way: None, why: None }, output)
}

pub fn expand(name: &str, host: &HostArgs, output: Output) -> Result<()> {
    let host = attachments::host(&host.state)?;
    let here = host.attachments()?.into_iter().map(|(record, _)| record);
    let record = here.into_iter().find(|record| record.volume == name);
    let record = record.with_context(|| format!("{name} is not mounted on this machine"))?;
    let size = host.claim(&record.uid)?.expand_mounted()?;
    let done = format!("{name} has {size} bytes here");
    render::show(&Done { done, way: None, why: None }, output)
}

pub fn list(host: &HostArgs, output: Output) -> Result<()> {
    let all = attachments::host(&host.state)?.attachments()?;
    render::show(&Rows(all.into_iter().map(Row::new).collect()), output)
}

fn node(api: &ApiArgs, host: &HostArgs, way: Option<attach::ways::Way>) -> Result<NodeService> {
    let (site, ca) = find::site(api)?;
    let name = match &host.host {
        Some(name) => name.clone(),
        None => own_name()?,
    };
    let machine = Machine { host: attachments::host(&host.state)?, way, ca };
    Ok(NodeService { host: Host { name, place: Default::default() }, site, machine })
}

/// Without its domain: sites know hosts by one word.
fn own_name() -> Result<String> {
    let name =
        fs::read_to_string("/proc/sys/kernel/hostname").context("the name of this machine")?;
    let name = name.trim().split('.').next().unwrap_or_default().to_lowercase();
    Ok(name)
}

#[derive(Debug, Serialize)]
struct Done {
    done: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    way: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Answer for Done {
    fn table(&self) -> Table {
        let by = match (&self.way, &self.why) {
            (Some(way), Some(why)) => format!(", by {way} ({why})"),
            _ => String::new(),
        };
        render::sentence(format!("{}{by}", self.done))
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    volume: String,
    uid: String,
    stage: u64,
    way: &'static str,
    why: String,
    device: String,
    state: String,
}

impl Row {
    fn new((record, status): (Record, Option<Status>)) -> Row {
        let state = match status.as_ref().map(|status| &status.health) {
            Some(Health::Up { target }) => format!("at {target}"),
            Some(Health::Away { reason, .. }) => format!("waits: {reason}"),
            Some(Health::Denied { reason }) => format!("not let in: {reason}"),
            Some(Health::Ended { reason }) => format!("ended: {reason}"),
            None => "its process is gone: unmount the volume, then mount it anew".into(),
        };
        let device = status.map(|status| status.device).unwrap_or_default();
        let Record { volume, uid, stage, way, why, .. } = record;
        Row { volume, uid, stage, way: way.name(), why, device, state }
    }
}

#[derive(Debug, Serialize)]
struct Rows(Vec<Row>);

impl Answer for Rows {
    fn table(&self) -> Table {
        let mut table = render::plain(&["VOLUME", "DEVICE", "WAY", "STATE", "WHY"]);
        for row in &self.0 {
            table.add_row([&row.volume, &row.device, row.way, &row.state, &row.why]);
        }
        table
    }
}
