use super::*;
use crate::format::Child;
use crate::units::Sector;
use crate::volume::{BlockSize, Compression};
use std::collections::BTreeMap;

const OLD: SnapshotId = SnapshotId(1);
const NEW: SnapshotId = SnapshotId(2);

fn cut(parent: Option<SnapshotId>, birth: u64, dropped: u64) -> Cut {
    let header = Header {
        name: "s".into(),
        uid: [1; 16],
        size: 1 << 30,
        block_size: BlockSize::DEFAULT,
        compression: Compression::Off,
    };
    Cut {
        volume: VolumeId(9),
        header,
        map: MapRoot::EMPTY,
        position: Position::default(),
        parent,
        birth: Birth(birth),
        created: 0,
        internal: false,
        deleted: false,
        dropped: Granule(dropped),
        state: Vec::new(),
    }
}

fn over(parent: Option<SnapshotId>, cuts: &[(SnapshotId, Cut)]) -> Floor {
    let cuts: BTreeMap<SnapshotId, &Cut> = cuts.iter().map(|(id, cut)| (*id, cut)).collect();
    Floor::over(parent, |id| cuts.get(&id).copied())
}

/// Protects from a first volume whose blocks are taken for somebody else's, and never freed.
#[test]
fn a_map_without_a_parent_owns_all_that_it_has() {
    let nobody = over(None, &[(OLD, cut(None, 5, 0))]);
    assert_eq!(nobody, Floor::default());
    assert!(nobody.owns(Birth(1), 0) && nobody.owns(Birth(1), u64::MAX));
    assert_eq!(over(Some(OLD), &[]), Floor::default(), "the parent is gone");
}

/// Protects from freeing what the snapshot has, and from keeping what came right behind it.
#[test]
fn a_map_owns_what_was_born_later_than_its_parent() {
    // What lies further back does not matter: the parent has it.
    for parent in [None, Some(OLD)] {
        let floor = over(Some(NEW), &[(OLD, cut(None, 5, 0)), (NEW, cut(parent, 8, 0))]);
        assert_eq!(floor, Floor::flat(Birth(8)));
        for end in [0, 1, 128, u64::MAX] {
            assert!(!floor.owns(Birth(5), end) && !floor.owns(Birth(8), end));
            assert!(floor.owns(Birth(9), end));
        }
    }
}

/// Protects from losing what a half-dropped snapshot left to the map that goes on from it.
#[test]
fn where_the_parent_was_dropped_a_map_owns_what_was_the_parents() {
    let line = [(OLD, cut(None, 5, 0)), (NEW, cut(Some(OLD), 8, 256))];
    let floor = over(Some(NEW), &line);
    assert_eq!(floor, Floor { below: Birth(5), cut: Granule(256), above: Birth(8) });
    // What ends in front of the cut, or at it: only the snapshot before the parent has a share.
    for end in [1, 128, 256] {
        assert!(!floor.owns(Birth(5), end) && floor.owns(Birth(6), end));
        assert!(floor.owns(Birth(8), end) && floor.owns(Birth(9), end));
    }
    // What lies behind the cut, or across it: the parent still has it.
    for end in [257, 384, u64::MAX] {
        assert!(!floor.owns(Birth(6), end) && !floor.owns(Birth(8), end));
        assert!(floor.owns(Birth(9), end));
    }
    let alone = over(Some(NEW), &[(NEW, cut(None, 8, 256))]);
    assert_eq!(alone, Floor { below: Birth(0), cut: Granule(256), above: Birth(8) });
    assert!(alone.owns(Birth(1), 256), "there is no snapshot before the parent");
}

#[test]
fn a_page_belongs_to_whom_its_birth_says() {
    let floor = Floor { below: Birth(5), cut: Granule(256), above: Birth(8) };
    for born in [5, 6, 8, 9].map(Birth) {
        let ptr = PagePtr { places: [Sector(1), Sector(2)], born };
        for end in [128, 256, 384] {
            assert_eq!(floor.owns_page(ptr, end), floor.owns(born, end));
        }
    }
}

/// Protects from an object that is asked for its map or its parent and answers for another kind.
#[test]
fn every_kind_of_object_tells_its_map_its_header_and_its_parent() {
    let map = MapRoot { root: Child::Hole { changed: Seq(7) }, height: 3 };
    let snapshot = Cut { map, ..cut(Some(OLD), 1, 0) };
    let header = snapshot.header.clone();
    let volume = Durable { map, parent: Some(NEW), ..Durable::with_header(header.clone()) };
    let (floor, dropped) = (Floor::default(), Granule(0));
    let orphan = Orphan { volume: VolumeId(9), header: header.clone(), map, floor, dropped };
    for (object, parent) in [
        (Object::Volume(volume), Some(NEW)),
        (Object::Snapshot(snapshot), Some(OLD)),
        (Object::Orphan(orphan), None),
    ] {
        assert_eq!((object.map(), object.header(), object.parent()), (map, &header, parent));
    }
}
