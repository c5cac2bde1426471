//! How volumes are shown.
use block::ByteLen;
use comfy_table::Table;
use control::api::types::{Attachment, Copy, Source, Volume};
use serde::Serialize;

use crate::clock;
use crate::commands::site::{health, is_in_order, is_well, or_dash, standing, yes_no};
use crate::render::{self, Answer};

/// Many, a line each.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Rows(pub Vec<Volume>);

impl Answer for Rows {
    fn table(&self) -> Table {
        let header = ["NAME", "SIZE", "REPLICAS", "STATE", "NODE", "ATTACHED", "WHY"];
        let mut table = render::plain(&header);
        for volume in &self.0 {
            let hosts: Vec<&str> = volume.attachments.iter().map(|it| it.host.as_str()).collect();
            let why = if is_well(&volume.state) { "" } else { &volume.state.message };
            table.add_row([
                volume.name.clone(),
                size(volume),
                replicas(volume),
                health(volume.state.health).into(),
                or_dash(volume.target.as_ref().map_or("", |target| &target.node)),
                or_dash(&hosts.join(",")),
                or_dash(why),
            ]);
        }
        table
    }
}

/// One, with all that is known.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct One(pub Volume);

impl Answer for One {
    fn table(&self) -> Table {
        let volume = &self.0;
        let mut rows = vec![
            ("name", volume.name.clone()),
            ("uid", volume.uid.clone()),
            ("state", standing(&volume.state)),
            ("since", clock::utc(volume.state.since_ms)),
            ("size", size(volume)),
            ("block size", ByteLen(volume.block_size.into()).to_string()),
            ("compression", volume.compression.clone()),
            ("replicas", replicas(volume)),
            ("created", clock::utc(volume.created_ms)),
        ];
        if volume.title != volume.name {
            rows.push(("title", volume.title.clone()));
        }
        if volume.hold_deadline_ms > 0 {
            rows.push(("hold deadline", format!("{} ms", volume.hold_deadline_ms)));
        }
        rows.extend(volume.source.as_ref().map(|source| ("made of", origin(source))));
        if let Some(target) = &volume.target {
            rows.push(("served by", or_dash(&target.node)));
            rows.push(("iqn", target.iqn.clone()));
            rows.push(("iscsi", or_dash(&target.iscsi)));
            rows.push(("nbd", nbd(&target.nbd, &volume.name)));
        }
        rows.extend(volume.attachments.iter().map(|it| ("attached to", attachment(it))));
        if !is_well(&volume.state) {
            rows.push(("why", volume.state.message.clone()));
            rows.push(("next", or_dash(&volume.state.next)));
            rows.push(("to do", or_dash(&volume.state.advice)));
        }
        render::facts(rows)
    }

    fn text(&self) -> String {
        let mut text = self.table().trim_fmt();
        if !self.0.copies.is_empty() {
            text += &format!("\n\n{}", copies(&self.0.copies).trim_fmt());
        }
        text
    }
}

fn copies(copies: &[Copy]) -> Table {
    let header = ["REPLICA", "NODE", "POOL", "MODE", "VOTES", "BEHIND", "PROGRESS", "REASON"];
    let mut table = render::plain(&header);
    for copy in copies {
        table.add_row([
            copy.replica.to_string(),
            copy.node.clone(),
            copy.pool.clone(),
            copy.mode.clone(),
            yes_no(copy.votes),
            ByteLen(copy.lag).to_string(),
            copy.progress.map_or("-".into(), percent),
            or_dash(&copy.reason),
        ]);
    }
    table
}

/// `40 %`.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share.clamp(0.0, 1.0) * 100.0)
}

/// Where a client finds it.
pub fn nbd(address: &str, name: &str) -> String {
    match address {
        "" => "-".into(),
        address => format!("nbd://{address}/{name}"),
    }
}

fn size(volume: &Volume) -> String {
    match volume.wanted_size {
        Some(wanted) => format!("{}, growing to {}", ByteLen(volume.size), ByteLen(wanted)),
        None => ByteLen(volume.size).to_string(),
    }
}

/// Those that are as they should be, of those that are to be there.
fn replicas(volume: &Volume) -> String {
    let well = volume.copies.iter().filter(|copy| is_in_order(copy)).count();
    let wanted = usize::try_from(volume.replicas).unwrap_or(usize::MAX).max(volume.copies.len());
    match well == wanted {
        true => well.to_string(),
        false => format!("{well} of {wanted}"),
    }
}

pub fn origin(source: &Source) -> String {
    match source {
        Source::Snapshot { id } => format!("snapshot {id}"),
        Source::Volume { id } => format!("volume {id}"),
    }
}

fn attachment(it: &Attachment) -> String {
    let how = if it.read_only { ", to read only" } else { "" };
    format!("{} as {}{how}, since {}", it.host, or_dash(&it.initiator), clock::utc(it.since_ms))
}
