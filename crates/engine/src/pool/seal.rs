//! Giving operations their slot: fresh space, one record each, and the writes on their way.
//!
//! Operations are sealed in the order of their submission. Whatever waits in front at a turn goes
//! into one slot together: its data leaves in as few writes as its places allow, its records in
//! one.
use std::collections::VecDeque;

use block::{ByteLen, Data, Disk, Position};

use crate::error::{CheckpointError, OpError};
use crate::format::{BlockRecord, Encoding, Record, SLOT_HEADER, SlotHeader, Span, encode_slot};
use crate::limits::{JOURNAL_BLOCK, SLOTS_IN_FLIGHT_MAX};
use crate::overlay::{Displaced, Map, Stamp};
use crate::pool::queue::{Change, Content, Edge, Kind, Queued, Turn};
use crate::pool::{Pool, Purpose, Reply, RequestId};
use crate::space::{Alloc, Stream};
use crate::units::{Checksum, Extent, Granule, Sector, Slot, VolumeId, to_usize};
use crate::volume::Durable;

/// Slots that may be under way before operations are gathered instead: one on the device and one
/// behind it keep it busy, and what waits meanwhile shares the next.
const SLOTS_BUSY: usize = 2;

/// What waits is worth a slot of its own from here on: gathering more would only let the device
/// run dry while checksums are computed.
const LARGE: usize = 256 << 10;
const SLOTS_BUSY_LARGE: usize = 16;

/// Data of one slot at the most, so that one slow slot does not hold up much.
const SLOT_BYTES_MAX: usize = 1 << 20;

/// Bytes from which a piece is written from the client's memory instead of being gathered.
const COPY_MAX: usize = 64 << 10;

/// A slot whose data and records are on their way to the device.
#[derive(Debug)]
pub struct Sealed {
    pub slot: Slot,
    pub last_block: Slot,
    pub outstanding: usize,
    pub replies: Vec<(RequestId, Reply)>,
    pub positions: Vec<(VolumeId, Position)>,
    pub memory: Vec<Data>,
    pub bytes: usize,
}

#[derive(Debug, Default)]
pub struct InFlight {
    pub slots: VecDeque<Sealed>,
    pub bytes: usize,
}

impl InFlight {
    pub fn drain(&mut self) -> impl Iterator<Item = RequestId> + use<> {
        self.bytes = 0;
        std::mem::take(&mut self.slots).into_iter().flat_map(|s| s.replies).map(|(id, _)| id)
    }
}

/// A slot in the making.
struct Batch {
    slot: Slot,
    room: usize,
    records: Vec<Record>,
    payload: usize,
    /// Data with its place, in the order in which places were found.
    pieces: Vec<(Sector, Data)>,
    sealed: Sealed,
}

enum Fit {
    Sealed,
    /// The slot has no more room; the operation is the first of the next.
    SlotFull,
    Wait,
}

impl<D: Disk> Pool<D> {
    pub(super) fn run_queue(&mut self) {
        while self.is_serving() && self.queue.len() > 0 {
            let large = self.queue.bytes() >= LARGE;
            let busy = if large { SLOTS_BUSY_LARGE } else { SLOTS_BUSY };
            if self.in_flight.slots.len() >= busy.min(SLOTS_IN_FLIGHT_MAX) {
                return;
            }
            if !self.ring.has_room() {
                self.checkpoint_wanted = true;
                return;
            }
            match self.seal_batch() {
                // Large data leaves at once, and the next checksums are computed meanwhile.
                Ok(true) if large => self.device.kick(),
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => return self.checkpoint_failed(failure),
            }
        }
    }

    /// Seals what is in front into one slot. `false` when nothing can go on.
    fn seal_batch(&mut self) -> Result<bool, CheckpointError> {
        let slot = self.ring.next();
        let room = to_usize(self.ring.contiguous()) * JOURNAL_BLOCK - SLOT_HEADER;
        let mut batch = Batch {
            slot,
            room,
            records: Vec::new(),
            payload: 0,
            pieces: Vec::new(),
            sealed: Sealed {
                slot,
                last_block: slot,
                outstanding: 0,
                replies: Vec::new(),
                positions: Vec::new(),
                memory: Vec::new(),
                bytes: 0,
            },
        };
        let mut moved = false;
        let mut full = false;
        while let Some(front) = self.queue.front() {
            if matches!(front.kind, Kind::Flush) {
                let id = self.queue.pop().expect("it is in front").id;
                let through =
                    if batch.records.is_empty() { self.last_sealed() } else { batch.slot };
                self.flush.wait_for(id, through);
                moved = true;
                continue;
            }
            match self.seal_front(&mut batch)? {
                Fit::Sealed => moved = true,
                Fit::SlotFull => {
                    full = true;
                    break;
                }
                Fit::Wait => break,
            }
            if batch.sealed.bytes >= SLOT_BYTES_MAX {
                break;
            }
        }
        if !batch.records.is_empty() {
            self.send(batch);
        } else if full {
            // The end of the ring is too near for this record: fill it up and start over.
            let blocks = self.ring.contiguous();
            self.send_slot(batch, blocks);
            moved = true;
        }
        Ok(moved)
    }

    /// The number of the newest slot.
    fn last_sealed(&self) -> Slot {
        Slot(self.ring.next().0 - 1)
    }

    fn seal_front(&mut self, batch: &mut Batch) -> Result<Fit, CheckpointError> {
        let number = self.queue.front_number();
        match self.edges_ready(number) {
            Turn::Ready => {}
            Turn::Wait => return Ok(Fit::Wait),
            Turn::Answered => return Ok(Fit::Sealed),
        }
        let front = self.queue.front().expect("the caller looked");
        if batch.payload + record_len_max(&front.kind) > batch.room {
            return Ok(Fit::SlotFull);
        }
        match self.fits() {
            Ok(true) => {}
            Ok(false) => {
                self.checkpoint_wanted = true;
                return Ok(Fit::Wait);
            }
            Err(error) => {
                self.refuse_front(error);
                return Ok(Fit::Sealed);
            }
        }
        match self.find_space()? {
            Turn::Ready => {}
            Turn::Wait => return Ok(Fit::Wait),
            Turn::Answered => return Ok(Fit::Sealed),
        }
        let Queued { id, kind } = self.queue.pop().expect("it is in front");
        let reply = kind.reply();
        let position = kind.position();
        let record = self.apply(kind, batch);
        batch.payload += record.len();
        batch.records.push(record);
        batch.sealed.replies.push((id, reply));
        batch.sealed.positions.extend(position);
        Ok(Fit::Sealed)
    }

    /// Changes what memory knows, and says what the journal has to know.
    fn apply(&mut self, kind: Kind, batch: &mut Batch) -> Record {
        if let Some((volume, position)) = kind.position() {
            self.volumes.get_mut(&volume).expect("it was accepted").kept.position = position;
        }
        match kind {
            Kind::Change(change) => self.apply_change(*change, batch),
            Kind::Mark { volume, position } => {
                self.touch(volume);
                Record::Mark { volume, position }
            }
            Kind::SetState { volume, position, state } => {
                self.touch(volume).state = state.clone();
                Record::State { volume, position, state }
            }
            Kind::Grow { volume, position, size } => {
                self.touch(volume).header.size = size.0;
                Record::Resize { volume, position, size: size.0 }
            }
            Kind::Create { volume, .. } => {
                let header = Box::new(self.touch(volume).header.clone());
                Record::Create { volume, header }
            }
            Kind::Delete { volume } => {
                self.touch(volume).deleting = true;
                let mut displaced = Displaced::new();
                self.active.remove(volume, &mut displaced);
                self.carried.remove(volume);
                self.free_displaced(displaced);
                Record::Delete { volume }
            }
            Kind::Flush => unreachable!("a flush has no record"),
        }
    }

    fn touch(&mut self, volume: VolumeId) -> &mut Durable {
        let volume = self.volumes.get_mut(&volume).expect("it was accepted");
        volume.dirty = true;
        &mut volume.kept
    }

    fn apply_change(&mut self, mut change: Change, batch: &mut Batch) -> Record {
        self.touch(change.volume);
        self.large_holes += usize::from(change.is_large_hole());
        let (volume, position) = (change.volume, change.position);
        let mut space = std::mem::take(&mut change.space);
        self.space.sealed();
        let spans = match change.content {
            Content::Zeros => self.spans_of_zeros(&mut change, &mut space, batch),
            Content::Bytes(_) => self.spans_of_bytes(&mut change, &mut space, batch),
        };
        // Zeros need no space; what was found for them goes back unused.
        space.retain(|extent| extent.sectors > 0);
        for extent in space {
            self.space.give_back(extent);
        }
        self.overlay_spans(volume, position, &spans, batch.slot);
        Record::Update { volume, position, spans }
    }

    /// Enters what an operation changed into the overlay, and frees what that displaced.
    pub(super) fn overlay_spans(
        &mut self,
        id: VolumeId,
        position: Position,
        spans: &[Span],
        slot: Slot,
    ) {
        let map = Map { volume: id, height: self.volumes[&id].height() };
        let stamp = Stamp { changed: position.seq, slot };
        let mut displaced = Displaced::new();
        for span in spans {
            match span {
                Span::Hole { first, count } => {
                    self.active.insert_hole(map, *first, *count, stamp, &mut displaced);
                }
                Span::Blocks { first, blocks } => {
                    self.active.insert_blocks(map, *first, blocks, stamp, &mut displaced);
                }
            }
        }
        self.free_displaced(displaced);
    }

    pub(super) fn free_displaced(&mut self, displaced: Displaced) {
        for block in displaced {
            let extent = Extent { start: block.place, sectors: u64::from(block.sectors) };
            self.space.give_back(extent);
            #[cfg(feature = "faults")]
            if self.has_fault(crate::Fault::ReuseBeforeCheckpoint) {
                self.space.reuse_at_once(extent);
            }
        }
    }

    fn spans_of_bytes(
        &mut self,
        change: &mut Change,
        space: &mut [Extent],
        batch: &mut Batch,
    ) -> Vec<Span> {
        let granule = to_usize(self.volumes[&change.volume].granule());
        let Content::Bytes(data) = &change.content else { unreachable!("called for bytes") };
        let data = data.clone();
        let mut spans = Vec::new();
        for at in change.first.0..change.end.0 {
            let bytes = match take_edge(change, Granule(at), granule) {
                Some(merged) => merged,
                None => {
                    let from = to_usize(at * granule as u64 - change.offset.0);
                    data.slice(from..from + granule)
                }
            };
            self.add_granule(&mut spans, Granule(at), bytes, space, batch);
        }
        spans
    }

    fn spans_of_zeros(
        &mut self,
        change: &mut Change,
        space: &mut [Extent],
        batch: &mut Batch,
    ) -> Vec<Span> {
        let granule = to_usize(self.volumes[&change.volume].granule());
        let mut spans = Vec::new();
        let (mut first, mut end) = (change.first.0, change.end.0);
        if let Some(bytes) = take_edge(change, Granule(first), granule) {
            self.add_granule(&mut spans, Granule(first), bytes, space, batch);
            first += 1;
        }
        let tail = (first < end).then(|| take_edge(change, Granule(end - 1), granule)).flatten();
        end -= u64::from(tail.is_some());
        if first < end {
            spans.push(Span::Hole { first: Granule(first), count: end - first });
        }
        if let Some(bytes) = tail {
            self.add_granule(&mut spans, Granule(end), bytes, space, batch);
        }
        spans
    }

    /// One whole granule: a block at a fresh place, or a hole where it is all zeros.
    fn add_granule(
        &mut self,
        spans: &mut Vec<Span>,
        granule: Granule,
        bytes: Data,
        space: &mut [Extent],
        batch: &mut Batch,
    ) {
        if is_zero(&bytes) {
            match spans.last_mut() {
                Some(Span::Hole { first, count }) if first.0 + *count == granule.0 => *count += 1,
                _ => spans.push(Span::Hole { first: granule, count: 1 }),
            }
            return;
        }
        let sectors = self.space.layout.per(bytes.len() as u64);
        let from = space.iter_mut().find(|extent| extent.sectors >= sectors);
        let from = from.expect("space was found for every granule");
        let place = from.start;
        *from = Extent { start: Sector(place.0 + sectors), sectors: from.sectors - sectors };
        let block = BlockRecord {
            place,
            sectors: u16::try_from(sectors).expect("a granule has at most 256 sectors"),
            encoding: Encoding::Raw,
            checksum: Checksum::of(&bytes),
        };
        match spans.last_mut() {
            Some(Span::Blocks { first, blocks }) if first.0 + blocks.len() as u64 == granule.0 => {
                blocks.push(block);
            }
            _ => spans.push(Span::Blocks { first: granule, blocks: vec![block] }),
        }
        batch.sealed.bytes += bytes.len();
        batch.pieces.push((place, bytes));
    }

    fn send(&mut self, mut batch: Batch) {
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
    fn send_run(&mut self, batch: &mut Batch, start: Sector, run: Vec<Data>) {
        let sector = to_usize(self.space.layout.sector.bytes());
        let data = match run.as_slice() {
            [] => return,
            [one] if one.is_aligned(sector) => one.clone(),
            many => {
                let mut buf = self.device.bufs.take(many.iter().map(|part| part.len()).sum());
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

    fn send_slot(&mut self, batch: Batch, blocks: u64) {
        let Batch { records, payload, mut sealed, .. } = batch;
        let slot = self.ring.take(blocks);
        let mut buf = self.device.bufs.take(to_usize(blocks) * JOURNAL_BLOCK);
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
        self.seal_records(Vec::new());
    }

    /// Slots for records of the pool's own, which nobody waits for.
    pub(super) fn seal_records(&mut self, records: Vec<Record>) {
        let mut records = VecDeque::from(records);
        loop {
            let room = to_usize(self.ring.contiguous()) * JOURNAL_BLOCK - SLOT_HEADER;
            let slot = self.ring.next();
            let (mut fitting, mut payload) = (Vec::new(), 0);
            while let Some(record) = records.front().filter(|r| payload + r.len() <= room) {
                payload += record.len();
                fitting.extend(records.pop_front());
            }
            let sealed = Sealed {
                slot,
                last_block: slot,
                outstanding: 0,
                replies: Vec::new(),
                positions: Vec::new(),
                memory: Vec::new(),
                bytes: 0,
            };
            let blocks = (SLOT_HEADER + payload).div_ceil(JOURNAL_BLOCK) as u64;
            let batch = Batch { slot, room, records: fitting, payload, pieces: Vec::new(), sealed };
            self.send_slot(batch, blocks);
            if records.is_empty() {
                return;
            }
        }
    }

    /// Space for the granules that the operation in front will store.
    fn find_space(&mut self) -> Result<Turn, CheckpointError> {
        let Some(Queued { kind: Kind::Change(change), .. }) = self.queue.front() else {
            return Ok(Turn::Ready);
        };
        let unit = self.space.layout.per(self.volumes[&change.volume].granule());
        let wanted = change.stored_granules();
        let mut found: u64 = change.space.iter().map(|extent| extent.sectors / unit).sum();
        while found < wanted {
            let max = wanted - found;
            let run =
                self.space.alloc(Stream::Data, unit, max, &mut self.pages, &mut self.device)?;
            match run {
                Alloc::Run(extent) => {
                    found += extent.sectors / unit;
                    change.space.push(extent);
                }
                Alloc::Wait => return Ok(Turn::Wait),
                // Enough sectors are free, but not in runs of this granule.
                Alloc::Full if self.can_gain_space() => {
                    self.checkpoint_wanted = true;
                    return Ok(Turn::Wait);
                }
                Alloc::Full => {
                    let needed = ByteLen((wanted - found) * self.space.layout.bytes(unit).0);
                    self.refuse_front(OpError::NoSpace { needed });
                    return Ok(Turn::Answered);
                }
            }
        }
        Ok(Turn::Ready)
    }

    /// The operation in front is not done after all: nothing of it stays.
    pub(super) fn refuse_front(&mut self, error: OpError) {
        let op = self.queue.pop().expect("an operation is in front");
        if let Kind::Change(change) = &op.kind {
            self.space.sealed();
            for extent in &change.space {
                self.space.give_back(*extent);
            }
        }
        self.undo_accepted(&op.kind);
        self.answer(op.id, Err(error));
    }
}

impl Change {
    /// Whether a checkpoint may have to leave a part of it to the next.
    pub fn is_large_hole(&self) -> bool {
        matches!(self.content, Content::Zeros) && (self.end.0 - 1) / 128 > self.first.0 / 128 + 1
    }

    /// Granules for which space has to be found: all of a write, the edges of zeros.
    pub fn stored_granules(&self) -> u64 {
        match self.content {
            Content::Bytes(_) => self.end.0 - self.first.0,
            Content::Zeros => self.edges.len() as u64,
        }
    }
}

/// The old bytes of an edge with the new ones laid over them.
fn take_edge(change: &mut Change, granule: Granule, len: usize) -> Option<Data> {
    let at = change.edges.iter().position(|edge| edge.granule() == Some(granule))?;
    let Edge::Ready(_, mut buf) = change.edges.remove(at) else {
        panic!("edges are read before their operation is sealed");
    };
    let start = granule.0 * len as u64;
    let from = change.offset.0.max(start);
    let to = (change.offset.0 + change.len.0).min(start + len as u64);
    let within = to_usize(from - start)..to_usize(to - start);
    match &change.content {
        Content::Zeros => buf[within].fill(0),
        Content::Bytes(data) => {
            let skip = to_usize(from - change.offset.0);
            let count = within.len();
            buf[within].copy_from_slice(&data[skip..skip + count]);
        }
    }
    Some(buf.into_data())
}

fn is_zero(bytes: &[u8]) -> bool {
    // Nearly all data differs in its first bytes; only what does not is looked at whole.
    bytes[..16].iter().all(|byte| *byte == 0)
        && bytes.chunks_exact(64).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

/// The longest that the record of an operation can be.
fn record_len_max(kind: &Kind) -> usize {
    match kind {
        // Worst of all: every other granule a hole, each with a span of its own.
        Kind::Change(change) => 64 + to_usize(change.stored_granules()) * 26 + 3 * 17,
        Kind::SetState { state, .. } => 64 + state.len(),
        Kind::Create { spec, .. } => 64 + spec.name.len(),
        _ => 64,
    }
}
