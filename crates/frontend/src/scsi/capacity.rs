//! READ CAPACITY.
use crate::scsi::disk::Disk;

fn block(disk: &Disk) -> [u8; 4] {
    u32::try_from(disk.block).unwrap_or(u32::MAX).to_be_bytes()
}

/// The short form. A disk whose last block it cannot name has the highest number there, which
/// sends initiators to the long form.
pub(super) fn short(disk: &Disk) -> Vec<u8> {
    let last = u32::try_from(disk.last().0).unwrap_or(u32::MAX);
    [last.to_be_bytes(), block(disk)].concat()
}

pub(super) fn long(disk: &Disk) -> Vec<u8> {
    /// Space is given when it is written, and reads as zeros before.
    const THIN_AND_ZERO: u8 = 0xC0;
    let exponent = disk.granule.checked_ilog2().unwrap_or(0).min(15);
    let mut bytes = disk.last().0.to_be_bytes().to_vec();
    bytes.extend(block(disk));
    bytes.extend([0, u8::try_from(exponent).unwrap_or(0), THIN_AND_ZERO, 0]);
    bytes.resize(32, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_told_in_both_forms() {
        let disk = Disk { block: 512, blocks: 2048, granule: 8, read_only: false };
        assert_eq!(short(&disk), [0, 0, 7, 0xFF, 0, 0, 2, 0]);
        assert_eq!(long(&disk)[..16], [0, 0, 0, 0, 0, 0, 7, 0xFF, 0, 0, 2, 0, 0, 3, 0xC0, 0]);
        assert_eq!(long(&disk).len(), 32);
    }

    #[test]
    fn a_large_disk_sends_to_the_long_form() {
        let disk = Disk { block: 4096, blocks: 1 << 33, granule: 1, read_only: false };
        assert_eq!(short(&disk)[..4], [0xFF; 4]);
        assert_eq!(long(&disk)[..8], ((1_u64 << 33) - 1).to_be_bytes());
        assert_eq!(long(&disk)[13], 0);
    }
}
