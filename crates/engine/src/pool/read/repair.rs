//! Good bytes over a bad copy: where it lies is found like the place of a read.
use block::{Buf, ByteLen, ByteOffset, Data, Disk};

use super::{Goal, Read};
use crate::compress::{self, Compression};
use crate::error::OpError;
use crate::format::Encoding;
use crate::pool::{Pool, Purpose, ReadKey, RequestId, Subject};
use crate::units::{Checksum, to_usize};

impl<D: Disk> Pool<D> {
    /// Finds where a granule lies, to write good bytes over a bad copy.
    pub(in crate::pool) fn accept_repair(
        &mut self,
        id: RequestId,
        of: Subject,
        offset: ByteOffset,
        data: Data,
    ) -> Result<(), OpError> {
        let len = ByteLen(data.len() as u64);
        let granule = self.check_range(of, offset, len)?;
        let size = match of {
            Subject::Volume(id) => self.volumes[&id].front.size,
            Subject::Snapshot(id) => self.snapshots[&id].cut.header.size,
        };
        let whole = len.0 == granule || len.0 < granule && offset.0 + len.0 == size;
        if !offset.0.is_multiple_of(granule) || !whole {
            return Err(OpError::NotAGranule { granule });
        }
        self.room_for_reads()?;
        let mut good = self.device.buffer(to_usize(granule));
        good.fill(0);
        good[..data.len()].copy_from_slice(&data);
        self.start_read(Goal::Mend(id, good.into_data()), of, offset, len, granule);
        Ok(())
    }

    /// The place was found: the bytes go there if they are what was stored.
    pub(super) fn repair(&mut self, key: ReadKey, read: Read) {
        self.forget_read(key, read.bytes());
        let block = read.runs.first().map(|run| run.blocks[0]);
        let (of, offset) = (read.of, read.offset);
        let Goal::Mend(id, good) = read.goal else { unreachable!("only who mends has good bytes") };
        let stored = block.and_then(|block| Some((block, as_stored(block.encoding, good)?)));
        let right = stored.filter(|(block, bytes)| Checksum::of(bytes) == block.checksum);
        let Some((block, good)) = right else {
            return self.answer(id, Err(OpError::OtherBytes { of, offset }));
        };
        self.mending += 1;
        let at = self.space.layout.offset(block.place);
        self.device.write(at, good, Purpose::Repair(id));
    }
}

/// The bytes that a granule is stored as. Encoders always give the same.
fn as_stored(encoding: Encoding, granule: Data) -> Option<Data> {
    if encoding == Encoding::Raw {
        return Some(granule);
    }
    let (_, stored) = compress::encode(Compression::from_byte(encoding.byte())?, &granule)?;
    Some(Buf::copy_of(&stored).into_data())
}
