//! The frame around every message.
//!
//! ```text
//!  0  u32  length of the whole frame, itself included
//!  4  u16  magic
//!  6  u16  version of the encoding
//!  8  u64  checksum of everything before it and of kind to the end of the metadata
//! 16  u8   kind, then three zeros
//! 20  u32  length of the metadata
//! 24  u64  term
//! 32       metadata: the fields of the message
//!          data: the bytes of blocks, in the order in which the metadata speaks of them
//! ```
//!
//! Invariants: length, magic and version keep their places in every version, so that any two
//! versions can tell each other what they are. The checksum covers all but the data; every part of
//! the data has a checksum of its own in the metadata. All of the frame is spoken of: no byte
//! follows that nobody reads.
use block::{Data, Term};
use crc_fast::{CrcAlgorithm, Digest};

use super::{FRAME_MAX, WIRE_VERSION};
use crate::encoding::{Malformed, Reader, Writer};

const MAGIC: u16 = u16::from_le_bytes(*b"Px");
const HEAD: usize = 32;
const SUM_AT: usize = 8;
const SUM_END: usize = 16;

/// Reasons are for people; what is longer is cut.
pub const REASON_MAX: usize = 1000;

/// Kinds of messages and of entries. Never given a second meaning.
pub mod kind {
    pub const HELLO: u8 = 1;
    pub const ENTRIES: u8 = 2;
    pub const RENEW: u8 = 3;
    pub const READ: u8 = 4;
    pub const REPAIR: u8 = 5;
    pub const RECOVERED: u8 = 6;
    pub const OPEN_ROUND: u8 = 7;
    pub const FETCH: u8 = 8;
    pub const CLOSE_ROUND: u8 = 9;
    pub const BEGIN_IMPORT: u8 = 10;
    pub const OWN_CHANGES: u8 = 11;
    pub const IMPORT: u8 = 12;
    pub const COMMIT_IMPORT: u8 = 13;
    pub const ABANDON_IMPORT: u8 = 14;
    pub const EXTENTS: u8 = 15;

    // To a target: other numbers, so that a message which lost its way is not understood.
    pub const WELCOME: u8 = 129;
    pub const REFUSED: u8 = 130;
    pub const ACK: u8 = 131;
    pub const RENEWED: u8 = 132;
    pub const LEFT: u8 = 133;
    pub const READ_DONE: u8 = 134;
    pub const REPAIRED: u8 = 135;
    pub const ROUND_OPENED: u8 = 136;
    pub const FETCHED: u8 = 137;
    pub const IMPORT_BEGUN: u8 = 138;
    pub const OWN_CHANGED: u8 = 139;
    pub const IMPORTED: u8 = 140;
    pub const COMMITTED: u8 = 141;
    pub const IMPORT_FAILED: u8 = 142;
    pub const EXTENTS_DONE: u8 = 143;

    // Of entries.
    pub const WRITE: u8 = 1;
    pub const ZEROES: u8 = 2;
    pub const DISCARD: u8 = 3;
    pub const FLUSH: u8 = 4;
    pub const BARRIER: u8 = 5;
    pub const CLOSE: u8 = 6;
    pub const SNAPSHOT: u8 = 7;
    pub const DELETE_SNAPSHOT: u8 = 8;
    pub const ROLLBACK: u8 = 9;
    pub const MARK_CLONE: u8 = 10;
    pub const UNMARK_CLONE: u8 = 11;
    pub const RESIZE: u8 = 12;
    pub const RESERVATIONS: u8 = 13;
    pub const POINTS: u8 = 14;
    pub const STAGES: u8 = 15;
    pub const MEMBERSHIP: u8 = 16;
    pub const RELEASE: u8 = 17;
}

/// A frame that is being written: data waits until the metadata is complete.
#[derive(Default)]
pub struct Frame {
    pub meta: Writer,
    data: Vec<Data>,
}

impl Frame {
    pub fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.meta.u64(*number));
    }

    pub fn count(&mut self, count: usize) {
        self.meta.length(4, count, FRAME_MAX, "elements of a list");
    }

    pub fn data(&mut self, data: &Data) {
        self.meta.length(4, data.len(), FRAME_MAX, "bytes of data");
        self.data.push(data.clone());
    }

    pub fn reason(&mut self, reason: &str) {
        let end = reason.floor_char_boundary(REASON_MAX);
        self.meta.length(2, end, REASON_MAX, "bytes of a reason");
        self.meta.bytes(&reason.as_bytes()[..end]);
    }

    pub fn finish(self, kind: u8, term: Term) -> Encoded {
        let meta = self.meta.into_bytes();
        let data: usize = self.data.iter().map(|data| data.len()).sum();
        let len = HEAD + meta.len() + data;
        assert!(len <= FRAME_MAX, "a message of {len} bytes should have been several");
        let number = |len: usize| u32::try_from(len).expect("a frame is far shorter").to_le_bytes();
        let mut bytes = Vec::with_capacity(HEAD + meta.len());
        bytes.extend_from_slice(&number(len));
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&WIRE_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; SUM_END - SUM_AT]);
        bytes.extend_from_slice(&[kind, 0, 0, 0]);
        bytes.extend_from_slice(&number(meta.len()));
        bytes.extend_from_slice(&term.0.to_le_bytes());
        bytes.extend_from_slice(&meta);
        let sum = sum(&bytes);
        bytes[SUM_AT..SUM_END].copy_from_slice(&sum.to_le_bytes());
        Encoded { front: bytes, data: self.data }
    }
}

/// A frame that is ready to be sent: its bytes are `front` and then all of `data`.
#[derive(Clone, Debug)]
pub struct Encoded {
    pub front: Vec<u8>,
    pub data: Vec<Data>,
}

impl Encoded {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.front.clone();
        self.data.iter().for_each(|data| bytes.extend_from_slice(data));
        bytes
    }
}

/// How a frame divides: whoever receives it can put the data where it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Head and metadata.
    pub front: usize,
    pub data: usize,
}

/// Bytes of a frame's head that tell how it divides.
pub const DIVIDES_AFTER: usize = 24;

/// From the first [`DIVIDES_AFTER`] bytes. They are believed only as far as their bounds go: the
/// checksum is compared when the frame is decoded.
pub fn division(head: &[u8; DIVIDES_AFTER]) -> Result<Division, Malformed> {
    let head = &mut Reader::new(head);
    let len = head.length(4, FRAME_MAX, "length of a frame")?;
    if u16::from_le_bytes(head.array("magic of a frame")?) != MAGIC {
        return Err(Malformed::Field { what: "this is no frame: another magic number" });
    }
    let found = u16::from_le_bytes(head.array("version of a frame")?);
    if found != WIRE_VERSION {
        return Err(Malformed::Version { what: "a message", found, known: WIRE_VERSION });
    }
    head.bytes(SUM_END - SUM_AT + 4, "checksum and kind of a frame")?;
    let front = HEAD + head.length(4, FRAME_MAX, "length of the metadata")?;
    match len.checked_sub(front) {
        Some(data) => Ok(Division { front, data }),
        None => Err(Malformed::Field { what: "a frame is shorter than its metadata" }),
    }
}

/// Of head and metadata, without the checksum itself.
fn sum(covered: &[u8]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(&covered[..SUM_AT]);
    digest.update(&covered[SUM_END..]);
    digest.finalize()
}

/// A frame whose head is right: what there is to be read.
pub struct Opened<'a> {
    pub kind: u8,
    pub term: Term,
    pub meta: Reader<'a>,
    data: Data,
    taken: usize,
}

impl<'a> Opened<'a> {
    /// Compares everything but the data with the checksum. `front` is head and metadata.
    pub fn open(front: &'a [u8], data: Data) -> Result<Opened<'a>, Malformed> {
        let head: &[u8; DIVIDES_AFTER] =
            front.first_chunk().ok_or(Malformed::Field { what: "head of a frame" })?;
        let divided = division(head)?;
        if divided != (Division { front: front.len(), data: data.len() }) {
            return Err(Malformed::Field { what: "a frame is not as long as it says" });
        }
        let head = &mut Reader::new(&front[SUM_AT..]);
        let told = head.u64("checksum of a frame")?;
        let kind = head.u8("kind of a message")?;
        if head.array("zeros in a head")? != [0; 3] {
            return Err(Malformed::Field { what: "zeros in a head" });
        }
        head.bytes(4, "length of the metadata")?;
        let term = head.term("term of a message")?;
        if sum(front) != told {
            return Err(Malformed::Field { what: "a frame does not match its checksum" });
        }
        Ok(Opened { kind, term, meta: Reader::new(&front[HEAD..]), data, taken: 0 })
    }

    pub fn count(&mut self, what: &'static str) -> Result<usize, Malformed> {
        self.meta.length(4, FRAME_MAX, what)
    }

    /// The next part of the data.
    pub fn data(&mut self, what: &'static str) -> Result<Data, Malformed> {
        let len = self.meta.length(4, FRAME_MAX, what)?;
        let end = self.taken + len;
        if end > self.data.len() {
            return Err(Malformed::Field { what });
        }
        let part = self.data.slice(self.taken..end);
        self.taken = end;
        Ok(part)
    }

    pub fn reason(&mut self) -> Result<String, Malformed> {
        let len = self.meta.length(2, REASON_MAX, "length of a reason")?;
        let bytes = self.meta.bytes(len, "a reason")?.to_vec();
        String::from_utf8(bytes).map_err(|_| Malformed::Field { what: "a reason is no UTF-8" })
    }

    pub fn end(&self) -> Result<(), Malformed> {
        self.meta.end("metadata that the message does not have")?;
        match self.taken == self.data.len() {
            true => Ok(()),
            false => Err(Malformed::Field { what: "data that the message does not speak of" }),
        }
    }
}
