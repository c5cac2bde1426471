//! What a client and the server agreed on by the end of their negotiation.
use block::ByteLen;

use super::wire::transmission_flag as flag;
use super::wire::{EXTENDED_REQUEST_LEN, EXTENDED_REQUEST_MAGIC, REQUEST_LEN, REQUEST_MAGIC};

/// How requests and replies look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A reply is a number, and the data of a read.
    Simple,
    /// Replies are chunks that tell their own kind and length.
    Chunked(Heads),
}

/// Heads of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    Structured,
    /// Lengths have 64 bits, in requests too.
    Extended,
}

impl Style {
    pub fn is_extended(self) -> bool {
        self == Style::Chunked(Heads::Extended)
    }

    pub fn request_len(self) -> usize {
        if self.is_extended() { EXTENDED_REQUEST_LEN } else { REQUEST_LEN }
    }

    pub fn request_magic(self) -> u32 {
        if self.is_extended() { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC }
    }
}

#[derive(Clone, Debug)]
pub struct Session {
    pub style: Style,
    pub size: ByteLen,
    pub read_only: bool,
    /// The client chose `base:allocation` for this export.
    pub allocation: bool,
}

impl Session {
    /// What the server can do for this session. A client may use what is here, so it is the truth.
    pub fn flags(&self) -> u16 {
        let mut flags = flag::HAS_FLAGS
            | flag::SEND_FLUSH
            | flag::SEND_FUA
            | flag::SEND_CACHE
            // A flush covers what was answered on any connection: the volume has one cache.
            | flag::CAN_MULTI_CONN;
        flags |= if self.read_only {
            flag::READ_ONLY
        } else {
            // Zeroing is a note in the index, whatever the length: always faster than writing.
            flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO
        };
        flags |= match self.style {
            Style::Simple => 0,
            Style::Chunked(_) => flag::SEND_DF,
        };
        flags
    }
}
