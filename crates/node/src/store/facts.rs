//! What a pool says of its replicas.
use block::{ByteLen, ByteOffset, Disk};
use engine::{BlockSize, Pool, SnapshotId, SnapshotInfo, VolumeId, VolumeInfo};
use replication::cost::Costs;
use replication::state::SnapshotEntry;
use replication::store::StoreFacts;
use replication::words::SnapshotUid;

/// Granules of one leaf of the engine's map.
const LEAF: u64 = 128;

/// A volume with a state is a replica. An import under way is a part of one, not one itself.
pub fn is_replica(volume: &VolumeInfo) -> bool {
    volume.staging.is_none() && !volume.state.is_empty()
}

/// Whether a snapshot is one of this volume, and not on its way out.
pub fn is_of(snapshot: &SnapshotInfo, volume: VolumeId) -> bool {
    snapshot.volume == volume && !snapshot.hidden
}

pub fn uid_of(snapshot: &SnapshotInfo) -> SnapshotUid {
    SnapshotUid(snapshot.uid)
}

/// The import into a volume.
pub fn staging_of(volumes: &[VolumeInfo], of: VolumeId) -> Option<&VolumeInfo> {
    volumes.iter().find(|volume| volume.staging.is_some_and(|staging| staging.of == of))
}

/// The state that a snapshot was made with.
pub fn state_of<D: Disk>(pool: &Pool<D>, snapshot: SnapshotId) -> Option<Vec<u8>> {
    pool.snapshot(snapshot).map(|found| found.state)
}

pub fn of<D: Disk>(pool: &Pool<D>, id: VolumeId) -> Option<StoreFacts> {
    let volume = pool.volume(id)?;
    let own = pool.snapshots().into_iter().filter(|snapshot| is_of(snapshot, id));
    let (internal, snapshots): (Vec<_>, Vec<_>) = own.partition(|snapshot| snapshot.internal);
    Some(StoreFacts {
        position: volume.held,
        state: volume.state.clone(),
        size: volume.size,
        block_size: ByteLen(volume.block_size.bytes()),
        snapshots: snapshots.into_iter().map(entry).collect(),
        internal: internal.into_iter().map(entry).collect(),
        staged: pool
            .staging_of(id)
            .and_then(|staging| staging.staging)
            .map(|staging| staging.progress),
        costs: Costs { is_clone: is_clone(pool, &volume), ..costs(volume.block_size) },
    })
}

fn entry(snapshot: SnapshotInfo) -> SnapshotEntry {
    SnapshotEntry {
        uid: uid_of(&snapshot),
        name: snapshot.name,
        created: snapshot.created,
        position: snapshot.position,
    }
}

/// What a write takes at the most, as a part for itself and a part for each granule that it
/// touches: the engine counts map pages, which a target does not know.
fn costs(block_size: BlockSize) -> Costs {
    let granule = block_size.granule();
    let cost = |first: u64, count: u64| {
        let (offset, len) = (ByteOffset(first * granule), ByteLen(count * granule));
        engine::write_cost(block_size, offset, len).0
    };
    // Two neighbours in two leaves of the map, against two in one leaf.
    let apart = cost(LEAF - 1, 2);
    let leaf = apart - cost(0, 2);
    // However a write lies, two leaves and one for each further `LEAF` granules are enough.
    let per_granule = granule + leaf.div_ceil(LEAF);
    Costs {
        granule: ByteLen(granule),
        per_write: ByteLen(apart - 2 * granule),
        per_granule: ByteLen(per_granule),
        is_clone: false,
    }
}

/// Whether one of the snapshots that a volume goes on from is another volume's.
fn is_clone<D: Disk>(pool: &Pool<D>, volume: &VolumeInfo) -> bool {
    let parent = |id: SnapshotId| pool.snapshot(id);
    let ancestors = std::iter::successors(volume.parent.and_then(parent), |found| {
        found.parent.and_then(parent)
    });
    ancestors.into_iter().any(|found| found.volume != volume.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects from a write that a target lets pass, though a replica has no space for it.
    #[test]
    fn what_a_target_reckons_covers_what_the_engine_takes() {
        for block_size in [512, 4096, 16 << 10, 128 << 10] {
            let block_size = BlockSize::new(block_size).expect("a legal block");
            let granule = block_size.granule();
            let costs = costs(block_size);
            for first in 0..2 * LEAF {
                for count in 1..=2 * LEAF + 2 {
                    let (offset, len) = (ByteOffset(first * granule), ByteLen(count * granule));
                    let taken = engine::write_cost(block_size, offset, len);
                    let reckoned = costs.of_write(offset, len);
                    assert!(taken.0 <= reckoned, "{count} from {first}: {taken} > {reckoned}");
                    // And not by far more, or volumes would stop early.
                    assert!(reckoned - taken.0 <= 2 * costs.per_granule.0.max(16 << 10));
                    let zeroed = engine::zero_cost(block_size, ByteOffset(offset.0 + 512), len);
                    assert!(zeroed.0 <= costs.of_zero(), "{zeroed} > {}", costs.of_zero());
                }
            }
        }
    }
}
