//! Pages of 4 KiB: maps, directory and space.
//!
//! Invariants:
//! - A page is written once per place and epoch, so (place, epoch) names one content for ever;
//!   a reader that knows both from the parent cannot be fooled by an older page at that place.
//! - Map and directory pages are kept in two places with the same bytes.
//! - The checksum covers all of the page behind it.
//! - A leaf entry is a block or a hole; **a hole carries `changed`** like a block does. An
//!   interior entry keeps the highest `changed` of its subtree, also where it stands for a hole.
use block::Seq;
use thiserror::Error;

use super::codec::{Reader, Writer};
use crate::limits::MAP_PAGE;
use crate::units::{Checksum, Epoch, Sector};

pub const PAGE_HEADER: usize = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"PLXP");
const PAGE_VERSION: u64 = 1;

/// Children of an interior page, and entries of a leaf.
pub const FAN_OUT: usize = 128;
const ENTRY_LEN: usize = 28;
const CHILD_LEN: usize = 24;

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
    pub epoch: Epoch,
}

/// Where a page is: two places with the same bytes, and the epoch in which it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PagePtr {
    pub places: [Sector; 2],
    pub born: Epoch,
}

/// What an interior entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    Hole { changed: Seq },
    Page { ptr: PagePtr, changed: Seq },
}

impl Child {
    pub const NEVER: Child = Child::Hole { changed: Seq(0) };

    pub fn changed(self) -> Seq {
        match self {
            Child::Hole { changed } | Child::Page { changed, .. } => changed,
        }
    }
}

/// How the stored bytes of a block are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Raw = 1,
    Lz4 = 2,
    Gzip = 3,
    Zle = 4,
    Lzjb = 5,
    /// Of a later version, or damage that the checksum missed: not to be taken for anything.
    Unknown = 255,
}

impl Encoding {
    pub fn from_byte(byte: u8) -> Option<Encoding> {
        Some(match byte {
            1 => Encoding::Raw,
            2 => Encoding::Lz4,
            3 => Encoding::Gzip,
            4 => Encoding::Zle,
            5 => Encoding::Lzjb,
            _ => return None,
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
    pub born: Epoch,
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
    w.number(8, id.epoch.0);
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
        && field(40, 8) == id.epoch.0;
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
            born: Epoch(field(page, at + 16, 5)),
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
            w.byte(block.encoding as u8);
            w.number(8, block.checksum.0);
            w.number(5, block.born.0);
            w.number(7, block.changed.0);
        }
    }
}

pub fn child(page: &PageView, index: usize) -> Child {
    let at = PAGE_HEADER + index * CHILD_LEN;
    let changed = Seq(field(page, at + 17, 7));
    match field(page, at, 6) {
        0 => Child::Hole { changed },
        first => Child::Page {
            ptr: PagePtr {
                places: [Sector(first), Sector(field(page, at + 6, 6))],
                born: Epoch(field(page, at + 12, 5)),
            },
            changed,
        },
    }
}

pub fn set_child(page: &mut [u8], index: usize, child: Child) {
    let at = PAGE_HEADER + index * CHILD_LEN;
    let mut w = Writer::new(&mut page[at..at + CHILD_LEN]);
    match child {
        Child::Hole { changed } => {
            w.bytes(&[0; 17]);
            w.number(7, changed.0);
        }
        Child::Page { ptr, changed } => {
            w.number(6, ptr.places[0].0);
            w.number(6, ptr.places[1].0);
            w.number(5, ptr.born.0);
            w.number(7, changed.0);
        }
    }
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
