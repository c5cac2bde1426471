//! One pool: a crash-safe, copy-on-write block store on one device.
//!
//! The engine is driven by submissions to, and completions from, a [`block::Disk`]; it has one
//! owner, does not block, and knows no clock, no file and no network. The life of a write:
//! `pool/admit.rs` (is it legal, does it fit) -> `pool/seal.rs` (fresh space, one journal slot) ->
//! `pool/complete.rs` (held: acknowledged) -> `pool/flush.rs` (durable) ->
//! `pool/checkpoint.rs` (out of the journal, into the maps).
#![forbid(unsafe_code)]

pub mod check;
mod error;
#[cfg(feature = "faults")]
mod fault;
mod format;
mod journal;
mod limits;
mod map;
mod overlay;
mod pool;
mod space;
mod units;
mod volume;

pub use error::{CheckpointError, CreateError, OpError, OpenError, Retry};
#[cfg(feature = "faults")]
pub use fault::{Fault, MARKER as FAULT_MARKER};
pub use format::decode_any;
pub use limits::{
    JOURNAL_BLOCK, Limits, MAP_PAGE, NAME_MAX, POOL_MIN, STATE_MAX, VOLUME_MAX, WRITE_MAX,
};
pub use pool::{
    Counters, CreateOptions, Inspection, Memory, Op, OpenOptions, Pool, PoolInfo, Reply, RequestId,
    VolumeInfo, Zeroing, create, inspect,
};
pub use units::{Checksum, Epoch, VolumeId};
pub use volume::{BlockSize, Compression, VolumeSpec};
