//! What both ends of a stream keep of it: how far it has come, and its sums.
//!
//! Writer and reader ask the same books, so what the one writes is what the other accepts.
use block::{ByteLen, ByteOffset, Seq};
use crc_fast::{CrcAlgorithm, Digest};

use super::DATA_MAX;
use super::error::RangeError;
use super::frame::{CHECKSUM_AT, HEAD};
use super::header::Header;
use crate::units::Checksum;

/// What a stream had: told by its end, and at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Frames before the end, the header included.
    pub frames: u64,
    pub data: ByteLen,
    pub holes: ByteLen,
}

#[derive(Clone, Debug)]
pub struct Books {
    granule: u64,
    size: ByteLen,
    /// Nothing in a snapshot changed after it.
    newest: Seq,
    reached: ByteOffset,
    sums: Sums,
    /// Over the heads, which have the checksums of the payloads. Their own are left out: a CRC over
    /// bytes and their own CRC is the same whatever the bytes.
    running: Digest,
}

impl Books {
    pub fn open(header: &Header) -> Books {
        Books {
            granule: header.block_size.granule(),
            size: header.size,
            newest: header.snapshot.position.seq,
            reached: header.resume_from,
            sums: Sums::default(),
            running: Digest::new(CrcAlgorithm::Crc64Nvme),
        }
    }

    /// Enters a range of data, or changes nothing.
    pub fn bytes(
        &mut self,
        offset: ByteOffset,
        len: ByteLen,
        changed: Seq,
    ) -> Result<(), RangeError> {
        if len.0 > DATA_MAX {
            return Err(RangeError::TooLong { len, max: ByteLen(DATA_MAX) });
        }
        self.reach(offset, len, changed)?;
        self.sums.data.0 += len.0;
        Ok(())
    }

    /// Enters a hole, or changes nothing.
    pub fn hole(
        &mut self,
        offset: ByteOffset,
        len: ByteLen,
        changed: Seq,
    ) -> Result<(), RangeError> {
        self.reach(offset, len, changed)?;
        self.sums.holes.0 += len.0;
        Ok(())
    }

    fn reach(&mut self, offset: ByteOffset, len: ByteLen, changed: Seq) -> Result<(), RangeError> {
        if len.0 == 0 {
            return Err(RangeError::Empty { offset });
        }
        let size = self.size;
        let end = offset.end(len).filter(|end| end.0 <= size.0);
        let end = end.ok_or(RangeError::BeyondEnd { offset, len, size })?;
        let whole = |at: ByteOffset| at.0.is_multiple_of(self.granule);
        if !whole(offset) || !(whole(end) || end.0 == size.0) {
            return Err(RangeError::Unaligned { offset, len, granule: self.granule });
        }
        if offset < self.reached {
            return Err(RangeError::Overlap { offset, reached: self.reached });
        }
        if changed > self.newest {
            return Err(RangeError::LaterThanSnapshot { offset, changed, snapshot: self.newest });
        }
        self.reached = end;
        Ok(())
    }

    /// Enters a whole frame, by its head.
    pub fn frame(&mut self, head: &[u8; HEAD]) {
        self.running.update(&head[..CHECKSUM_AT]);
        self.sums.frames += 1;
    }

    /// The end of the last range.
    pub fn reached(&self) -> ByteOffset {
        self.reached
    }

    pub fn sums(&self) -> Sums {
        self.sums
    }

    /// The running checksum over all frames.
    pub fn running(&self) -> Checksum {
        Checksum(self.running.finalize())
    }
}
