//! Reading a stream that is cut anywhere.
use super::errors::OptionRefusal;
use super::wire::EXTENDED_REQUEST_LEN;

/// The longest head of any message from a client.
const HEAD_MAX: usize = EXTENDED_REQUEST_LEN;

/// A head of fixed length that may arrive in parts. What is whole is read where it lies; only a cut
/// one is put together here.
#[derive(Debug, Default)]
pub struct Head {
    bytes: [u8; HEAD_MAX],
    filled: usize,
}

impl Head {
    /// Reads a head of `len` bytes off the input, which is used up if that is not all of it.
    pub fn take<T>(
        &mut self,
        len: usize,
        input: &mut &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        if self.filled == 0 && input.len() >= len {
            return Some(read(split_off(input, len)));
        }
        let part = split_off(input, len - self.filled);
        self.bytes[self.filled..][..part.len()].copy_from_slice(part);
        self.filled += part.len();
        if self.filled < len {
            return None;
        }
        self.filled = 0;
        Some(read(&self.bytes[..len]))
    }
}

/// The first `len` bytes of the input, or as many as there are; they are gone from it.
pub fn split_off<'a>(input: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (part, rest) = input.split_at(len.min(input.len()));
    *input = rest;
    part
}

/// Fields of a message whose inner lengths a client chose: none is believed.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Bytes behind a field of 32 bits with their number.
    pub fn sized(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        self.bytes(len)
    }

    /// Bytes behind a field of 16 bits with their number.
    pub fn short(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(self.u16()?);
        self.bytes(len)
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing may follow the last field of an option.
    pub fn ended(&self) -> Result<(), OptionRefusal> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(OptionRefusal::invalid("the option goes on after its last field")),
        }
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_the_same_however_it_is_cut() {
        let bytes: Vec<u8> = (0..28).collect();
        for cut in 0..28 {
            let mut head = Head::default();
            let mut first = &bytes[..cut];
            assert_eq!(head.take(28, &mut first, <[u8]>::to_vec), None);
            assert!(first.is_empty());
            let mut second = &[&bytes[cut..], &[99]].concat()[..];
            assert_eq!(head.take(28, &mut second, <[u8]>::to_vec), Some(bytes.clone()));
            assert_eq!(second, [99]);
        }
    }

    #[test]
    fn fields_end_where_the_message_ends() {
        let mut fields = Fields(&[0, 0, 0, 2, b'a', b'b', 0, 7, 1]);
        assert_eq!(fields.sized(), Some(&b"ab"[..]));
        assert_eq!(fields.u16(), Some(7));
        assert_eq!(fields.u16(), None);
        assert!(!fields.is_empty());
        assert_eq!(Fields(&[0xff, 0xff, 0xff, 0xff, 1]).sized(), None);
        assert_eq!(Fields(&[0, 0, 0]).u32(), None);
    }
}
