//! What is allocated: found like the place of a read, and nothing is fetched. So it sees what a
//! read sees, and waits for the same.
use block::{ByteLen, ByteOffset, Disk};

use super::{Goal, Read};
use crate::error::OpError;
use crate::limits::EXTENTS_MAX;
use crate::pool::{Pool, ReadKey, Reply, RequestId, Subject};

/// A range of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub len: ByteLen,
    /// Without data it reads as zeros.
    pub has_data: bool,
}

/// Behind those that are there; neighbours of one kind are one.
pub(super) fn add(extents: &mut Vec<Extent>, len: ByteLen, has_data: bool) {
    match extents.last_mut() {
        Some(last) if last.has_data == has_data => last.len.0 += len.0,
        _ => extents.push(Extent { len, has_data }),
    }
}

impl<D: Disk> Pool<D> {
    pub(in crate::pool) fn accept_extents(
        &mut self,
        id: RequestId,
        of: Subject,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<(), OpError> {
        let granule = self.check_range(of, offset, len)?;
        self.room_for_reads()?;
        let len = len.min(EXTENTS_MAX);
        self.start_read(Goal::Extents(id, Vec::new()), of, offset, len, granule);
        Ok(())
    }

    pub(super) fn end_extents(&mut self, key: ReadKey, read: Read) {
        self.forget_read(key, read.bytes());
        let Goal::Extents(id, found) = read.goal else { unreachable!("only who asked for them") };
        self.answer(id, Ok(Reply::Extents(found)));
    }
}
