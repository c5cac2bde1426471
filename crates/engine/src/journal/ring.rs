//! Where in the ring the next slot goes, and how much room is left.
use crate::limits::SLOT_BLOCKS_MAX;
use crate::units::Slot;

/// Blocks that operations leave free. Also how far replay looks behind the end for slots of a
/// session that no superblock names.
pub const SPARE_BLOCKS: u64 = 16;

#[derive(Clone, Debug)]
pub struct Ring {
    blocks: u64,
    /// The next slot's number.
    next: Slot,
    /// Replay begins here; blocks before it may be overwritten.
    tail: Slot,
}

impl Ring {
    pub fn new(blocks: u64, tail: Slot, next: Slot) -> Ring {
        Ring { blocks, next, tail }
    }

    pub fn next(&self) -> Slot {
        self.next
    }

    pub fn tail(&self) -> Slot {
        self.tail
    }

    pub fn used(&self) -> u64 {
        self.next.0 - self.tail.0
    }

    /// More than half of the ring waits for a checkpoint.
    pub fn wants_checkpoint(&self) -> bool {
        self.used() > self.blocks / 2
    }

    /// Blocks of the next slot at most: a slot does not wrap around the end.
    pub fn contiguous(&self) -> u64 {
        (self.blocks - self.next.0 % self.blocks).min(SLOT_BLOCKS_MAX as u64)
    }

    /// Whether a slot of any size fits, with some room left for slots of the pool's own.
    pub fn has_room(&self) -> bool {
        self.used() + 2 * SLOT_BLOCKS_MAX as u64 + SPARE_BLOCKS <= self.blocks
    }

    pub fn take(&mut self, blocks: u64) -> Slot {
        assert!(blocks <= self.contiguous(), "a slot of {blocks} blocks would wrap around");
        assert!(self.used() + blocks <= self.blocks, "the journal would overwrite its own tail");
        let slot = self.next;
        self.next = Slot(slot.0 + blocks);
        slot
    }

    pub fn trim(&mut self, tail: Slot) {
        assert!(tail >= self.tail && tail <= self.next, "the tail moves forward within the ring");
        self.tail = tail;
    }
}
