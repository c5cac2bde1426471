//! Writing a stream, frame by frame, behind whatever the caller's memory holds already.
use block::{ByteLen, ByteOffset, Seq};

use super::books::{Books, Sums};
use super::error::{HeaderError, RangeError};
use super::frame::{Head, Kind};
use super::header::Header;
use crate::units::Checksum;

/// The source's end of a stream. What was refused left no byte, and the stream can go on.
///
/// A stream is whole only with [`Writer::finish`]; one that is dropped before is refused by every
/// reader, as it should be.
#[derive(Debug)]
pub struct Writer {
    books: Books,
}

impl Writer {
    pub fn new(header: &Header, out: &mut Vec<u8>) -> Result<Writer, HeaderError> {
        header.check()?;
        let mut writer = Writer { books: Books::open(header) };
        let payload = header.encode();
        writer.frame(Kind::Header, &payload, Checksum::of(&payload), out);
        Ok(writer)
    }

    /// Data of whole granules that were last changed by one operation, at most
    /// [`DATA_MAX`](super::DATA_MAX) of it.
    pub fn bytes(
        &mut self,
        offset: ByteOffset,
        changed: Seq,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), RangeError> {
        self.books.bytes(offset, ByteLen(data.len() as u64), changed)?;
        let checksum = Checksum::of(data);
        self.frame(Kind::Bytes { offset, changed, checksum }, data, checksum, out);
        Ok(())
    }

    /// A range of any length that reads as zeros.
    pub fn hole(
        &mut self,
        offset: ByteOffset,
        len: ByteLen,
        changed: Seq,
        out: &mut Vec<u8>,
    ) -> Result<(), RangeError> {
        self.books.hole(offset, len, changed)?;
        self.frame(Kind::Hole { offset, changed, len }, &[], Checksum::of(&[]), out);
        Ok(())
    }

    pub fn finish(self, out: &mut Vec<u8>) -> Sums {
        let sums = self.books.sums();
        out.extend(Head::end(sums, self.books.running()).encode());
        sums
    }

    fn frame(&mut self, kind: Kind, payload: &[u8], payload_checksum: Checksum, out: &mut Vec<u8>) {
        let number = self.books.sums().frames;
        let head = Head { number, kind, payload: payload.len(), payload_checksum }.encode();
        out.extend_from_slice(&head);
        out.extend_from_slice(payload);
        self.books.frame(&head);
    }
}
