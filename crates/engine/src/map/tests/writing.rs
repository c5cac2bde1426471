//! Running the machines that write maps, and what they took and gave back.
use std::collections::BTreeSet;

use super::dropping::each_once;
use super::forest::Forest;
use super::*;
use crate::format::BlockRecord;
use crate::overlay::{Displaced, Map, Overlay, Stamp, VolumeOverlay};
use crate::snapshot::Floor;
use crate::units::{Extent, Slot, VolumeId};
use crate::volume::MapRoot;

pub const V: VolumeId = VolumeId(1);

/// What a machine made of a map.
pub struct Written {
    pub map: MapRoot,
    /// What large holes cut off from it.
    pub cut: Option<MapRoot>,
    /// Pages that were written.
    pub pages: u64,
    pub taken: BTreeSet<u64>,
    pub freed: BTreeSet<u64>,
}

/// A machine that writes one map.
pub enum Machine<'a> {
    Merge(Box<Merge>, &'a VolumeOverlay),
    Restamp(Box<Restamp>),
}

impl Machine<'_> {
    fn step(&mut self, cx: &mut MergeContext<'_, PageDisk>) -> Option<(MapRoot, Option<MapRoot>)> {
        match self {
            Machine::Merge(merge, layer) => match merge.step(layer, cx).unwrap() {
                MergeStep::Wait => None,
                MergeStep::Done { map, cut } => Some((map, cut)),
            },
            Machine::Restamp(restamp) => Some((restamp.step(cx).unwrap()?, None)),
        }
    }
}

/// A checkpoint, as far as machines know it.
pub struct Checkpoint {
    pub birth: Birth,
    pub floor: Floor,
    pub writer: PageWriter,
    pub freed: Vec<Extent>,
}

impl Checkpoint {
    pub fn new(birth: Birth, floor: Floor) -> Checkpoint {
        Checkpoint { birth, floor, writer: PageWriter::new(POOL), freed: Vec::new() }
    }
}

impl Forest {
    /// What a machine made, or `None` while it waits.
    pub fn step(
        &mut self,
        machine: &mut Machine<'_>,
        checkpoint: &mut Checkpoint,
    ) -> Option<(MapRoot, Option<MapRoot>)> {
        let Checkpoint { birth, floor, writer, freed } = checkpoint;
        machine.step(&mut MergeContext {
            birth: *birth,
            floor: *floor,
            pages: &mut self.shelf.pages,
            device: &mut self.shelf.device,
            space: &mut self.space,
            writer,
            freed,
            stampless_holes: false,
        })
    }

    pub fn run(&mut self, mut machine: Machine<'_>, birth: Birth, floor: Floor) -> Written {
        let mut checkpoint = Checkpoint::new(birth, floor);
        let before = each_once(&self.space.frozen);
        let (map, cut) = loop {
            if let Some(done) = self.step(&mut machine, &mut checkpoint) {
                break done;
            }
            assert!(self.shelf.device.under_way() > 0, "it waits for nothing");
            self.shelf.settle();
        };
        let Checkpoint { mut writer, freed, .. } = checkpoint;
        writer.send(&mut self.shelf.device, &self.space);
        self.shelf.settle();
        let taken = &each_once(&self.space.frozen) - &before;
        Written { map, cut, pages: writer.written, taken, freed: each_once(&freed) }
    }

    pub fn merge(&mut self, old: MapRoot, layer: &Layer, birth: Birth, floor: Floor) -> Written {
        let (_, updates) = layer.overlay.layer(V, 0).expect("it has updates");
        let merge = Merge::new(V, old, layer.height, 1 << 35);
        self.run(Machine::Merge(Box::new(merge), updates), birth, floor)
    }
}

/// Updates of a map, and the sectors that they stored and that came too late for it.
pub struct Layer {
    pub overlay: Overlay,
    pub height: u8,
    pub stored: BTreeSet<u64>,
}

impl Layer {
    pub fn new(height: u8) -> Layer {
        Layer { overlay: Overlay::default(), height, stored: BTreeSet::new() }
    }

    pub fn hole(&mut self, first: u64, count: u64, changed: u64) {
        let (map, mut displaced) = (Map { volume: V, height: self.height }, Displaced::new());
        let stamp = Stamp { changed: Seq(changed), slot: Slot(1) };
        self.overlay.insert_hole(map, Granule(first), count, stamp, &mut displaced);
        self.displace(displaced);
    }

    pub fn blocks(&mut self, forest: &mut Forest, first: u64, count: u64, changed: u64) {
        let mut blocks = Vec::new();
        for _ in 0..count {
            let sectors = 1 + forest.rng.below(3);
            let place = forest.fresh(sectors);
            self.stored.extend((place.0..).take(usize::try_from(sectors).unwrap()));
            let (sectors, encoding) = (u16::try_from(sectors).unwrap(), Encoding::Raw);
            blocks.push(BlockRecord { place, sectors, encoding, checksum: Checksum(place.0) });
        }
        let (map, mut displaced) = (Map { volume: V, height: self.height }, Displaced::new());
        let stamp = Stamp { changed: Seq(changed), slot: Slot(1) };
        self.overlay.insert_blocks(map, Granule(first), &blocks, stamp, &mut displaced);
        self.displace(displaced);
    }

    /// Blocks that never reach a map are given back by whoever displaced them.
    fn displace(&mut self, displaced: Displaced) {
        let extent =
            |block: &BlockRecord| Extent { start: block.place, sectors: block.sectors.into() };
        let gone: Vec<Extent> = displaced.iter().map(extent).collect();
        for sector in each_once(&gone) {
            assert!(
                self.stored.remove(&sector),
                "sector {sector} is displaced, but was not stored"
            );
        }
    }

    /// Writes and holes of all sizes, as a volume of this height may get them.
    pub fn random(forest: &mut Forest, height: u8, changed: u64) -> Layer {
        let mut layer = Layer::new(height);
        let end = 1u64 << (7 * u32::from(height));
        let steps = if forest.rng.below(4) == 0 { 40 } else { 8 };
        for changed in changed..=changed + forest.rng.below(steps) {
            let first = forest.rng.granule(height);
            let left = end - first;
            if forest.rng.below(3) > 0 {
                let count = 1 + forest.rng.below(left.min(30));
                layer.blocks(forest, first, count, changed);
                continue;
            }
            let most = [1, 40, 600, 1 << 14, end][usize::try_from(forest.rng.below(5)).unwrap()];
            let count = 1 + forest.rng.below(most.min(left));
            if forest.rng.below(2) == 0 {
                layer.hole(first, count, changed);
                continue;
            }
            // From page to page, so that whole subtrees go.
            let shift = 7 * u32::try_from(forest.rng.below(u64::from(height) + 1)).unwrap();
            let (first, unit) = (first >> shift << shift, 1 << shift);
            layer.hole(first, (count.div_ceil(unit) * unit).min(end - first), changed);
        }
        layer
    }
}
