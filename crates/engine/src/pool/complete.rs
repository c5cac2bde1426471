//! What the device finished: slots become held, and then their operations are answered.
use block::{Buf, Disk, DiskError};

use crate::pool::{Pool, Purpose};
use crate::units::Slot;

impl<D: Disk> Pool<D> {
    pub(super) fn completed(&mut self, purpose: Purpose, result: Result<Option<Buf>, DiskError>) {
        match purpose {
            Purpose::Read { key, attempt, run } => self.fetched(key, attempt, run, result),
            Purpose::Page(key) => {
                let bytes = result.ok().flatten();
                let (waiting, page) = self.pages.arrived(key, bytes, &mut self.device);
                self.reads.deliver(waiting, key, page);
            }
            Purpose::Scrub { run, index } => self.scrubbed(run, index, result),
            Purpose::Repair(id) => self.repaired(id, result),
            Purpose::Mend(place) => self.mended(place, result),
            Purpose::Backing => self.backed(result.map(drop)),
            // Two places are tried, and a device that refuses both is known to have failed already.
            Purpose::FailureMark => self.marking -= 1,
            Purpose::Slot(_) | Purpose::Flush | Purpose::Checkpoint
                if !self.is_serving() && self.job.is_none() => {}
            Purpose::Slot(slot) => match result {
                Ok(_) => self.slot_part_done(slot),
                Err(error) => self.fail(format!("a journaled write was lost: {error}")),
            },
            Purpose::Flush => match result {
                Ok(_) => self.flushed(),
                // What the device dropped is not known, and trying again would only hide it.
                Err(error) => self.fail(format!("the device could not flush: {error}")),
            },
            Purpose::Checkpoint => {
                if let Err(error) = result {
                    self.checkpoint_failed(error.into());
                }
            }
        }
    }

    fn slot_part_done(&mut self, slot: Slot) {
        let slots = &mut self.in_flight.slots;
        let Some(sealed) = slots.iter_mut().find(|sealed| sealed.slot == slot) else {
            return;
        };
        sealed.outstanding -= 1;
        #[cfg(feature = "faults")]
        if sealed.outstanding == 0 && self.fault == Some(crate::Fault::AckBeforeLowerSlots) {
            for (id, reply) in std::mem::take(&mut sealed.replies) {
                self.replies.push_back((id, Ok(reply)));
            }
        }
        // Held is cumulative: a slot counts only when all lower ones do.
        while let Some(front) = self.in_flight.slots.front().filter(|s| s.outstanding == 0) {
            self.held = front.last_block;
            let sealed = self.in_flight.slots.pop_front().expect("it is in front");
            self.in_flight.bytes -= sealed.bytes;
            for (id, position) in sealed.positions {
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.held = position;
                }
                self.flush.note_held(id, sealed.slot, position);
            }
            for (id, reply) in sealed.replies {
                self.answer(id, Ok(reply));
            }
            for data in sealed.memory {
                self.device.recycle(data);
            }
        }
        let held = self.held;
        self.reads.wake_held(held);
    }
}
