//! What can be said of an open pool, for people and for tests.
use block::{ByteLen, Disk, IoMode, Position, SectorSize};

use crate::limits::{JOURNAL_BLOCK, MAP_PAGE};
use crate::pool::{Condition, Pool};
use crate::snapshot::Snapshot;
use crate::units::{Epoch, SnapshotId, VolumeId, to_usize};
use crate::volume::{BlockSize, Compression, MapRoot, Volume};

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
    /// Granules that are stored compressed.
    pub blocks_compressed: u64,
    /// Granules that are stored raw, since a sample told that they hardly shrink.
    pub blocks_given_up: u64,
    /// Granules that are stored raw, since compressing them did not save a page.
    pub blocks_not_shorter: u64,
    /// Maps of which a large hole cut something off.
    pub cut_off: u64,
    /// Map pages that were looked into to drop what nobody has any more.
    pub dropped_pages: u64,
    pub dropped_snapshots: u64,
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
    /// The part of `free` that a sparse file has no blocks for yet: it can be used if the file system has
    /// space for it then.
    pub unallocated: ByteLen,
    /// Kept so that a full pool can always delete; discards have half of it. Part of `free`.
    pub reserve: ByteLen,
    /// Comes back with the next checkpoint.
    pub pending: ByteLen,
    /// What comes back by itself at the most: deleted and discarded, but still to be worked
    /// through. A part of it may be shared with what stays.
    pub reclaimable: ByteLen,
    pub volumes: usize,
    /// Why the pool takes no operations, if it does not.
    pub failed: Option<String>,
    /// How often the pool has failed since it was made. Behind each failure it is not known what the
    /// device has lost.
    pub failures: u64,
}

#[derive(Clone, Debug)]
pub struct VolumeInfo {
    pub id: VolumeId,
    pub name: String,
    pub uid: [u8; 16],
    pub size: ByteLen,
    pub block_size: BlockSize,
    pub compression: Compression,
    /// What its allocated blocks hold, and what they take on the device, as of the last
    /// checkpoint.
    pub logical: ByteLen,
    pub stored: ByteLen,
    /// The snapshot that it goes on from: its newest one, or the one it was cloned from.
    pub parent: Option<SnapshotId>,
    pub attached: bool,
    /// An unfinished import into this volume, if it is one.
    pub staging: Option<StagingInfo>,
    pub held: Position,
    pub durable: Position,
    /// What is left of the space that it was promised.
    pub credit: ByteLen,
    pub state: Vec<u8>,
}

/// A hidden volume that an import fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagingInfo {
    pub of: VolumeId,
    /// What the last part of the import said.
    pub progress: u64,
}

#[derive(Clone, Debug)]
pub struct SnapshotInfo {
    pub id: SnapshotId,
    /// The volume that it is of; it may be gone.
    pub volume: VolumeId,
    pub name: String,
    pub uid: [u8; 16],
    pub size: ByteLen,
    pub block_size: BlockSize,
    pub position: Position,
    pub created: u64,
    pub internal: bool,
    /// Deleted, but kept for volumes that were cloned from it, or on its way out.
    pub hidden: bool,
    /// Whether a checkpoint has given it a map of its own; figures are 0 until then.
    pub settled: bool,
    pub logical: ByteLen,
    pub stored: ByteLen,
    /// The snapshot before it in its line.
    pub parent: Option<SnapshotId>,
    /// Snapshots and volumes that go on from it.
    pub children: usize,
    /// Replication's, as the volume had it at the snapshot.
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
            free: layout.bytes(self.space.free() + self.space.hidden()),
            unallocated: layout.bytes(self.space.hidden()),
            reserve: layout.bytes(self.superblock.reserve),
            pending: layout.bytes(self.space.pending()),
            reclaimable: self.reclaimable(),
            volumes: self.names.len(),
            failed: self.failed().map(str::to_owned),
            failures: self.failures,
        }
    }

    pub fn volumes(&self) -> Vec<VolumeInfo> {
        self.living().map(|volume| self.volume_info(volume)).collect()
    }

    pub fn volume(&self, id: VolumeId) -> Option<VolumeInfo> {
        let found = self.volumes.get(&id).filter(|volume| !volume.front.deleted);
        found.map(|volume| self.volume_info(volume))
    }

    /// Those with this uid: a volume, and perhaps what is imported into it.
    pub fn volumes_of(&self, uid: [u8; 16]) -> impl Iterator<Item = VolumeInfo> {
        let own = self.living().filter(move |volume| volume.kept.header.uid == uid);
        own.map(|volume| self.volume_info(volume))
    }

    /// The import into a volume.
    pub fn staging_of(&self, of: VolumeId) -> Option<VolumeInfo> {
        let into = |volume: &&Volume| volume.kept.staging.is_some_and(|staging| staging.of == of);
        self.living().find(into).map(|volume| self.volume_info(volume))
    }

    fn living(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values().filter(|volume| !volume.front.deleted)
    }

    fn volume_info(&self, volume: &Volume) -> VolumeInfo {
        VolumeInfo {
            id: volume.id,
            name: volume.kept.header.name.clone(),
            uid: volume.kept.header.uid,
            size: ByteLen(volume.kept.header.size),
            block_size: volume.kept.header.block_size,
            compression: volume.kept.header.compression,
            logical: ByteLen(volume.kept.map.root.held().blocks * volume.granule()),
            stored: self.space.layout.bytes(volume.kept.map.root.held().stored),
            parent: volume.kept.parent,
            attached: volume.kept.attached,
            staging: volume
                .kept
                .staging
                .map(|staging| StagingInfo { of: staging.of, progress: staging.progress }),
            held: volume.held,
            durable: volume.durable,
            credit: self.space.layout.bytes(volume.kept.credit),
            state: volume.kept.state.clone(),
        }
    }

    /// All snapshots, also internal and hidden ones.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.snapshots.values().map(|snapshot| self.snapshot_info(snapshot)).collect()
    }

    /// One of them.
    pub fn snapshot(&self, id: SnapshotId) -> Option<SnapshotInfo> {
        self.snapshots.get(&id).map(|snapshot| self.snapshot_info(snapshot))
    }

    fn snapshot_info(&self, snapshot: &Snapshot) -> SnapshotInfo {
        let (cut, header) = (&snapshot.cut, &snapshot.cut.header);
        let held = cut.map.root.held();
        SnapshotInfo {
            id: snapshot.id,
            volume: cut.volume,
            name: header.name.clone(),
            uid: header.uid,
            size: ByteLen(header.size),
            block_size: header.block_size,
            position: cut.position,
            created: cut.created,
            internal: cut.internal,
            hidden: snapshot.front_deleted,
            settled: snapshot.settled,
            logical: ByteLen(held.blocks * header.block_size.granule()),
            stored: self.space.layout.bytes(held.stored),
            parent: cut.parent,
            children: self.children(snapshot.id).len(),
            state: cut.state.clone(),
        }
    }

    /// Every object that goes has at least its own page, in two places.
    fn reclaimable(&self) -> ByteLen {
        let layout = &self.space.layout;
        let size = |map: MapRoot| map.root.held().stored + 2 * layout.page();
        let volumes = self.deleting.iter().map(|id| size(self.volumes[id].kept.map));
        let orphans = self.orphans.values().map(|orphan| size(orphan.map));
        let single = |id: &&SnapshotId| self.children(**id).len() <= 1;
        let snapshots = self.deleted_snapshots.iter().filter(single);
        let snapshots = snapshots.map(|id| size(self.snapshots[id].cut.map));
        let sectors = volumes.chain(orphans).chain(snapshots).sum::<u64>() + self.space.pending();
        layout.bytes(sectors)
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

    /// Whether nothing is under way, not even a checkpoint.
    pub fn is_quiet(&self) -> bool {
        self.is_idle() && self.job.is_none()
    }

    /// Whether nothing that was submitted is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.len() == 0
            && self.in_flight.slots.is_empty()
            && self.flush.is_idle()
            && self.reads.under_way() == 0
            && self.looks.is_empty()
            && self.mending == 0
    }

    /// Why the pool takes no operations, if it has failed.
    pub fn failed(&self) -> Option<&str> {
        match &self.condition {
            Condition::Failed(reason) => Some(reason),
            Condition::Serving | Condition::Closing => None,
        }
    }

    pub fn disk(&self) -> &D {
        &self.device.disk
    }

    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.device.disk
    }
}
