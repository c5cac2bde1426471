//! The bytes of a sector tell which write they came from, and whether they are whole.
//!
//! Every write has a number of its own, and fills each sector with a function of that number, of
//! the volume and of the sector's place. So a sector that was torn, merged wrongly, misplaced or
//! taken from another volume is no value at all.
use crate::rng::mixed;

/// Checkers work by sector: it is what a client may write alone, and smaller than any granule.
pub const SECTOR: usize = 512;

/// What a sector holds: the number of the write whose bytes it has, or zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub u64);

impl Value {
    /// Never written, zeroed or discarded.
    pub const ZEROS: Value = Value(0);
}

/// Where a sector is, among all volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub volume: usize,
    pub sector: u64,
}

fn seed(value: Value, place: Place) -> u64 {
    mixed(value.0 ^ mixed(place.sector ^ mixed(place.volume as u64 + 1)))
}

fn word(seed: u64, at: usize) -> u64 {
    (seed ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Fills one sector.
pub fn fill(value: Value, place: Place, bytes: &mut [u8]) {
    if value == Value::ZEROS {
        bytes.fill(0);
        return;
    }
    let seed = seed(value, place);
    for (at, bytes) in bytes.chunks_exact_mut(8).enumerate() {
        let word = if at == 0 { value.0 } else { word(seed, at) };
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// The value that one sector's bytes are, if they are one.
pub fn value_of(place: Place, bytes: &[u8]) -> Option<Value> {
    let mut words = bytes
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("a chunk has eight bytes")));
    let value = Value(words.next()?);
    if value == Value::ZEROS {
        return words.all(|word| word == 0).then_some(value);
    }
    let seed = seed(value, place);
    let whole = words.enumerate().all(|(at, found)| found == word(seed, at + 1));
    whole.then_some(value)
}

/// The content of a write from `first` on.
pub fn content(value: Value, first: Place, sectors: u64) -> Vec<u8> {
    let len = usize::try_from(sectors).expect("a write fits memory") * SECTOR;
    let mut bytes = vec![0; len];
    for (bytes, sector) in bytes.chunks_exact_mut(SECTOR).zip(first.sector..) {
        fill(value, Place { sector, ..first }, bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_is_a_value_only_whole_and_in_its_place() {
        let place = Place { volume: 1, sector: 7 };
        let mut bytes = content(Value(9), place, 1);
        assert_eq!(value_of(place, &bytes), Some(Value(9)));
        assert_eq!(value_of(Place { sector: 8, ..place }, &bytes), None);
        assert_eq!(value_of(Place { volume: 0, ..place }, &bytes), None);
        bytes[511] ^= 1;
        assert_eq!(value_of(place, &bytes), None);
        let mut zeros = vec![0; SECTOR];
        assert_eq!(value_of(place, &zeros), Some(Value::ZEROS));
        zeros[8] = 1;
        assert_eq!(value_of(place, &zeros), None);
    }
}
