//! Pages, and what stands in them.
use super::*;
use crate::volume::VolumeSpec;

const PAGE_ID: PageId =
    PageId { kind: PageKind::Map, level: 3, index: 0x1234, epoch: Epoch(EPOCH_MAX) };

fn page() -> Vec<u8> {
    let mut bytes = vec![0; MAP_PAGE];
    blank_page(&mut bytes);
    bytes[PAGE_HEADER..].fill(0x5a);
    seal_page(&mut bytes, POOL, 7, PAGE_ID);
    bytes
}

/// Protects from a page of another pool, tree, place or time that is taken for the wanted one.
#[test]
fn a_page_is_only_what_its_parent_named() {
    let bytes = page();
    assert_eq!(verify_page(&bytes, POOL, PAGE_ID), Ok(()));
    let epoch = Epoch(PAGE_ID.epoch.0 - 1);
    let others = [
        PageId { kind: PageKind::Directory, ..PAGE_ID },
        PageId { kind: PageKind::Object, ..PAGE_ID },
        PageId { kind: PageKind::Space, ..PAGE_ID },
        PageId { level: PAGE_ID.level - 1, ..PAGE_ID },
        PageId { index: PAGE_ID.index + 1, ..PAGE_ID },
        PageId { epoch, ..PAGE_ID },
    ];
    for other in others {
        assert_eq!(verify_page(&bytes, POOL, other), Err(PageProblem::Identity), "{other:?}");
    }
    assert_eq!(verify_page(&bytes, POOL + 1, PAGE_ID), Err(PageProblem::Identity));
}

/// Protects from a torn or rotten page that is believed.
#[test]
fn a_page_with_any_byte_changed_is_refused() {
    let mut bytes = page();
    for at in 0..bytes.len() {
        for bit in [0x01, 0x80, 0xff] {
            bytes[at] ^= bit;
            let found = verify_page(&bytes, POOL, PAGE_ID);
            assert_eq!(found, Err(PageProblem::Checksum), "byte {at} changed by {bit:#x}");
            bytes[at] ^= bit;
        }
    }
    for len in [0, 7, 512, MAP_PAGE - 1] {
        assert!(verify_page(&bytes[..len], POOL, PAGE_ID).is_err(), "{len} bytes");
    }
}

fn block(sectors: u16, encoding: Encoding) -> Entry {
    Entry::Block(Block {
        place: Sector(PLACE_MAX),
        sectors,
        encoding,
        checksum: Checksum(u64::MAX),
        born: Epoch(EPOCH_MAX),
        changed: Seq(SEQ_MAX),
    })
}

/// Protects from a field that spills into its neighbour, or an entry into the next one.
#[test]
fn entries_of_a_leaf_hold_their_largest_values_beside_one_another() {
    let mut entries: Vec<Entry> = ENCODINGS.map(|encoding| block(256, encoding)).to_vec();
    entries.push(block(1, Encoding::Raw));
    entries.push(Entry::Hole { changed: Seq(SEQ_MAX) });
    entries.push(Entry::Hole { changed: Seq(0) });
    let mut page = vec![0; MAP_PAGE];
    let of = |index: usize| entries[index % entries.len()];
    // From the last to the first, so that a spill to the right is not written over.
    (0..FAN_OUT).rev().for_each(|index| set_entry(&mut page, index, of(index)));
    (0..FAN_OUT).for_each(|index| assert_eq!(entry(&page, index), of(index), "entry {index}"));
    assert_eq!(page[..PAGE_HEADER], [0; PAGE_HEADER], "the header was written over");
    set_entry(&mut page, 5, Entry::Hole { changed: Seq(1) });
    assert_eq!(entry(&page, 5), Entry::Hole { changed: Seq(1) }, "a block left something behind");
}

#[test]
fn children_hold_their_largest_values_beside_one_another() {
    let places = [Sector(PLACE_MAX), Sector(PLACE_MAX - 1)];
    let children = [
        Child::Page { ptr: PagePtr { places, born: Epoch(EPOCH_MAX) }, changed: Seq(SEQ_MAX) },
        Child::Hole { changed: Seq(SEQ_MAX) },
        Child::Page { ptr: PagePtr { places, born: Epoch(0) }, changed: Seq(0) },
        Child::NEVER,
    ];
    let mut page = vec![0; MAP_PAGE];
    let of = |index: usize| children[index % children.len()];
    (0..FAN_OUT).rev().for_each(|index| set_child(&mut page, index, of(index)));
    (0..FAN_OUT).for_each(|index| assert_eq!(child(&page, index), of(index), "child {index}"));
    assert_eq!(page[..PAGE_HEADER], [0; PAGE_HEADER], "the header was written over");
}

/// Protects from a number that is silently cut to the width of its field.
#[test]
fn values_that_do_not_fit_their_fields_are_never_written() {
    let too_large = [
        Child::Page { ptr: page_ptr(PLACE_MAX + 1), changed: Seq(0) },
        Child::Hole { changed: Seq(SEQ_MAX + 1) },
        Child::Page {
            ptr: PagePtr { born: Epoch(EPOCH_MAX + 1), ..page_ptr(PLACE_MAX) },
            changed: Seq(0),
        },
    ];
    for child in too_large {
        let written = std::panic::catch_unwind(|| set_child(&mut [0; MAP_PAGE], 0, child));
        assert!(written.is_err(), "{child:?}");
    }
}

#[test]
fn space_entries_hold_their_largest_values_beside_one_another() {
    let entries = [
        SpaceEntry { epoch: Epoch(SPACE_EPOCH_MAX), home: 1, free: (1 << 24) - 1 },
        SpaceEntry::default(),
        SpaceEntry { epoch: Epoch(1), home: 0, free: (1 << 24) - 1 },
        SpaceEntry { epoch: Epoch(SPACE_EPOCH_MAX), home: 0, free: 0 },
        SpaceEntry { epoch: Epoch(0), home: 1, free: 0 },
    ];
    let mut page = vec![0; MAP_PAGE];
    let of = |index: usize| entries[index % entries.len()];
    (0..SPACE_FAN_OUT).rev().for_each(|index| set_space_entry(&mut page, index, of(index)));
    (0..SPACE_FAN_OUT).for_each(|i| assert_eq!(space_entry(&page, i), of(i), "entry {i}"));
    assert_eq!(page[..PAGE_HEADER], [0; PAGE_HEADER], "the header was written over");
}

/// Protects from a count of free sectors that its field cannot hold.
#[test]
fn the_free_sectors_below_an_upper_space_page_fit_an_entry() {
    assert!(SPACE_FAN_OUT as u64 * SPACE_SPAN < 1 << 24);
    assert!(SPACE_SPAN.is_multiple_of(64), "a region is whole words of its bitmap");
}

fn objects() -> [Durable; 2] {
    let root = Child::Page { ptr: page_ptr(PLACE_MAX), changed: Seq(SEQ_MAX) };
    let full = Durable {
        root,
        height: 9,
        position: Position::new(u64::MAX, SEQ_MAX - 1),
        stored: u64::MAX - 2,
        deleting: true,
        credit: u64::MAX - 3,
        state: vec![0xcc; STATE_MAX],
        ..Durable::with_header(header(&"n".repeat(NAME_MAX)))
    };
    let spec = VolumeSpec {
        name: "v".into(),
        size: block::ByteLen(VOLUME_MAX),
        block_size: BlockSize::new(512).unwrap(),
        uid: [1; 16],
    };
    [full, Durable::born(&spec)]
}

/// Protects from a longest name and state that do not fit their page together.
#[test]
fn an_object_page_is_read_as_it_was_written() {
    for volume in objects() {
        let mut page = vec![0; MAP_PAGE];
        encode_object(&mut page, &volume);
        assert_eq!(decode_object(&page), Ok(volume));
        assert_eq!(page[..PAGE_HEADER], [0; PAGE_HEADER], "the header was written over");
    }
}

/// Protects from an object of a later version that is taken for a volume of this one.
#[test]
fn an_object_page_that_says_what_no_volume_says_is_malformed() {
    let [full, _] = objects();
    let mut good = vec![0; MAP_PAGE];
    encode_object(&mut good, &full);
    // Kind, height, block size, compression, first byte of the name, length of the state.
    let state_at = 360 + NAME_MAX;
    for (at, value) in
        [(64, 2), (68, 10), (69, 1), (352, 1), (356, 1), (360, 0xff), (state_at + 1, 9)]
    {
        let mut page = good.clone();
        page[at] = value;
        assert!(decode_object(&page).is_err(), "byte {at} as {value}");
    }
    assert!(decode_object(&good[..MAP_PAGE - 1]).is_err());
}
