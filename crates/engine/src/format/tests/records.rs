//! Records of the journal: one of every kind, at its extremes.
use super::*;
use crate::limits::WRITE_MAX;

/// One record of every kind, with the largest values that it can have, and with the smallest.
pub fn records() -> Vec<Record> {
    let volume = VolumeId(u64::MAX);
    let snapshot = SnapshotId(u64::MAX - 1);
    let position = Position::new(u64::MAX, SEQ_MAX);
    let zero = Position::default();
    let (first, count) = (Granule((VOLUME_MAX >> 12) - 300), 300);
    let blocks = ENCODINGS.map(|encoding| block_record(256, encoding)).to_vec();
    let spans = vec![
        Span::Hole { first, count },
        Span::Blocks { first, blocks },
        Span::Blocks { first: Granule(0), blocks: vec![block_record(1, Encoding::Raw)] },
    ];
    let (changed, progress) = (Seq(SEQ_MAX), u64::MAX - 2);
    let longest = Box::new(header(&"ü".repeat(NAME_MAX / 2)));
    let shortest = Box::new(header("n"));
    vec![
        Record::Update { volume, position, spans: spans.clone() },
        Record::Update { volume: VolumeId(1), position: zero, spans: Vec::new() },
        Record::Create { volume, header: longest.clone() },
        Record::Create { volume, header: shortest.clone() },
        Record::Delete { volume, snapshots: true },
        Record::Delete { volume: VolumeId(0), snapshots: false },
        Record::Resize { volume, position, size: VOLUME_MAX },
        Record::State { volume, position, state: vec![0xee; STATE_MAX] },
        Record::State { volume, position: zero, state: Vec::new() },
        Record::Mark { volume, position },
        Record::Credit { volume, sectors: u64::MAX },
        Record::Credit { volume, sectors: 0 },
        Record::Attach { volume, attached: true },
        Record::Attach { volume: VolumeId(0), attached: false },
        Record::Snapshot {
            volume,
            position,
            snapshot,
            internal: true,
            created: u64::MAX - 3,
            header: longest.clone(),
        },
        Record::Snapshot {
            volume: VolumeId(0),
            position: zero,
            snapshot: SnapshotId(0),
            internal: false,
            created: 0,
            header: shortest.clone(),
        },
        Record::DeleteSnapshot { snapshot },
        Record::DeleteSnapshot { snapshot: SnapshotId(0) },
        Record::Clone { volume, snapshot, header: longest },
        Record::Clone { volume: VolumeId(0), snapshot: SnapshotId(0), header: shortest },
        Record::Rollback { volume, position, to: snapshot },
        Record::Rollback { volume: VolumeId(0), position: zero, to: SnapshotId(0) },
        Record::Stage { volume, of: VolumeId(u64::MAX - 4), base: snapshot },
        Record::Stage { volume: VolumeId(0), of: VolumeId(0), base: SnapshotId(0) },
        Record::Staged { volume, changed, progress, spans },
        Record::Staged { volume: VolumeId(0), changed: Seq(0), progress: 0, spans: Vec::new() },
        Record::Adopt {
            volume,
            position,
            staging: VolumeId(u64::MAX - 5),
            renew: true,
            state: Some(vec![3; STATE_MAX]),
        },
        Record::Adopt { volume, position, staging: VolumeId(7), renew: false, state: Some(vec![]) },
        Record::Adopt {
            volume: VolumeId(0),
            position: zero,
            staging: VolumeId(0),
            renew: false,
            state: None,
        },
    ]
}

pub fn encoded(records: &[Record]) -> Vec<u8> {
    let mut bytes = vec![0; records.iter().map(Record::len).sum()];
    let mut at = 0;
    for record in records {
        record.encode(&mut bytes[at..]);
        at += record.len();
    }
    bytes
}

pub fn decoded(bytes: &[u8]) -> Result<Vec<Record>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut records = Vec::new();
    while let Some(record) = Record::decode(&mut reader)? {
        records.push(record);
    }
    Ok(records)
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
    for kind in [0, 15, 255] {
        let mut bytes = encoded(&[Record::DeleteSnapshot { snapshot: SnapshotId(1) }]);
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
            // All that is left is the state, of which an object page has room for so much.
            Record::State { state, .. } | Record::Adopt { state: Some(state), .. } => {
                assert_eq!(longer.is_ok(), state.len() < STATE_MAX);
            }
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
    let volume = VolumeId(1);
    for record in [
        Record::Update { volume, position: Position::new(1, 1), spans: spans.clone() },
        Record::Staged { volume, changed: Seq(1), progress: 1, spans },
    ] {
        assert!(record.len() <= SLOT_BLOCKS_MAX * JOURNAL_BLOCK - SLOT_HEADER);
    }
}

/// Protects from a flag of a later version, or a rotten one, that is taken for yes or no.
#[test]
fn a_flag_is_yes_or_no() {
    let flag_at = |record: &Record| match record {
        Record::Delete { .. } | Record::Attach { .. } => Some(record.len() - 1),
        // Behind kind, length, volume, position and snapshot.
        Record::Snapshot { .. } => Some(3 + 8 + 16 + 8),
        _ => None,
    };
    for record in records() {
        let Some(at) = flag_at(&record) else { continue };
        let mut bytes = encoded(std::slice::from_ref(&record));
        assert!(bytes[at] <= 1, "the flag of {record:?}");
        for value in [2, 0x80, 0xff] {
            bytes[at] = value;
            assert!(decoded(&bytes).is_err(), "{record:?} with the flag {value}");
        }
    }
}

/// Protects from flags of a later version in an adoption, and from a state without its flag.
#[test]
fn flags_of_an_adoption_are_known_ones() {
    for record in records() {
        let Record::Adopt { state, .. } = &record else { continue };
        let at = 3 + 8 + 16 + 8;
        let good = encoded(std::slice::from_ref(&record));
        assert!(good[at] <= 3, "the flags of {record:?}");
        for value in [4, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(decoded(&bytes).is_err(), "{record:?} with the flags {value}");
        }
        let mut bytes = good;
        bytes[at] &= 1;
        let has_bytes = state.as_ref().is_some_and(|state| !state.is_empty());
        assert_eq!(decoded(&bytes).is_err(), has_bytes, "{record:?} without the flag of its state");
    }
}

/// Protects from a count that is believed before it is compared with what is there.
#[test]
fn spans_that_a_record_has_no_room_for_are_malformed() {
    for record in records().into_iter().filter(|record| !record.spans().is_empty()) {
        let good = encoded(std::slice::from_ref(&record));
        let spans_at = good.len() - record.spans().iter().map(Span::len).sum::<usize>();
        for count in [0, 1, 2, 4, 0xffff_u16] {
            let mut bytes = good.clone();
            bytes[spans_at - 2..spans_at].copy_from_slice(&count.to_le_bytes());
            assert!(decoded(&bytes).is_err(), "{count} spans");
        }
        // The second span is of blocks; behind its kind and its place stands their number.
        let count_at = spans_at + record.spans()[0].len() + 1 + 8;
        for count in [0, 4, 6, 7, 1 << 32, u64::MAX] {
            let mut bytes = good.clone();
            bytes[count_at..count_at + 8].copy_from_slice(&count.to_le_bytes());
            assert!(decoded(&bytes).is_err(), "{count} blocks");
        }
        let mut bytes = good.clone();
        bytes[spans_at] = 2;
        assert!(decoded(&bytes).is_err(), "a span of an unknown kind");
        let mut bytes = good;
        bytes[count_at + 8 + 7] = 0;
        assert!(decoded(&bytes).is_err(), "a block of an unknown encoding");
    }
}

fn header_of(record: &Record) -> Option<&Header> {
    match record {
        Record::Create { header, .. }
        | Record::Snapshot { header, .. }
        | Record::Clone { header, .. } => Some(header),
        _ => None,
    }
}

/// Protects from a volume or snapshot whose header says what none can be.
#[test]
fn a_header_that_says_what_no_volume_says_is_malformed() {
    for record in records() {
        let Some(header) = header_of(&record) else { continue };
        let good = encoded(std::slice::from_ref(&record));
        let name_at = good.len() - header.name.len();
        // Size, block size, compression, length of the name, first byte of the name.
        let (size, block, compression, len) = (name_at - 16, name_at - 8, name_at - 4, name_at - 2);
        for (at, value) in [
            (size + 7, 1),
            (size, 1),
            (block, 1),
            (block + 2, 4),
            (compression, 1),
            (len, 0),
            (len, header.name.len().to_le_bytes()[0] + 1),
            (len + 1, 1),
            (name_at, 0xff),
        ] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(decoded(&bytes).is_err(), "{record:?} with byte {at} as {value}");
        }
    }
}

/// Protects from a decoder that panics on what a good checksum stands for by chance, and from
/// bytes that are read as one record and would be written as another.
#[test]
fn a_record_with_any_byte_changed_is_malformed_or_another_record() {
    for record in records() {
        let good = encoded(std::slice::from_ref(&record));
        for at in 0..good.len() {
            for bit in [0x01, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] ^= bit;
                let Ok(found) = decoded(&bytes) else { continue };
                assert!(found != [record.clone()] || is_padding(&record, at), "byte {at}");
            }
        }
    }
}

/// Whether this byte of a record is the one of its header that means nothing yet.
fn is_padding(record: &Record, at: usize) -> bool {
    header_of(record).is_some_and(|header| at + 3 + header.name.len() == record.len())
}
