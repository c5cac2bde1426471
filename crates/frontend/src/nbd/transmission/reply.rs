//! Replies as bytes.
use block::{ByteLen, ByteOffset, Data};

use crate::ask::Extent;
use crate::nbd::errors::Refusal;
use crate::nbd::limits::{EXTENTS_MAX, STRING_MAX};
use crate::nbd::session::{Heads, Style};
use crate::nbd::wire::{
    ALLOCATION_ID, EXTENDED_REPLY_MAGIC, REPLY_FLAG_DONE, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC, chunk, state,
};

/// Heads of any style, with the fixed fields behind them.
const HEAD_ROOM: usize = 40;

/// What a reply repeats of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    pub cookie: u64,
    pub offset: ByteOffset,
}

pub fn done(style: Style, echo: Echo) -> Vec<u8> {
    match style {
        Style::Simple => simple(echo, 0),
        Style::Chunked(heads) => head(heads, echo, chunk::NONE, 0),
    }
}

/// What goes before the data of a read: all of it in one chunk, so that "do not fragment" is kept
/// whether it was asked for or not.
pub fn data_head(style: Style, echo: Echo, data: &Data) -> Vec<u8> {
    match style {
        Style::Simple => simple(echo, 0),
        Style::Chunked(heads) => {
            let mut reply = head(heads, echo, chunk::OFFSET_DATA, 8 + data.len());
            reply.extend(echo.offset.0.to_be_bytes());
            reply
        }
    }
}

pub fn refusal(style: Style, echo: Echo, len: ByteLen, refusal: &Refusal) -> Vec<u8> {
    let code = refusal.errno.code();
    let heads = match style {
        Style::Simple => return simple(echo, code),
        Style::Chunked(heads) => heads,
    };
    let message = &refusal.message[..refusal.message.floor_char_boundary(STRING_MAX)];
    // A place outside of the request would be a breach of the protocol.
    let within =
        |at: &ByteOffset| *at >= echo.offset && echo.offset.end(len).is_none_or(|end| *at < end);
    let at = refusal.at.filter(within).map(|at| at.0.to_be_bytes());
    let at = at.as_ref().map_or(&[][..], |at| at);
    let kind = if at.is_empty() { chunk::ERROR } else { chunk::ERROR_OFFSET };
    let mut reply = head(heads, echo, kind, 6 + message.len() + at.len());
    reply.extend(code.to_be_bytes());
    let message_len = u16::try_from(message.len()).expect("it was cut to 4096 bytes");
    reply.extend(message_len.to_be_bytes());
    reply.extend(message.as_bytes());
    reply.extend(at);
    reply
}

/// The status of the first `len` bytes, or of less: an answer may end early.
pub fn extents(heads: Heads, echo: Echo, len: ByteLen, one: bool, extents: &[Extent]) -> Vec<u8> {
    let max = if one { 1 } else { EXTENTS_MAX };
    let mut left = len.0;
    let within = extents.iter().take(max).map_while(|extent| {
        let len = extent.len.0.min(left);
        left -= len;
        let flags = if extent.has_data { 0 } else { state::HOLE | state::ZERO };
        (len > 0).then_some((len, flags))
    });
    let within: Vec<(u64, u32)> = within.collect();
    assert!(!within.is_empty(), "the status of a range tells of its first block at least");
    match heads {
        Heads::Structured => {
            let mut reply = head(heads, echo, chunk::BLOCK_STATUS, 4 + 8 * within.len());
            reply.extend(ALLOCATION_ID.to_be_bytes());
            for (len, flags) in within {
                let len =
                    u32::try_from(len).expect("no longer than the request, which has 32 bits");
                reply.extend(len.to_be_bytes());
                reply.extend(flags.to_be_bytes());
            }
            reply
        }
        Heads::Extended => {
            let mut reply = head(heads, echo, chunk::BLOCK_STATUS_EXT, 8 + 16 * within.len());
            reply.extend(ALLOCATION_ID.to_be_bytes());
            let count = u32::try_from(within.len()).expect("it was cut to EXTENTS_MAX");
            reply.extend(count.to_be_bytes());
            for (len, flags) in within {
                reply.extend(len.to_be_bytes());
                reply.extend(u64::from(flags).to_be_bytes());
            }
            reply
        }
    }
}

fn simple(echo: Echo, code: u32) -> Vec<u8> {
    let mut reply = Vec::with_capacity(16);
    reply.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    reply.extend(code.to_be_bytes());
    reply.extend(echo.cookie.to_be_bytes());
    reply
}

/// The head of a chunk that has a payload of this length.
fn head(heads: Heads, echo: Echo, kind: u16, payload: usize) -> Vec<u8> {
    let mut reply = Vec::with_capacity(HEAD_ROOM);
    let magic = match heads {
        Heads::Structured => STRUCTURED_REPLY_MAGIC,
        Heads::Extended => EXTENDED_REPLY_MAGIC,
    };
    reply.extend(magic.to_be_bytes());
    reply.extend(REPLY_FLAG_DONE.to_be_bytes());
    reply.extend(kind.to_be_bytes());
    reply.extend(echo.cookie.to_be_bytes());
    let len = u32::try_from(payload).expect("no reply is longer than a read of 32 MiB");
    match heads {
        Heads::Structured => reply.extend(len.to_be_bytes()),
        Heads::Extended => {
            reply.extend(echo.offset.0.to_be_bytes());
            reply.extend(u64::from(len).to_be_bytes());
        }
    }
    reply
}
