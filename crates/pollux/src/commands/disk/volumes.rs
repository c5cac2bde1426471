//! The volumes of a pool.
use std::path::Path;

use anyhow::Result;
use block::ByteLen;
use comfy_table::Table;
use engine::VolumeInfo;
use serde::Serialize;

use crate::offline::Contents;
use crate::render::{self, Answer, Output};

#[derive(Debug, Serialize)]
struct VolumeAnswer {
    id: u64,
    name: String,
    uid: String,
    size: u64,
    block_size: u64,
    compression: String,
    logical: u64,
    stored: u64,
    term: u64,
    seq: u64,
    newest_snapshot: Option<String>,
    attached: bool,
    /// How far an unfinished import into this volume has come, as an offset.
    import_progress: Option<u64>,
    /// Whether this is the hidden volume that such an import fills.
    hidden: bool,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct VolumeList(Vec<VolumeAnswer>);

impl VolumeList {
    pub fn new<'a>(
        contents: &Contents,
        volumes: impl IntoIterator<Item = &'a VolumeInfo>,
    ) -> VolumeList {
        VolumeList(volumes.into_iter().map(|volume| answer(contents, volume)).collect())
    }
}

fn answer(contents: &Contents, volume: &VolumeInfo) -> VolumeAnswer {
    let import = volume.staging.or_else(|| contents.import_into(volume.id)?.staging);
    let snapshots = contents.snapshots_of(volume.id).filter(|snapshot| !snapshot.internal);
    let newest = snapshots.max_by_key(|snapshot| snapshot.position);
    VolumeAnswer {
        id: volume.id.0,
        name: volume.name.clone(),
        uid: render::uuid(&volume.uid),
        size: volume.size.0,
        block_size: volume.block_size.bytes(),
        compression: volume.compression.to_string(),
        logical: volume.logical.0,
        stored: volume.stored.0,
        term: volume.held.term.0,
        seq: volume.held.seq.0,
        newest_snapshot: newest.map(|snapshot| snapshot.name.clone()),
        attached: volume.attached,
        import_progress: import.map(|import| import.progress),
        hidden: volume.staging.is_some(),
    }
}

impl VolumeAnswer {
    fn state(&self) -> String {
        let import = self.import_progress.map(|at| match self.hidden {
            true => format!("takes an import, at {}", ByteLen(at)),
            false => format!("unfinished import, at {}", ByteLen(at)),
        });
        let attached = self.attached.then(|| "in use".to_owned());
        let states: Vec<String> = attached.into_iter().chain(import).collect();
        if states.is_empty() { "-".into() } else { states.join("; ") }
    }
}

impl Answer for VolumeList {
    fn table(&self) -> Table {
        let mut table = render::plain(&[
            "ID",
            "NAME",
            "SIZE",
            "BLOCK",
            "COMPRESSION",
            "LOGICAL",
            "STORED",
            "POSITION",
            "SNAPSHOT",
            "STATE",
            "UID",
        ]);
        for volume in &self.0 {
            table.add_row([
                volume.id.to_string(),
                volume.name.clone(),
                ByteLen(volume.size).to_string(),
                ByteLen(volume.block_size).to_string(),
                volume.compression.clone(),
                ByteLen(volume.logical).to_string(),
                ByteLen(volume.stored).to_string(),
                format!("{}.{}", volume.term, volume.seq),
                volume.newest_snapshot.clone().unwrap_or_else(|| "-".into()),
                volume.state(),
                volume.uid.clone(),
            ]);
        }
        table
    }
}

pub fn run(path: &Path, all: bool, output: Output) -> Result<()> {
    let contents = Contents::of(path)?;
    let volumes = contents.found.volumes.iter().filter(|v| all || v.staging.is_none());
    render::show(&VolumeList::new(&contents, volumes), output)
}

/// Shows one volume.
pub fn show(path: &Path, name: &str, output: Output) -> Result<()> {
    let contents = Contents::of(path)?;
    render::show(&VolumeList::new(&contents, [contents.volume(name)?]), output)
}
