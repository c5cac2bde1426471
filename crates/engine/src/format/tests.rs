//! What was written is what is read, at the largest values too; and what was changed is refused.
mod pages;

use block::{Position, SectorSize, Seq};

use super::superblock::pool_tag;
use super::*;
use crate::limits::WRITE_MAX;
use crate::limits::{JOURNAL_BLOCK, MAP_PAGE, NAME_MAX, SLOT_BLOCKS_MAX, STATE_MAX, VOLUME_MAX};
use crate::units::{Checksum, Epoch, Granule, Sector, Session, Slot, VolumeId};
use crate::volume::{BlockSize, Compression, Durable, Header};

const POOL: u64 = 0x0102_0304_0506_0708;
/// The largest values of the fields on the device.
const PLACE_MAX: u64 = (1 << 48) - 1;
const EPOCH_MAX: u64 = (1 << 40) - 1;
const SPACE_EPOCH_MAX: u64 = (1 << 39) - 1;
const SEQ_MAX: u64 = (1 << 56) - 1;

const ENCODINGS: [Encoding; 5] =
    [Encoding::Raw, Encoding::Lz4, Encoding::Gzip, Encoding::Zle, Encoding::Lzjb];

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

/// One record of every kind, with the largest values that it can have, and with the smallest.
fn records() -> Vec<Record> {
    let volume = VolumeId(1 << 62);
    let position = Position::new(u64::MAX, SEQ_MAX);
    let zero = Position::default();
    let (first, count) = (Granule((VOLUME_MAX >> 12) - 300), 300);
    let blocks = ENCODINGS.map(|encoding| block_record(256, encoding)).to_vec();
    let spans = vec![
        Span::Hole { first, count },
        Span::Blocks { first, blocks },
        Span::Blocks { first: Granule(0), blocks: vec![block_record(1, Encoding::Raw)] },
    ];
    vec![
        Record::Update { volume, position, spans },
        Record::Update { volume: VolumeId(1), position: zero, spans: Vec::new() },
        Record::Create { volume, header: Box::new(header(&"ü".repeat(NAME_MAX / 2))) },
        Record::Create { volume, header: Box::new(header("n")) },
        Record::Delete { volume },
        Record::Resize { volume, position, size: VOLUME_MAX },
        Record::State { volume, position, state: vec![0xee; STATE_MAX] },
        Record::State { volume, position: zero, state: Vec::new() },
        Record::Mark { volume, position },
        Record::Carry { volume, first, count, changed: Seq(SEQ_MAX) },
    ]
}

fn encoded(records: &[Record]) -> Vec<u8> {
    let mut bytes = vec![0; records.iter().map(Record::len).sum()];
    let mut at = 0;
    for record in records {
        record.encode(&mut bytes[at..]);
        at += record.len();
    }
    bytes
}

fn decoded(bytes: &[u8]) -> Result<Vec<Record>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut records = Vec::new();
    while let Some(record) = Record::decode(&mut reader)? {
        records.push(record);
    }
    Ok(records)
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

/// Protects from a field that is written wider, or in another order, than it is read.
#[test]
fn records_of_every_kind_are_read_as_they_were_written() {
    let records = records();
    for record in &records {
        assert_eq!(decoded(&encoded(std::slice::from_ref(record))), Ok(vec![record.clone()]));
    }
    assert_eq!(decoded(&encoded(&records)), Ok(records));
}

/// Protects from half a record that is taken for a whole one.
#[test]
fn a_record_that_is_cut_short_is_malformed() {
    for record in records() {
        let bytes = encoded(std::slice::from_ref(&record));
        for len in 1..bytes.len() {
            assert!(decoded(&bytes[..len]).is_err(), "{record:?} cut to {len} bytes");
        }
    }
}

/// Protects from records of a later version that are taken for ones of this.
#[test]
fn a_record_of_an_unknown_kind_or_length_is_malformed() {
    for kind in [0, 8, 255] {
        let mut bytes = encoded(&[Record::Delete { volume: VolumeId(1) }]);
        bytes[0] = kind;
        assert!(decoded(&bytes).is_err(), "kind {kind}");
    }
    for record in records() {
        let mut bytes = encoded(std::slice::from_ref(&record));
        bytes.push(0);
        let len = u16::from_le_bytes([bytes[1], bytes[2]]) + 1;
        bytes[1..3].copy_from_slice(&len.to_le_bytes());
        let longer = decoded(&bytes);
        match record {
            // All that is left is the state.
            Record::State { .. } => assert!(longer.is_ok()),
            other => assert!(longer.is_err(), "{other:?} with a byte too many"),
        }
    }
}

/// Protects from a write that is accepted and then fits no slot.
#[test]
fn the_record_of_the_longest_write_fits_the_largest_slot() {
    let granules = WRITE_MAX / MAP_PAGE as u64 + 1;
    // Worst of all: every other granule is a hole, each with a span of its own.
    let spans: Vec<Span> = (0..granules)
        .map(|granule| match (Granule(granule), granule % 2) {
            (first, 0) => Span::Blocks { first, blocks: vec![block_record(8, Encoding::Raw)] },
            (first, _) => Span::Hole { first, count: 1 },
        })
        .collect();
    let record = Record::Update { volume: VolumeId(1), position: Position::new(1, 1), spans };
    assert!(record.len() <= SLOT_BLOCKS_MAX * JOURNAL_BLOCK - SLOT_HEADER);
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
    let (mut bytes, header) = slot(2);
    assert_eq!(decode_slot(&bytes, POOL), Ok(header));
    bytes.extend([0xff; JOURNAL_BLOCK]);
    assert_eq!(decode_slot(&bytes, POOL), Ok(header));
    assert_eq!(decoded(&bytes[SLOT_HEADER..SLOT_HEADER + header.payload]), Ok(records()));
}

/// Protects from a torn or rotten slot whose records are replayed.
#[test]
fn a_slot_with_any_byte_changed_is_refused() {
    let (mut bytes, _) = slot(1);
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
        directory: Some(page_ptr(1 << 40)),
        directory_height: 9,
        next_volume: 1 << 62,
        reserve: 65536,
        space: vec![root; SPACE_ROOTS_MAX],
    }
}

fn page_ptr(place: u64) -> PagePtr {
    PagePtr { places: [Sector(place), Sector(place - 1)], born: Epoch(EPOCH_MAX) }
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
