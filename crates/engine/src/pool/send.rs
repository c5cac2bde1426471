//! Sealed data and records on their way to the device.
use block::{Data, Disk};

use crate::format::{SLOT_HEADER, SlotHeader, encode_slot};
use crate::limits::JOURNAL_BLOCK;
use crate::pool::seal::Batch;
use crate::pool::{Pool, Purpose};
use crate::units::{Sector, Slot, to_usize};

/// Bytes from which a piece is written from the client's memory instead of being gathered.
const COPY_MAX: usize = 64 << 10;

impl<D: Disk> Pool<D> {
    pub(super) fn send(&mut self, mut batch: Batch) {
        let pieces = std::mem::take(&mut batch.pieces);
        let mut run: Vec<Data> = Vec::new();
        let (mut start, mut end, mut bytes) = (Sector(0), Sector(0), 0);
        for (place, data) in pieces {
            let adjoins = !run.is_empty() && place == end;
            let same = run.last().is_some_and(|last| last.adjoins(&data));
            if !adjoins || (!same && (bytes >= COPY_MAX || data.len() >= COPY_MAX)) {
                self.send_run(&mut batch, start, std::mem::take(&mut run));
                (start, bytes) = (place, 0);
            }
            bytes += data.len();
            end = Sector(place.0 + self.space.layout.per(data.len() as u64));
            match run.last_mut() {
                Some(last) if same => *last = last.join(&data),
                _ => run.push(data),
            }
        }
        self.send_run(&mut batch, start, run);
        let blocks = (SLOT_HEADER + batch.payload).div_ceil(JOURNAL_BLOCK) as u64;
        self.send_slot(batch, blocks);
    }

    /// Writes neighbouring pieces with one IO, from where they are if it is only one.
    pub(super) fn send_run(&mut self, batch: &mut Batch, start: Sector, run: Vec<Data>) {
        let sector = to_usize(self.space.layout.sector.bytes());
        let data = match run.as_slice() {
            [] => return,
            [one] if one.is_aligned(sector) => one.clone(),
            many => {
                let mut buf = self.device.buffer(many.iter().map(|part| part.len()).sum());
                let mut at = 0;
                for part in many {
                    buf[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
                let data = buf.into_data();
                batch.sealed.memory.push(data.clone());
                data
            }
        };
        batch.sealed.outstanding += 1;
        let at = self.space.layout.offset(start);
        self.device.write(at, data, Purpose::Slot(batch.slot));
    }

    pub(super) fn send_slot(&mut self, batch: Batch, blocks: u64) {
        let Batch { records, payload, mut sealed, .. } = batch;
        let slot = self.ring.take(blocks);
        let mut buf = self.device.buffer(to_usize(blocks) * JOURNAL_BLOCK);
        buf.fill(0);
        let mut at = SLOT_HEADER;
        for record in &records {
            record.encode(&mut buf[at..]);
            at += record.len();
        }
        let header = SlotHeader {
            pool: self.superblock.pool(),
            session: self.session(),
            slot,
            durable: self.durable,
            blocks,
            payload,
        };
        encode_slot(&mut buf, &header);
        self.durable_told = self.durable;
        let data = buf.into_data();
        sealed.memory.push(data.clone());
        sealed.outstanding += 1;
        sealed.last_block = Slot(slot.0 + blocks - 1);
        let at = self.space.layout.slot(slot);
        self.device.write(at, data, Purpose::Slot(slot));
        self.counters.slots += 1;
        self.in_flight.bytes += sealed.bytes;
        self.in_flight.slots.push_back(sealed);
    }

    /// A slot without records: it only says what is durable.
    pub(super) fn seal_empty(&mut self) {
        let room = to_usize(self.ring.contiguous()) * JOURNAL_BLOCK - SLOT_HEADER;
        self.send_slot(Batch::new(self.ring.next(), room), 1);
    }
}
