//! Reading a stream that comes in pieces, cut anywhere.
//!
//! Nothing of a frame is yielded before all of it is there and verified, and what was refused once
//! stays refused. Held are a head and one payload, of a length that its head's checksum vouches
//! for.
use std::mem;

use block::{Buf, ByteLen, ByteOffset, Data, Seq};

use super::books::{Books, Sums};
use super::error::{Part, StreamError, StreamOffset};
use super::frame::{HEAD, Head, Kind, MAGIC};
use super::header::Header;
use crate::units::Checksum;

/// One whole frame.
#[derive(Clone, Debug)]
pub enum Item {
    Header(Box<Header>),
    Bytes { offset: ByteOffset, changed: Seq, data: Data },
    Hole { offset: ByteOffset, len: ByteLen, changed: Seq },
    End(Sums),
}

/// The destination's end of a stream:
///
/// ```text
/// for each piece:  while it is not empty:  piece = push(piece);  while let Some(item) = next()?
/// at the end:      finish()?  -- before anything is committed
/// ```
#[derive(Debug)]
pub struct Reader {
    /// Where the present frame begins.
    at: StreamOffset,
    head: [u8; HEAD],
    /// Bytes that are there of the present head or payload.
    have: usize,
    phase: Phase,
    /// From the header on.
    books: Option<Books>,
}

#[derive(Debug)]
enum Phase {
    Head,
    Payload { head: Head, bytes: Buf },
    Ended(Sums),
    Failed(StreamError),
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new()
    }
}

impl Reader {
    pub fn new() -> Reader {
        let at = StreamOffset(0);
        Reader { at, head: [0; HEAD], have: 0, phase: Phase::Head, books: None }
    }

    /// Takes what the present frame still needs, at most, and gives the rest back: to be pushed
    /// again when [`Reader::next`] has nothing more.
    #[must_use = "what was not taken has to be pushed again"]
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let part: &mut [u8] = match &mut self.phase {
            Phase::Head => &mut self.head,
            Phase::Payload { bytes, .. } => bytes,
            Phase::Ended(_) if !bytes.is_empty() => {
                self.phase = Phase::Failed(StreamError::Trailing { at: self.at });
                return &[];
            }
            Phase::Ended(_) | Phase::Failed(_) => return &[],
        };
        let (taken, rest) = bytes.split_at(bytes.len().min(part.len() - self.have));
        part[self.have..][..taken.len()].copy_from_slice(taken);
        self.have += taken.len();
        rest
    }

    /// The next whole frame; `None` when more bytes are needed, or the end was yielded.
    #[expect(clippy::should_implement_trait, reason = "None is not the end, only a pause")]
    pub fn next(&mut self) -> Result<Option<Item>, StreamError> {
        let item = self.step();
        if let Err(error) = &item {
            self.phase = Phase::Failed(error.clone());
        }
        item
    }

    /// Whether the stream was whole: its end was yielded, and nothing followed.
    pub fn finish(&self) -> Result<Sums, StreamError> {
        let gathered = match &self.phase {
            Phase::Ended(sums) => return Ok(*sums),
            Phase::Failed(error) => return Err(error.clone()),
            Phase::Head => self.have,
            Phase::Payload { .. } => HEAD + self.have,
        };
        let at = StreamOffset(self.at.0 + gathered as u64);
        Err(StreamError::CutShort { at, progress: self.progress() })
    }

    /// Up to where the volume is covered by what was yielded: where an interrupted import goes on.
    pub fn progress(&self) -> ByteOffset {
        self.books.as_ref().map_or(ByteOffset(0), Books::reached)
    }

    /// Memory that waits to be filled.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        match &self.phase {
            Phase::Payload { bytes, .. } => HEAD + bytes.capacity(),
            _ => HEAD,
        }
    }

    fn step(&mut self) -> Result<Option<Item>, StreamError> {
        if let Phase::Failed(error) = &self.phase {
            return Err(error.clone());
        }
        if matches!(self.phase, Phase::Head) {
            let seen = self.have.min(MAGIC.len());
            if self.books.is_none() && self.head[..seen] != MAGIC[..seen] {
                return Err(StreamError::Foreign { at: self.at });
            }
            if self.have < HEAD {
                return Ok(None);
            }
            let number = self.books.as_ref().map_or(0, |books| books.sums().frames);
            let head = Head::decode(&self.head, self.at, number)?;
            self.phase = Phase::Payload { head, bytes: Buf::zeroed(head.payload) };
            self.have = 0;
        }
        match mem::replace(&mut self.phase, Phase::Head) {
            Phase::Payload { head, bytes } if self.have == bytes.len() => {
                self.judge(head, bytes).map(Some)
            }
            waiting => {
                self.phase = waiting;
                Ok(None)
            }
        }
    }

    /// A frame of which all bytes are there.
    fn judge(&mut self, head: Head, payload: Buf) -> Result<Item, StreamError> {
        let at = self.at;
        if Checksum::of(&payload) != head.payload_checksum {
            return Err(StreamError::Damaged { at, part: Part::Payload });
        }
        let wrong = |problem| StreamError::Range { at, problem };
        let len = payload.len() as u64;
        let item = match (head.kind, &mut self.books) {
            (Kind::Header, None) => self.open(&payload)?,
            (Kind::Bytes { offset, changed, checksum }, Some(books)) => {
                // Raw data is the payload, whose checksum is known by now.
                if checksum != head.payload_checksum {
                    return Err(StreamError::Damaged { at, part: Part::Data });
                }
                books.bytes(offset, ByteLen(len), changed).map_err(wrong)?;
                Item::Bytes { offset, changed, data: payload.into_data() }
            }
            (Kind::Hole { offset, changed, len }, Some(books)) => {
                books.hole(offset, len, changed).map_err(wrong)?;
                Item::Hole { offset, len, changed }
            }
            (Kind::End { data, holes, running }, Some(books)) => {
                let sums = books.sums();
                compare(at, "bytes of data", sums.data.0, data.0)?;
                compare(at, "bytes of holes", sums.holes.0, holes.0)?;
                compare(at, "the running checksum", books.running().0, running.0)?;
                self.phase = Phase::Ended(sums);
                Item::End(sums)
            }
            (kind, books) => {
                let expected = match books {
                    None => "the header",
                    Some(_) => "data, a hole or the end",
                };
                return Err(StreamError::Kind { at, expected, found: kind.code() });
            }
        };
        if let Some(books) = &mut self.books {
            books.frame(&self.head);
        }
        self.at.0 += HEAD as u64 + len;
        self.have = 0;
        Ok(item)
    }

    fn open(&mut self, payload: &[u8]) -> Result<Item, StreamError> {
        let at = self.at;
        let header = Header::decode(payload)
            .map_err(|problem| StreamError::Malformed { at, what: problem.what })?;
        header.check().map_err(|problem| StreamError::Header { at, problem })?;
        self.books = Some(Books::open(&header));
        Ok(Item::Header(Box::new(header)))
    }
}

fn compare(
    at: StreamOffset,
    what: &'static str,
    expected: u64,
    found: u64,
) -> Result<(), StreamError> {
    if expected == found { Ok(()) } else { Err(StreamError::Sums { at, what, expected, found }) }
}
