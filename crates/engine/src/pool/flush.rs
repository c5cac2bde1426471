//! Flushes: one at a time on the device, as many as wait answered by each.
use std::collections::BTreeMap;

use block::{Disk, Position};

use crate::pool::{Pool, Purpose, Reply, RequestId};
use crate::units::{Slot, VolumeId};

#[derive(Debug, Default)]
pub struct Flush {
    /// Who waits, and through which slot.
    waiting: Vec<(RequestId, Slot)>,
    /// The flush on the device: what was held when it was issued.
    under_way: Option<Slot>,
    /// Positions that became held since the last flush was issued, and those it covers.
    held: Covered,
    covered: Covered,
}

/// Where volumes are after a slot. Of two positions the one of the later slot is newer, whichever
/// is higher: a volume goes back when a history is undone.
pub type Covered = BTreeMap<VolumeId, (Slot, Position)>;

impl Flush {
    pub fn wait_for(&mut self, id: RequestId, through: Slot) {
        self.waiting.push((id, through));
    }

    pub fn note_held(&mut self, volume: VolumeId, slot: Slot, position: Position) {
        self.held.insert(volume, (slot, position));
    }

    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_none()
    }

    pub fn drain(&mut self) -> impl Iterator<Item = RequestId> + use<> {
        self.under_way = None;
        std::mem::take(&mut self.waiting).into_iter().map(|(id, _)| id)
    }
}

impl<D: Disk> Pool<D> {
    pub(super) fn run_flush(&mut self) {
        self.answer_flushes();
        if self.flush.under_way.is_some() || !self.is_serving() {
            return;
        }
        let (held, hasty) = (self.held, self.hasty_flush());
        // The device promises only what had completed, so lower slots are waited for.
        if self.flush.waiting.iter().any(|(_, through)| *through <= held || hasty) {
            self.begin_flush();
        }
    }

    pub(super) fn begin_flush(&mut self) {
        let through = if self.hasty_flush() { Slot(self.ring.next().0 - 1) } else { self.held };
        self.flush.under_way = Some(through);
        self.flush.covered = std::mem::take(&mut self.flush.held);
        self.device.flush(Purpose::Flush);
        self.counters.flushes += 1;
    }

    pub(super) fn flushed(&mut self) {
        let through = self.flush.under_way.take().expect("a flush was under way");
        let covered = std::mem::take(&mut self.flush.covered);
        self.became_durable(through, covered);
        self.answer_flushes();
    }

    /// What a checkpoint's own flush covers: everything that was held when it was issued.
    pub(super) fn take_held(&mut self) -> Covered {
        // A flush under way goes on; its positions stay with it.
        std::mem::take(&mut self.flush.held)
    }

    pub(super) fn became_durable(&mut self, slot: Slot, covered: Covered) {
        self.durable = self.durable.max(slot);
        for (id, (slot, position)) in covered {
            // A flush that was issued earlier may end later.
            if let Some(volume) = self.volumes.get_mut(&id)
                && slot >= volume.durable_by
            {
                (volume.durable, volume.durable_by) = (position, slot);
            }
        }
    }

    fn answer_flushes(&mut self) {
        let durable = self.durable;
        let ready: Vec<RequestId> = self
            .flush
            .waiting
            .extract_if(.., |(_, through)| *through <= durable)
            .map(|(id, _)| id)
            .collect();
        for id in ready {
            self.answer(id, Ok(Reply::Flushed));
        }
    }

    fn hasty_flush(&self) -> bool {
        #[cfg(feature = "faults")]
        return self.has_fault(crate::Fault::FlushBeforeLowerSlots);
        #[cfg(not(feature = "faults"))]
        false
    }
}
