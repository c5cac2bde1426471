mod layers;

use super::*;
use crate::format::Encoding;
use crate::units::{Checksum, Sector};
use std::collections::{BTreeMap, BTreeSet};

const V: VolumeId = VolumeId(1);

fn map(height: u8) -> Map {
    Map { volume: V, height }
}

fn stamp(seq: u64) -> Stamp {
    Stamp { changed: Seq(seq), slot: Slot(1) }
}

fn block(place: u64) -> BlockRecord {
    BlockRecord {
        place: Sector(place),
        sectors: 1,
        encoding: Encoding::Raw,
        checksum: Checksum(place),
    }
}

/// A tiny generator: the test wants many shapes, not good randomness.
struct Lcg(u64);
impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Protects from a split, a cut or a gap that loses or invents an update: the overlay must agree
/// with one map entry per granule, whatever runs are laid over one another.
#[test]
fn an_overlay_equals_a_map_of_single_granules() {
    let mut rng = Lcg(7);
    for _ in 0..200 {
        let mut overlay = Overlay::default();
        let mut model: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        let (mut stored, mut displaced) = (BTreeSet::new(), Displaced::new());
        for step in 1..120u64 {
            let (first, count) = (rng.below(400), 1 + rng.below(60));
            match rng.below(3) {
                0 | 1 => {
                    // Each block has a name of its own: the step, and where it is in the run.
                    let names: Vec<u64> = (0..count).map(|at| step * 64 + at).collect();
                    let blocks: Vec<BlockRecord> = names.iter().map(|name| block(*name)).collect();
                    let (first, stamp) = (Granule(first), stamp(step));
                    overlay.insert_blocks(map(2), first, &blocks, stamp, &mut displaced);
                    stored.extend(&names);
                    model.extend((first.0..).zip(names.into_iter().map(Some)));
                }
                _ => {
                    overlay.insert_hole(map(2), Granule(first), count, stamp(step), &mut displaced);
                    (first..first + count).for_each(|g| {
                        model.insert(g, None);
                    });
                }
            }
        }
        for granule in 0..500 {
            let found = overlay.get(V, Granule(granule)).map(|update| match update {
                Update::Block { block, .. } => Some(block.place.0),
                Update::Hole { .. } => None,
            });
            assert_eq!(found, model.get(&granule).copied(), "granule {granule}");
        }
        let live: BTreeSet<u64> = model.values().flatten().copied().collect();
        let gone: BTreeSet<u64> = displaced.iter().map(|block| block.place.0).collect();
        assert_eq!(gone.len(), displaced.len(), "a block is displaced once");
        assert_eq!(&live | &gone, stored, "every block is live or displaced");
        assert_eq!(&live & &gone, BTreeSet::new());
        let updates: Vec<_> = overlay.layer(V, 0).unwrap().1.from(0).collect();
        assert_eq!(updates.len(), overlay.entries());
        for pair in updates.windows(2) {
            assert!(pair[0].0 + pair[0].1.count() <= pair[1].0, "updates overlap: {pair:?}");
        }
        let dirty: BTreeSet<(u32, u64)> = updates
            .iter()
            .flat_map(|(start, update)| [*start, start + update.count() - 1])
            .flat_map(|g| (1..=2u32).map(move |level| (level, g >> (7 * level))))
            .collect();
        assert!(overlay.nodes() >= dirty.len() as u64, "the bound of pages is a bound");
    }
}

/// Protects from space that is never freed when a volume goes with updates still in memory.
#[test]
fn removing_a_volume_displaces_all_its_blocks() {
    let mut overlay = Overlay::default();
    let mut displaced = Displaced::new();
    overlay.insert_blocks(map(1), Granule(3), &[block(9)], stamp(1), &mut displaced);
    overlay.insert_hole(map(1), Granule(5), 9, stamp(2), &mut displaced);
    overlay.remove(V, &mut displaced);
    assert_eq!(displaced, vec![block(9)]);
    assert!(overlay.is_empty());
}
