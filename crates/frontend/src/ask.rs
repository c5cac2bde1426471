//! What a front end asks of a volume, and what it is told.
use block::{Buf, ByteLen, ByteOffset, Data};
use thiserror::Error;

/// Names a question between asking and answer. The machine that asks chooses it; unique among
/// what it has under way. Always below `1 << AskId::BITS`: the owner may use the bits above for ids
/// of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

impl AskId {
    pub const BITS: u32 = 63;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    /// Reads as zeros; space may be kept.
    Zeroes,
    /// Reads as zeros; the space goes back to the pool.
    Discard,
}

/// Offsets and lengths are multiples of 512 bytes and within the volume: the machine that asks has
/// checked it against the size that it was told.
#[derive(Clone, Debug)]
pub enum Ask {
    Read {
        offset: ByteOffset,
        len: ByteLen,
    },
    Write {
        offset: ByteOffset,
        data: Data,
        fua: bool,
    },
    Zero {
        offset: ByteOffset,
        len: ByteLen,
        how: Zeroing,
        fua: bool,
    },
    /// Everything that was answered before, on any connection, becomes durable on a quorum.
    Flush,
    /// What is allocated, from `offset` on. The answer covers at least the first block of the range,
    /// and may end early.
    Extents {
        offset: ByteOffset,
        len: ByteLen,
    },
    /// Keeps persistent reservations with the volume, wherever its target moves.
    Reservations(Vec<u8>),
}

/// A range of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub len: ByteLen,
    /// Without data it reads as zeros.
    pub has_data: bool,
}

#[derive(Clone, Debug)]
pub enum Answer {
    Read(Data),
    /// From the asked offset on, without gaps; neighbours differ in kind.
    Extents(Vec<Extent>),
    Done,
}

/// Why a question failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AskError {
    #[error("the range is not within the volume")]
    OutOfRange,
    #[error("no quorum of replicas could be reached in time: {reason}")]
    NoQuorum { reason: String },
    #[error("the pools of too many replicas are full")]
    NoSpace,
    #[error("no replica has an intact copy of the block at {offset}")]
    Damaged { offset: ByteOffset },
    #[error("this connection was replaced by a newer one")]
    Superseded,
    #[error("acknowledged writes may have been lost; stage the volume anew")]
    UnflushedWritesLost,
    #[error("too many requests are waiting")]
    Busy,
    #[error("the volume is not served here any more")]
    Stopped,
}

/// Where payloads land. The owner gives memory from which the store can write without a copy.
pub trait Buffers {
    /// A buffer of this length whose bytes are whatever they were.
    fn take(&mut self, len: usize) -> Buf;
}
