//! The pools of a world's nodes: the engine that ships, on a disk that crashes.
use replication::store::{StoreError, StoreReply, StoreTag};
use replication::words::Incarnation;

use super::clients::VolumeNo;

mod engine_pool;

pub use engine_pool::EnginePool;

type Answer = (VolumeNo, StoreTag, Result<StoreReply, StoreError>);

/// How a device behaves at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mood {
    /// Microseconds that an operation takes at the most.
    pub delay: u64,
    /// No more space, but for what was set aside.
    pub full: bool,
    /// Every operation fails.
    pub failed: bool,
}

/// What an empty copy is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub size: u64,
    pub block_size: u64,
    pub incarnation: Incarnation,
}

/// The content of a copy, and the granules of it that cannot be read.
pub struct Content {
    pub bytes: Vec<u8>,
    pub damaged: Vec<u64>,
}
