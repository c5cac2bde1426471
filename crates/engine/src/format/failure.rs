//! The mark that a pool's device has failed: how often a write or a flush of it was lost.
//!
//! Invariants:
//! - The mark lies in two places, both in the room before the journal. What either of them says counts: a
//!   device that fails may take one write and lose the other.
//! - It is within one sector of 512 bytes, which no device tears.
//! - The number only grows. Bytes without the magic and the tag of the pool are no mark.
use super::codec::{Reader, Writer};
use crate::limits::COPY_GAP;
use crate::units::Checksum;

/// Where the two copies lie: behind the superblocks, away from them by more than a page.
pub const FAILURE_MARKS_AT: [u64; 2] = [16 << 10, COPY_GAP + (16 << 10)];
/// What is read and written; only the first [`MARK_LEN`] bytes are the mark.
pub const FAILURE_MARK_PAGE: usize = 4096;

const MARK_LEN: usize = 512;
const MAGIC: &[u8; 8] = b"POLLUXFM";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureMark {
    /// The tag of the pool.
    pub pool: u64,
    pub failures: u64,
}

impl FailureMark {
    pub fn encode(self, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), FAILURE_MARK_PAGE, "a mark has a page to itself");
        bytes.fill(0);
        let mut w = Writer::new(bytes);
        w.skip_to(8);
        w.bytes(MAGIC);
        w.number(8, self.pool);
        w.number(8, self.failures);
        let sum = Checksum::of(&bytes[8..MARK_LEN]);
        Writer::new(bytes).number(8, sum.0);
    }

    /// The failures of a pool that these bytes tell of. A mark of this pool that is damaged tells of one.
    pub fn failures(bytes: &[u8], pool: u64) -> u64 {
        let mut r = Reader::new(bytes);
        let mut fields = || {
            let sum = r.number(8, "mark").ok()?;
            let is_mark = r.bytes(8, "magic").ok()? == MAGIC && r.number(8, "pool").ok()? == pool;
            let failures = r.number(8, "failures").ok()?;
            let whole = bytes.get(8..MARK_LEN).is_some_and(|rest| Checksum::of(rest).0 == sum);
            is_mark.then_some(if whole { failures } else { 1 })
        };
        fields().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_of_its_own_pool_alone() {
        let mut bytes = [0; FAILURE_MARK_PAGE];
        assert_eq!(FailureMark::failures(&bytes, 7), 0, "room is no mark");
        FailureMark { pool: 7, failures: 3 }.encode(&mut bytes);
        assert_eq!(FailureMark::failures(&bytes, 7), 3);
        assert_eq!(FailureMark::failures(&bytes, 8), 0, "a pool that was here before");
        bytes[MARK_LEN..].fill(9);
        assert_eq!(FailureMark::failures(&bytes, 7), 3, "what is behind the mark is room");
        bytes[24] ^= 4;
        assert_eq!(FailureMark::failures(&bytes, 7), 1, "a damaged mark is one");
        assert_eq!(FailureMark::failures(&[1; 20], 7), 0);
    }
}
