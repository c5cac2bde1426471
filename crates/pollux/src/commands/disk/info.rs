//! What a pool is, how full, and whether it was closed.
use std::path::Path;

use anyhow::Result;
use block::ByteLen;
use comfy_table::Table;
use engine::Inspection;
use serde::Serialize;

use crate::offline::Contents;
use crate::render::{self, Answer, Output};

#[derive(Debug, Serialize)]
pub struct PoolAnswer {
    path: String,
    uuid: String,
    format_version: u32,
    epoch: u64,
    size: u64,
    sector: u64,
    io_mode: String,
    journal: u64,
    used: u64,
    free: u64,
    reserve: u64,
    pending: u64,
    /// Deleted and discarded; comes back by itself.
    reclaimable: u64,
    volumes: usize,
    snapshots: usize,
    clean: bool,
    journal_slots: u64,
}

impl PoolAnswer {
    pub fn new(path: &Path, found: &Inspection) -> PoolAnswer {
        let info = &found.info;
        PoolAnswer {
            path: path.display().to_string(),
            uuid: render::uuid(&info.uuid),
            format_version: info.format_version,
            epoch: info.epoch.0,
            size: info.size.0,
            sector: info.sector.bytes(),
            io_mode: info.mode.to_string(),
            journal: info.journal.0,
            used: info.size.0.saturating_sub(info.free.0),
            free: info.free.0,
            reserve: info.reserve.0,
            pending: info.pending.0,
            reclaimable: info.reclaimable.0,
            volumes: info.volumes,
            snapshots: found.snapshots.iter().filter(|s| !s.hidden && !s.internal).count(),
            clean: found.clean,
            journal_slots: found.journal_slots,
        }
    }
}

impl Answer for PoolAnswer {
    fn table(&self) -> Table {
        let len = |bytes: u64| ByteLen(bytes).to_string();
        let state = match self.clean {
            true => "closed".to_owned(),
            false => format!("not closed; opening replays {} journal slots", self.journal_slots),
        };
        render::facts([
            ("pool", self.path.clone()),
            ("uuid", self.uuid.clone()),
            ("format", format!("version {}, epoch {}", self.format_version, self.epoch)),
            ("state", state),
            ("io", self.io_mode.clone()),
            ("size", len(self.size)),
            ("used", len(self.used)),
            ("free", format!("{}, of it in reserve {}", len(self.free), len(self.reserve))),
            ("pending", len(self.pending)),
            ("sector", len(self.sector)),
            ("journal", len(self.journal)),
            ("reclaimable", len(self.reclaimable)),
            ("volumes", self.volumes.to_string()),
            ("snapshots", self.snapshots.to_string()),
        ])
    }
}

pub fn run(path: &Path, output: Output) -> Result<()> {
    render::show(&PoolAnswer::new(path, &Contents::of(path)?.found), output)
}
