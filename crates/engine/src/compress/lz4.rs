//! The block format of LZ4, by `lz4_flex` without `unsafe`.
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

/// Bytes that the encoder wants to see behind the start of its output, however few it will use.
pub fn room_for(plain: usize) -> usize {
    get_maximum_output_size(plain)
}

pub fn encode(plain: &[u8], out: &mut [u8]) -> Option<usize> {
    compress_into(plain, out).ok()
}

pub fn decode(packed: &[u8], out: &mut [u8]) -> Option<()> {
    let len = decompress_into(packed, out).ok()?;
    (len == out.len()).then_some(())
}
