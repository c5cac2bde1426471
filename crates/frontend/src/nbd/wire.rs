//! Numbers of the protocol, as `doc/proto.md` of the NBD project has them, and how its integers are
//! read. All of them are big-endian.

/// `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: the second word of the greeting, and the first of every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

pub const CLIENT_FLAGS_LEN: usize = 4;
pub const OPTION_HEAD_LEN: usize = 16;
pub const REQUEST_LEN: usize = 28;
pub const EXTENDED_REQUEST_LEN: usize = 32;

/// What follows the answer to `EXPORT_NAME`, for clients that did not decline it.
pub const RESERVED_ZEROES: usize = 124;

/// Of the server; the client's have the same bits.
pub mod handshake_flag {
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub const NO_ZEROES: u16 = 1 << 1;
}

pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
    /// Ours: who the client is.
    pub const HELLO: u32 = 0x504c_5801;
    /// Ours: that it knows the credentials of an export.
    pub const PROVE: u32 = 0x504c_5802;
}

/// Kinds of replies to options.
pub mod option_reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// Ours: 32 bytes, in the answer to a hello.
    pub const CHALLENGE: u32 = 0x504c_5801;

    const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR | 1;
    pub const ERR_POLICY: u32 = ERROR | 2;
    pub const ERR_INVALID: u32 = ERROR | 3;
    pub const ERR_UNKNOWN: u32 = ERROR | 6;
    pub const ERR_SHUTDOWN: u32 = ERROR | 7;
    pub const ERR_TOO_BIG: u32 = ERROR | 9;
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR | 10;
    /// Ours, for clients that said hello: writes were lost since the stage that the export names.
    pub const ERR_STAGE_LOST: u32 = ERROR | 0x50_4c01;
    /// Ours, for clients that said hello: a connection with this number or a greater one is known.
    pub const ERR_OLDER_CONNECTION: u32 = ERROR | 0x50_4c02;
}

pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
    /// Ours: 32 bytes by which the server shows that it knows the mutual secret.
    pub const TARGET_PROOF: u16 = 0x504c;
}

pub mod transmission_flag {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
    pub const RESIZE: u16 = 8;
}

pub mod command_flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// The last chunk of a reply.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;

/// Kinds of reply chunks.
pub mod chunk {
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const BLOCK_STATUS: u16 = 5;
    pub const BLOCK_STATUS_EXT: u16 = 6;
    pub const ERROR: u16 = (1 << 15) | 1;
    pub const ERROR_OFFSET: u16 = (1 << 15) | 2;
}

/// What `base:allocation` tells of an extent.
pub mod state {
    pub const HOLE: u32 = 1 << 0;
    pub const ZERO: u32 = 1 << 1;
}

/// The one metadata context there is, and what asks for all of its namespace.
pub const ALLOCATION: &str = "base:allocation";
pub const BASE: &str = "base:";
/// The context's number within a connection.
pub const ALLOCATION_ID: u32 = 1;

pub fn u16_at(head: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array_at(head, at))
}

pub fn u32_at(head: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(head, at))
}

pub fn u64_at(head: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array_at(head, at))
}

/// Only for heads of a fixed length that are there as a whole.
fn array_at<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&head[at..at + N]);
    array
}
