//! The checksums of a write's bytes: made once, where the bytes entered, and kept by the stores (Q11).
//!
//! Parts end where granules do, so a store can keep the checksum of every granule that is written
//! whole: what is stored is what was checked. A head or a tail that covers a granule in part has one
//! of its own, for the way.
use std::ops::RangeInclusive;
use std::sync::Arc;

use block::{ByteLen, ByteOffset};

use crate::entry::Checksum;

/// Most writes are of one granule, and need no memory for their list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Parts {
    One(u64),
    Many(Arc<[u64]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// A granule has this many bytes, as a power of two.
    bits: u8,
    parts: Parts,
}

impl Sums {
    /// From the smallest block to the longest write.
    pub const BITS: RangeInclusive<u8> = 9..=20;

    /// For whoever has a granule that cannot be one: any division is good for the way.
    const USUAL_BITS: u8 = 12;

    pub fn of(granule: ByteLen, offset: ByteOffset, data: &[u8]) -> Sums {
        let bits = u8::try_from(granule.0.trailing_zeros()).unwrap_or(Sums::USUAL_BITS);
        let is_one = granule.0.is_power_of_two() && Sums::BITS.contains(&bits);
        let bits = if is_one { bits } else { Sums::USUAL_BITS };
        let sums = parts(bits, offset, data).map(|part| Checksum::of(part).0);
        Sums::gathered(bits, Sums::count(bits, offset, data.len()), sums)
    }

    /// Of so many parts.
    fn gathered(bits: u8, count: usize, mut sums: impl Iterator<Item = u64>) -> Sums {
        let parts = match (count, sums.next()) {
            (1, Some(only)) => Parts::One(only),
            (_, first) => Parts::Many(first.into_iter().chain(sums).collect()),
        };
        Sums { bits, parts }
    }

    /// As they came over a wire; `list` has [`Sums::count`].
    pub(crate) fn told(bits: u8, list: &[u64]) -> Sums {
        Sums::gathered(bits, list.len(), list.iter().copied())
    }

    /// How many parts bytes have.
    pub(crate) fn count(bits: u8, offset: ByteOffset, len: usize) -> usize {
        if len == 0 {
            return 0;
        }
        let granule = 1usize << bits;
        (within(bits, offset) + len).div_ceil(granule)
    }

    pub fn granule(&self) -> ByteLen {
        ByteLen(1 << self.bits)
    }

    pub(crate) fn bits(&self) -> u8 {
        self.bits
    }

    /// In the order of the parts.
    pub fn list(&self) -> &[u64] {
        match &self.parts {
            Parts::One(only) => std::slice::from_ref(only),
            Parts::Many(list) => list,
        }
    }

    /// Shared, if there are several.
    pub fn shared(self) -> Result<u64, Arc<[u64]>> {
        match self.parts {
            Parts::One(only) => Ok(only),
            Parts::Many(list) => Err(list),
        }
    }

    /// Whether the bytes are those that they were made of.
    pub fn are_of(&self, offset: ByteOffset, data: &[u8]) -> bool {
        let list = self.list();
        list.len() == Sums::count(self.bits, offset, data.len())
            && parts(self.bits, offset, data)
                .zip(list)
                .all(|(part, sum)| Checksum::of(part).0 == *sum)
    }
}

/// Where within its granule an offset lies.
fn within(bits: u8, offset: ByteOffset) -> usize {
    usize::try_from(offset.0 & ((1 << bits) - 1)).expect("a granule fits memory")
}

fn parts(bits: u8, offset: ByteOffset, data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let granule = 1usize << bits;
    let head = (granule - within(bits, offset)).min(data.len());
    let (head, rest) = data.split_at(head);
    std::iter::once(head).filter(|head| !head.is_empty()).chain(rest.chunks(granule))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANULE: ByteLen = ByteLen(4096);

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| u8::try_from(at % 251).expect("small")).collect()
    }

    /// Protects from a checksum that a store keeps for bytes which it does not have.
    #[test]
    fn parts_end_where_granules_do() {
        let data = bytes(10_000);
        for (offset, len, ends) in [
            (0, 4096, vec![4096]),
            (0, 512, vec![512]),
            (4096, 8192, vec![4096, 8192]),
            (3584, 1024, vec![512, 1024]),
            (512, 9728, vec![3584, 7680, 9728]),
            (0, 0, vec![]),
        ] {
            let (offset, data) = (ByteOffset(offset), &data[..len]);
            let sums = Sums::of(GRANULE, offset, data);
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let expected: Vec<u64> =
                starts.zip(&ends).map(|(from, to)| Checksum::of(&data[from..*to]).0).collect();
            assert_eq!(sums.list(), expected);
            assert_eq!(Sums::count(12, offset, len), ends.len());
            assert!(sums.are_of(offset, data));
            assert_eq!(Sums::told(12, &expected), sums);
        }
    }

    #[test]
    fn other_bytes_or_another_place_are_noticed() {
        let data = bytes(8192);
        let sums = Sums::of(GRANULE, ByteOffset(0), &data);
        let mut other = data.clone();
        other[8191] ^= 1;
        assert!(!sums.are_of(ByteOffset(0), &other));
        assert!(!sums.are_of(ByteOffset(512), &data));
        assert!(!sums.are_of(ByteOffset(0), &data[..4096]));
        assert!(!sums.are_of(ByteOffset(0), &[]));
    }

    #[test]
    fn a_granule_that_is_none_does_no_harm() {
        for granule in [0, 1, 100, 5000, 1 << 40, u64::MAX] {
            let sums = Sums::of(ByteLen(granule), ByteOffset(0), &bytes(5000));
            assert_eq!((sums.granule(), sums.list().len()), (GRANULE, 2));
        }
    }
}
