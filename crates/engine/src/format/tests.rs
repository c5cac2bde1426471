//! What was written is what is read, at the largest values too; and what was changed is refused.
mod objects;
mod pages;
mod records;

use block::{Position, SectorSize, Seq};

use super::superblock::pool_tag;
use super::*;
use crate::compress::GzipLevel;
use crate::limits::{JOURNAL_BLOCK, MAP_PAGE, NAME_MAX, SLOT_BLOCKS_MAX, STATE_MAX, VOLUME_MAX};
use crate::units::{Birth, Checksum, Epoch, Granule, Sector, Session, Slot, SnapshotId, VolumeId};
use crate::volume::{BlockSize, Compression, Durable, Header};

use records::{decoded, encoded, records};

const POOL: u64 = 0x0102_0304_0506_0708;
/// The largest values of the fields on the device.
const PLACE_MAX: u64 = (1 << 48) - 1;
const PAGE_PLACE_MAX: u64 = (1 << 42) - 1;
const BIRTH_MAX: u64 = (1 << 40) - 1;
const SPACE_EPOCH_MAX: u64 = (1 << 39) - 1;
const SEQ_MAX: u64 = (1 << 56) - 1;

const ENCODINGS: [Encoding; 5] = [
    Encoding::Raw,
    Encoding::Lz4,
    Encoding::Gzip(GzipLevel::DEFAULT),
    Encoding::Zle,
    Encoding::Lzjb,
];

fn header(name: &str) -> Header {
    Header {
        name: name.into(),
        uid: [0xa5; 16],
        size: VOLUME_MAX,
        block_size: BlockSize::new(128 << 10).unwrap(),
        compression: Compression::Off,
    }
}

fn block_record(sectors: u16, encoding: Encoding) -> BlockRecord {
    let place = Sector(PLACE_MAX);
    BlockRecord { place, sectors, encoding, checksum: Checksum(u64::MAX) }
}

/// Protects from a checksum that changes with its library, or that only this library knows.
#[test]
fn the_checksum_is_that_of_the_public_standard() {
    assert_eq!(Checksum::of(b"123456789"), Checksum(0xae8b_1486_0a79_9888));
    // Lengths at which a vectorised loop hands over to the next, against one bit at a time.
    let bytes: Vec<u8> =
        (0..5000u32).map(|at| (at * at).to_le_bytes()[1] ^ at.to_le_bytes()[0]).collect();
    for len in [0, 1, 15, 16, 17, 127, 128, 129, 255, 256, 257, 1023, 4095, 4096, 4097, 5000] {
        let mut crc = u64::MAX;
        for byte in &bytes[..len] {
            crc ^= u64::from(*byte);
            for _ in 0..8 {
                crc = crc >> 1 ^ if crc & 1 == 1 { 0x9a6c_9329_ac4b_c9b5 } else { 0 };
            }
        }
        assert_eq!(Checksum::of(&bytes[..len]), Checksum(!crc), "{len} bytes");
    }
}

fn slot(blocks: u64) -> (Vec<u8>, SlotHeader) {
    let payload = encoded(&records());
    let mut bytes = vec![0; usize::try_from(blocks).unwrap() * JOURNAL_BLOCK];
    bytes[SLOT_HEADER..SLOT_HEADER + payload.len()].copy_from_slice(&payload);
    let header = SlotHeader {
        pool: POOL,
        session: Session(u64::MAX),
        slot: Slot(u64::MAX),
        durable: Slot(u64::MAX - 1),
        blocks,
        payload: payload.len(),
    };
    encode_slot(&mut bytes, &header);
    (bytes, header)
}

#[test]
fn a_slot_is_read_as_it_was_written_also_with_something_behind_it() {
    let (mut bytes, header) = slot(3);
    assert_eq!(decode_slot(&bytes, POOL), Ok(header));
    bytes.extend([0xff; JOURNAL_BLOCK]);
    assert_eq!(decode_slot(&bytes, POOL), Ok(header));
    assert_eq!(decoded(&bytes[SLOT_HEADER..SLOT_HEADER + header.payload]), Ok(records()));
}

/// Protects from a torn or rotten slot whose records are replayed.
#[test]
fn a_slot_with_any_byte_changed_is_refused() {
    let (mut bytes, _) = slot(3);
    for at in 0..bytes.len() {
        for bit in [0x01, 0x80, 0xff] {
            bytes[at] ^= bit;
            assert!(decode_slot(&bytes, POOL).is_err(), "byte {at} changed by {bit:#x}");
            bytes[at] ^= bit;
        }
    }
    assert!(decode_slot(&bytes, POOL).is_ok());
}

/// Protects from slots that an earlier pool left on the device, and from reading past the end.
#[test]
fn a_slot_of_another_pool_or_cut_short_is_refused() {
    let (bytes, header) = slot(SLOT_BLOCKS_MAX as u64);
    assert_eq!(decode_slot(&bytes, POOL), Ok(header));
    assert!(decode_slot(&bytes, POOL + 1).is_err());
    for len in [0, 7, 63, JOURNAL_BLOCK, bytes.len() - 1] {
        assert!(decode_slot(&bytes[..len], POOL).is_err(), "{len} bytes");
    }
    assert!(decode_slot(&[0; JOURNAL_BLOCK], 0).is_err(), "zeros are no slot");
}

/// The largest pool that there can be, after the longest life.
fn superblock() -> Superblock {
    let mut uuid = [9; 16];
    uuid[..8].copy_from_slice(&POOL.to_le_bytes());
    let (journal_at, journal_blocks) = (Sector(512), 65536);
    let regions_at = Sector(journal_at.0 + journal_blocks);
    let below_root = (SPACE_FAN_OUT * SPACE_FAN_OUT) as u64 * SPACE_SPAN;
    let root = SpaceRoot { epoch: Epoch(SPACE_EPOCH_MAX), home: 1, free: below_root };
    Superblock {
        uuid,
        sector: SectorSize::B4096,
        epoch: Epoch(SPACE_EPOCH_MAX),
        session: Session(SPACE_EPOCH_MAX - 1),
        clean: true,
        sectors: regions_at.0 + SPACE_ROOTS_MAX as u64 * below_root,
        regions_at,
        journal_at,
        journal_blocks,
        replay_from: Slot(1 << 60),
        durable: Slot((1 << 60) - 1),
        directory: Some(page_ptr(PAGE_PLACE_MAX)),
        directory_height: 9,
        birth: Birth((1 << 39) - 1),
        next_object: (1 << 48) - 1,
        reserve: 65536,
        space: vec![root; SPACE_ROOTS_MAX],
    }
}

fn page_ptr(place: u64) -> PagePtr {
    PagePtr { places: [Sector(place), Sector(place - 1)], born: Birth(BIRTH_MAX) }
}

/// Protects from a field that two others overlap, or that has no room for its largest value.
#[test]
fn a_superblock_is_read_as_it_was_written() {
    let full = superblock();
    let smallest = Superblock {
        sector: SectorSize::B512,
        epoch: Epoch(0),
        session: Session(0),
        clean: false,
        sectors: 12288,
        regions_at: Sector(4608),
        journal_at: Sector(4096),
        journal_blocks: 64,
        directory: None,
        directory_height: 0,
        birth: Birth(0),
        next_object: 0,
        space: vec![SpaceRoot::default()],
        ..full.clone()
    };
    for written in [full, smallest] {
        let mut bytes = [0xff; SUPERBLOCK_LEN];
        written.encode(&mut bytes);
        assert_eq!(Superblock::decode(&bytes), Ok(written.clone()));
        assert_eq!(written.pool(), POOL);
        assert_eq!(pool_tag(&written.uuid), POOL);
    }
}

/// Protects from a rotten superblock from which a whole pool would be opened.
#[test]
fn a_superblock_with_any_byte_changed_is_refused() {
    let mut bytes = [0; SUPERBLOCK_LEN];
    superblock().encode(&mut bytes);
    for at in 0..bytes.len() {
        for bit in [0x01, 0x80, 0xff] {
            bytes[at] ^= bit;
            assert!(Superblock::decode(&bytes).is_err(), "byte {at} changed by {bit:#x}");
            bytes[at] ^= bit;
        }
    }
    assert!(Superblock::decode(&bytes).is_ok());
    assert!(Superblock::decode(&bytes[..SUPERBLOCK_LEN - 1]).is_err());
}

/// Protects from telling damage where a newer release wrote the pool, or no pool at all did.
#[test]
fn a_superblock_of_another_version_is_told_from_a_foreign_one() {
    let mut bytes = [0; SUPERBLOCK_LEN];
    superblock().encode(&mut bytes);
    let found = FORMAT_VERSION + 1;
    bytes[16..20].copy_from_slice(&found.to_le_bytes());
    let sum = Checksum::of(&bytes[8..]).0;
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(Superblock::decode(&bytes), Err(SuperblockProblem::Version { found }));
    bytes[8] = b'x';
    assert_eq!(Superblock::decode(&bytes), Err(SuperblockProblem::Foreign));
}

/// Protects from births and numbers of objects that the fields of a map have no room for.
#[test]
fn a_superblock_that_says_what_no_pool_says_is_malformed() {
    let mut good = [0; SUPERBLOCK_LEN];
    superblock().encode(&mut good);
    // Directory height, birth, next object, and number of space roots, behind the directory.
    let height_at = 136;
    let [birth_at, object_at, roots_at] = [8, 16, 32].map(|behind| height_at + behind);
    for (at, value) in [
        (height_at, 256),
        (birth_at, 1 << 39),
        (birth_at, u64::MAX),
        (object_at, 1 << 48),
        (object_at, u64::MAX),
        (roots_at, SPACE_ROOTS_MAX as u64 + 1),
        (roots_at, u64::MAX),
    ] {
        let mut bytes = good;
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let sum = Checksum::of(&bytes[8..]).0;
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        let found = Superblock::decode(&bytes);
        assert!(matches!(found, Err(SuperblockProblem::Malformed(_))), "{value} at {at}");
    }
}
