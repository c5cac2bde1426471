//! What a block carries: enough to tell whose it is, how new, and that it is whole.
use crc_fast::{CrcAlgorithm, checksum};

use crate::random::Random;

const HEADER: usize = 32;

/// Grows with every attempt to write a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

/// What was found in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Zeroes,
    Written(Version),
    /// Neither: torn, of another volume, or of another block.
    Garbage {
        volume: u64,
        block: u64,
        version: u64,
    },
}

/// Which volume it is, as its blocks say.
pub fn tag(volume: &str) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, volume.as_bytes()) | 1
}

pub fn write(volume: u64, block: u64, version: Version, into: &mut [u8]) {
    let (header, body) = into.split_at_mut(HEADER);
    let mut random = Random::new(volume ^ block.rotate_left(32) ^ version.0);
    body.chunks_mut(8).for_each(|word| {
        word.copy_from_slice(&random.draw().to_be_bytes()[..word.len()]);
    });
    header[..8].copy_from_slice(&volume.to_be_bytes());
    header[8..16].copy_from_slice(&block.to_be_bytes());
    header[16..24].copy_from_slice(&version.0.to_be_bytes());
    let sum = checksum(CrcAlgorithm::Crc64Nvme, body) ^ version.0;
    header[24..].copy_from_slice(&sum.to_be_bytes());
}

pub fn read(volume: u64, block: u64, bytes: &[u8]) -> Found {
    if bytes.iter().all(|byte| *byte == 0) {
        return Found::Zeroes;
    }
    let (header, body) = bytes.split_at(HEADER);
    let word = |at: usize| {
        let bytes = header[at..at + 8].try_into().expect("a slice of eight");
        u64::from_be_bytes(bytes)
    };
    let sum = checksum(CrcAlgorithm::Crc64Nvme, body) ^ word(16);
    if (word(0), word(8), word(24)) == (volume, block, sum) {
        Found::Written(Version(word(16)))
    } else {
        Found::Garbage { volume: word(0), block: word(8), version: word(16) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_says_what_it_is_and_whether_it_is_whole() {
        let mut bytes = vec![0; 4096];
        assert_eq!(read(7, 3, &bytes), Found::Zeroes);
        write(7, 3, Version(9), &mut bytes);
        assert_eq!(read(7, 3, &bytes), Found::Written(Version(9)));
        assert!(matches!(read(7, 4, &bytes), Found::Garbage { .. }), "another block");
        assert!(matches!(read(8, 3, &bytes), Found::Garbage { .. }), "another volume");
        bytes[4095] ^= 1;
        assert!(matches!(read(7, 3, &bytes), Found::Garbage { .. }), "torn");
    }
}
