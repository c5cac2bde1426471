//! What the journal holds, read back when a pool is opened.
//!
//! A slot counts when it is whole and all lower ones count. Above the last slot that is known to
//! be durable, the first one that is missing, torn, or whose data did not arrive is the end: it
//! was never flushed. Below it nothing may be missing, and what is missing is damage.
use block::{Buf, ByteOffset, Wait};

use crate::error::OpenError;
use crate::format::{Reader, Record, SLOT_HEADER, SlotHeader, Span, Superblock, decode_slot};
use crate::journal::ring::SPARE_BLOCKS;
use crate::limits::{JOURNAL_BLOCK, SESSION_MAX, SLOT_BLOCKS_MAX, SLOTS_IN_FLIGHT_MAX};
use crate::pool::{OpenOptions, blocking_read, blocking_reads};
use crate::space::Layout;
use crate::units::{Checksum, Session, Slot};

pub struct Replayed {
    pub slots: Vec<(Slot, Vec<Record>)>,
    /// Where the next slot goes.
    pub end: Slot,
    /// The highest session that left a trace there, in the superblock or in slots behind the end:
    /// an opening must not take its number.
    pub newest_session: Session,
}

/// Blocks of the journal that are read at once.
const WINDOW: u64 = 256;

struct Scan<'a, D> {
    disk: &'a mut D,
    superblock: &'a Superblock,
    layout: Layout,
    window: Option<(u64, Buf)>,
    any_session: bool,
}

impl<D: Wait> Scan<'_, D> {
    /// The bytes from a block on, up to the largest slot or the end of the ring.
    fn bytes(&mut self, slot: Slot) -> Result<&[u8], OpenError> {
        let ring = self.superblock.journal_blocks;
        let block = slot.0 % ring;
        let want = (ring - block).min(SLOT_BLOCKS_MAX as u64);
        let holds = |(first, buf): &(u64, Buf)| {
            *first <= block && (block + want - first) * JOURNAL_BLOCK as u64 <= buf.len() as u64
        };
        if !self.window.as_ref().is_some_and(holds) {
            let blocks = (ring - block).min(WINDOW);
            let len = usize::try_from(blocks).expect("a window is small") * JOURNAL_BLOCK;
            let at = ByteOffset(self.layout.slot(Slot(block)).0);
            self.window = Some((block, blocking_read(self.disk, at, len)?));
        }
        let (first, buf) = self.window.as_ref().expect("filled above");
        let at = usize::try_from(block - first).expect("within the window") * JOURNAL_BLOCK;
        Ok(&buf[at..])
    }

    /// The slot with this number, if it is whole and of this session.
    fn slot(&mut self, slot: Slot) -> Result<Option<SlotHeader>, OpenError> {
        let (pool, session) = (self.superblock.pool(), self.superblock.session);
        let any = self.any_session;
        let header = decode_slot(self.bytes(slot)?, pool);
        Ok(header.ok().filter(|found| any || found.slot == slot && found.session == session))
    }

    fn records(&mut self, slot: Slot, payload: usize) -> Result<Vec<Record>, OpenError> {
        let bytes = self.bytes(slot)?;
        let mut reader = Reader::new(&bytes[SLOT_HEADER..SLOT_HEADER + payload]);
        let mut records = Vec::new();
        while let Some(record) = Record::decode(&mut reader)? {
            records.push(record);
        }
        Ok(records)
    }

    /// The highest session of the superblock, and of slots from `end` on. No opening writes any
    /// before its checkpoint counts, but a number is never worth a risk.
    fn newest_session(&mut self, end: Slot) -> Result<Session, OpenError> {
        let mut newest = self.superblock.session;
        for block in end.0..end.0 + SPARE_BLOCKS {
            let pool = self.superblock.pool();
            if let Ok(found) = decode_slot(self.bytes(Slot(block))?, pool)
                && found.session.0 < SESSION_MAX
            {
                newest = newest.max(found.session);
            }
        }
        Ok(newest)
    }

    /// Through which slot anything at or behind a bad one says that the journal was durable.
    fn durable_beyond(&mut self, bad: Slot) -> Result<Slot, OpenError> {
        let mut durable = self.superblock.durable;
        // Slots are written at most this far ahead of the first incomplete one.
        let reach = (SLOTS_IN_FLIGHT_MAX * SLOT_BLOCKS_MAX) as u64;
        let ring_end = self.superblock.replay_from.0 + self.superblock.journal_blocks;
        let (mut at, mut alive) = (bad.0 + 1, bad.0);
        while at < ring_end && at <= alive + reach {
            at += match self.slot(Slot(at))? {
                Some(header) => {
                    durable = durable.max(header.durable);
                    alive = at + header.blocks;
                    header.blocks
                }
                None => 1,
            };
        }
        Ok(durable)
    }
}

pub fn replay<D: Wait>(
    disk: &mut D,
    superblock: &Superblock,
    options: &OpenOptions,
) -> Result<Replayed, OpenError> {
    let layout = Layout::of(superblock);
    let any_session = options.has_fault_replay_older_session();
    let mut scan = Scan { disk, superblock, layout, window: None, any_session };
    let mut found = Vec::new();
    let mut durable = superblock.durable;
    let mut at = superblock.replay_from;
    let ring_end = Slot(superblock.replay_from.0 + superblock.journal_blocks);
    while at < ring_end {
        let Some(header) = scan.slot(at)? else { break };
        durable = durable.max(header.durable);
        let records = scan.records(at, header.payload)?;
        found.push((at, records));
        at = Slot(at.0 + header.blocks);
    }
    if !options.has_fault_replay_stops_early() && at < ring_end {
        durable = durable.max(scan.durable_beyond(at)?);
        if durable >= at {
            return Err(OpenError::JournalDamaged { slot: at.0, durable: durable.0 });
        }
    }
    if !options.has_fault_replay_trusts_data() {
        let unsure = found.partition_point(|(slot, _)| *slot <= durable);
        let layout = Layout::of(superblock);
        if let Some(bad) = first_without_data(scan.disk, &layout, &found[unsure..])? {
            at = found[unsure + bad].0;
            found.truncate(unsure + bad);
        }
    }
    let newest_session = scan.newest_session(at)?;
    Ok(Replayed { slots: found, end: at, newest_session })
}

/// The first slot some of whose data did not reach the device.
fn first_without_data<D: Wait>(
    disk: &mut D,
    layout: &Layout,
    slots: &[(Slot, Vec<Record>)],
) -> Result<Option<usize>, OpenError> {
    let mut wanted = Vec::new();
    for (index, (_, records)) in slots.iter().enumerate() {
        for record in records {
            for span in record.spans() {
                let Span::Blocks { blocks, .. } = span else {
                    continue;
                };
                wanted.extend(blocks.iter().map(|block| (index, *block)));
            }
        }
    }
    for part in wanted.chunks(128) {
        let reads = part.iter().map(|(_, block)| {
            let len = layout.bytes(u64::from(block.sectors)).0;
            (layout.offset(block.place), usize::try_from(len).expect("a granule is small"))
        });
        let bufs = blocking_reads(disk, reads)?;
        for ((index, block), buf) in part.iter().zip(bufs) {
            if !buf.is_some_and(|buf| Checksum::of(&buf) == block.checksum) {
                return Ok(Some(*index));
            }
        }
    }
    Ok(None)
}
