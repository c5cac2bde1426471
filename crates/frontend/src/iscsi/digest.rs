//! Digests of headers and data: CRC32C, sent with its lowest byte first.
use crc_fast::{CrcAlgorithm, Digest};

pub const DIGEST_LEN: usize = 4;

const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// A digest that is still growing. It keeps only the state of the sum: the rest is tables.
#[derive(Clone, Copy, Debug)]
pub struct Crc(u64);

impl Crc {
    pub fn new() -> Crc {
        Crc(Digest::new(ALGORITHM).get_state())
    }

    pub fn update(&mut self, bytes: &[u8]) {
        let mut digest = Digest::new_with_init_state(ALGORITHM, self.0);
        digest.update(bytes);
        self.0 = digest.get_state();
    }

    pub fn finish(self) -> [u8; DIGEST_LEN] {
        wire(Digest::new_with_init_state(ALGORITHM, self.0).finalize())
    }
}

pub fn crc(bytes: &[u8]) -> [u8; DIGEST_LEN] {
    wire(crc_fast::checksum(ALGORITHM, bytes))
}

fn wire(sum: u64) -> [u8; DIGEST_LEN] {
    let [a, b, c, d, ..] = sum.to_le_bytes();
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of the standard (RFC 7143, appendix A.4), in the order in which they are sent.
    #[test]
    fn known_sums() {
        assert_eq!(crc(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc(&rising), [0x4e, 0x79, 0xdd, 0x46]);
        let mut parts = Crc::new();
        parts.update(&rising[..7]);
        parts.update(&rising[7..]);
        assert_eq!(parts.finish(), crc(&rising));
    }
}
