//! Cuts a stream into PDUs: headers, data segments, padding, digests.
//!
//! It keeps a header that is cut, and the place of a segment that is under way. The bytes of
//! segments are put where they belong by whoever asks here.
use super::digest::{Crc, DIGEST_LEN, crc};
use super::errors::ProtocolError;
use super::pdu::{HEADER_LEN, Header, Order, Request, padding};
use crate::scsi::words::TaskId;

/// What stands behind the 48 bytes of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahs {
    /// The command is longer than 16 bytes.
    pub long_cdb: bool,
    /// There is a length for a second direction.
    pub bidirectional: bool,
}

#[derive(Debug)]
pub struct Head {
    pub header: Header,
    pub ahs: Ahs,
}

/// What comes of a PDU when its segment is there.
#[derive(Debug)]
pub enum Body {
    /// Nothing, but it may have a place in the order.
    Nothing(Option<Order>),
    /// The segment is the first data of a write.
    Command {
        itt: u32,
        task: TaskId,
    },
    /// The segment is data of a write. `task` is none if nobody waits for it.
    Data {
        task: Option<TaskId>,
        itt: u32,
        ttt: u32,
        offset: u32,
        last: bool,
    },
    Whole {
        request: Request,
        segment: Vec<u8>,
    },
}

/// A PDU whose segment is on its way.
#[derive(Debug)]
pub struct Segment {
    pub header: Header,
    pub body: Body,
    pub len: usize,
    /// Bytes that are there.
    pub at: usize,
    crc: Option<Crc>,
    tail: [u8; 3 + DIGEST_LEN],
    tail_at: usize,
}

#[derive(Debug)]
enum State {
    /// The beginning of a header, if it was cut.
    Head(Vec<u8>),
    Segment(Segment),
}

#[derive(Debug)]
pub struct Receiver {
    state: State,
    header_digest: bool,
    data_digest: bool,
}

impl Receiver {
    pub fn new(header_digest: bool, data_digest: bool) -> Receiver {
        Receiver { state: State::Head(Vec::new()), header_digest, data_digest }
    }

    /// Whether the stream is between two PDUs.
    pub fn is_between(&self) -> bool {
        matches!(&self.state, State::Head(cut) if cut.is_empty())
    }

    /// Takes a header from the front of the bytes, if it is whole.
    pub fn head(&mut self, rest: &mut &[u8]) -> Result<Option<Head>, ProtocolError> {
        let digest_len = if self.header_digest { DIGEST_LEN } else { 0 };
        let State::Head(cut) = &mut self.state else { return Ok(None) };
        let whole = |bytes: &[u8]| {
            let ahs = bytes.get(4).map_or(0, |words| usize::from(*words) * 4);
            HEADER_LEN + ahs + digest_len
        };
        if cut.is_empty() && rest.len() >= whole(rest) {
            let (head, behind) = rest.split_at(whole(rest));
            *rest = behind;
            return decode(head, self.header_digest).map(Some);
        }
        while cut.len() < whole(cut) {
            let missing = whole(cut) - cut.len();
            let (front, behind) = rest.split_at(missing.min(rest.len()));
            if front.is_empty() {
                return Ok(None);
            }
            cut.extend_from_slice(front);
            *rest = behind;
        }
        let head = decode(cut, self.header_digest)?;
        cut.clear();
        Ok(Some(head))
    }

    /// The segment of the header that was just taken begins.
    pub fn begin(&mut self, header: Header, body: Body) {
        let len = header.segment_len();
        let crc = (self.data_digest && len > 0).then(Crc::new);
        let tail = [0; 3 + DIGEST_LEN];
        self.state = State::Segment(Segment { header, body, len, at: 0, crc, tail, tail_at: 0 });
    }

    pub fn segment(&mut self) -> Option<&mut Segment> {
        match &mut self.state {
            State::Segment(segment) => Some(segment),
            State::Head(_) => None,
        }
    }

    /// The PDU, when all of it is there, and whether its data is what was sent.
    pub fn end(&mut self) -> Option<(Segment, bool)> {
        let State::Segment(segment) = &self.state else { return None };
        if segment.at < segment.len || segment.tail_at < segment.tail_len() {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Head(Vec::new())) {
            State::Segment(segment) => {
                let is_intact = segment.is_intact();
                Some((segment, is_intact))
            }
            State::Head(_) => None,
        }
    }
}

impl Segment {
    pub fn left(&self) -> usize {
        self.len - self.at
    }

    /// These bytes of the segment are where they belong.
    pub fn took(&mut self, bytes: &[u8]) {
        if let Some(crc) = &mut self.crc {
            crc.update(bytes);
        }
        self.at += bytes.len();
    }

    /// Takes padding and digest.
    pub fn take_tail(&mut self, rest: &mut &[u8]) {
        if self.left() > 0 {
            return;
        }
        let missing = self.tail_len() - self.tail_at;
        let (front, behind) = rest.split_at(missing.min(rest.len()));
        self.tail[self.tail_at..self.tail_at + front.len()].copy_from_slice(front);
        self.tail_at += front.len();
        *rest = behind;
    }

    fn tail_len(&self) -> usize {
        padding(self.len) + if self.crc.is_some() { DIGEST_LEN } else { 0 }
    }

    fn is_intact(&self) -> bool {
        let Some(mut crc) = self.crc else { return true };
        let (pad, digest) = self.tail[..self.tail_len()].split_at(padding(self.len));
        crc.update(pad);
        crc.finish() == digest
    }
}

fn decode(bytes: &[u8], has_digest: bool) -> Result<Head, ProtocolError> {
    let end = bytes.len() - if has_digest { DIGEST_LEN } else { 0 };
    let (bytes, digest) = bytes.split_at(end);
    if has_digest && crc(bytes) != digest {
        return Err(ProtocolError::HeaderDigest);
    }
    let (front, ahs) = bytes.split_at(HEADER_LEN);
    let mut header = Header([0; HEADER_LEN]);
    header.set(0, front);
    Ok(Head { header, ahs: additional(ahs)? })
}

/// Additional header segments: length, kind, one byte, and so many more bytes up to a word.
fn additional(mut bytes: &[u8]) -> Result<Ahs, ProtocolError> {
    let mut ahs = Ahs::default();
    while let [high, low, kind, _, behind @ ..] = bytes {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        match kind & 0x3f {
            1 => ahs.long_cdb = true,
            2 => ahs.bidirectional = true,
            _ => {}
        }
        // The length counts the byte behind the kind.
        let more = len.saturating_sub(1).next_multiple_of(4);
        bytes = behind.get(more..).ok_or(ProtocolError::BrokenAhs)?;
    }
    Ok(ahs)
}

#[cfg(test)]
mod tests;
