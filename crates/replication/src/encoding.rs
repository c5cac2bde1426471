//! Reading and writing the fields of states and messages, bounded.
//!
//! Invariants: numbers are little endian and have a fixed width; what varies in length is preceded
//! by its length. A reader never panics, whatever it is given, never reads beyond its bytes, and
//! never sets memory aside for more elements than the bytes that are left could hold.
use block::{ByteLen, ByteOffset, Position, Seq, Term};
use thiserror::Error;

/// Bytes that are no message or no state.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    #[error("malformed: {what}")]
    Field { what: &'static str },
    #[error("{what} of version {found}; this is version {known}")]
    Version { what: &'static str, found: u16, known: u16 },
}

/// Bytes of a seq within a state: the store keeps 56 bits of every seq.
pub const SEQ_LEN: usize = 7;

/// Every seq in a state is lower.
pub const SEQ_END: u64 = 1 << (8 * SEQ_LEN);

#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn new() -> Writer {
        Writer::default()
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn bytes(&mut self, part: &[u8]) {
        self.bytes.extend_from_slice(part);
    }

    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub fn u128(&mut self, value: u128) {
        self.bytes(&value.to_le_bytes());
    }

    /// How many bytes or elements follow, in `width` bytes.
    pub fn length(&mut self, width: usize, value: usize, max: usize, what: &str) {
        assert!(value <= max, "{value} are more than the {max} of the bound: {what}");
        let word = (value as u64).to_le_bytes();
        assert!(word[width..].iter().all(|byte| *byte == 0), "{value} in {width} bytes: {what}");
        self.bytes(&word[..width]);
    }

    /// A seq as states keep it.
    pub fn seq(&mut self, seq: Seq) {
        assert!(seq.0 < SEQ_END, "no store has a seq of {}", seq.0);
        self.bytes(&seq.0.to_le_bytes()[..SEQ_LEN]);
    }

    pub fn position(&mut self, position: Position) {
        self.u64(position.term.0);
        self.u64(position.seq.0);
    }

    /// What may be missing: whether it is there, then itself.
    pub fn option<T>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Writer, &T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }
}

#[derive(Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { left: bytes }
    }

    pub fn left(&self) -> usize {
        self.left.len()
    }

    pub fn bytes(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let (part, left) = self.left.split_at_checked(len).ok_or(Malformed::Field { what })?;
        self.left = left;
        Ok(part)
    }

    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let part = self.bytes(N, what)?;
        part.try_into().map_err(|_| Malformed::Field { what })
    }

    pub fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub fn u128(&mut self, what: &'static str) -> Result<u128, Malformed> {
        Ok(u128::from_le_bytes(self.array(what)?))
    }

    /// A byte that is 0 or 1. Anything else would be written differently from how it was read.
    pub fn bool(&mut self, what: &'static str) -> Result<bool, Malformed> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Field { what }),
        }
    }

    /// A number of bytes or elements, in `width` bytes, at most `max`.
    pub fn length(
        &mut self,
        width: usize,
        max: usize,
        what: &'static str,
    ) -> Result<usize, Malformed> {
        let mut word = [0; 8];
        let known = word.get_mut(..width).ok_or(Malformed::Field { what })?;
        known.copy_from_slice(self.bytes(width, what)?);
        match usize::try_from(u64::from_le_bytes(word)) {
            Ok(length) if length <= max => Ok(length),
            _ => Err(Malformed::Field { what }),
        }
    }

    /// `count` elements of at least `least` bytes each.
    pub fn list<T>(
        &mut self,
        count: usize,
        least: usize,
        what: &'static str,
        mut read: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        if count.checked_mul(least).is_none_or(|bytes| bytes > self.left()) {
            return Err(Malformed::Field { what });
        }
        (0..count).map(|_| read(self)).collect()
    }

    /// A seq as states keep it.
    pub fn seq(&mut self, what: &'static str) -> Result<Seq, Malformed> {
        let mut word = [0; 8];
        word[..SEQ_LEN].copy_from_slice(self.bytes(SEQ_LEN, what)?);
        Ok(Seq(u64::from_le_bytes(word)))
    }

    pub fn term(&mut self, what: &'static str) -> Result<Term, Malformed> {
        self.u64(what).map(Term)
    }

    pub fn position(&mut self, what: &'static str) -> Result<Position, Malformed> {
        let position = Position::new(self.u64(what)?, self.u64(what)?);
        // Stores keep 56 bits of a seq.
        match position.seq.0 >> 56 {
            0 => Ok(position),
            _ => Err(Malformed::Field { what }),
        }
    }

    pub fn offset(&mut self, what: &'static str) -> Result<ByteOffset, Malformed> {
        self.u64(what).map(ByteOffset)
    }

    pub fn len(&mut self, what: &'static str) -> Result<ByteLen, Malformed> {
        self.u64(what).map(ByteLen)
    }

    pub fn option<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.bool(what)? { read(self).map(Some) } else { Ok(None) }
    }

    /// Nothing may follow: what a later version would say there must not be passed over.
    pub fn end(&self, what: &'static str) -> Result<(), Malformed> {
        if self.left.is_empty() { Ok(()) } else { Err(Malformed::Field { what }) }
    }
}
