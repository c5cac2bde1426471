//! The volumes of a pool.
use std::path::Path;

use anyhow::Result;
use block::ByteLen;
use comfy_table::Table;
use engine::VolumeInfo;
use serde::Serialize;

use super::inspect;
use crate::render::{self, Answer, Output};

#[derive(Debug, Serialize)]
struct VolumeAnswer {
    id: u64,
    name: String,
    uid: String,
    size: u64,
    block_size: u64,
    stored: u64,
    term: u64,
    seq: u64,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct VolumeList(Vec<VolumeAnswer>);

impl VolumeList {
    pub fn new<'a>(volumes: impl IntoIterator<Item = &'a VolumeInfo>) -> VolumeList {
        let answer = |volume: &VolumeInfo| VolumeAnswer {
            id: volume.id.0,
            name: volume.name.clone(),
            uid: render::uuid(&volume.uid),
            size: volume.size.0,
            block_size: volume.block_size.bytes(),
            stored: volume.stored.0,
            term: volume.held.term.0,
            seq: volume.held.seq.0,
        };
        VolumeList(volumes.into_iter().map(answer).collect())
    }
}

impl Answer for VolumeList {
    fn table(&self) -> Table {
        let mut table =
            render::plain(&["ID", "NAME", "SIZE", "BLOCK", "STORED", "POSITION", "UID"]);
        for volume in &self.0 {
            table.add_row([
                volume.id.to_string(),
                volume.name.clone(),
                ByteLen(volume.size).to_string(),
                ByteLen(volume.block_size).to_string(),
                ByteLen(volume.stored).to_string(),
                format!("{}.{}", volume.term, volume.seq),
                volume.uid.clone(),
            ]);
        }
        table
    }
}

pub fn run(path: &Path, output: Output) -> Result<()> {
    render::show(&VolumeList::new(&inspect(path)?.volumes), output)
}
