//! The head of a frame: what it is, which it is, and what must be true of its payload.
//!
//! Invariants:
//! - Every frame begins with a head of 64 bytes, whose last eight are the checksum of the others.
//!   Length and checksum of the payload stand in it, so a length is believed only when it is
//!   verified, and no payload is awaited, or given memory, because of damage.
//! - Frames are numbered from 0, without a gap.
//! - Magic, version and checksum stay where they are in every version, so that a stream of
//!   another version is told from a damaged one.
use block::{ByteLen, ByteOffset, Seq};

use super::error::{Part, StreamError, StreamOffset};
use super::header::HEADER_MAX;
use super::{DATA_MAX, Sums};
use crate::format::Writer;
use crate::units::{Checksum, to_usize};

pub const HEAD: usize = 64;
pub const MAGIC: [u8; 4] = *b"PLXD";
pub const CHECKSUM_AT: usize = 56;

/// 1: the first.
pub const STREAM_VERSION: u16 = 1;

/// Data travels as it is. Others will be those that compress it.
const RAW: u8 = 0;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The payload describes the stream.
    Header,
    /// The payload is data; the checksum is that of the data when it is decoded.
    Bytes {
        offset: ByteOffset,
        changed: Seq,
        checksum: Checksum,
    },
    Hole {
        offset: ByteOffset,
        changed: Seq,
        len: ByteLen,
    },
    /// Its number is how many frames came before it.
    End {
        data: ByteLen,
        holes: ByteLen,
        running: Checksum,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub number: u64,
    pub kind: Kind,
    pub payload: usize,
    pub payload_checksum: Checksum,
}

impl Kind {
    pub fn code(&self) -> u8 {
        match self {
            Kind::Header => 1,
            Kind::Bytes { .. } => 2,
            Kind::Hole { .. } => 3,
            Kind::End { .. } => 4,
        }
    }

    fn payload_max(&self) -> u64 {
        match self {
            Kind::Header => HEADER_MAX as u64,
            Kind::Bytes { .. } => DATA_MAX,
            Kind::Hole { .. } | Kind::End { .. } => 0,
        }
    }

    /// Three numbers, by kind.
    fn numbers(&self) -> [u64; 3] {
        match *self {
            Kind::Header => [0; 3],
            Kind::Bytes { offset, changed, checksum } => [offset.0, changed.0, checksum.0],
            Kind::Hole { offset, changed, len } => [offset.0, changed.0, len.0],
            Kind::End { data, holes, running } => [data.0, holes.0, running.0],
        }
    }

    fn from_numbers(code: u8, [a, b, c]: [u64; 3]) -> Option<Kind> {
        let (offset, changed) = (ByteOffset(a), Seq(b));
        Some(match code {
            1 => Kind::Header,
            2 => Kind::Bytes { offset, changed, checksum: Checksum(c) },
            3 => Kind::Hole { offset, changed, len: ByteLen(c) },
            4 => Kind::End { data: ByteLen(a), holes: ByteLen(b), running: Checksum(c) },
            _ => return None,
        })
    }
}

impl Head {
    /// The end of a stream that these are the sums of.
    pub fn end(sums: Sums, running: Checksum) -> Head {
        let kind = Kind::End { data: sums.data, holes: sums.holes, running };
        let (payload, payload_checksum) = (0, Checksum::of(&[]));
        Head { number: sums.frames, kind, payload, payload_checksum }
    }

    pub fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        let mut w = Writer::new(&mut bytes);
        w.bytes(&MAGIC);
        w.number(2, u64::from(STREAM_VERSION));
        w.byte(self.kind.code());
        w.byte(RAW);
        w.number(8, self.number);
        w.number(4, self.payload as u64);
        w.skip_to(24);
        w.number(8, self.payload_checksum.0);
        self.kind.numbers().iter().for_each(|number| w.number(8, *number));
        let sum = Checksum::of(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.0.to_le_bytes());
        bytes
    }

    /// The head of frame `number`, which begins at `at` in the stream.
    pub fn decode(bytes: &[u8; HEAD], at: StreamOffset, number: u64) -> Result<Head, StreamError> {
        if bytes[..4] != MAGIC || Checksum::of(&bytes[..CHECKSUM_AT]).0 != word(bytes, CHECKSUM_AT)
        {
            return Err(StreamError::Damaged { at, part: Part::Head });
        }
        let found = u16::from_le_bytes([bytes[4], bytes[5]]);
        if found != STREAM_VERSION {
            return Err(StreamError::Version { found, known: STREAM_VERSION });
        }
        let found = word(bytes, 8);
        if found != number {
            return Err(StreamError::Number { at, expected: number, found });
        }
        let [code, encoding] = [bytes[6], bytes[7]];
        let kind = Kind::from_numbers(code, [32, 40, 48].map(|at| word(bytes, at)))
            .ok_or(StreamError::Kind { at, expected: "a kind from 1 to 4", found: code })?;
        if matches!(kind, Kind::Bytes { .. }) && encoding != RAW {
            return Err(StreamError::Encoding { at, found: encoding });
        }
        let payload = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
        let (payload, max) = (u64::from(payload), kind.payload_max());
        if payload > max {
            return Err(StreamError::TooLong { at, len: ByteLen(payload), max: ByteLen(max) });
        }
        let payload_checksum = Checksum(word(bytes, 24));
        Ok(Head { number, kind, payload: to_usize(payload), payload_checksum })
    }
}

fn word(head: &[u8; HEAD], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(word)
}
