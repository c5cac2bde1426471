//! One pool: a crash-safe, copy-on-write block store on one device.
//!
//! The engine is driven by submissions to, and completions from, a [`block::Disk`]; it has one
//! owner, does not block, and knows no clock, no file and no network. The life of a write:
//! `pool/admit.rs` (is it legal, does it fit) -> `pool/seal.rs` (fresh space, one journal slot) ->
//! `pool/complete.rs` (held: acknowledged) -> `pool/flush.rs` (durable) ->
//! `pool/checkpoint.rs` (out of the journal, into the maps).
#![forbid(unsafe_code)]

pub mod check;
pub mod compress;
pub mod delta;
mod error;
#[cfg(feature = "faults")]
mod fault;
mod format;
mod journal;
mod limits;
mod map;
mod overlay;
mod pool;
mod snapshot;
mod space;
mod units;
mod volume;

pub use error::{CheckpointError, CreateError, OpError, OpenError, Retry};
#[cfg(feature = "faults")]
pub use fault::{Fault, MARKER as FAULT_MARKER};
pub use format::{FORMAT_VERSION, decode_any};
pub use limits::{
    EXTENTS_MAX, JOURNAL_BLOCK, Limits, MAP_PAGE, NAME_MAX, POOL_MIN, STATE_MAX, VOLUME_MAX,
    WRITE_MAX,
};
pub use pool::{
    ChangedRange, Changes, Counters, CreateOptions, Damage, Extent, GranuleSums, Inspection,
    Memory, Op, OpenOptions, Part, Pool, PoolInfo, Reply, RequestId, Runs, ScrubStatus, Since,
    SnapshotInfo, SnapshotsOfDeleted, Staged, StagingInfo, Stamps, Subject, Usage, VolumeInfo,
    Zeroing, create, inspect, pool_uuid, write_cost, zero_cost,
};
pub use units::{Checksum, Epoch, SnapshotId, VolumeId};
pub use volume::{BlockSize, CloneSpec, Compression, SnapshotSpec, VolumeSpec};
