//! Blocks that lie next to one another on the device, and are read with one IO.
use block::{Buf, DiskError};

use crate::compress;
use crate::format::{BlockRecord, Encoding};
use crate::space::Layout;
use crate::units::{Checksum, to_usize};

#[derive(Debug)]
pub struct Run {
    /// The granule of the first block; those of the others follow.
    pub first: u64,
    pub blocks: Vec<BlockRecord>,
    pub bytes: Option<Result<Buf, DiskError>>,
}

impl Run {
    pub fn new(first: u64, block: BlockRecord) -> Run {
        Run { first, blocks: vec![block], bytes: None }
    }

    pub fn continues(&self, granule: u64, block: BlockRecord) -> bool {
        let last = self.blocks.last().expect("a run is not empty");
        self.first + self.blocks.len() as u64 == granule
            && last.place.0 + u64::from(last.sectors) == block.place.0
    }

    pub fn block(&self, granule: u64) -> Option<BlockRecord> {
        let at = usize::try_from(granule.checked_sub(self.first)?).ok()?;
        self.blocks.get(at).copied()
    }

    /// Bytes that it has on the device.
    pub fn stored(&self, layout: &Layout) -> usize {
        self.blocks.iter().map(|block| stored(layout, block)).sum()
    }

    /// Whether its bytes are its granules as they are.
    pub fn is_raw(&self) -> bool {
        self.blocks.iter().all(|block| block.encoding == Encoding::Raw)
    }

    /// A block whose bytes are not those that the map means, with its granule.
    pub fn mismatch(&self, layout: &Layout, bytes: &[u8]) -> Option<(u64, BlockRecord)> {
        let mut parts = self.parts(layout, bytes);
        parts
            .find(|(_, block, part)| Checksum::of(part) != block.checksum)
            .map(|(at, block, _)| (self.first + at as u64, *block))
    }

    /// Fills in its granules, one behind the other. An error is the first that cannot be decoded.
    pub fn unpack(&self, layout: &Layout, bytes: &[u8], out: &mut [u8]) -> Result<(), u64> {
        let len = out.len() / self.blocks.len();
        for ((at, block, part), out) in self.parts(layout, bytes).zip(out.chunks_exact_mut(len)) {
            compress::decode(block.encoding, part, out).map_err(|_| self.first + at as u64)?;
        }
        Ok(())
    }

    /// Each block with its own part of the bytes.
    fn parts<'a>(
        &'a self,
        layout: &'a Layout,
        mut bytes: &'a [u8],
    ) -> impl Iterator<Item = (usize, &'a BlockRecord, &'a [u8])> {
        self.blocks.iter().enumerate().map(move |(at, block)| {
            let (part, rest) = bytes.split_at(stored(layout, block));
            bytes = rest;
            (at, block, part)
        })
    }
}

fn stored(layout: &Layout, block: &BlockRecord) -> usize {
    to_usize(layout.bytes(u64::from(block.sectors)).0)
}
