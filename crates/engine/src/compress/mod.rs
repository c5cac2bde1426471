//! Compression of granules: pure functions from bytes to bytes.
//!
//! A block is stored compressed only where that saves a whole page; else it is stored raw. The
//! stored form is the exact length of the compressed bytes, these bytes, and zeros up to a whole
//! page. Encoders give the same bytes for the same input, so that a block which is made anew from
//! a good copy has the checksum that the map expects.
//!
//! Decoders are given what a device says. They never read or write beyond what they are given,
//! never panic, and accept nothing that an encoder cannot have written: whole granules only.
mod choice;
mod gzip;
mod lz4;
mod lzjb;
mod sample;
#[cfg(test)]
mod tests;
mod zle;

use thiserror::Error;

pub use choice::{Compression, GzipLevel, UnknownCompression};
pub use sample::worth_a_try;

use crate::format::Encoding;
use crate::limits::MAP_PAGE;

/// Space is given out in whole pages, whatever the sectors of the pool are: that keeps it in long
/// runs, and what less would save is little.
pub const PAGE: usize = MAP_PAGE;

/// Bytes of the length in front of the compressed ones.
const LENGTH: usize = 4;

/// Why stored bytes with a good checksum are no granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeProblem {
    #[error("its encoding is not known")]
    Unknown,
    #[error("its compressed length does not agree with the {stored} bytes that are stored")]
    Length { stored: usize },
    #[error("there is something behind its end")]
    Padding,
    #[error("its bytes are not a granule of this encoding")]
    Stream,
}

/// A granule as it will be stored, if that takes a page less than it does raw.
pub fn encode(compression: Compression, granule: &[u8]) -> Option<(Encoding, Vec<u8>)> {
    let encoding = compression.encoding()?;
    let max = granule.len().checked_sub(PAGE + LENGTH)?;
    let room = if encoding == Encoding::Lz4 { lz4::room_for(granule.len()) } else { max };
    let mut stored = vec![0; LENGTH + room];
    let (length, packed) = stored.split_at_mut(LENGTH);
    let len = match encoding {
        Encoding::Lz4 => lz4::encode(granule, packed),
        Encoding::Gzip(level) => gzip::encode(level, granule, packed),
        Encoding::Zle => zle::encode(granule, packed),
        Encoding::Lzjb => lzjb::encode(granule, packed),
        Encoding::Raw | Encoding::Unknown => None,
    }?;
    if len > max {
        return None;
    }
    length.copy_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
    // An encoder may have left something behind its end.
    stored.truncate(LENGTH + len);
    stored.resize((LENGTH + len).next_multiple_of(PAGE), 0);
    Some((encoding, stored))
}

/// Fills `out`, a whole granule, from what is stored of it.
pub fn decode(encoding: Encoding, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeProblem> {
    let bad_length = DecodeProblem::Length { stored: stored.len() };
    if encoding == Encoding::Raw {
        if stored.len() != out.len() {
            return Err(bad_length);
        }
        out.copy_from_slice(stored);
        return Ok(());
    }
    let (length, rest) = stored.split_first_chunk::<LENGTH>().ok_or(bad_length)?;
    let len = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| bad_length)?;
    let (packed, padding) = rest.split_at_checked(len).ok_or(bad_length)?;
    // As many pages as it takes, and fewer than raw.
    if padding.len() >= PAGE || !stored.len().is_multiple_of(PAGE) || stored.len() >= out.len() {
        return Err(bad_length);
    }
    if padding.iter().any(|byte| *byte != 0) {
        return Err(DecodeProblem::Padding);
    }
    let decoded = match encoding {
        Encoding::Lz4 => lz4::decode(packed, out),
        Encoding::Gzip(_) => gzip::decode(packed, out),
        Encoding::Zle => zle::decode(packed, out),
        Encoding::Lzjb => lzjb::decode(packed, out),
        Encoding::Raw | Encoding::Unknown => return Err(DecodeProblem::Unknown),
    };
    decoded.ok_or(DecodeProblem::Stream)
}

/// Feeds arbitrary bytes to every decoder: as what is stored, and as what was compressed.
pub fn decode_any(bytes: &[u8]) {
    let mut framed = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
    framed.extend_from_slice(bytes);
    framed.resize(framed.len().next_multiple_of(PAGE), 0);
    let mut out = vec![0; 8 * PAGE];
    for byte in 0..=u8::MAX {
        if let Some(encoding) = Encoding::from_byte(byte) {
            let _ = decode(encoding, bytes, &mut out);
            let _ = decode(encoding, &framed, &mut out);
        }
    }
}

/// Whether a granule of `granule` sectors can be stored so: raw as it is, compressed in whole
/// pages of `page` sectors and at least one less.
pub fn can_be(encoding: Encoding, sectors: u64, granule: u64, page: u64) -> bool {
    match encoding {
        Encoding::Raw => sectors == granule,
        Encoding::Unknown => false,
        Encoding::Lz4 | Encoding::Gzip(_) | Encoding::Zle | Encoding::Lzjb => {
            sectors > 0 && sectors.is_multiple_of(page) && sectors < granule
        }
    }
}
