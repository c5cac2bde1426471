//! Every bound of the engine, with where its number comes from.
use block::ByteLen;

/// Unit of the journal, and the least that a slot writes. A device tears at 512 B or 4 KiB; the
/// slot's checksum finds either.
pub const JOURNAL_BLOCK: usize = 4096;

/// The largest slot. It must hold the record of the largest write, of 257 granules: 16 bytes for
/// each block, and at worst, where every other one is a hole, 17 for each of them.
pub const SLOT_BLOCKS_MAX: usize = 4;

/// Every page of maps, directory and space.
pub const MAP_PAGE: usize = 4096;

/// The longest single write. Front ends split above; a longer one would not fit a slot.
pub const WRITE_MAX: u64 = 1 << 20;

/// How far one question for extents looks: 32 leaves of a map whose granules have 4 KiB, which is
/// less than a millisecond during which nothing else is done. Whoever wants more asks on.
pub const EXTENTS_MAX: ByteLen = ByteLen(16 << 20);

/// 128 TiB: five levels of a 4 KiB granule map.
pub const VOLUME_MAX: u64 = 128 << 40;

/// Every seq is lower: map entries keep 56 bits of it, a million operations a second for 2,000 years.
pub const SEQ_MAX: u64 = (1 << 56) - 1;

/// Every session is lower; more openings than can ever be.
pub const SESSION_MAX: u64 = 1 << 60;

/// The longest name of a volume, in bytes. Kubernetes names have at most 253.
pub const NAME_MAX: usize = 255;

/// The longest replication state of a volume: what one object page has left beside the longest name,
/// 3471 bytes, in whole units of 128.
pub const STATE_MAX: usize = 3456;

/// Where the second copies of superblocks and space pages lie, behind the first ones: far enough
/// that one damaged track does not take both.
pub const COPY_GAP: u64 = 1 << 20;

/// Where the journal begins: behind both copies of the superblocks.
pub const JOURNAL_AT: u64 = 2 << 20;

/// The least journal: several of the largest slots between two checkpoints.
pub const JOURNAL_MIN: u64 = 256 << 10;
pub const JOURNAL_MAX: u64 = 256 << 20;

/// A smaller tail of the device is not worth a region: its own pages would fill it.
pub const REGION_MIN: u64 = 2 << 20;

/// The smallest pool: head, journal and one region.
pub const POOL_MIN: u64 = 6 << 20;

/// How many slots may be in flight. Also how far replay looks for life beyond a bad slot.
pub const SLOTS_IN_FLIGHT_MAX: usize = 64;

/// Pages that a checkpoint reads or writes at once.
pub const CHECKPOINT_IO_MAX: usize = 128;

/// Maps that may wait to be dropped before large holes wait too: each is an object of its own.
pub const ORPHANS_MAX: usize = 64;

/// Bounds of one open pool, chosen by its owner.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Map, directory and space pages kept in memory.
    pub cache_pages: usize,
    /// Updates that may be indexed in memory: those that a running checkpoint merges, and those
    /// that came since. A checkpoint begins at half of it.
    pub overlay_entries: usize,
    /// Operations that wait for their slot.
    pub queue_ops: usize,
    /// Bytes of client data that wait or are in flight.
    pub queue_bytes: usize,
    /// Recycled IO memory.
    pub buffer_bytes: usize,
    /// Map pages that one checkpoint looks into to drop what was discarded or deleted.
    pub emptied_leaves: u64,
    /// Map pages that stamping what a rollback or a mirror import changed may rewrite. With fewer,
    /// more is taken to have changed than did.
    pub stamped_pages: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            cache_pages: 16 << 10,
            overlay_entries: 256 << 10,
            queue_ops: 1024,
            queue_bytes: 64 << 20,
            buffer_bytes: 32 << 20,
            emptied_leaves: 2048,
            stamped_pages: 4096,
        }
    }
}

impl Limits {
    /// For tests: everything small, so that every bound is reached.
    pub fn tiny() -> Limits {
        Limits {
            cache_pages: 24,
            overlay_entries: 48,
            queue_ops: 64,
            queue_bytes: 8 << 20,
            buffer_bytes: 1 << 20,
            emptied_leaves: 2,
            stamped_pages: 3,
        }
    }
}
