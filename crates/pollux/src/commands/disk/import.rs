//! Bringing a volume to the point that an exported delta leads to.
use anyhow::{Result, anyhow};
use block::ByteLen;
use comfy_table::Table;
use serde::Serialize;

use crate::cli::Import;
use crate::offline::Contents;
use crate::render::{self, Answer, Output};
use crate::transfer::import::{Imported, abandon, receive, what_stays};
use crate::transfer::{Meter, Source, plan};

#[derive(Debug, Serialize)]
struct ImportAnswer {
    volume: String,
    snapshot: String,
    mode: String,
    term: u64,
    seq: u64,
    frames: u64,
    data: u64,
    holes: u64,
}

impl Answer for ImportAnswer {
    fn table(&self) -> Table {
        let len = |bytes: u64| ByteLen(bytes).to_string();
        render::facts([
            ("volume", self.volume.clone()),
            ("snapshot", self.snapshot.clone()),
            ("mode", self.mode.clone()),
            ("position", format!("{}.{}", self.term, self.seq)),
            ("data", len(self.data)),
            ("holes", len(self.holes)),
        ])
    }
}

#[derive(Debug, Serialize)]
struct AbandonAnswer<'a> {
    abandoned: &'a str,
    /// How far it had come; `None` if it had not begun, or was done but for its snapshot.
    progress: Option<u64>,
}

impl Answer for AbandonAnswer<'_> {
    fn table(&self) -> Table {
        let progress = self.progress.map_or_else(|| "-".into(), |at| ByteLen(at).to_string());
        render::facts([("abandoned", self.abandoned.to_owned()), ("progress", progress)])
    }
}

pub fn run(import: &Import, output: Output) -> Result<()> {
    let Import { path, volume, file, quiet, .. } = import;
    if import.abandon {
        let progress = abandon(path, volume)?.progress.map(|progress| progress.0);
        return render::show(&AbandonAnswer { abandoned: volume, progress }, output);
    }
    let mut source = Source::open(file)?;
    let header = source.header()?;
    let contents = Contents::of(path)?;
    let plan = plan(&contents, header, import)?;
    let meter = Meter::new(*quiet, "importing", source.len());
    let received = receive(&contents, &plan, &mut source, &meter);
    drop(meter);
    let Imported { position, sums } = received.map_err(|error| match what_stays(path, volume) {
        Some(stays) => anyhow!("{error:#}; {stays}"),
        None => error,
    })?;
    let answer = ImportAnswer {
        volume: volume.clone(),
        snapshot: plan.header.snapshot.name.clone(),
        mode: plan.mode.to_string(),
        term: position.term.0,
        seq: position.seq.0,
        frames: sums.frames,
        data: sums.data.0,
        holes: sums.holes.0,
    };
    render::show(&answer, output)
}
