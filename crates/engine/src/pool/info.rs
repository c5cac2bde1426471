//! What can be said of an open pool, for people and for tests.
use block::{ByteLen, Disk, IoMode, Position, SectorSize};

use crate::limits::{JOURNAL_BLOCK, MAP_PAGE};
use crate::pool::{Condition, Pool};
use crate::units::{Epoch, VolumeId, to_usize};
use crate::volume::BlockSize;

/// How often things happened since the pool was opened.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub reads: u64,
    pub writes: u64,
    pub zeroes: u64,
    pub discards: u64,
    pub refused: u64,
    pub flushes: u64,
    pub slots: u64,
    pub checkpoints: u64,
    pub map_pages_written: u64,
    pub map_pages_read: u64,
    /// Pages of which the first copy was bad and the second answered.
    pub second_copies: u64,
    /// Granules that were read to be merged with a smaller write.
    pub merged_writes: u64,
    /// Reads whose place was given to somebody else under them.
    pub reads_begun_anew: u64,
    pub damaged_blocks: u64,
    /// Large holes that one checkpoint did not finish.
    pub carried_holes: u64,
    /// Slots that opening replayed.
    pub replayed_slots: u64,
    /// Pages that opening read, all kinds.
    pub pages_read_at_open: u64,
}

#[derive(Clone, Debug)]
pub struct PoolInfo {
    pub uuid: [u8; 16],
    pub format_version: u32,
    pub epoch: Epoch,
    pub size: ByteLen,
    pub sector: SectorSize,
    pub mode: IoMode,
    pub journal: ByteLen,
    pub free: ByteLen,
    /// Kept so that a full pool can always delete and discard. Part of `free`.
    pub reserve: ByteLen,
    /// Comes back with the next checkpoints.
    pub pending: ByteLen,
    pub volumes: usize,
    /// Why the pool takes no operations, if it does not.
    pub failed: Option<String>,
}

#[derive(Clone, Debug)]
pub struct VolumeInfo {
    pub id: VolumeId,
    pub name: String,
    pub uid: [u8; 16],
    pub size: ByteLen,
    pub block_size: BlockSize,
    /// As of the last checkpoint.
    pub stored: ByteLen,
    pub held: Position,
    pub durable: Position,
    pub state: Vec<u8>,
}

/// Memory of an open pool, in bytes: what is used, and what it never exceeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub used: usize,
    pub bound: usize,
}

/// An overlay entry with its share of the tree around it; measured with a counting allocator.
const OVERLAY_ENTRY: usize = 96;
/// Space extents, displaced blocks and freed pages that come with one overlay entry.
const ENTRY_EXTENTS: usize = 5 * 16;

impl<D: Disk> Pool<D> {
    pub fn info(&self) -> PoolInfo {
        let layout = &self.space.layout;
        PoolInfo {
            uuid: self.superblock.uuid,
            format_version: crate::format::FORMAT_VERSION,
            epoch: self.superblock.epoch,
            size: layout.bytes(layout.sectors),
            sector: layout.sector,
            mode: self.device.disk.geometry().mode,
            journal: ByteLen(layout.journal_blocks * JOURNAL_BLOCK as u64),
            free: layout.bytes(self.space.free()),
            reserve: layout.bytes(self.superblock.reserve),
            pending: layout.bytes(self.space.pending()),
            volumes: self.names.len(),
            failed: match &self.condition {
                Condition::Failed(reason) => Some(reason.clone()),
                Condition::Serving | Condition::Closing => None,
            },
        }
    }

    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let live = self.volumes.values().filter(|volume| !volume.front.deleted);
        live.map(|volume| VolumeInfo {
            id: volume.id,
            name: volume.kept.header.name.clone(),
            uid: volume.kept.header.uid,
            size: ByteLen(volume.kept.header.size),
            block_size: volume.kept.header.block_size,
            stored: self.space.layout.bytes(volume.kept.stored),
            held: volume.held,
            durable: volume.durable,
            state: volume.kept.state.clone(),
        })
        .collect()
    }

    pub fn volume_named(&self, name: &str) -> Option<VolumeId> {
        self.names.get(name).copied()
    }

    pub fn counters(&self) -> Counters {
        Counters {
            map_pages_read: self.pages.reads,
            second_copies: self.pages.second_copies,
            ..self.counters.clone()
        }
    }

    /// What the engine's own structures take now, and at the most.
    pub fn memory(&self) -> Memory {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.entries());
        let entries = self.active.entries() + frozen;
        let extents = self.space.extents();
        let entries_max = self.limits.overlay_entries + 512;
        let extents_max = entries_max + to_usize(self.limits.emptied_leaves) * 128;
        Memory {
            used: self.pages.cached() * MAP_PAGE
                + entries * OVERLAY_ENTRY
                + extents * 16
                + self.queue.bytes()
                + self.in_flight.bytes
                + self.reads.bytes
                + self.device.bufs.kept(),
            bound: self.limits.cache_pages.max(16) * MAP_PAGE
                + entries_max * (OVERLAY_ENTRY + ENTRY_EXTENTS)
                + extents_max * 16
                + 3 * self.limits.queue_bytes
                + self.limits.buffer_bytes,
        }
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.queue.len() == 0
            && self.in_flight.slots.is_empty()
            && self.flush.is_idle()
            && self.reads.under_way() == 0
            && self.job.is_none()
    }

    pub fn disk(&self) -> &D {
        &self.device.disk
    }

    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.device.disk
    }
}
