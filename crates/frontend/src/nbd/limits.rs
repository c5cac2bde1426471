//! Every bound of a connection, with its reason.

/// Of one read or write. The protocol asks servers to take this much, and clients not to send more
/// unless they are told that they may.
pub const PAYLOAD_MAX: u32 = 32 << 20;

/// Data of one option. The longest that makes sense is a name and some queries, of 4 KiB each.
pub const OPTION_MAX: u32 = 64 << 10;

/// Names and messages, by the protocol.
pub const STRING_MAX: usize = 4096;

/// The name of an initiator: that of iSCSI names, which attachments have.
pub const INITIATOR_MAX: usize = 223;

/// Questions that one connection has under way. The kernel's client sends 128 at a time unless told
/// otherwise.
pub const REQUESTS_MAX: usize = 256;

/// Bytes read and written by the questions under way: two of the largest.
pub const PAYLOAD_UNDER_WAY_MAX: u64 = 2 * PAYLOAD_MAX as u64;

/// Bytes of reads under way, and of replies that wait to be sent: one of the largest reads. A client that
/// does not read its replies has no more read for it.
pub const READS_MAX: u64 = PAYLOAD_MAX as u64;

/// What an owner may still bring after it was told that no bytes are wanted, because its reads were
/// already on their way. More is a client that is not held back, and memory without a bound.
pub const UNWANTED_MAX: usize = 256 << 10;

/// Replies of a negotiation that wait to be sent. While there are more, no further option is looked at:
/// a client gets its answers as fast as it reads them. The longest answer but a list is some 4 KiB.
pub const REPLIES_UNSENT_MAX: usize = 16 << 10;

/// Options that are answered in one go, before the owner serves others.
pub const OPTIONS_AT_ONCE: usize = 16;

/// Names that the owner of a list is asked for at a time.
pub const LIST_PAGE: usize = 64;

/// Extents of one status reply. The protocol warns of more than 2^20; a client asks on from where a
/// reply ends.
pub const EXTENTS_MAX: usize = 1 << 16;
