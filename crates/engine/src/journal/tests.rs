//! The arithmetic of the ring, and what counts when it is read back.
use std::collections::VecDeque;
use std::time::Duration;

use block::{
    Buf, ByteLen, Completion, Disk, DiskError, DiskErrorKind, Done, Geometry, Io, IoId, IoMode,
    Position, SectorSize, Wait,
};

use super::*;
use crate::error::OpenError;
use crate::format::{
    BlockRecord, Encoding, Record, SLOT_HEADER, SlotHeader, Span, Superblock, encode_slot,
};
use crate::limits::{
    JOURNAL_AT, JOURNAL_BLOCK, JOURNAL_MAX, JOURNAL_MIN, SLOT_BLOCKS_MAX, SLOTS_IN_FLIGHT_MAX,
};
use crate::pool::OpenOptions;
use crate::space::Layout;
use crate::units::{Birth, Checksum, Epoch, Granule, Sector, Session, Slot, VolumeId};

const BLOCKS: u64 = JOURNAL_MIN / JOURNAL_BLOCK as u64;
const LARGEST: u64 = SLOT_BLOCKS_MAX as u64;

/// Protects from a slot that wraps around the end of the ring: it could not be read with one IO.
#[test]
fn a_slot_never_wraps_around_the_end() {
    for left in 1..=5 {
        let next = Slot(3 * BLOCKS - left);
        let mut ring = Ring::new(BLOCKS, next, next);
        assert_eq!(ring.contiguous(), left.min(LARGEST));
        let slot = ring.take(ring.contiguous());
        assert_eq!(slot, next);
        if left <= LARGEST {
            assert_eq!(ring.next(), Slot(3 * BLOCKS), "the next slot begins the next lap");
            assert_eq!(ring.contiguous(), LARGEST);
        }
    }
}

#[test]
#[should_panic(expected = "would wrap around")]
fn a_slot_that_would_wrap_is_not_given() {
    Ring::new(BLOCKS, Slot(BLOCKS - 1), Slot(BLOCKS - 1)).take(2);
}

/// Protects from overwriting a slot that replay still needs.
#[test]
#[should_panic(expected = "would overwrite its own tail")]
fn a_slot_that_would_overwrite_the_tail_is_not_given() {
    let mut ring = Ring::new(BLOCKS, Slot(2 * BLOCKS - 1), Slot(3 * BLOCKS - 2));
    ring.take(1);
    ring.take(1);
}

#[test]
#[should_panic(expected = "the tail moves forward")]
fn the_tail_never_moves_back() {
    Ring::new(BLOCKS, Slot(9), Slot(20)).trim(Slot(8));
}

/// Protects from operations that fill the ring so far that no opening could go on any more.
#[test]
fn operations_leave_room_in_the_ring_to_the_pool_itself() {
    for blocks in [BLOCKS, BLOCKS + 1, 1000, JOURNAL_MAX / JOURNAL_BLOCK as u64] {
        let from = Slot(5 * blocks + blocks / 3);
        let mut ring = Ring::new(blocks, from, from);
        let mut asked = false;
        while ring.has_room() {
            // The worst: the largest slots, and where the end is near, one that fills it up.
            ring.take(ring.contiguous());
            asked |= ring.wants_checkpoint();
        }
        assert!(asked, "a checkpoint is wanted before the ring is full");
        assert!(ring.used() <= blocks - super::ring::SPARE_BLOCKS);
        assert!(ring.used() > blocks / 2, "more than half can be used");
    }
}

// Replay.

const POOL: u64 = 77;
const SESSION: Session = Session(5);

/// A disk in memory with just a journal and a little space behind it.
struct MemDisk {
    bytes: Vec<u8>,
    done: VecDeque<Completion>,
}

impl Disk for MemDisk {
    fn geometry(&self) -> Geometry {
        let size = ByteLen(self.bytes.len() as u64);
        let sector = SectorSize::B512;
        Geometry { size, sector, physical_sector: sector, mode: IoMode::Direct }
    }

    fn submit(&mut self, id: IoId, io: Io) {
        let Io::Read { at, mut buf } = io else { panic!("replay only reads") };
        let start = usize::try_from(at.0).unwrap();
        let result = match self.bytes.get(start..start + buf.len()) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(Done::Read(buf))
            }
            None => {
                let (len, kind) = (ByteLen(buf.len() as u64), DiskErrorKind::OutOfRange);
                Err(DiskError { operation: "read", at, len, kind })
            }
        };
        self.done.push_back(Completion { id, result });
    }

    fn kick(&mut self) {}

    fn complete(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }
}

impl Wait for MemDisk {
    fn wait(&mut self, _: Option<Duration>) {}
}

struct Journal {
    disk: MemDisk,
    superblock: Superblock,
}

impl Journal {
    /// An empty journal whose replay begins at a slot.
    fn from(replay_from: u64) -> Journal {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&POOL.to_le_bytes());
        let per = |bytes: u64| bytes / 512;
        let superblock = Superblock {
            uuid,
            sector: SectorSize::B512,
            epoch: Epoch(9),
            session: SESSION,
            clean: false,
            sectors: per(JOURNAL_AT + JOURNAL_MIN + (4 << 20)),
            regions_at: Sector(per(JOURNAL_AT + JOURNAL_MIN)),
            journal_at: Sector(per(JOURNAL_AT)),
            journal_blocks: BLOCKS,
            replay_from: Slot(replay_from),
            durable: Slot(replay_from - 1),
            directory: None,
            directory_height: 0,
            birth: Birth(0),
            next_object: 1,
            reserve: 0,
            space: Vec::new(),
        };
        let bytes = vec![0; usize::try_from(superblock.sectors * 512).unwrap()];
        Journal { disk: MemDisk { bytes, done: VecDeque::new() }, superblock }
    }

    fn at(&mut self, slot: u64) -> &mut [u8] {
        let at = Layout::of(&self.superblock).slot(Slot(slot)).0;
        &mut self.disk.bytes[usize::try_from(at).unwrap()..]
    }

    fn write(&mut self, slot: u64, blocks: u64, durable: u64, records: &[Record]) {
        self.write_as(SESSION, slot, blocks, durable, records);
    }

    fn write_as(&mut self, session: Session, slot: u64, blocks: u64, durable: u64, of: &[Record]) {
        let mut buf = Buf::zeroed(usize::try_from(blocks).unwrap() * JOURNAL_BLOCK);
        let mut at = SLOT_HEADER;
        for record in of {
            record.encode(&mut buf[at..]);
            at += record.len();
        }
        let (slot, durable, payload) = (Slot(slot), Slot(durable), at - SLOT_HEADER);
        encode_slot(&mut buf, &SlotHeader { pool: POOL, session, slot, durable, blocks, payload });
        self.at(slot.0)[..buf.len()].copy_from_slice(&buf);
    }

    /// Marks with these numbers, one slot each, none of which knows anything to be durable.
    fn write_marks(&mut self, slots: std::ops::Range<u64>) {
        let durable = self.superblock.durable.0;
        slots.for_each(|slot| self.write(slot, 1, durable, &[mark(slot)]));
    }

    fn tear(&mut self, slot: u64) {
        self.at(slot)[3000] ^= 0xff;
    }

    fn replay(&mut self) -> Result<Replayed, OpenError> {
        replay(&mut self.disk, &self.superblock, &OpenOptions::default())
    }

    /// The slots that count, and where the next one goes.
    fn found(&mut self) -> (Vec<u64>, u64) {
        let replayed = self.replay().expect("nothing that was durable is damaged");
        (replayed.slots.iter().map(|(slot, _)| slot.0).collect(), replayed.end.0)
    }
}

fn mark(seq: u64) -> Record {
    Record::Mark { volume: VolumeId(1), position: Position::new(1, seq) }
}

fn slots(range: std::ops::Range<u64>) -> (Vec<u64>, u64) {
    let end = range.end;
    (range.collect(), end)
}

#[test]
fn an_empty_journal_ends_where_it_begins() {
    assert_eq!(Journal::from(1).found(), (vec![], 1));
}

#[test]
fn slots_are_read_in_order_with_their_records() {
    let mut journal = Journal::from(10);
    journal.write(10, 2, 9, &[mark(1), mark(2)]);
    journal.write(12, 1, 11, &[]);
    journal.write(13, 4, 11, &[mark(3)]);
    let replayed = journal.replay().unwrap();
    let records: Vec<_> = replayed.slots.into_iter().collect();
    let expected = [(10, vec![mark(1), mark(2)]), (12, vec![]), (13, vec![mark(3)])];
    assert_eq!(records, expected.map(|(slot, records)| (Slot(slot), records)));
    assert_eq!(replayed.end, Slot(17));
}

/// Protects from taking what an abandoned session, an earlier lap or another pool left behind for
/// the continuation of the journal.
#[test]
fn slots_of_another_session_lap_or_pool_are_the_end() {
    let mut journal = Journal::from(BLOCKS + 10);
    journal.write_marks(BLOCKS + 10..BLOCKS + 15);
    journal.write_as(Session(SESSION.0 - 1), BLOCKS + 12, 1, BLOCKS + 9, &[mark(1)]);
    assert_eq!(journal.found(), slots(BLOCKS + 10..BLOCKS + 12), "another session");

    journal.write_marks(BLOCKS + 12..BLOCKS + 13);
    assert_eq!(journal.found(), slots(BLOCKS + 10..BLOCKS + 15));
    journal.write(12, 1, 9, &[mark(1)]);
    assert_eq!(journal.found(), slots(BLOCKS + 10..BLOCKS + 12), "an earlier lap");

    journal.superblock.uuid[0] ^= 1;
    assert_eq!(journal.found(), (vec![], BLOCKS + 10), "another pool");
}

/// Protects from a journal that is lost because its last slots were torn by the crash itself.
#[test]
fn a_torn_slot_that_was_never_flushed_is_the_end() {
    let mut journal = Journal::from(10);
    journal.write_marks(10..20);
    journal.tear(14);
    assert_eq!(journal.found(), slots(10..14), "whole slots behind it do not count either");
}

/// Protects from losing flushed operations silently.
#[test]
fn a_torn_slot_below_what_a_later_one_says_is_durable_is_damage() {
    let mut journal = Journal::from(10);
    journal.write_marks(10..20);
    journal.write(18, 1, 13, &[]);
    assert_eq!(journal.found(), slots(10..20));
    journal.tear(13);
    let damage = journal.replay().err();
    assert!(
        matches!(damage, Some(OpenError::JournalDamaged { slot: 13, durable: 13 })),
        "{damage:?}"
    );
}

#[test]
fn a_torn_slot_above_what_a_later_one_says_is_durable_is_the_end() {
    let mut journal = Journal::from(10);
    journal.write_marks(10..20);
    journal.write(18, 1, 13, &[]);
    journal.tear(14);
    assert_eq!(journal.found(), slots(10..14));
}

/// Protects from losing flushed operations when only the superblock knows of the flush.
#[test]
fn a_torn_slot_below_what_the_superblock_says_is_durable_is_damage() {
    let mut journal = Journal::from(10);
    journal.write_marks(10..20);
    journal.superblock.durable = Slot(12);
    journal.tear(13);
    assert_eq!(journal.found(), slots(10..13));
    journal.tear(12);
    assert!(matches!(journal.replay(), Err(OpenError::JournalDamaged { slot: 12, .. })));
}

/// Protects from an end that is found too early: a slot that says more may lie behind as many bad
/// ones as can be in flight.
#[test]
fn damage_is_noticed_from_as_far_as_slots_can_be_in_flight() {
    let reach = (SLOTS_IN_FLIGHT_MAX * SLOT_BLOCKS_MAX) as u64;
    let far = reach.min(BLOCKS - 1);
    let mut journal = Journal::from(10);
    journal.write(10 + far, 1, 10, &[]);
    assert!(matches!(journal.replay(), Err(OpenError::JournalDamaged { slot: 10, .. })));
}

/// Protects from a record whose data never arrived: it would name bytes of somebody else.
#[test]
fn a_slot_whose_data_did_not_arrive_is_the_end_unless_it_was_durable() {
    let mut journal = Journal::from(10);
    let place = journal.superblock.regions_at.0 + 200;
    let sum = Checksum::of(&[7; 4096]);
    let block =
        BlockRecord { place: Sector(place), sectors: 8, encoding: Encoding::Raw, checksum: sum };
    let spans = vec![Span::Blocks { first: Granule(0), blocks: vec![block] }];
    let update = Record::Update { volume: VolumeId(1), position: Position::new(1, 1), spans };
    journal.write(10, 1, 9, &[mark(1)]);
    journal.write(11, 1, 9, &[update]);
    journal.write(12, 1, 9, &[mark(2)]);
    assert_eq!(journal.found(), slots(10..11));

    journal.write(12, 1, 11, &[mark(2)]);
    assert_eq!(journal.found(), slots(10..13), "flushed data is left to reads and scrubs");

    journal.write(12, 1, 9, &[mark(2)]);
    let at = usize::try_from(place * 512).unwrap();
    journal.disk.bytes[at..at + 4096].fill(7);
    assert_eq!(journal.found(), slots(10..13));
}

/// Protects from replay that runs into its own beginning, or stops at the end of the device.
#[test]
fn a_full_ring_is_read_once_around() {
    let from = BLOCKS + 10;
    let mut journal = Journal::from(from);
    journal.write_marks(from..from + BLOCKS);
    assert_eq!(journal.found(), slots(from..from + BLOCKS));
}

/// Protects from records behind a good checksum that are not what records are.
#[test]
fn a_whole_slot_with_malformed_records_is_not_replayed() {
    let mut journal = Journal::from(10);
    let mut buf = Buf::zeroed(JOURNAL_BLOCK);
    buf[SLOT_HEADER] = 99;
    let header = SlotHeader {
        pool: POOL,
        session: SESSION,
        slot: Slot(10),
        durable: Slot(9),
        blocks: 1,
        payload: 40,
    };
    encode_slot(&mut buf, &header);
    journal.at(10)[..JOURNAL_BLOCK].copy_from_slice(&buf);
    assert!(matches!(journal.replay(), Err(OpenError::Malformed(_))));
}
