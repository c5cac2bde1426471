//! Why a delta stream is refused, or cannot be written.
use std::fmt;

use block::{ByteLen, ByteOffset, Seq};
use thiserror::Error;

use crate::error::Retry;
use crate::limits::{NAME_MAX, SEQ_MAX, VOLUME_MAX};

/// A place within a delta stream. Never one within the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamOffset(pub u64);

impl fmt::Display for StreamOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} of the stream", self.0)
    }
}

/// What of a frame is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Head,
    Payload,
    /// What travelled is what was sent, but it is not what the source had.
    Data,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Head => "head",
            Part::Payload => "payload",
            Part::Data => "data",
        })
    }
}

/// Why a range has no place in its stream, on either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RangeError {
    #[error("the range at {offset} is empty")]
    Empty { offset: ByteOffset },
    #[error("{len} of data in one frame are too many: split them, at most {max} at once")]
    TooLong { len: ByteLen, max: ByteLen },
    #[error(
        "{} bytes at {offset} are no whole granules of {granule} bytes (only the end of the \
         volume may cut one)",
        len.0
    )]
    Unaligned { offset: ByteOffset, len: ByteLen, granule: u64 },
    #[error("{} bytes at {offset} reach beyond the end of the volume, which has {} bytes", len.0, size.0)]
    BeyondEnd { offset: ByteOffset, len: ByteLen, size: ByteLen },
    #[error("the range at {offset} begins before {reached}, up to where the stream has come")]
    Overlap { offset: ByteOffset, reached: ByteOffset },
    #[error(
        "the range at {offset} changed at seq {}, but the snapshot is of seq {}",
        changed.0,
        snapshot.0
    )]
    LaterThanSnapshot { offset: ByteOffset, changed: Seq, snapshot: Seq },
}

/// Why a header describes nothing that can be, on either end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    #[error(
        "a volume of {size} cannot be: the size must be a multiple of {unit} bytes, more than 0 \
         and at most {}",
        ByteLen(VOLUME_MAX)
    )]
    Size { size: ByteLen, unit: u64 },
    #[error(
        "{name:?} cannot name a snapshot: a name has at most {NAME_MAX} bytes without control \
         characters"
    )]
    Name { name: String },
    #[error("seq {} is beyond the highest that a map can keep, {SEQ_MAX}", found.0)]
    SeqTooHigh { found: Seq },
    #[error("the base is of seq {}, the snapshot of {}: the base must not be later", base.0, snapshot.0)]
    BaseLater { base: Seq, snapshot: Seq },
    #[error("a seq is a base only within the volume's own sequence; name a snapshot as the base")]
    ForeignSeq,
    #[error(
        "a stream cannot go on at {resume_from}: that must be a multiple of {granule}, or the end \
         of the volume"
    )]
    ResumeFrom { resume_from: ByteOffset, granule: u64 },
}

/// Why bytes are not taken for a delta stream. Everything that was yielded before it is true, but
/// it is not all, so nothing of it may be committed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StreamError {
    #[error("this is no delta of Pollux: {at} is foreign; choose a file that an export wrote")]
    Foreign { at: StreamOffset },
    #[error(
        "the delta has stream version {found}, this program knows {known}: use the release that \
         wrote it, or export it again with this one"
    )]
    Version { found: u16, known: u16 },
    #[error(
        "the delta is damaged: the {part} of the frame at {at} does not match its checksum; copy \
         or export it again"
    )]
    Damaged { at: StreamOffset, part: Part },
    #[error(
        "frame {expected} should be at {at}, but frame {found} is: frames were lost or swapped; \
         copy or export the delta again"
    )]
    Number { at: StreamOffset, expected: u64, found: u64 },
    #[error("the frame at {at} is of kind {found}, where {expected} should be; export it again")]
    Kind { at: StreamOffset, expected: &'static str, found: u8 },
    #[error(
        "the data at {at} has encoding {found}, which this program does not know: use the release \
         that wrote it, or export it without compression"
    )]
    Encoding { at: StreamOffset, found: u8 },
    #[error("the frame at {at} has {len} of payload, more than {max}; export it again")]
    TooLong { at: StreamOffset, len: ByteLen, max: ByteLen },
    #[error("the header at {at} is malformed ({what}); export it again")]
    Malformed { at: StreamOffset, what: &'static str },
    #[error("the header at {at} is wrong: {problem}; export it again")]
    Header { at: StreamOffset, problem: HeaderError },
    #[error("the frame at {at} is wrong: {problem}; export it again")]
    Range { at: StreamOffset, problem: RangeError },
    #[error(
        "the end at {at} disagrees with what came before it: {what} should be {expected}, it says \
         {found}; export it again"
    )]
    Sums { at: StreamOffset, what: &'static str, expected: u64, found: u64 },
    #[error(
        "the delta was cut short at {at}: get the rest of it, or export again from {progress} of \
         the volume on"
    )]
    CutShort { at: StreamOffset, progress: ByteOffset },
    #[error(
        "the delta ends at {at}, but more bytes follow: if two were joined, take them apart, else \
         export it again"
    )]
    Trailing { at: StreamOffset },
}

impl StreamError {
    pub fn retry(&self) -> Retry {
        match self {
            StreamError::CutShort { .. } => Retry::Later,
            _ => Retry::Never,
        }
    }
}
