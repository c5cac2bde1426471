//! What a sector holds, and how it is recognised: every sector names the operation that wrote it.
use std::fmt;

use block::Position;
use engine::VolumeId;

/// The finest unit of a write, and so of the ledger.
pub const SECTOR: usize = 512;
const WORDS: usize = SECTOR / 8;

/// Who made a sector what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Nobody yet, or an operation that zeroed it.
    Zeros,
    Written(Position),
}

/// Where a sector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub volume: VolumeId,
    pub sector: u64,
}

/// Fills a sector. No two operations, and no two places, have the same bytes.
pub(super) fn fill(bytes: &mut [u8], place: Place, stamp: Stamp) {
    let Stamp::Written(position) = stamp else {
        return bytes.fill(0);
    };
    let header = [place.volume.0, place.sector, position.term.0, position.seq.0];
    let seed = header.iter().fold(0, |seed, word| mixed(seed ^ word));
    let body = (0..).map(|n| mixed(seed.wrapping_add(n)));
    let words = header.into_iter().chain(body).take(WORDS);
    for (eight, word) in bytes.chunks_exact_mut(8).zip(words) {
        eight.copy_from_slice(&word.to_le_bytes());
    }
}

/// The finish of splitmix64, as the simulator's generator has it.
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// What a sector turned out to hold; for the message about one that is wrong.
pub(super) enum Found {
    Stamp(Place, Stamp),
    Rubbish,
}

impl Found {
    pub(super) fn in_sector(bytes: &[u8], place: Place) -> Found {
        if bytes.iter().all(|byte| *byte == 0) {
            return Found::Stamp(place, Stamp::Zeros);
        }
        let mut words = bytes.chunks_exact(8).map(|eight| {
            u64::from_le_bytes(eight.try_into().expect("chunks of eight have eight bytes"))
        });
        let mut next = || words.next().unwrap_or_default();
        let place = Place { volume: VolumeId(next()), sector: next() };
        let stamp = Stamp::Written(Position::new(next(), next()));
        let mut whole = [0; SECTOR];
        fill(&mut whole, place, stamp);
        match whole[..] == *bytes {
            true => Found::Stamp(place, stamp),
            false => Found::Rubbish,
        }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stamp::Zeros => write!(f, "zeros"),
            Stamp::Written(position) => write!(f, "write {position}"),
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Stamp(_, Stamp::Zeros) => write!(f, "zeros"),
            Found::Stamp(place, stamp) => {
                write!(f, "{stamp} of sector {} of volume {}", place.sector, place.volume)
            }
            Found::Rubbish => write!(f, "bytes that nobody wrote"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { volume: VolumeId(3), sector: 9 };

    /// Protects from a judge that is blind: a sector of another place, of another write, or with
    /// one bad bit must not pass for the right one.
    #[test]
    fn a_sector_is_recognised_and_a_changed_one_is_not() {
        let stamp = Stamp::Written(Position::new(2, 7));
        let mut bytes = [0; SECTOR];
        fill(&mut bytes, PLACE, stamp);
        let found = Found::in_sector(&bytes, Place { sector: 0, ..PLACE });
        assert!(matches!(found, Found::Stamp(PLACE, found) if found == stamp));
        bytes[SECTOR - 1] ^= 1;
        assert!(matches!(Found::in_sector(&bytes, PLACE), Found::Rubbish));
        fill(&mut bytes, PLACE, Stamp::Zeros);
        assert_eq!(bytes, [0; SECTOR]);
    }
}
