//! Reading and writing little-endian fields of any width, bounded.
use thiserror::Error;

/// Bytes that are not what the format says. Never caused by a torn write alone: checksums are
/// looked at first, so this is damage that the checksum missed, or another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed {what} at byte {at}")]
pub struct Malformed {
    pub what: &'static str,
    pub at: usize,
}

pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }

    pub fn bytes(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        if self.left() < len {
            return Err(self.malformed(what));
        }
        let part = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(part)
    }

    /// A number of `width` bytes, at most eight.
    pub fn number(&mut self, width: usize, what: &'static str) -> Result<u64, Malformed> {
        let mut word = [0; 8];
        word[..width].copy_from_slice(self.bytes(width, what)?);
        Ok(u64::from_le_bytes(word))
    }

    pub fn byte(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(self.bytes(1, what)?[0])
    }

    pub fn length(&mut self, width: usize, what: &'static str) -> Result<usize, Malformed> {
        let number = self.number(width, what)?;
        usize::try_from(number).map_err(|_| self.malformed(what))
    }
}

pub struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(bytes: &'a mut [u8]) -> Writer<'a> {
        Writer { bytes, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn bytes(&mut self, part: &[u8]) {
        self.bytes[self.at..self.at + part.len()].copy_from_slice(part);
        self.at += part.len();
    }

    pub fn number(&mut self, width: usize, value: u64) {
        assert!(
            width == 8 || value >> (8 * width) == 0,
            "{value} does not fit a field of {width} bytes"
        );
        self.bytes(&value.to_le_bytes()[..width]);
    }

    pub fn byte(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    pub fn skip_to(&mut self, at: usize) {
        assert!(at >= self.at, "fields are written in order");
        self.at = at;
    }
}
