//! Object pages: volumes, snapshots and orphaned maps.
use super::*;
use crate::snapshot::{Cut, Floor, Object, Orphan};
use crate::volume::{MapRoot, Staging, VolumeSpec};

/// Where fields stand in an object page.
const KIND_AT: usize = PAGE_HEADER;
const FLAGS_AT: usize = KIND_AT + 2;
const HEIGHT_AT: usize = FLAGS_AT + 2;
const FIELDS_AT: usize = HEIGHT_AT + 4;
const SPARE_AT: usize = FIELDS_AT + 17 * 8;
const SIZE_AT: usize = SPARE_AT + 128 + 16;
const BLOCK_SIZE_AT: usize = SIZE_AT + 8;
const COMPRESSION_AT: usize = BLOCK_SIZE_AT + 4;
const NAME_AT: usize = COMPRESSION_AT + 4;

fn map() -> MapRoot {
    let held = Held { blocks: u64::MAX - 2, stored: u64::MAX - 3 };
    MapRoot {
        root: Child::Page { ptr: page_ptr(PLACE_MAX), changed: Seq(SEQ_MAX), held },
        height: 9,
    }
}

fn full_volume() -> Durable {
    Durable {
        map: map(),
        position: Position::new(u64::MAX, SEQ_MAX - 1),
        parent: Some(SnapshotId(u64::MAX - 4)),
        attached: true,
        staging: Some(Staging { of: VolumeId(u64::MAX - 5), progress: u64::MAX - 6 }),
        credit: u64::MAX - 7,
        state: vec![0xcc; STATE_MAX],
        ..Durable::with_header(header(&"n".repeat(NAME_MAX)))
    }
}

fn full_cut() -> Cut {
    Cut {
        volume: VolumeId(u64::MAX - 1),
        header: header(&"s".repeat(NAME_MAX)),
        map: map(),
        position: Position::new(u64::MAX - 2, SEQ_MAX - 1),
        parent: Some(SnapshotId(u64::MAX - 3)),
        birth: Birth(u64::MAX - 4),
        created: u64::MAX - 5,
        internal: true,
        deleted: true,
        dropped: Granule(u64::MAX - 6),
        state: vec![6; STATE_MAX],
    }
}

fn full_orphan() -> Orphan {
    let (below, cut, above) = (Birth(u64::MAX - 1), Granule(u64::MAX - 2), Birth(u64::MAX - 3));
    Orphan {
        volume: VolumeId(u64::MAX - 4),
        header: header(""),
        map: map(),
        floor: Floor { below, cut, above },
        dropped: Granule(u64::MAX - 5),
    }
}

/// One of every kind with the largest values, and with the smallest; and each flag alone.
fn objects() -> Vec<Object> {
    let spec = VolumeSpec {
        name: "v".into(),
        size: block::ByteLen(VOLUME_MAX),
        block_size: BlockSize::new(512).unwrap(),
        compression: Compression::Lz4,
        uid: [1; 16],
    };
    let small_cut = Cut {
        volume: VolumeId(0),
        header: header("s"),
        map: MapRoot::EMPTY,
        position: Position::default(),
        parent: None,
        birth: Birth(0),
        created: 0,
        internal: false,
        deleted: false,
        dropped: Granule(0),
        state: Vec::new(),
    };
    let small_orphan = Orphan {
        volume: VolumeId(0),
        floor: Floor::default(),
        dropped: Granule(0),
        ..full_orphan()
    };
    let emptied = MapRoot { root: Child::Hole { changed: Seq(SEQ_MAX) }, height: 5 };
    vec![
        Object::Volume(full_volume()),
        Object::Volume(Durable::born(&spec)),
        Object::Volume(Durable { attached: false, ..full_volume() }),
        Object::Volume(Durable { staging: None, ..full_volume() }),
        Object::Volume(Durable { map: emptied, ..full_volume() }),
        Object::Snapshot(full_cut()),
        Object::Snapshot(small_cut),
        Object::Snapshot(Cut { internal: false, ..full_cut() }),
        Object::Snapshot(Cut { deleted: false, ..full_cut() }),
        Object::Orphan(full_orphan()),
        Object::Orphan(small_orphan),
    ]
}

fn page_of(object: &Object) -> Vec<u8> {
    let mut page = vec![0; MAP_PAGE];
    encode_object(&mut page, object);
    page
}

/// Protects from a longest name and state that do not fit their page together, and from a field
/// of one kind that is read as that of another.
#[test]
fn an_object_page_is_read_as_it_was_written() {
    for object in objects() {
        let page = page_of(&object);
        assert_eq!(decode_object(&page), Ok(object));
        assert_eq!(page[..PAGE_HEADER], [0; PAGE_HEADER], "the header was written over");
        assert_eq!(page[SPARE_AT..SPARE_AT + 128], [0; 128], "spare fields are zero");
    }
}

/// Protects from a page that a later version wrote with fields that this one does not know.
#[test]
fn what_stands_in_spare_fields_or_behind_the_state_is_passed_over() {
    for object in objects() {
        let mut page = page_of(&object);
        page[SPARE_AT..SPARE_AT + 128].fill(0xff);
        let end = match &object {
            Object::Volume(volume) => volume.state.len(),
            Object::Snapshot(cut) => cut.state.len(),
            Object::Orphan(_) => 0,
        };
        page[NAME_AT + object.header().name.len() + 2 + end..].fill(0xff);
        assert_eq!(decode_object(&page), Ok(object));
    }
}

/// Protects from an object of a later version that is taken for one of this.
#[test]
fn an_object_page_that_says_what_no_object_says_is_malformed() {
    for object in objects() {
        let good = page_of(&object);
        let state_at = NAME_AT + object.header().name.len();
        let refused = [
            (KIND_AT, 0),
            (KIND_AT, 4),
            (KIND_AT + 1, 1),
            (HEIGHT_AT, 10),
            (HEIGHT_AT + 1, 1),
            (SIZE_AT + 7, 1),
            (BLOCK_SIZE_AT, 1),
            (COMPRESSION_AT, 1),
            (NAME_AT - 1, 0xff),
            (state_at + 1, 14),
        ];
        for (at, value) in refused {
            let mut page = good.clone();
            page[at] = value;
            assert!(decode_object(&page).is_err(), "byte {at} of {object:?} as {value}");
        }
        if !object.header().name.is_empty() {
            let mut page = good.clone();
            page[NAME_AT] = 0xff;
            assert!(decode_object(&page).is_err(), "a name that is no text");
        }
        for len in [0, PAGE_HEADER, SPARE_AT, NAME_AT, MAP_PAGE - 1] {
            assert!(decode_object(&good[..len]).is_err(), "{len} bytes");
        }
    }
}
