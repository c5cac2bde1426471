//! Numbers as SCSI writes them: the highest byte first.
//!
//! Callers know that the bytes are there: CDBs have a fixed length, and the length of a parameter
//! list is checked before it is read.

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

pub(super) fn u24_at(bytes: &[u8], at: usize) -> u32 {
    let [a, b, c] = array(bytes, at);
    u32::from_be_bytes([0, a, b, c])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

/// A length as an index; what no memory holds becomes the longest length there is.
pub(super) fn index(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// A length in a field of two bytes, of something that is known to be short.
pub(super) fn short(len: usize) -> [u8; 2] {
    u16::try_from(len).expect("what is told in two bytes is shorter than 64 KiB").to_be_bytes()
}

/// A length in a field of four bytes, of something that is held in memory here.
pub(super) fn long(len: usize) -> [u8; 4] {
    u32::try_from(len).expect("what is told in four bytes is shorter than 4 GiB").to_be_bytes()
}

/// Text in a field of fixed length: padded with spaces, and nothing but printable ASCII.
pub(super) fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (to, byte) in field.iter_mut().zip(text.bytes()) {
        *to = if (b' '..=b'~').contains(&byte) { byte } else { b'?' };
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_with_their_highest_byte() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(u16_at(&bytes, 1), 0x0203);
        assert_eq!(u24_at(&bytes, 0), 0x010203);
        assert_eq!(u32_at(&bytes, 4), 0x05060708);
        assert_eq!(u64_at(&bytes, 0), 0x0102030405060708);
    }

    #[test]
    fn text_is_padded_cut_and_printable() {
        assert_eq!(&text::<4>("ab"), b"ab  ");
        assert_eq!(&text::<2>("abc"), b"ab");
        assert_eq!(&text::<3>("a\tb"), b"a?b");
    }
}
