//! Where IOs stay while the kernel works on their memory.
use crate::flight::Flight;

/// The name of an IO in the ring's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

impl Slot {
    pub(super) fn user_data(self) -> u64 {
        self.0.into()
    }

    pub(super) fn from_user_data(user_data: u64) -> Slot {
        Slot(u32::try_from(user_data).expect("the kernel returns what a slot gave it"))
    }
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    flights: Vec<Option<Flight>>,
    free: Vec<Slot>,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, flight: Flight) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            let next = u32::try_from(self.flights.len()).expect("a ring holds 32768 at most");
            self.flights.push(None);
            Slot(next)
        });
        self.flights[slot.0 as usize] = Some(flight);
        slot
    }

    pub(super) fn get(&mut self, slot: Slot) -> &mut Flight {
        self.flights[slot.0 as usize].as_mut().expect("a slot is named only while it is taken")
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Flight {
        let flight = self.flights[slot.0 as usize].take();
        self.free.push(slot);
        flight.expect("a slot is named only while it is taken")
    }

    pub(super) fn taken(&self) -> impl Iterator<Item = Slot> {
        (0..)
            .map(Slot)
            .zip(&self.flights)
            .filter_map(|(slot, flight)| flight.is_some().then_some(slot))
    }
}
