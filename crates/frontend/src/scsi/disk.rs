//! The disk as initiators see it: blocks, their number, and how much one command may ask for.
use block::{ByteLen, ByteOffset};

use crate::export::Export;
use crate::scsi::sense::{Code, Sense};

/// Bytes that one command may move. Nothing holds more for one command.
const TRANSFER_MAX: u64 = 16 << 20;

/// Blocks that one COMPARE AND WRITE may name. Cluster locks are one block, and one is also what
/// the Linux target allows.
pub(super) const COMPARE_BLOCKS_MAX: u8 = 1;

/// Bytes that one UNMAP may give back: a bound for the work behind one command.
const UNMAP_MAX: u64 = 512 << 20;

/// Ranges in one UNMAP.
pub(super) const UNMAP_RANGES_MAX: usize = 256;

/// Blocks that one WRITE SAME may fill: what its shorter form can name.
pub(super) const SAME_BLOCKS_MAX: u64 = 0xFFFF;

/// A block's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lba(pub(super) u64);

/// Blocks in a row, as a command names them: perhaps beyond the disk's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: Lba,
    pub(super) blocks: u64,
}

impl Span {
    pub(super) fn new(first: u64, blocks: impl Into<u64>) -> Span {
        Span { first: Lba(first), blocks: blocks.into() }
    }

    pub(super) fn is_empty(self) -> bool {
        self.blocks == 0
    }

    pub(super) fn overlaps(self, other: Span) -> bool {
        let ends_after = |a: Span, b: Lba| b.0.saturating_sub(a.first.0) < a.blocks;
        let (low, high) = if self.first <= other.first { (self, other) } else { (other, self) };
        !high.is_empty() && ends_after(low, high.first)
    }

    /// The least that has both in it.
    pub(super) fn hull(self, other: Span) -> Span {
        let end = |span: Span| span.first.0.saturating_add(span.blocks);
        let first = self.first.min(other.first);
        Span { first, blocks: end(self).max(end(other)) - first.0 }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Disk {
    /// Bytes in a block.
    pub(super) block: u64,
    /// Blocks on the disk.
    pub(super) blocks: u64,
    /// Blocks in what the store keeps as one.
    pub(super) granule: u64,
    pub(super) read_only: bool,
}

impl Disk {
    pub(super) fn new(export: &Export) -> Disk {
        let block = export.block.0.max(1);
        Disk {
            block,
            blocks: export.size.0 / block,
            granule: (export.granule.0 / block).max(1),
            read_only: export.read_only,
        }
    }

    /// Whether the disk has another size now.
    pub(super) fn resize(&mut self, size: ByteLen) -> bool {
        let blocks = size.0 / self.block;
        std::mem::replace(&mut self.blocks, blocks) != blocks
    }

    pub(super) fn last(&self) -> Lba {
        Lba(self.blocks.saturating_sub(1))
    }

    pub(super) fn transfer_max(&self) -> u64 {
        TRANSFER_MAX / self.block
    }

    pub(super) fn unmap_max(&self) -> u64 {
        UNMAP_MAX / self.block
    }

    /// Whether all of a span is on the disk.
    pub(super) fn check(&self, span: Span) -> Result<(), Sense> {
        let left = self.blocks.checked_sub(span.first.0);
        match left {
            Some(left) if span.blocks <= left => Ok(()),
            _ => Err(Sense::illegal(Code::OUT_OF_RANGE)),
        }
    }

    /// Whether a span is on the disk and short enough for one command. `field` is where the CDB
    /// has its length.
    pub(super) fn check_transfer(&self, span: Span, field: u16) -> Result<(), Sense> {
        self.check(span)?;
        if span.blocks > self.transfer_max() { Err(Sense::cdb(field)) } else { Ok(()) }
    }

    pub(super) fn offset(&self, lba: Lba) -> ByteOffset {
        ByteOffset(lba.0 * self.block)
    }

    pub(super) fn len(&self, blocks: u64) -> ByteLen {
        ByteLen(blocks * self.block)
    }

    /// The bytes of blocks that one command may name, as an index into memory.
    pub(super) fn index(&self, blocks: u64) -> usize {
        usize::try_from(blocks.saturating_mul(self.block)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(size: u64, block: u64) -> Disk {
        Disk::new(&Export {
            name: "db".into(),
            uid: [0; 16],
            size: ByteLen(size),
            block: ByteLen(block),
            granule: ByteLen(4096),
            read_only: false,
        })
    }

    #[test]
    fn spans_overlap_where_they_share_a_block() {
        let span = |first, blocks: u64| Span::new(first, blocks);
        assert!(span(0, 2).overlaps(span(1, 1)));
        assert!(span(1, 1).overlaps(span(0, 2)));
        assert!(!span(0, 2).overlaps(span(2, 1)));
        assert!(!span(2, 1).overlaps(span(0, 2)));
        assert!(!span(1, 0).overlaps(span(0, 2)));
        assert!(!span(0, 2).overlaps(span(1, 0)));
        assert!(span(u64::MAX, 1).overlaps(span(u64::MAX - 1, 5)));
        assert_eq!(span(5, 2).hull(span(1, 2)), span(1, 6));
    }

    #[test]
    fn a_span_must_be_on_the_disk_also_when_it_is_empty() {
        let disk = disk(100 * 512, 512);
        for (first, blocks, good) in [
            (0, 100, true),
            (0, 101, false),
            (99, 1, true),
            (99, 2, false),
            (100, 0, true),
            (101, 0, false),
            (u64::MAX, 2, false),
        ] {
            assert_eq!(disk.check(Span::new(first, blocks as u64)).is_ok(), good, "{first}");
        }
    }

    #[test]
    fn limits_are_in_blocks() {
        assert_eq!(disk(1 << 40, 512).transfer_max(), 32768);
        assert_eq!(disk(1 << 40, 4096).transfer_max(), 4096);
        assert_eq!(disk(1 << 40, 512).granule, 8);
        assert_eq!(disk(1 << 40, 4096).granule, 1);
        assert_eq!(disk(1000, 4096).last(), Lba(0));
    }
}
