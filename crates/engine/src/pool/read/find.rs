//! Where a granule lies: in what came since the last checkpoint, or in the map.
use block::{ByteOffset, Disk};

use super::{Phase, Read};
use crate::compress;
use crate::error::OpError;
use crate::format::{BlockRecord, Entry};
use crate::map::{Found, Tree, lookup};
use crate::overlay::{NoSuchLayer, Update};
use crate::pool::{Pool, ReadKey, Subject};
use crate::units::{Granule, Slot, SnapshotId, VolumeId};
use crate::volume::MapRoot;

enum Where {
    Hole,
    Block(BlockRecord),
    /// Not to be seen before this slot is held.
    Held(Slot),
    Page,
    Bad(OpError),
}

impl<D: Disk> Pool<D> {
    /// Finds every granule from `from` on. `false` when something has to be waited for.
    ///
    /// What was found before the wait stays: it was the newest at some moment of this read, and
    /// if its place was given away since, the checksum will tell.
    pub(super) fn resolve(
        &mut self,
        key: ReadKey,
        read: &mut Read,
        from: u64,
    ) -> Result<bool, OpError> {
        for granule in from..read.end {
            match self.find(key, read, Granule(granule)) {
                Where::Hole => read.found(granule, None),
                Where::Block(block) => read.found(granule, Some(block)),
                Where::Held(slot) => {
                    self.reads.parked.entry(slot).or_default().push(key);
                    read.phase = Phase::Resolving(granule);
                    return Ok(false);
                }
                Where::Page => {
                    read.phase = Phase::Resolving(granule);
                    return Ok(false);
                }
                Where::Bad(error) => return Err(error),
            }
        }
        if let Some((granule, block)) = read.suspect.take()
            && read.runs.iter().any(|run| run.block(granule) == Some(block))
        {
            let offset = ByteOffset(granule * read.granule);
            self.counters.damaged_blocks += 1;
            return Err(OpError::Damaged { of: read.of, offset });
        }
        read.phase = Phase::Fetching;
        Ok(true)
    }

    fn find(&mut self, key: ReadKey, read: &mut Read, granule: Granule) -> Where {
        let (of, len) = (read.of, read.granule);
        let (map, recent) = match of {
            Subject::Volume(id) => match self.newest_of_volume(id, granule) {
                Some((_, _, jumped)) if jumped > self.held => return Where::Held(jumped),
                Some((map, recent, _)) => (map, recent),
                None => return Where::Bad(OpError::UnknownVolume { volume: id }),
            },
            Subject::Snapshot(id) => match self.newest_of_snapshot(id, granule) {
                Some(found) => found,
                None => return Where::Bad(OpError::UnknownSnapshot { snapshot: id }),
            },
        };
        match recent {
            Some(Update::Block { slot, .. } | Update::Hole { slot, .. }) if slot > self.held => {
                return Where::Held(slot);
            }
            Some(Update::Block { block, .. }) => return Where::Block(block),
            Some(Update::Hole { .. }) => return Where::Hole,
            None => {}
        }
        let tree = Tree { root: map.root, height: map.height, epoch: self.superblock.epoch };
        match lookup(tree, granule, &mut read.cursor, key, &mut self.pages, &mut self.device) {
            Found::Entry(Entry::Hole { .. }) => Where::Hole,
            Found::Entry(Entry::Block(block)) => {
                let (whole, page) = (self.space.layout.per(len), self.space.layout.page());
                if !compress::can_be(block.encoding, u64::from(block.sectors), whole, page) {
                    let offset = ByteOffset(granule.0 * len);
                    return Where::Bad(OpError::Damaged { of, offset });
                }
                Where::Block(BlockRecord {
                    place: block.place,
                    sectors: block.sectors,
                    encoding: block.encoding,
                    checksum: block.checksum,
                })
            }
            Found::Wait => Where::Page,
            Found::Bad(problem) => Where::Bad(OpError::MapDamaged { of, problem }),
        }
    }

    /// The map of a volume, what came for a granule since, and the slot by which the volume became
    /// something else as a whole, if no checkpoint has finished that.
    fn newest_of_volume(
        &self,
        id: VolumeId,
        granule: Granule,
    ) -> Option<(MapRoot, Option<Update>, Slot)> {
        // A volume that was deleted meanwhile has lost its newest updates already.
        let volume = self.volumes.get(&id).filter(|volume| !volume.deleting)?;
        let overlays = [Some(&self.active), self.frozen.as_ref()];
        let recent = overlays.into_iter().flatten().find_map(|overlay| overlay.get(id, granule));
        Some((volume.kept.map, recent, volume.jump.map_or(Slot(0), |jump| jump.slot)))
    }

    /// The map of a snapshot; as long as it has none, that of its volume, and what came between.
    fn newest_of_snapshot(
        &self,
        id: SnapshotId,
        granule: Granule,
    ) -> Option<(MapRoot, Option<Update>)> {
        let snapshot = self.snapshots.get(&id).filter(|snapshot| !snapshot.cut.deleted)?;
        if snapshot.settled {
            return Some((snapshot.cut.map, None));
        }
        let volume = snapshot.cut.volume;
        let frozen = self.frozen.as_ref();
        let recent = match self.active.get_in(volume, id, granule) {
            // Sealed since the freeze: all of what was frozen lies below it.
            Ok(found) => found.or_else(|| frozen?.get(volume, granule)),
            Err(NoSuchLayer) => frozen?.get_in(volume, id, granule).ok()?,
        };
        Some((self.volumes.get(&volume)?.kept.map, recent))
    }
}
