//! A family of maps over a whole life: writes, discards, snapshots, clones, rollbacks and
//! deletions, dropped in small steps. Nothing is freed that somebody has, and in the end nothing
//! is left.
use std::collections::{BTreeMap, BTreeSet};

use super::dropping::{Drop, each_once};
use super::forest::{Forest, Met};
use super::writing::{Layer, Machine, V, Written};
use super::*;
use crate::snapshot::{Cut, Floor};
use crate::units::{Extent, SnapshotId};
use crate::volume::{BlockSize, Compression, Header, MapRoot};

struct Volume {
    map: MapRoot,
    parent: Option<SnapshotId>,
}

struct Orphan {
    map: MapRoot,
    floor: Floor,
    dropped: Granule,
}

/// Who goes on from a snapshot.
enum Child {
    Volume(usize),
    Snapshot(SnapshotId),
}

struct Family {
    forest: Forest,
    volumes: Vec<Volume>,
    snapshots: BTreeMap<SnapshotId, Cut>,
    orphans: Vec<Orphan>,
    birth: u64,
    /// Sectors that were taken and not freed.
    live: BTreeSet<u64>,
}

impl Family {
    fn new(seed: u64) -> Family {
        Family {
            forest: Forest::new(seed),
            volumes: vec![Volume { map: MapRoot::EMPTY, parent: None }],
            snapshots: BTreeMap::new(),
            orphans: Vec::new(),
            birth: 0,
            live: BTreeSet::new(),
        }
    }

    fn floor(&self, parent: Option<SnapshotId>) -> Floor {
        Floor::over(parent, |id| self.snapshots.get(&id))
    }

    fn free(&mut self, freed: &BTreeSet<u64>) {
        for sector in freed {
            assert!(self.live.remove(sector), "sector {sector} was free already");
        }
    }

    fn settle(&mut self, written: &Written) {
        self.live.extend(&written.taken);
        self.free(&written.freed);
    }

    fn orphan(&mut self, map: MapRoot, floor: Floor) {
        if map.root.ptr().is_some_and(|ptr| floor.owns_page(ptr, map.end())) {
            self.orphans.push(Orphan { map, floor, dropped: Granule(0) });
        }
    }

    fn some_volume(&mut self) -> Option<usize> {
        let count = self.volumes.len() as u64;
        (count > 0).then(|| usize::try_from(self.forest.rng.below(count)).unwrap())
    }

    /// A snapshot that users see.
    fn some_snapshot(&mut self) -> Option<SnapshotId> {
        let shown = self.snapshots.iter().filter(|(_, cut)| !cut.deleted);
        let shown: Vec<SnapshotId> = shown.map(|(id, _)| *id).collect();
        let count = shown.len() as u64;
        (count > 0).then(|| shown[usize::try_from(self.forest.rng.below(count)).unwrap()])
    }

    fn write(&mut self, at: usize) {
        let Volume { map, parent } = self.volumes[at];
        let height = (map.height + u8::from(self.forest.rng.below(8) == 0)).clamp(1, 3);
        self.birth += 1;
        let layer = Layer::random(&mut self.forest, height, 10 * self.birth);
        self.live.extend(&layer.stored);
        let floor = self.floor(parent);
        let written = self.forest.merge(map, &layer, Birth(self.birth), floor);
        self.settle(&written);
        self.volumes[at].map = written.map;
        if let Some(cut) = written.cut {
            self.orphan(cut, floor);
        }
    }

    fn snapshot(&mut self, at: usize) {
        let id = SnapshotId(self.birth * 1000 + self.snapshots.len() as u64);
        let Volume { map, parent } = &mut self.volumes[at];
        let cut = Cut {
            volume: V,
            header: header(),
            map: *map,
            position: block::Position::default(),
            parent: *parent,
            birth: Birth(self.birth),
            created: 0,
            internal: false,
            deleted: false,
            dropped: Granule(0),
            state: Vec::new(),
        };
        *parent = Some(id);
        assert!(self.snapshots.insert(id, cut).is_none(), "numbers are given once");
        // What comes now is younger.
        self.birth += 1;
    }

    fn roll_back(&mut self, at: usize, to: SnapshotId) {
        let Volume { map: old, parent } = self.volumes[at];
        let floor = self.floor(parent);
        self.orphan(old, floor);
        self.birth += 1;
        let (stamp, budget) = (Seq(10 * self.birth), self.forest.rng.below(4));
        let restamp = Restamp::new(V, self.snapshots[&to].map, old, stamp, budget, 1 << 35);
        let (birth, floor) = (Birth(self.birth), self.floor(Some(to)));
        let written = self.forest.run(Machine::Restamp(Box::new(restamp)), birth, floor);
        self.settle(&written);
        self.volumes[at] = Volume { map: written.map, parent: Some(to) };
    }

    fn delete_volume(&mut self, at: usize) {
        let Volume { map, parent } = self.volumes.swap_remove(at);
        let floor = self.floor(parent);
        self.orphan(map, floor);
    }

    fn children(&self, of: SnapshotId) -> Vec<Child> {
        let volumes = self.volumes.iter().enumerate().filter(|(_, v)| v.parent == Some(of));
        let snapshots = self.snapshots.iter().filter(|(_, cut)| cut.parent == Some(of));
        let volumes = volumes.map(|(at, _)| Child::Volume(at));
        volumes.chain(snapshots.map(|(id, _)| Child::Snapshot(*id))).collect()
    }

    /// The deleted snapshot that is dropped next: one that was begun, before any other is.
    fn next_drop(&self) -> Option<SnapshotId> {
        let mut deleted: Vec<_> = self.snapshots.iter().filter(|(_, cut)| cut.deleted).collect();
        deleted.sort_by_key(|(_, cut)| cut.dropped == Granule(0));
        let free = |id: &SnapshotId| self.children(*id).len() < 2;
        deleted.into_iter().map(|(id, _)| *id).find(free)
    }

    /// One step of dropping. `false`: there is nothing to drop.
    fn drop_some(&mut self) -> bool {
        let budget = self.forest.rng.below(4);
        let mut freed: Vec<Extent> = Vec::new();
        if let Some(Orphan { map, floor, dropped }) = self.orphans.pop() {
            let drop = Drop { map, others: &[], floor };
            let stopped = self.forest.drop_step(&drop, dropped, budget, &mut freed);
            self.orphans.extend(stopped.map(|dropped| Orphan { map, floor, dropped }));
        } else if let Some(id) = self.next_drop() {
            let Cut { map, parent, dropped, .. } = self.snapshots[&id].clone();
            let child = self.children(id).pop();
            let others: Vec<MapRoot> = match child {
                None => Vec::new(),
                Some(Child::Volume(at)) => vec![self.volumes[at].map],
                Some(Child::Snapshot(id)) => vec![self.snapshots[&id].map],
            };
            let drop = Drop { map, others: &others, floor: self.floor(parent) };
            let stopped = self.forest.drop_step(&drop, dropped, budget, &mut freed);
            if let Some(at) = stopped {
                self.snapshots.get_mut(&id).unwrap().dropped = at;
            } else {
                self.snapshots.remove(&id);
                match child {
                    None => {}
                    Some(Child::Volume(at)) => self.volumes[at].parent = parent,
                    Some(Child::Snapshot(id)) => {
                        self.snapshots.get_mut(&id).unwrap().parent = parent;
                    }
                }
            }
        } else {
            return false;
        }
        self.free(&each_once(&freed));
        true
    }

    fn live(&mut self) {
        let (volume, snapshot) = (self.some_volume(), self.some_snapshot());
        match (self.forest.rng.below(16), volume, snapshot) {
            (0..5, Some(at), _) => self.write(at),
            (5..7, Some(at), _) => self.snapshot(at),
            (7, _, Some(id)) => {
                let map = self.snapshots[&id].map;
                self.volumes.push(Volume { map, parent: Some(id) });
            }
            (8, Some(at), Some(id)) => self.roll_back(at, id),
            (9, Some(at), _) if self.volumes.len() > 1 => self.delete_volume(at),
            (10..12, _, Some(id)) => self.snapshots.get_mut(&id).unwrap().deleted = true,
            _ => {
                self.drop_some();
            }
        }
    }

    /// Everything that somebody can still read, or that dropping has still to read, is there.
    fn verify(&self) {
        let volumes = self.volumes.iter().map(|volume| (volume.map, Granule(0)));
        let snapshots = self.snapshots.values().map(|cut| (cut.map, cut.dropped));
        for (map, from) in volumes.chain(snapshots) {
            for met in self.forest.list(map) {
                let gone = match &met {
                    Met::Page { ptr, span, .. } if span.end > from.0 => {
                        ptr.places.iter().any(|place| !self.live.contains(&place.0))
                    }
                    Met::Entry { at, entry: Entry::Block(block), .. } if *at >= from.0 => {
                        !self.live.contains(&block.place.0)
                    }
                    _ => false,
                };
                assert!(!gone, "{met:?} was freed");
            }
        }
    }
}

fn header() -> Header {
    Header {
        name: "s".into(),
        uid: [1; 16],
        size: 1 << 30,
        block_size: BlockSize::DEFAULT,
        compression: Compression::Off,
    }
}

/// Protects from a rule of ownership that holds for each operation alone, and not for all of them
/// in any order.
#[test]
fn a_family_of_maps_never_frees_what_it_has_and_leaves_nothing_behind() {
    for seed in 0..30 {
        let mut family = Family::new(seed);
        for _ in 0..80 {
            family.live();
            family.verify();
        }
        while family.drop_some() {}
        if family.snapshots.values().all(|cut| !cut.deleted) {
            let maps = family.volumes.iter().map(|volume| volume.map);
            let maps = maps.chain(family.snapshots.values().map(|cut| cut.map));
            let has: BTreeSet<u64> = maps.flat_map(|map| family.forest.sectors(map)).collect();
            assert_eq!(family.live, has, "seed {seed}: lost");
        }
        while !family.volumes.is_empty() {
            family.delete_volume(0);
        }
        family.snapshots.values_mut().for_each(|cut| cut.deleted = true);
        while family.drop_some() {}
        assert!(family.snapshots.is_empty(), "seed {seed}: a snapshot is never dropped");
        assert_eq!(family.live, BTreeSet::new(), "seed {seed}: lost in the end");
    }
}
