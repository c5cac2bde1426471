//! Pages of 4 KiB: maps, directory and space.
//!
//! Invariants:
//! - A page is written once per place and birth, so (place, birth) names one content for ever;
//!   a reader that knows both from the parent cannot be fooled by an older page at that place.
//! - Map and directory pages are kept in two places with the same bytes.
//! - The checksum covers all of the page behind it.
//! - A leaf entry is a block or a hole; **a hole carries `changed`** like a block does. An
//!   interior entry is at least as high as the highest `changed` of its subtree, also where it
//!   stands for a hole. Where it is higher, it stands for every entry below: a rollback stamps
//!   what differs without rewriting the leaves.
//! - An interior entry counts the blocks of its subtree and the sectors that they take, so that
//!   a whole subtree can be cut off without being read.
use block::Seq;
use thiserror::Error;

use super::codec::{Reader, Writer};
use crate::compress::GzipLevel;
use crate::limits::MAP_PAGE;
use crate::units::{Birth, Checksum, Epoch, Sector};

pub const PAGE_HEADER: usize = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"PLXP");
const PAGE_VERSION: u64 = 1;

/// Children of an interior page, and entries of a leaf.
pub const FAN_OUT: usize = 128;
const ENTRY_LEN: usize = 28;
const CHILD_LEN: usize = 31;
/// Bits of a place in an interior entry: 2^42 sectors are more than a superblock can name.
const PLACE_BITS: u32 = 42;
/// Bits of the low and the high part of the sectors that a subtree stores.
const STORED_LOW: u32 = 35;
const STORED_BITS: u32 = STORED_LOW + 4;
const BLOCKS_BITS: u32 = 29;

/// Sectors that one space page describes: a bit each.
pub const SPACE_SPAN: u64 = ((MAP_PAGE - PAGE_HEADER) * 8) as u64;
/// Children of an upper space page.
pub const SPACE_FAN_OUT: usize = (MAP_PAGE - PAGE_HEADER) / 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageKind {
    Map = 1,
    Directory = 2,
    Object = 3,
    Space = 4,
}

/// What a page says of itself, and what its parent expects of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageId {
    pub kind: PageKind,
    pub level: u8,
    /// The page's number within its level.
    pub index: u64,
    pub born: Birth,
}

/// Where a page is: two places with the same bytes, and its birth. A space page has the epoch that
/// wrote it for a birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PagePtr {
    pub places: [Sector; 2],
    pub born: Birth,
}

/// What a subtree, or a whole map, holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub blocks: u64,
    /// Sectors that its blocks occupy.
    pub stored: u64,
}

impl std::ops::AddAssign for Held {
    fn add_assign(&mut self, other: Held) {
        self.blocks += other.blocks;
        self.stored += other.stored;
    }
}

/// What an interior entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    Hole { changed: Seq },
    Page { ptr: PagePtr, changed: Seq, held: Held },
}

impl Child {
    pub const NEVER: Child = Child::Hole { changed: Seq(0) };

    pub fn changed(self) -> Seq {
        match self {
            Child::Hole { changed } | Child::Page { changed, .. } => changed,
        }
    }

    pub fn held(self) -> Held {
        match self {
            Child::Hole { .. } => Held::default(),
            Child::Page { held, .. } => held,
        }
    }

    pub fn ptr(self) -> Option<PagePtr> {
        match self {
            Child::Hole { .. } => None,
            Child::Page { ptr, .. } => Some(ptr),
        }
    }

    /// The same subtree with a stamp that stands for all of it.
    pub fn stamped(self, stamp: Seq) -> Child {
        match self {
            Child::Hole { changed } => Child::Hole { changed: changed.max(stamp) },
            Child::Page { ptr, changed, held } => {
                Child::Page { ptr, changed: changed.max(stamp), held }
            }
        }
    }
}

/// How the stored bytes of a block are to be read, and made again from a good copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Raw,
    Lz4,
    Gzip(GzipLevel),
    Zle,
    Lzjb,
    /// Of a later version, or damage that the checksum missed: not to be taken for anything.
    Unknown,
}

/// The encodings of gzip, with its level added.
const GZIP: u8 = 0x30;

impl Encoding {
    pub fn byte(self) -> u8 {
        match self {
            Encoding::Raw => 1,
            Encoding::Lz4 => 2,
            Encoding::Gzip(level) => GZIP + level.get(),
            Encoding::Zle => 4,
            Encoding::Lzjb => 5,
            Encoding::Unknown => 255,
        }
    }

    pub fn from_byte(byte: u8) -> Option<Encoding> {
        Some(match byte {
            1 => Encoding::Raw,
            2 => Encoding::Lz4,
            4 => Encoding::Zle,
            5 => Encoding::Lzjb,
            _ => Encoding::Gzip(GzipLevel::new(byte.checked_sub(GZIP)?)?),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub place: Sector,
    /// Stored length in sectors, 1 to 256.
    pub sectors: u16,
    pub encoding: Encoding,
    pub checksum: Checksum,
    pub born: Birth,
    pub changed: Seq,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Hole { changed: Seq },
    Block(Block),
}

impl Entry {
    pub fn changed(self) -> Seq {
        match self {
            Entry::Hole { changed } => changed,
            Entry::Block(block) => block.changed,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PageProblem {
    #[error("its checksum does not match its bytes")]
    Checksum,
    #[error("it is another page than the one its parent names")]
    Identity,
    #[error("the device could not read it")]
    Unreadable,
}

/// A page as bytes.
pub type PageView = [u8];

pub fn blank_page(bytes: &mut [u8]) {
    assert_eq!(bytes.len(), MAP_PAGE, "a page has one size");
    bytes.fill(0);
}

/// Writes header and checksum; the body is there already.
pub fn seal_page(bytes: &mut [u8], pool: u64, owner: u64, id: PageId) {
    let mut w = Writer::new(bytes);
    w.skip_to(8);
    w.number(4, u64::from(MAGIC));
    w.number(2, PAGE_VERSION);
    w.byte(id.kind as u8);
    w.byte(id.level);
    w.number(8, pool);
    w.number(8, owner);
    w.number(8, id.index);
    w.number(8, id.born.0);
    let sum = Checksum::of(&bytes[8..]);
    Writer::new(bytes).number(8, sum.0);
}

/// Whether these bytes are the page that is meant.
pub fn verify_page(bytes: &[u8], pool: u64, id: PageId) -> Result<(), PageProblem> {
    let field = |at: usize, width: usize| {
        let mut word = [0; 8];
        word[..width].copy_from_slice(&bytes[at..at + width]);
        u64::from_le_bytes(word)
    };
    if bytes.len() != MAP_PAGE || Checksum::of(&bytes[8..]).0 != field(0, 8) {
        return Err(PageProblem::Checksum);
    }
    let same = field(8, 4) == u64::from(MAGIC)
        && field(12, 2) == PAGE_VERSION
        && bytes[14] == id.kind as u8
        && bytes[15] == id.level
        && field(16, 8) == pool
        && field(32, 8) == id.index
        && field(40, 8) == id.born.0;
    if same { Ok(()) } else { Err(PageProblem::Identity) }
}

fn field(bytes: &[u8], at: usize, width: usize) -> u64 {
    Reader::new(&bytes[at..at + width]).number(width, "entry").expect("the width was sliced")
}

pub fn entry(page: &PageView, index: usize) -> Entry {
    let at = PAGE_HEADER + index * ENTRY_LEN;
    let changed = Seq(field(page, at + 21, 7));
    match page[at + 7] {
        0 => Entry::Hole { changed },
        byte => Entry::Block(Block {
            place: Sector(field(page, at, 6)),
            sectors: u16::from(page[at + 6]) + 1,
            encoding: Encoding::from_byte(byte).unwrap_or(Encoding::Unknown),
            checksum: Checksum(field(page, at + 8, 8)),
            born: Birth(field(page, at + 16, 5)),
            changed,
        }),
    }
}

pub fn set_entry(page: &mut [u8], index: usize, entry: Entry) {
    let at = PAGE_HEADER + index * ENTRY_LEN;
    let mut w = Writer::new(&mut page[at..at + ENTRY_LEN]);
    match entry {
        Entry::Hole { changed } => {
            w.bytes(&[0; 21]);
            w.number(7, changed.0);
        }
        Entry::Block(block) => {
            w.number(6, block.place.0);
            w.number(1, u64::from(block.sectors) - 1);
            w.byte(block.encoding.byte());
            w.number(8, block.checksum.0);
            w.number(5, block.born.0);
            w.number(7, block.changed.0);
        }
    }
}

fn wide(bytes: &[u8]) -> u128 {
    let mut word = [0; 16];
    word[..bytes.len()].copy_from_slice(bytes);
    u128::from_le_bytes(word)
}

fn bits(word: u128, from: u32, count: u32) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "at most 64 bits are asked for")]
    let low = (word >> from) as u64;
    low & ((1 << count) - 1)
}

pub fn child(page: &PageView, index: usize) -> Child {
    let at = PAGE_HEADER + index * CHILD_LEN;
    let (a, b) = (wide(&page[at..at + 16]), wide(&page[at + 16..at + CHILD_LEN]));
    let changed = Seq(bits(b, 0, 56));
    let place = |from| Sector(bits(a, from, PLACE_BITS));
    match place(0) {
        Sector(0) => Child::Hole { changed },
        first => Child::Page {
            ptr: PagePtr { places: [first, place(PLACE_BITS)], born: Birth(bits(a, 84, 40)) },
            changed,
            held: Held {
                blocks: bits(b, 56, BLOCKS_BITS),
                stored: bits(a, 124, 4) << STORED_LOW | bits(b, 85, STORED_LOW),
            },
        },
    }
}

pub fn set_child(page: &mut [u8], index: usize, child: Child) {
    let at = PAGE_HEADER + index * CHILD_LEN;
    let (a, b) = match child {
        Child::Hole { changed } => (0, u128::from(changed.0)),
        Child::Page { ptr, changed, held } => {
            let [first, second] = ptr.places.map(|place| u128::from(place.0));
            assert!(
                (first | second) >> PLACE_BITS == 0
                    && ptr.born.0 >> 40 == 0
                    && held.blocks >> BLOCKS_BITS == 0
                    && held.stored >> STORED_BITS == 0,
                "an interior entry overflows: {child:?}"
            );
            let (low, high) = (held.stored & ((1 << STORED_LOW) - 1), held.stored >> STORED_LOW);
            let a = first
                | second << PLACE_BITS
                | u128::from(ptr.born.0) << 84
                | u128::from(high) << 124;
            let b = u128::from(changed.0) | u128::from(held.blocks) << 56 | u128::from(low) << 85;
            (a, b)
        }
    };
    assert!(child.changed().0 >> 56 == 0, "a stamp overflows: {child:?}");
    page[at..at + 16].copy_from_slice(&a.to_le_bytes());
    page[at + 16..at + CHILD_LEN].copy_from_slice(&b.to_le_bytes()[..CHILD_LEN - 16]);
}

/// What an upper space page, or the superblock, says of one space page below it.
///
/// A space page has two homes at fixed places; the newest is in `home`. Epoch 0 means that it was
/// never written: all of it is free but for the pages at fixed places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceEntry {
    pub epoch: Epoch,
    pub home: u8,
    pub free: u64,
}

pub fn space_entry(page: &PageView, index: usize) -> SpaceEntry {
    let word = field(page, PAGE_HEADER + index * 8, 8);
    SpaceEntry {
        epoch: Epoch(word & ((1 << 39) - 1)),
        home: ((word >> 39) & 1) as u8,
        free: word >> 40,
    }
}

pub fn set_space_entry(page: &mut [u8], index: usize, entry: SpaceEntry) {
    assert!(entry.free < 1 << 24 && entry.epoch.0 < 1 << 39, "a space entry overflows: {entry:?}");
    let word = entry.free << 40 | u64::from(entry.home) << 39 | entry.epoch.0;
    Writer::new(&mut page[PAGE_HEADER + index * 8..]).number(8, word);
}
