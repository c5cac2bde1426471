//! Bounds of the catalog, each with its reason.
use std::time::Duration;

/// A label of DNS and of Kubernetes, so that a name can be part of theirs.
pub const NAME_LEN_MAX: usize = 63;
/// The longest name that an orchestrator may give (CSI).
pub const TITLE_LEN_MAX: usize = 128;
/// Parameters of a class, or keys of a topology; CSI allows 4 KiB for all of them.
pub const PAIRS_MAX: usize = 64;
pub const PAIR_LEN_MAX: usize = 256;
/// Volumes of one group: all are held at the same time.
pub const GROUP_MAX: usize = 64;
/// Parts of a topology that a volume may be in.
pub const SEGMENTS_MAX: usize = 64;
/// The longest name of a host, with a port behind it.
pub const ADDRESS_LEN_MAX: usize = 259;

/// The smallest granule of a volume's map.
pub const SIZE_UNIT: u64 = 4096;
pub const BLOCK_SIZE_MIN: u32 = 512;
pub const BLOCK_SIZE_MAX: u32 = 128 << 10;

/// Every voter of before and after a step.
pub const PLACES_MAX: usize = 2 * replication::membership::MEMBERS_MAX;
/// Uids of deleted objects that a name remembers.
pub use proto::deletion::DELETED_UIDS_MAX;
/// Initiators of one volume: the nodes of a large cluster that may mount it.
pub const INITIATORS_MAX: usize = 256;
/// The longest name that iSCSI allows.
pub const INITIATOR_LEN_MAX: usize = 223;
/// 96 bits, below which iSCSI asks for more protection than CHAP; and the longest that initiators take.
pub const SECRET_LEN: std::ops::RangeInclusive<usize> = 12..=255;
pub const USER_LEN_MAX: usize = 255;
/// A day: whoever waits longer has gone home.
pub const HOLD_DEADLINE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
pub const WORKERS_MAX: u32 = 1024;

/// The largest request: a volume with all its lists full.
pub const REQUEST_MAX: usize = 128 << 10;
/// What an object has beside the body that a request brought: its versions, and marks of deletion.
pub const ENVELOPE_MAX: usize = 4 << 10;
/// The largest catalog that is brought back: ten times a large one.
pub const RESTORE_MAX: usize = 256 << 20;
/// Objects and bytes of one part of a list; clients refuse messages above 4 MiB.
pub const LIST_MAX: usize = 500;
pub const LIST_BYTES_MAX: usize = 1 << 20;

/// Swaps of one transaction: the sync costs a hundred times what one of them does.
pub const BATCH_MAX: usize = 128;
/// Swaps that wait for the next one.
pub const QUEUE_MAX: usize = 2 * BATCH_MAX;

/// Watches at a time: some for each node of a large site.
pub const WATCHES_MAX: usize = 1024;
/// Transactions that are kept in memory for watchers. Who is further behind reads the file.
pub const FEED_MAX: usize = 256;
/// Changes that a watcher reads at a time, so that nobody waits for it.
pub const PAGE: usize = 64;
/// Events that are ready for one watcher.
pub const READY_MAX: usize = 8;

/// Openings of the file that are remembered. A watcher that was away for longer is sent everything.
pub const SESSIONS_MAX: u64 = 1024;
/// A catalog has a few megabytes at the most.
pub const CACHE: usize = 16 << 20;

/// How long connections may take to close when the catalog stops.
pub const CLOSING_MAX: Duration = Duration::from_secs(3);
