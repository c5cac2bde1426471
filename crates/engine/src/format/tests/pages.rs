//! Pages, and what stands in them.
use super::*;

const PAGE_ID: PageId =
    PageId { kind: PageKind::Map, level: 3, index: 0x1234, born: Birth(BIRTH_MAX) };

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
    let born = Birth(PAGE_ID.born.0 - 1);
    let others = [
        PageId { kind: PageKind::Directory, ..PAGE_ID },
        PageId { kind: PageKind::Object, ..PAGE_ID },
        PageId { kind: PageKind::Space, ..PAGE_ID },
        PageId { level: PAGE_ID.level - 1, ..PAGE_ID },
        PageId { index: PAGE_ID.index + 1, ..PAGE_ID },
        PageId { born, ..PAGE_ID },
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
        born: Birth(BIRTH_MAX),
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

/// The largest values of what a child says of its subtree.
const BLOCKS_MAX: u64 = (1 << 29) - 1;
const STORED_MAX: u64 = (1 << 39) - 1;

/// Places, birth, stamp, blocks and sectors of a child.
fn page_child([first, second, born, changed, blocks, stored]: [u64; 6]) -> Child {
    Child::Page {
        ptr: PagePtr { places: [Sector(first), Sector(second)], born: Birth(born) },
        changed: Seq(changed),
        held: Held { blocks, stored },
    }
}

const CHILD_MAX: [u64; 6] =
    [PAGE_PLACE_MAX, PAGE_PLACE_MAX, BIRTH_MAX, SEQ_MAX, BLOCKS_MAX, STORED_MAX];
/// The first place is never 0: that is a hole.
const CHILD_MIN: [u64; 6] = [1, 0, 0, 0, 0, 0];

/// Children with all fields at their largest and smallest, and with each field alone at either.
fn children() -> Vec<Child> {
    let mut all = vec![CHILD_MAX, CHILD_MIN];
    for field in 0..CHILD_MAX.len() {
        let (mut low, mut high) = (CHILD_MAX, CHILD_MIN);
        low[field] = CHILD_MIN[field];
        high[field] = CHILD_MAX[field];
        all.extend([low, high]);
    }
    let mut children: Vec<Child> = all.into_iter().map(page_child).collect();
    children.extend([Child::Hole { changed: Seq(SEQ_MAX) }, Child::NEVER]);
    children
}

/// Protects from a field that takes bits of its neighbour: they share bytes.
#[test]
fn children_hold_their_largest_values_beside_one_another() {
    let children = children();
    let mut page = vec![0; MAP_PAGE];
    for shift in 0..children.len() {
        let of = |index: usize| children[(index + shift) % children.len()];
        // From the last to the first, so that a spill to the right is not written over.
        (0..FAN_OUT).rev().for_each(|index| set_child(&mut page, index, of(index)));
        (0..FAN_OUT).for_each(|index| assert_eq!(child(&page, index), of(index), "child {index}"));
        assert_eq!(page[..PAGE_HEADER], [0; PAGE_HEADER], "the header was written over");
    }
    set_child(&mut page, 5, Child::NEVER);
    assert_eq!(child(&page, 5), Child::NEVER, "a page left something behind");
}

/// Protects from a bit of the sum of sectors that is lost between its two parts.
#[test]
fn every_bit_of_a_child_is_read_where_it_was_written() {
    let mut page = vec![0; MAP_PAGE];
    for (field, max) in CHILD_MAX.into_iter().enumerate() {
        for bit in (0..64).map(|bit| 1 << bit).filter(|bit| *bit <= max) {
            let mut fields = CHILD_MIN;
            fields[field] = bit;
            let written = page_child(fields);
            set_child(&mut page, 7, written);
            assert_eq!(child(&page, 7), written);
        }
    }
}

/// Protects from a number that is silently cut to the width of its field.
#[test]
fn values_that_do_not_fit_their_fields_are_never_written() {
    let mut too_large = vec![Child::Hole { changed: Seq(SEQ_MAX + 1) }];
    for field in 0..CHILD_MAX.len() {
        for (of, value) in [
            (CHILD_MIN, CHILD_MAX[field] + 1),
            (CHILD_MAX, CHILD_MAX[field] + 1),
            (CHILD_MIN, 1 << 63),
        ] {
            let mut fields = of;
            fields[field] = value;
            too_large.push(page_child(fields));
        }
    }
    for child in too_large {
        let written = std::panic::catch_unwind(|| set_child(&mut [0; MAP_PAGE], 0, child));
        assert!(written.is_err(), "{child:?}");
    }
    let Entry::Block(largest) = block(256, Encoding::Raw) else { unreachable!("made as one") };
    let too_large = [
        Block { place: Sector(PLACE_MAX + 1), ..largest },
        Block { sectors: 257, ..largest },
        Block { born: Birth(BIRTH_MAX + 1), ..largest },
        Block { changed: Seq(SEQ_MAX + 1), ..largest },
    ];
    for block in too_large.map(Entry::Block) {
        let written = std::panic::catch_unwind(|| set_entry(&mut [0; MAP_PAGE], 0, block));
        assert!(written.is_err(), "{block:?}");
    }
}

/// Protects from a volume whose subtrees hold more than an interior entry can say.
#[test]
fn what_the_largest_volume_holds_fits_an_interior_entry() {
    for block_size in [4096, 128 << 10] {
        let granules = VOLUME_MAX / block_size;
        // Below the root's entries; the root itself is in the object page.
        let below = 1 << (7 * (u32::from(crate::volume::height_for(granules)) - 1));
        assert!(granules.min(below) <= BLOCKS_MAX);
        assert!(granules.min(below) * (block_size / 512) <= STORED_MAX);
    }
}

/// Protects from a stamp that goes back, or takes away what a subtree holds.
#[test]
fn a_stamped_child_is_the_same_child_with_the_higher_stamp() {
    for child in children() {
        for stamp in [0, 1, SEQ_MAX] {
            let stamped = child.stamped(Seq(stamp));
            assert_eq!(stamped.changed(), child.changed().max(Seq(stamp)));
            assert_eq!((stamped.ptr(), stamped.held()), (child.ptr(), child.held()));
        }
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
