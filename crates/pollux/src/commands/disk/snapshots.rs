//! The snapshots of a pool.
use std::path::Path;

use anyhow::Result;
use block::ByteLen;
use comfy_table::Table;
use engine::SnapshotInfo;
use serde::Serialize;

use crate::clock;
use crate::offline::Contents;
use crate::render::{self, Answer, Output};

#[derive(Debug, Serialize)]
struct SnapshotAnswer {
    id: u64,
    name: String,
    /// `None` when it is gone.
    volume: Option<String>,
    uid: String,
    size: u64,
    block_size: u64,
    /// `None` until a checkpoint has given it a map of its own.
    logical: Option<u64>,
    stored: Option<u64>,
    term: u64,
    seq: u64,
    /// As ISO 8601 has it.
    created: String,
    created_ms: u64,
    /// The snapshot that it goes on from, as `VOLUME@SNAPSHOT` if that is of another volume.
    parent: Option<String>,
    /// Volumes that began as this snapshot; `None` where one is gone but for its snapshots.
    clones: Vec<Option<String>>,
    internal: bool,
    hidden: bool,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct SnapshotList {
    snapshots: Vec<SnapshotAnswer>,
    #[serde(skip)]
    all: bool,
}

impl SnapshotList {
    pub fn new<'a>(
        contents: &Contents,
        snapshots: impl IntoIterator<Item = &'a SnapshotInfo>,
        all: bool,
    ) -> SnapshotList {
        let mut snapshots: Vec<SnapshotAnswer> =
            snapshots.into_iter().map(|snapshot| answer(contents, snapshot)).collect();
        let key = |s: &SnapshotAnswer| (s.volume.is_none(), s.volume.clone(), s.term, s.seq, s.id);
        snapshots.sort_by_key(key);
        SnapshotList { snapshots, all }
    }
}

fn answer(contents: &Contents, snapshot: &SnapshotInfo) -> SnapshotAnswer {
    let parent = snapshot.parent.and_then(|id| contents.snapshot_of(id));
    let parent = parent.map(|parent| match parent.volume == snapshot.volume {
        true => parent.name.clone(),
        false => contents.title(parent),
    });
    let figure = |len: ByteLen| snapshot.settled.then_some(len.0);
    SnapshotAnswer {
        id: snapshot.id.0,
        name: snapshot.name.clone(),
        volume: contents.volume_of(snapshot.volume).map(|volume| volume.name.clone()),
        uid: render::uuid(&snapshot.uid),
        size: snapshot.size.0,
        block_size: snapshot.block_size.bytes(),
        logical: figure(snapshot.logical),
        stored: figure(snapshot.stored),
        term: snapshot.position.term.0,
        seq: snapshot.position.seq.0,
        created: format!("{}Z", clock::utc(snapshot.created).replace(' ', "T")),
        created_ms: snapshot.created,
        parent,
        clones: contents.clones(snapshot),
        internal: snapshot.internal,
        hidden: snapshot.hidden,
    }
}

impl SnapshotAnswer {
    fn state(&self) -> &'static str {
        match (self.hidden, self.internal) {
            (true, _) => "deleted",
            (false, true) => "internal",
            (false, false) => "-",
        }
    }
}

const COLUMNS: [&str; 9] = [
    "NAME",
    "VOLUME",
    "SIZE",
    "LOGICAL",
    "STORED",
    "POSITION",
    "CREATED (UTC)",
    "PARENT",
    "CLONES",
];

impl Answer for SnapshotList {
    fn table(&self) -> Table {
        let more: &[&str] = if self.all { &["STATE", "UID"] } else { &[] };
        let mut table = render::plain(&[&COLUMNS, more].concat());
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let figure = |len: Option<u64>| or_none(len.map(|len| ByteLen(len).to_string()));
        for snapshot in &self.snapshots {
            let clones = snapshot.clones.iter();
            let clones: Vec<&str> =
                clones.map(|clone| clone.as_deref().unwrap_or("(deleted)")).collect();
            let mut row = vec![
                snapshot.name.clone(),
                snapshot.volume.clone().unwrap_or_else(|| "(deleted)".into()),
                ByteLen(snapshot.size).to_string(),
                figure(snapshot.logical),
                figure(snapshot.stored),
                format!("{}.{}", snapshot.term, snapshot.seq),
                clock::utc(snapshot.created_ms),
                or_none(snapshot.parent.clone()),
                or_none((!clones.is_empty()).then(|| clones.join(", "))),
            ];
            if self.all {
                row.extend([snapshot.state().to_owned(), snapshot.uid.clone()]);
            }
            table.add_row(row);
        }
        table
    }
}

pub fn run(path: &Path, volume: Option<&str>, all: bool, output: Output) -> Result<()> {
    let contents = Contents::of(path)?;
    let of = volume.map(|name| contents.volume(name)).transpose()?.map(|volume| volume.id);
    let shown =
        |s: &&SnapshotInfo| of.is_none_or(|id| s.volume == id) && (all || !s.internal && !s.hidden);
    let snapshots = contents.found.snapshots.iter().filter(shown);
    render::show(&SnapshotList::new(&contents, snapshots, all), output)
}
