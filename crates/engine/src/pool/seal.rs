//! Giving operations their slot: fresh space, one record each, and the writes on their way.
//!
//! Operations are sealed in the order of their submission. Whatever waits in front at a turn goes
//! into one slot together: its data leaves in as few writes as its places allow, its records in
//! one.
use std::collections::VecDeque;

use block::{ByteLen, Data, Disk, Position};

use crate::error::{CheckpointError, OpError};
use crate::format::{Record, SLOT_HEADER};
use crate::limits::{JOURNAL_BLOCK, SLOTS_IN_FLIGHT_MAX};
use crate::pool::queue::{Kind, Queued, Turn};
use crate::pool::room::Room;
use crate::pool::{Pool, Reply, RequestId};
use crate::space::{Alloc, Stream};
use crate::units::{Sector, Slot, VolumeId, to_usize};
use crate::volume::Durable;

/// Slots that may be under way before operations are gathered instead: one on the device and one
/// behind it keep it busy, and what waits meanwhile shares the next.
const SLOTS_BUSY: usize = 2;

/// What waits is worth a slot of its own from here on: gathering more would only let the device
/// run dry while checksums are computed.
pub(super) const LARGE: usize = 256 << 10;
const SLOTS_BUSY_LARGE: usize = 16;

/// Data of one slot at the most, so that one slow slot does not hold up much.
const SLOT_BYTES_MAX: usize = 1 << 20;

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
pub(super) struct Batch {
    pub slot: Slot,
    pub room: usize,
    pub records: Vec<Record>,
    pub payload: usize,
    /// Data with its place, in the order in which places were found.
    pub pieces: Vec<(Sector, Data)>,
    pub sealed: Sealed,
}

impl Batch {
    pub fn new(slot: Slot, room: usize) -> Batch {
        let sealed = Sealed {
            slot,
            last_block: slot,
            outstanding: 0,
            replies: Vec::new(),
            positions: Vec::new(),
            memory: Vec::new(),
            bytes: 0,
        };
        Batch { slot, room, records: Vec::new(), payload: 0, pieces: Vec::new(), sealed }
    }
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
                Ok(true) if large && self.queue.len() > 0 => self.device.kick(),
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
        let mut batch = Batch::new(slot, room);
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
        // First of all: its volume may never have been made, and then it has no old bytes.
        if let Some(error) = self.became_illegal() {
            self.refuse_front(error);
            return Ok(Fit::Sealed);
        }
        let number = self.queue.front_number();
        match self.edges_ready(number) {
            Turn::Ready => {}
            Turn::Wait => return Ok(Fit::Wait),
            Turn::Answered => return Ok(Fit::Sealed),
        }
        self.pack_front();
        let front = self.queue.front().expect("the caller looked");
        if batch.payload + record_len_max(&front.kind) > batch.room {
            return Ok(Fit::SlotFull);
        }
        match self.fits() {
            Ok(Room::Now) => {}
            Ok(Room::AfterCheckpoint) => {
                self.checkpoint_wanted = true;
                return Ok(Fit::Wait);
            }
            Ok(Room::AfterBacking) => return Ok(Fit::Wait),
            Err(error) => {
                self.refuse_front(error);
                return Ok(Fit::Sealed);
            }
        }
        if let Some(error) = self.import_is_off() {
            self.refuse_front(error);
            return Ok(Fit::Sealed);
        }
        match self.find_space()? {
            Turn::Ready => {}
            Turn::Wait => return Ok(Fit::Wait),
            Turn::Answered => return Ok(Fit::Sealed),
        }
        let spent = self.spent_by_front();
        let Queued { id, kind } = self.queue.pop().expect("it is in front");
        let reply = kind.reply();
        let position = kind.position();
        let record = self.apply(kind, batch);
        batch.payload += record.len();
        batch.records.push(record);
        if let Some((volume, sectors)) = spent {
            self.spend_credit(volume, sectors, batch);
        }
        batch.sealed.replies.push((id, reply));
        batch.sealed.positions.extend(position);
        Ok(Fit::Sealed)
    }

    /// Changes what memory knows, and says what the journal has to know.
    fn apply(&mut self, kind: Kind, batch: &mut Batch) -> Record {
        if let Some((volume, position)) = kind.position() {
            self.volumes.get_mut(&volume).expect("it was accepted").kept.position = position;
        }
        // What takes no place in the sequence is recorded with the one that its volume is at.
        let at = |id: VolumeId, pool: &Self| pool.volumes[&id].kept.position;
        match kind {
            Kind::Change(change) => self.apply_change(*change, batch),
            Kind::Mark { volume, position } => {
                self.touch(volume);
                Record::Mark { volume, position }
            }
            Kind::SetState { volume, state, .. } => {
                let position = at(volume, self);
                self.touch(volume).state = state.clone();
                Record::State { volume, position, state }
            }
            Kind::Grow { volume, size, .. } => {
                let position = at(volume, self);
                self.touch(volume).header.size = size.0;
                Record::Resize { volume, position, size: size.0 }
            }
            Kind::Create { volume, .. } => {
                let header = Box::new(self.touch(volume).header.clone());
                Record::Create { volume, header }
            }
            Kind::Delete { volume, snapshots } => {
                self.mark_deleting(volume, snapshots);
                Record::Delete { volume, snapshots }
            }
            Kind::Attach { volume, attached } => {
                self.touch(volume).attached = attached;
                Record::Attach { volume, attached }
            }
            Kind::Credit { volume, sectors } => {
                self.touch(volume).credit = sectors;
                Record::Credit { volume, sectors }
            }
            Kind::Snapshot { volume, snapshot, spec, .. } => {
                let position = at(volume, self);
                self.apply_snapshot(volume, position, snapshot, spec)
            }
            Kind::DeleteSnapshot { snapshot } => {
                self.mark_deleted(snapshot);
                Record::DeleteSnapshot { snapshot }
            }
            Kind::Clone { volume, snapshot, header } => {
                self.insert_clone(volume, snapshot, (*header).clone());
                Record::Clone { volume, snapshot, header }
            }
            Kind::Rollback { volume, position, to } => {
                self.roll_back(volume, position, to);
                Record::Rollback { volume, position, to }
            }
            Kind::Stage { volume, of, base } => {
                self.insert_staging(volume, of, base);
                Record::Stage { volume, of, base }
            }
            Kind::Adopt { volume, staging, position, renew, state } => {
                self.adopt(volume, staging, position, renew, state.clone());
                Record::Adopt { volume, position, staging, renew, state }
            }
            Kind::Flush => unreachable!("a flush has no record"),
        }
    }

    pub(super) fn touch(&mut self, volume: VolumeId) -> &mut Durable {
        self.dirty.insert(volume.into());
        &mut self.volumes.get_mut(&volume).expect("it was accepted").kept
    }

    /// Space for the granules that the operation in front will store.
    fn find_space(&mut self) -> Result<Turn, CheckpointError> {
        let Some(Queued { kind: Kind::Change(change), .. }) = self.queue.front() else {
            return Ok(Turn::Ready);
        };
        let unit = self.space.layout.per(self.volumes[&change.volume].granule());
        while let Some((unit, max)) = change.next_run(unit) {
            let run =
                self.space.alloc(Stream::Data, unit, max, &mut self.pages, &mut self.device)?;
            match run {
                Alloc::Run(extent) => change.space.push(extent),
                Alloc::Wait => return Ok(Turn::Wait),
                // Enough sectors are free, but not in runs of this granule.
                // There is enough, and nowhere enough of it in a row.
                Alloc::Full if self.back_front(0) => return Ok(Turn::Wait),
                Alloc::Full if self.can_gain_space() => {
                    self.checkpoint_wanted = true;
                    return Ok(Turn::Wait);
                }
                Alloc::Full => {
                    let needed = ByteLen(max * self.space.layout.bytes(unit).0);
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

/// The longest that the record of an operation can be.
fn record_len_max(kind: &Kind) -> usize {
    match kind {
        // Worst of all: every other granule a hole, and all of them with a span of their own. So
        // one of 17 + 16 bytes for each that is stored, and one of 17 beside it.
        // And what is left of its volume's credit.
        Kind::Change(change) => 64 + to_usize(change.stored) * 50 + 3 * 17 + 19,
        Kind::SetState { state, .. } => 64 + state.len(),
        Kind::Adopt { state, .. } => 64 + state.as_ref().map_or(0, Vec::len),
        Kind::Create { spec, .. } => 64 + spec.name.len(),
        Kind::Snapshot { spec, .. } => 128 + spec.name.len(),
        Kind::Clone { header, .. } => 128 + header.name.len(),
        // And what is left of the volume's credit.
        _ => 64 + 19,
    }
}
