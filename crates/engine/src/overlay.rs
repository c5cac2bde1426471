//! The overlay: every update since the last checkpoint, indexed in memory.
//!
//! A write changes no map page. It is recorded in the journal and indexed here; a checkpoint
//! merges the whole overlay into the maps in order of address. So a write never waits for a map
//! page, replay of the journal reads none, and pages in memory are never dirty.
//!
//! A snapshot seals what its volume has here as a layer; later updates go into a new one above it.
//! So a snapshot is made at once, and a checkpoint merges layer by layer.
//!
//! Invariants:
//! - Entries of one layer do not overlap.
//! - `nodes` is at least the number of map pages that merging this overlay will write.
use std::collections::BTreeMap;
use std::ops::Bound;

use block::Seq;

use crate::format::BlockRecord;
use crate::units::{Granule, Slot, SnapshotId, VolumeId};

/// Leaves behind its first that a hole may touch and still be emptied entry by entry. A write of
/// zeros reaches no further, so only discards and zeroings are ever cut off as whole subtrees.
const SMALL_HOLE_LEAVES: u64 = 2;

/// Whether a run of granules that became a hole is cut off rather than emptied.
pub fn is_large(first: u64, count: u64) -> bool {
    (first + count - 1) / 128 > first / 128 + SMALL_HOLE_LEAVES
}

/// When a change came: in the volume's sequence, and in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub changed: Seq,
    pub slot: Slot,
}

/// A volume whose map has this many levels.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    pub volume: VolumeId,
    pub height: u8,
}

/// A change of one granule, or of a run of granules that became a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    Block { block: BlockRecord, changed: Seq, slot: Slot },
    Hole { count: u64, changed: Seq, slot: Slot },
}

impl Update {
    fn count(&self) -> u64 {
        match self {
            Update::Block { .. } => 1,
            Update::Hole { count, .. } => *count,
        }
    }
}

#[derive(Debug, Default)]
pub struct VolumeOverlay {
    updates: BTreeMap<u64, Update>,
    nodes: u64,
}

/// What came for one volume, between its snapshots and since the newest.
#[derive(Debug, Default)]
struct Layers {
    /// Oldest first, each with the snapshot that sealed it.
    sealed: Vec<(SnapshotId, VolumeOverlay)>,
    top: VolumeOverlay,
}

/// No layer of an overlay was sealed by this snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchLayer;

/// Blocks that an update displaced before they ever reached a map.
pub type Displaced = Vec<BlockRecord>;

#[derive(Debug, Default)]
pub struct Overlay {
    volumes: BTreeMap<VolumeId, Layers>,
    entries: usize,
}

impl Overlay {
    pub fn entries(&self) -> usize {
        self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty()
    }

    /// An upper bound of the map pages that merging will write.
    pub fn nodes(&self) -> u64 {
        let nodes = |layers: &Layers| {
            layers.top.nodes + layers.sealed.iter().map(|(_, layer)| layer.nodes).sum::<u64>()
        };
        self.volumes.values().map(nodes).sum()
    }

    pub fn volumes(&self) -> impl Iterator<Item = VolumeId> {
        self.volumes.keys().copied()
    }

    pub fn has(&self, id: VolumeId) -> bool {
        self.volumes.contains_key(&id)
    }

    /// One layer of a volume, oldest first, and the snapshot that sealed it.
    pub fn layer(&self, id: VolumeId, at: usize) -> Option<(Option<SnapshotId>, &VolumeOverlay)> {
        let layers = self.volumes.get(&id)?;
        match layers.sealed.get(at) {
            Some((snapshot, layer)) => Some((Some(*snapshot), layer)),
            None => (at == layers.sealed.len()).then_some((None, &layers.top)),
        }
    }

    pub fn layers_of(&self, id: VolumeId) -> usize {
        self.volumes.get(&id).map_or(0, |layers| layers.sealed.len() + 1)
    }

    /// The most layers that any volume has.
    pub fn layers_max(&self) -> usize {
        self.volumes.values().map(|layers| layers.sealed.len() + 1).max().unwrap_or(0)
    }

    /// The newest update that covers a granule, as the volume has it.
    pub fn get(&self, id: VolumeId, granule: Granule) -> Option<Update> {
        let layers = self.volumes.get(&id)?;
        let sealed = layers.sealed.iter().rev().map(|(_, layer)| layer);
        std::iter::once(&layers.top)
            .chain(sealed)
            .find_map(|layer| layer.covering(granule.0))
            .map(|(_, update)| update)
    }

    /// The newest update that covers a granule, as a snapshot of the volume has it. An error:
    /// this overlay knows nothing of the snapshot.
    pub fn get_in(
        &self,
        id: VolumeId,
        snapshot: SnapshotId,
        granule: Granule,
    ) -> Result<Option<Update>, NoSuchLayer> {
        let layers = self.volumes.get(&id).ok_or(NoSuchLayer)?;
        let at = layers.sealed.iter().position(|(id, _)| *id == snapshot).ok_or(NoSuchLayer)?;
        let below = layers.sealed[..=at].iter().rev();
        let found = below.into_iter().find_map(|(_, layer)| layer.covering(granule.0));
        Ok(found.map(|(_, update)| update))
    }

    /// A snapshot seals what there is; what comes later goes above it.
    pub fn seal(&mut self, id: VolumeId, snapshot: SnapshotId) {
        let layers = self.volumes.entry(id).or_default();
        layers.sealed.push((snapshot, std::mem::take(&mut layers.top)));
    }

    /// Blocks of neighbouring granules. One look around for all of them: only the first and those
    /// that begin a leaf can add pages to the next merge.
    pub fn insert_blocks(
        &mut self,
        map: Map,
        first: Granule,
        blocks: &[BlockRecord],
        stamp: Stamp,
        displaced: &mut Displaced,
    ) {
        let (Map { volume: id, height }, Stamp { changed, slot }) = (map, stamp);
        let volume = &mut self.volumes.entry(id).or_default().top;
        let before = volume.updates.len();
        let end = first.0 + blocks.len() as u64;
        if volume.has_hole(first.0, end) {
            volume.cut(height, first.0, end, displaced);
        }
        for (granule, block) in (first.0..).zip(blocks) {
            if granule == first.0 || granule.is_multiple_of(128) {
                volume.nodes += volume.new_nodes(height, granule);
            }
            let update = Update::Block { block: *block, changed, slot };
            if let Some(Update::Block { block: gone, .. }) = volume.updates.insert(granule, update)
            {
                displaced.push(gone);
            }
        }
        self.entries = self.entries + volume.updates.len() - before;
    }

    pub fn insert_hole(
        &mut self,
        map: Map,
        first: Granule,
        count: u64,
        stamp: Stamp,
        displaced: &mut Displaced,
    ) {
        let (Map { volume: id, height }, Stamp { changed, slot }) = (map, stamp);
        let volume = &mut self.volumes.entry(id).or_default().top;
        let before = volume.updates.len();
        volume.cut(height, first.0, first.0 + count, displaced);
        volume.add(height, first.0, Update::Hole { count, changed, slot });
        self.entries = self.entries + volume.updates.len() - before;
    }

    /// Forgets a volume; what it had stored is displaced. What its snapshots have stays.
    pub fn remove(&mut self, id: VolumeId, displaced: &mut Displaced) {
        if let Some(layers) = self.volumes.get_mut(&id) {
            let volume = std::mem::take(&mut layers.top);
            if layers.sealed.is_empty() {
                self.volumes.remove(&id);
            }
            self.entries -= volume.updates.len();
            displaced.extend(volume.updates.values().filter_map(|update| match update {
                Update::Block { block, .. } => Some(*block),
                Update::Hole { .. } => None,
            }));
        }
    }

    /// Map pages that an update of these granules may add to the next merge.
    pub fn nodes_for(&self, id: VolumeId, height: u8, first: Granule, count: u64) -> u64 {
        let empty = VolumeOverlay::default();
        let volume = self.volumes.get(&id).map_or(&empty, |layers| &layers.top);
        // Inner pages of a long run are shared or emptied; its two ends are what is rewritten,
        // and a write of many granules fills whole leaves in between.
        let leaves = (first.0 + count - 1) / 128 - first.0 / 128 + 1;
        volume.new_nodes(height, first.0) + u64::from(height) + 2 * leaves
    }
}

impl VolumeOverlay {
    fn covering(&self, granule: u64) -> Option<(u64, Update)> {
        let (&start, update) = self.updates.range(..=granule).next_back()?;
        (granule < start + update.count()).then_some((start, *update))
    }

    /// Whether a hole covers any of these granules.
    fn has_hole(&self, start: u64, end: u64) -> bool {
        for (&at, update) in self.updates.range(..end).rev() {
            match update {
                Update::Hole { count, .. } if at + count > start => return true,
                _ if at <= start => return false,
                _ => {}
            }
        }
        false
    }

    /// The first update that reaches `granule` or beyond, with its start.
    pub fn next_from(&self, granule: u64) -> Option<(u64, Update)> {
        self.covering(granule)
            .or_else(|| self.updates.range(granule..).next().map(|(&start, u)| (start, *u)))
    }

    /// Updates that begin at or after `granule`, in order.
    pub fn from(&self, granule: u64) -> impl Iterator<Item = (u64, Update)> {
        self.updates.range(granule..).map(|(&start, update)| (start, *update))
    }

    /// Takes everything out of `start..end`; holes that reach out keep their ends.
    fn cut(&mut self, height: u8, start: u64, end: u64, displaced: &mut Displaced) {
        if let Some((from, Update::Hole { count, changed, slot })) = self.covering(start) {
            self.updates.remove(&from);
            // Pages that the hole would have emptied are now at an edge, and will be written.
            self.nodes += 2 * u64::from(height);
            if from < start {
                self.updates.insert(from, Update::Hole { count: start - from, changed, slot });
            }
            if from + count > end {
                let count = from + count - end;
                self.updates.insert(end, Update::Hole { count, changed, slot });
            }
        }
        while let Some((&at, &update)) = self.updates.range(start..end).next() {
            self.updates.remove(&at);
            match update {
                Update::Block { block, .. } => displaced.push(block),
                Update::Hole { count, changed, slot } if at + count > end => {
                    let count = at + count - end;
                    self.nodes += u64::from(height);
                    self.updates.insert(end, Update::Hole { count, changed, slot });
                }
                Update::Hole { .. } => {}
            }
        }
    }

    fn add(&mut self, height: u8, start: u64, update: Update) {
        self.nodes += self.new_nodes(height, start);
        let last = start + update.count() - 1;
        self.updates.insert(start, update);
        if last != start {
            // Only the two ends of a hole are rewritten; what lies between is emptied.
            let shared = shared_levels(height, start, last);
            self.nodes += u64::from(height) - shared;
            if is_large(start, last - start + 1) {
                // What is cut off has pages of its own above it.
                self.nodes += 2 * u64::from(height);
            }
        }
    }

    /// Pages on the way to `granule` that no neighbouring update dirties already.
    fn new_nodes(&self, height: u8, granule: u64) -> u64 {
        let before = self.updates.range(..=granule).next_back();
        let after = self.updates.range((Bound::Excluded(granule), Bound::Unbounded)).next();
        let mut shared = 0;
        if let Some((&start, update)) = before {
            let end = start + update.count() - 1;
            shared = shared_levels(height, start, granule).max(shared_levels(height, end, granule));
        }
        if let Some((&start, _)) = after {
            shared = shared.max(shared_levels(height, start, granule));
        }
        u64::from(height) - shared
    }
}

/// How many of the pages above two granules are the same.
fn shared_levels(height: u8, a: u64, b: u64) -> u64 {
    (1..=u32::from(height))
        .rev()
        .take_while(|level| {
            a.checked_shr(7 * level).unwrap_or(0) == b.checked_shr(7 * level).unwrap_or(0)
        })
        .count() as u64
}

#[cfg(test)]
mod tests;
