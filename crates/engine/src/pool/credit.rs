//! Credits: space that a replication stream was promised, so that what was agreed upon elsewhere
//! never finds this pool full.
//!
//! A credit is no place, only a number of sectors that others leave free. Why a write that its
//! credit covers always fits: let S be what checkpoints may still write, R the reserve, C the sum of
//! all credits and F what is free. A credit is given only if S + R + C <= F afterwards. Whoever else
//! takes space for good has to leave all of that. A write that takes X, of its data and of the
//! pages that it adds to S, lowers its volume's credit by X: what is added to S and taken from F
//! is taken from C. A checkpoint turns what was set aside into what is taken, at most. While S is
//! higher for a time, for records that wait or a checkpoint that runs, a write waits for the next
//! checkpoint.
//!
//! Zeros, rollbacks and growth of the same volume spend its credit in the same way, as far as they
//! take space for good. Without credit they may draw on the first layer of the reserve, and leave
//! the credits of other volumes alone; that is why a covered operation asks for the rest of the
//! reserve only. What borrows from the reserve or deletes does not look at credits: a checkpoint
//! brings back what it took, and covered operations wait for that.
//!
//! A credit is not backed when blocks are larger than a page and free space is in pieces that are
//! smaller than a block.
use block::{ByteLen, ByteOffset, Disk};

use crate::error::OpError;
use crate::format::Record;
use crate::limits::MAP_PAGE;
use crate::pool::Pool;
use crate::pool::queue::Kind;
use crate::pool::room::{HEIGHT_MAX, kept_for_borrowing};
use crate::pool::seal::Batch;
use crate::units::VolumeId;
use crate::volume::BlockSize;

/// Pages of the way to an object's record at the most: its own, and a directory of numbers below
/// 2^47 with one level more than it has now.
const RECORD_NODES_MAX: u64 = 9;

/// The most that one write takes of its volume's credit: all of its granules, and in two copies
/// every page that it may add to a checkpoint, in the highest map and directory. Whoever takes this
/// much from what was promised before each write is never told that there is no space.
pub fn write_cost(block_size: BlockSize, offset: ByteOffset, len: ByteLen) -> ByteLen {
    let granule = block_size.granule();
    let end = offset.0.saturating_add(len.0.max(1));
    let (first, last) = (offset.0 / granule, (end - 1) / granule);
    let leaves = last / 128 - first / 128 + 1;
    // The two ways to its ends with the leaves between them, as `Overlay::nodes_for` has it; the
    // records of the volume and of an orphan; and a map that becomes as high as it can.
    let pages = 2 * HEIGHT_MAX + 2 * leaves + 2 * RECORD_NODES_MAX + 2 * HEIGHT_MAX;
    ByteLen((last - first + 1) * granule + pages * 2 * MAP_PAGE as u64)
}

/// The most that a zeroing, a rollback or a growth takes of its volume's credit: both ends of the
/// range where they are parts of granules, the ways to them and to what a large hole cuts off, the
/// records of the volume and of an orphan, and a map that becomes as high as it can. A rollback or a
/// growth has no range (`len` 0).
pub fn zero_cost(block_size: BlockSize, offset: ByteOffset, len: ByteLen) -> ByteLen {
    let granule = block_size.granule();
    let end = offset.0.saturating_add(len.0);
    let parts =
        u64::from(!offset.0.is_multiple_of(granule)) + u64::from(!end.is_multiple_of(granule));
    let pages = 4 * HEIGHT_MAX + 2 * RECORD_NODES_MAX + 2 * HEIGHT_MAX;
    ByteLen(parts * granule + pages * 2 * MAP_PAGE as u64)
}

impl<D: Disk> Pool<D> {
    pub(super) fn accept_credit(&self, id: VolumeId, bytes: ByteLen) -> Result<Kind, OpError> {
        if self.live(id)?.kept.staging.is_some() {
            return Err(OpError::Staging { volume: id });
        }
        let sectors = bytes.0.div_ceil(self.space.layout.sector.bytes());
        Ok(Kind::Credit { volume: id, sectors })
    }

    /// Sectors that are promised to volumes other than one.
    pub(super) fn credits_beside(&self, own: Option<VolumeId>) -> u64 {
        let others = self.volumes.values().filter(|v| !v.deleting && Some(v.id) != own);
        others.fold(0, |sum: u64, volume| sum.saturating_add(volume.kept.credit))
    }

    pub(super) fn credit_of(&self, id: VolumeId) -> u64 {
        self.volumes.get(&id).map_or(0, |volume| volume.kept.credit)
    }

    /// A write took so many sectors. What is left of its credit is told by the slot that has it, so
    /// that neither is there without the other.
    pub(super) fn spend_credit(&mut self, id: VolumeId, sectors: u64, batch: &mut Batch) {
        let kept = self.touch(id);
        if kept.credit == 0 {
            return;
        }
        kept.credit = kept.credit.saturating_sub(sectors);
        let left = kept.credit;
        let told = batch.records.iter_mut().rev().find_map(|record| match record {
            Record::Credit { volume, sectors } if *volume == id => Some(sectors),
            _ => None,
        });
        match told {
            Some(told) => *told = left,
            None => {
                let record = Record::Credit { volume: id, sectors: left };
                batch.payload += record.len();
                batch.records.push(record);
            }
        }
    }

    /// After opening: what is no longer there cannot be promised. Those that were made first keep
    /// theirs first.
    pub(super) fn clamp_credits(&mut self) {
        let kept_free = self.checkpoint_need() + kept_for_borrowing(self.superblock.reserve);
        let mut left = self.space.free().saturating_sub(kept_free);
        let promised = self.volumes.iter().filter(|(_, volume)| volume.kept.credit > 0);
        let promised: Vec<VolumeId> = promised.map(|(id, _)| *id).collect();
        for id in promised {
            let credit = self.credit_of(id);
            if credit > left {
                self.touch(id).credit = left;
            }
            left -= credit.min(left);
        }
    }
}
