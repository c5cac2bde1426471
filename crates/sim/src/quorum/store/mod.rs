//! The pools of a world's nodes: the engine that ships, on a disk that crashes.
use block::ByteOffset;
use replication::store::{StoreError, StoreReply, StoreTag};
use replication::words::Incarnation;

use super::clients::{Time, VolumeNo};
use super::sparse::Sparse;

mod engine_pool;
mod failing;

pub use engine_pool::{EnginePool, LARGE_POOL, POOL, uid as uid_of};

type Answer = (VolumeNo, StoreTag, Result<StoreReply, StoreError>);

/// How a device behaves at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mood {
    /// Microseconds that an operation takes at the most.
    pub delay: u64,
    /// No more space, but for what was set aside.
    pub full: bool,
    /// Until then it stays full, whatever else heals.
    pub full_until: Time,
    /// Every operation fails.
    pub failed: bool,
}

impl Mood {
    pub fn fill(&mut self, until: Time) {
        self.full = true;
        self.full_until = self.full_until.max(until);
    }
}

/// What an empty copy is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub size: u64,
    pub block_size: u64,
    pub incarnation: Incarnation,
}

/// A granule of a copy of which one sector rotted.
#[derive(Clone, Debug)]
pub struct Rotten {
    pub granule: u64,
    /// What it held.
    good: Vec<u8>,
    /// Where the sector lies, and what it is now.
    place: ByteOffset,
    bad: Vec<u8>,
}

impl Rotten {
    /// Whether somebody else's copy has the same bytes.
    pub fn is_in(&self, content: &Content) -> bool {
        let len = self.good.len() as u64;
        let same = content.bytes.read(self.granule * len, len) == self.good;
        same && !content.damaged.contains(&self.granule)
    }
}

/// The content of a copy, and the granules of it that cannot be read.
pub struct Content {
    pub bytes: Sparse,
    pub damaged: Vec<u64>,
}
