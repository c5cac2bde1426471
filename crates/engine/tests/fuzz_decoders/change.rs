//! Changes of valid bytes, each with words for what it did.
use crate::disk::MemDisk;
use crate::pools::{Image, Kind, Structure};
use crate::running::Rng;

/// Most fields of a structure stand within its first bytes; the rest are many of one kind.
const FIELDS_WITHIN: usize = 400;

/// Changes one thing, and says what.
pub fn change(rng: &mut Rng, bytes: &mut [u8], image: &Image) -> String {
    let at = offset(rng, bytes);
    let left = bytes.len() - at;
    match rng.below(8) {
        0 => {
            let bit = rng.below(8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        }
        1 => {
            let len = (1 + rng.index(64)).min(left);
            rng.fill(&mut bytes[at..at + len]);
            format!("{len} random bytes at {at}")
        }
        2 => {
            let other = &image.structures[rng.index(image.structures.len())];
            let from = image.disk.bytes(other);
            let len = (1 + rng.index(64)).min(left).min(from.len().saturating_sub(at));
            bytes[at..at + len].copy_from_slice(&from[at.min(from.len() - len)..][..len]);
            format!("{len} bytes at {at} as in {other:?}")
        }
        _ => {
            let width = [1, 2, 4, 5, 6, 7, 8, 8][rng.index(8)].min(left);
            let mut word = [0; 8];
            word[..width].copy_from_slice(&bytes[at..at + width]);
            let value = value(rng, u64::from_le_bytes(word)).to_le_bytes();
            bytes[at..at + width].copy_from_slice(&value[..width]);
            format!("{width} bytes at {at} set to {:x?}", &value[..width])
        }
    }
}

/// Where to change: at a field of eight bytes, near the front, or anywhere.
fn offset(rng: &mut Rng, bytes: &[u8]) -> usize {
    let at = match rng.below(3) {
        0 => 8 * rng.index(bytes.len().min(FIELDS_WITHIN) / 8),
        1 => rng.index(bytes.len().min(FIELDS_WITHIN)),
        _ => rng.index(bytes.len()),
    };
    let at = at.max(8);
    // Zeros are mostly room that is not used.
    let further = bytes[at..].iter().position(|byte| *byte != 0);
    if rng.chance() { at } else { at + further.unwrap_or(0) }
}

/// Values at which arithmetic goes wrong, and neighbours of what was there.
pub fn value(rng: &mut Rng, old: u64) -> u64 {
    let power = 1u64 << rng.below(64);
    match rng.below(10) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => u64::MAX - rng.below(9),
        4 => power,
        5 => power - 1,
        6 => old.wrapping_add(1 + rng.below(9)),
        7 => old.wrapping_sub(1 + rng.below(9)),
        8 => rng.below(1 << 16),
        _ => rng.next(),
    }
}

/// Whether a change is one that the checksum shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    Left,
    MostlyRepaired,
}

/// Changes one to three structures of a pool, and says how.
pub fn change_pool(rng: &mut Rng, image: &Image, disk: &mut MemDisk, sums: Sums) -> String {
    let mut text = image.name.clone();
    let count = if rng.below(4) > 0 { 1 } else { 2 + rng.below(2) };
    for _ in 0..count {
        // A kind first: pages are many, superblocks few.
        let kind = [Kind::Superblock, Kind::Slot, Kind::Page][rng.index(3)];
        let known: Vec<&Structure> =
            image.structures.iter().filter(|structure| structure.kind == kind).collect();
        if known.is_empty() {
            continue;
        }
        let structure = known[rng.index(known.len())];
        let old = disk.bytes(structure);
        let mut new = old.clone();
        let changes = 1 + rng.below(3) / 2;
        let changes: Vec<String> = (0..changes).map(|_| change(rng, &mut new, image)).collect();
        let repaired = sums == Sums::MostlyRepaired && rng.below(8) > 0;
        if repaired {
            repair(&mut new);
        }
        // In both copies, or in one: then the other answers, or does not.
        let both = rng.chance();
        let twins: Vec<usize> = known
            .iter()
            .filter(|other| other.at == structure.at || both && disk.bytes(other) == old)
            .map(|other| other.at)
            .collect();
        for at in &twins {
            disk.write(*at, &new);
        }
        let (copies, sum) = (twins.len(), if repaired { "repaired" } else { "left" });
        let changes = changes.join(", ");
        text += &format!("; {structure:?}, {copies} copies, checksum {sum}: {changes}");
    }
    text
}

/// Every structure begins with the checksum of the rest of it.
pub fn repair(bytes: &mut [u8]) {
    let sum = checksum(&bytes[8..]);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
}

pub fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}
