use super::*;
use crate::format::Held;
use crate::limits::{JOURNAL_AT, JOURNAL_MIN};
use crate::units::{Birth, Sector};
use crate::volume::{BlockSize, Compression, Durable, Header, MapRoot};
use block::{Position, SectorSize};

/// A pool of one region.
fn layout() -> Layout {
    let regions_at = (JOURNAL_AT + JOURNAL_MIN) / 512;
    Layout {
        sector: SectorSize::B512,
        sectors: regions_at + 20_000,
        regions_at: Sector(regions_at),
        journal_at: Sector(JOURNAL_AT / 512),
        journal_blocks: JOURNAL_MIN / 4096,
    }
}

/// A volume with the most that can be said of its map.
fn volume(born: u64, held: Held, height: u8) -> Durable {
    let header = Header {
        name: "v".into(),
        uid: [1; 16],
        size: 1 << 20,
        block_size: BlockSize::DEFAULT,
        compression: Compression::Off,
    };
    let place = layout().regions_at.0 + 1000;
    let ptr = PagePtr { places: [Sector(place), Sector(place + 8)], born: Birth(born) };
    let root = Child::Page { ptr, changed: Seq(SEQ_MAX), held };
    Durable {
        map: MapRoot { root, height },
        position: Position::new(1, SEQ_MAX - 1),
        ..Durable::with_header(header)
    }
}

/// Protects from an object page behind a good checksum that brings the process down: what it says
/// is added up, multiplied, and written into narrower fields.
#[test]
fn an_object_that_says_what_no_map_can_be_is_not_opened() {
    let most = Held { blocks: 1 << 14, stored: 2 * layout().sectors };
    let good = volume((1 << 40) - 1, most, 2);
    let opens = |volume: Durable| check_object(&layout(), &Object::Volume(volume)).is_ok();
    assert!(opens(good.clone()));
    assert!(opens(Durable { map: MapRoot::EMPTY, ..good.clone() }));
    assert!(!opens(volume(1 << 40, most, 2)), "a birth beyond its field");
    assert!(!opens(volume(1, Held { blocks: most.blocks + 1, ..most }, 2)), "too many blocks");
    assert!(!opens(volume(1, Held { stored: most.stored + 1, ..most }, 2)), "too many sectors");
    assert!(!opens(volume(1, Held { blocks: 129, stored: 129 }, 1)), "more than its height holds");
    assert!(!opens(volume(1, most, 0)), "a page without a level");
    assert!(!opens(volume(1, most, 6)), "more levels than the largest volume needs");
    let position = Position::new(1, SEQ_MAX);
    assert!(!opens(Durable { position, ..good.clone() }), "a seq that no map keeps");
    let mut astray = good.clone();
    let Child::Page { ptr, .. } = &mut astray.map.root else { unreachable!("made with a page") };
    ptr.places[1] = Sector(0);
    assert!(!opens(astray), "a second place outside of the regions");
    let mut empty = good;
    empty.header.size = 0;
    assert!(!opens(empty), "a volume of no size");
}

/// Protects from a line of snapshots that leads nowhere, or never ends.
#[test]
fn snapshots_that_go_in_circles_or_are_missing_are_not_opened() {
    let snapshot = |parent: Option<u64>| {
        let volume = volume(1, Held { blocks: 1, stored: 1 }, 1);
        Object::Snapshot(crate::snapshot::Cut {
            volume: VolumeId(9),
            header: volume.header,
            map: volume.map,
            position: volume.position,
            parent: parent.map(SnapshotId),
            birth: Birth(1),
            created: 0,
            internal: false,
            deleted: false,
            dropped: crate::units::Granule(0),
            state: Vec::new(),
        })
    };
    let family = |parents: &[(u64, Option<u64>)]| {
        let objects = parents.iter().map(|(id, parent)| (ObjectId(*id), snapshot(*parent)));
        check_family(&objects.collect()).is_ok()
    };
    assert!(family(&[]));
    assert!(family(&[(1, None), (2, Some(1)), (3, Some(2)), (4, Some(2)), (5, None)]));
    assert!(family(&[(1, Some(3)), (2, Some(1)), (3, None)]), "numbers need not ascend");
    assert!(!family(&[(1, Some(2))]), "the parent is missing");
    assert!(!family(&[(1, Some(1))]), "its own parent");
    assert!(!family(&[(1, Some(2)), (2, Some(1))]), "each the other's");
    assert!(!family(&[(1, Some(2)), (2, Some(3)), (3, Some(2)), (4, None)]), "a line to a circle");
}

/// Protects from a snapshot that is given the number of a volume, and then taken for it.
#[test]
fn a_pool_whose_next_number_is_taken_is_not_opened() {
    let volume = || Object::Volume(volume(1, Held { blocks: 1, stored: 1 }, 1));
    let objects: Objects = [3, 7].map(|id| (ObjectId(id), volume())).into_iter().collect();
    assert!(check_numbers(&Objects::new(), 0).is_ok());
    assert!(check_numbers(&objects, 8).is_ok());
    assert!(check_numbers(&objects, 7).is_err(), "it is taken");
    assert!(check_numbers(&objects, 0).is_err(), "it will be");
}
