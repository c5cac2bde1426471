//! What entries may take of the space that replicas set aside for them (Q7).
//!
//! Everything that can take space for good has a cost, which the target spends before it gives a
//! seq and a replica spends when it applies the entry. What frees space has none: a discard of a
//! volume whose blocks no snapshot shares, a deletion, and everything that is state only. A store
//! applies these on its reserve, so a full volume can always be emptied.
use block::{ByteLen, ByteOffset};

use crate::entry::{Change, Zeroing};

/// How a store counts, as its replica tells the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    pub granule: ByteLen,
    /// The most that one write takes beside its granules, and for each granule.
    pub per_write: ByteLen,
    pub per_granule: ByteLen,
    /// Whether another volume's snapshot shares blocks with the copy: it began as a clone.
    pub is_clone: bool,
}

impl Costs {
    pub fn of_write(&self, offset: ByteOffset, len: ByteLen) -> u64 {
        let granule = self.granule.0.max(1);
        let end = offset.0.saturating_add(len.0);
        let granules = end.div_ceil(granule).saturating_sub(offset.0 / granule);
        granules.saturating_mul(self.per_granule.0).saturating_add(self.per_write.0)
    }

    /// Zeroing cuts whole subtrees off a map, which takes up to 8 pages more than a write's 40; its
    /// two ends may be parts of granules, which are stored anew.
    pub fn of_zero(&self) -> u64 {
        self.per_write.0.saturating_mul(5) / 4 + self.per_granule.0.saturating_mul(2)
    }

    pub fn of(&self, change: &Change) -> u64 {
        match change {
            Change::Write { offset, data, .. } => {
                self.of_write(*offset, ByteLen(data.len() as u64))
            }
            Change::Zero { how: Zeroing::Release, .. } => 0,
            Change::Zero { .. } => self.of_zero(),
            Change::Rollback { .. } => self.of_zero(),
            Change::Snapshot(_) | Change::Resize { .. } => self.per_write.0,
            Change::Flush
            | Change::Barrier { .. }
            | Change::Close
            | Change::DeleteSnapshot(_)
            | Change::MarkClone { .. }
            | Change::UnmarkClone { .. }
            | Change::Reservations(_)
            | Change::Points(_)
            | Change::Stages(_)
            | Change::Membership(_) => 0,
        }
    }

    /// How a zeroing enters the sequence: a discard of whole granules that no snapshot shares takes
    /// nothing for good. The rest of a granule whose part is discarded is stored anew, perhaps
    /// longer.
    pub fn judge(
        &self,
        offset: ByteOffset,
        len: ByteLen,
        how: Zeroing,
        has_snapshots: bool,
    ) -> Zeroing {
        let granule = self.granule.0.max(1);
        let whole = offset.0.is_multiple_of(granule) && len.0.is_multiple_of(granule);
        match how {
            Zeroing::Zeroes => Zeroing::Zeroes,
            _ if whole && !has_snapshots && !self.is_clone => Zeroing::Release,
            _ => Zeroing::Discard,
        }
    }
}

#[cfg(test)]
mod tests {
    use block::Data;

    use super::*;
    use crate::words::SnapshotUid;

    const COSTS: Costs = Costs {
        granule: ByteLen(4096),
        per_write: ByteLen(1000),
        per_granule: ByteLen(100),
        is_clone: false,
    };

    fn zero(costs: Costs, range: (u64, u64), how: Zeroing, has_snapshots: bool) -> u64 {
        let (offset, len) = (ByteOffset(range.0), ByteLen(range.1));
        let how = costs.judge(offset, len, how, has_snapshots);
        costs.of(&Change::Zero { offset, len, how })
    }

    #[test]
    fn a_write_pays_for_each_granule_that_it_touches() {
        let data = Data::copy_of(&[1; 4096]);
        let inside = Change::write(ByteLen(4096), ByteOffset(8192), data.clone());
        let across = Change::write(ByteLen(4096), ByteOffset(8704), data);
        assert_eq!((COSTS.of(&inside), COSTS.of(&across)), (1100, 1200));
    }

    /// Protects from a full volume that cannot be emptied, and from a discard that all pools refuse.
    #[test]
    fn only_a_discard_that_frees_what_it_covers_is_free() {
        let (whole, discard) = ((4096, 1 << 30), Zeroing::Discard);
        assert_eq!(zero(COSTS, whole, discard, false), 0);
        assert_eq!(zero(COSTS, whole, discard, true), 1450, "a snapshot has the blocks");
        assert_eq!(zero(Costs { is_clone: true, ..COSTS }, whole, discard, false), 1450);
        assert_eq!(zero(COSTS, (512, 8192), discard, false), 1450, "parts of granules");
        assert_eq!(zero(COSTS, (4096, 8192), Zeroing::Zeroes, false), 1450);
    }

    #[test]
    fn rollbacks_and_growth_pay_and_deletions_do_not() {
        let uid = SnapshotUid([1; 16]);
        assert_eq!(COSTS.of(&Change::Rollback { to: uid }), 1450);
        assert_eq!(COSTS.of(&Change::Resize { size: ByteLen(1 << 40) }), 1000);
        assert_eq!(COSTS.of(&Change::DeleteSnapshot(uid)), 0);
        assert_eq!(COSTS.of(&Change::Flush), 0);
    }
}
