//! Persistent reservations: who registered, and who holds the disk.
//!
//! A value without side effects: a PERSISTENT RESERVE OUT makes a changed copy, the volume keeps
//! it, and only then it takes the place of the old one. It outlives targets, since the volume hands it
//! to the next one. A target that moves is no loss of power, so registrations stay also when their
//! initiator did not ask for that (APTPL), and the generation goes on counting.
mod conflicts;
mod inp;
mod out;
mod stored;
mod transport_id;

use crate::scsi::attention::Attention;
use crate::scsi::words::InitiatorPort;

pub(super) use conflicts::conflicts;
pub(super) use inp::report;
pub(super) use out::{Request, apply};
pub use stored::BadReservations;
pub(super) use stored::{decode, encode};

/// What an initiator registers itself with; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrants = 5,
    ExclusiveAccessRegistrants = 6,
    WriteExclusiveAll = 7,
    ExclusiveAccessAll = 8,
}

impl Kind {
    const EVERY: [Kind; 6] = [
        Kind::WriteExclusive,
        Kind::ExclusiveAccess,
        Kind::WriteExclusiveRegistrants,
        Kind::ExclusiveAccessRegistrants,
        Kind::WriteExclusiveAll,
        Kind::ExclusiveAccessAll,
    ];

    fn of(number: u8) -> Option<Kind> {
        Kind::EVERY.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Every registered nexus holds it.
    fn is_for_all(self) -> bool {
        matches!(self, Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll)
    }

    /// Registered nexuses may do what the holder may.
    fn is_for_registrants(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    /// Others may read.
    fn lets_read(self) -> bool {
        match self {
            Kind::WriteExclusive | Kind::WriteExclusiveRegistrants | Kind::WriteExclusiveAll => {
                true
            }
            Kind::ExclusiveAccess | Kind::ExclusiveAccessRegistrants | Kind::ExclusiveAccessAll => {
                false
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Registration {
    port: InitiatorPort,
    key: Key,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    kind: Kind,
    /// `None`: all that are registered, as the kind says.
    by: Option<InitiatorPort>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reservations {
    generation: u32,
    /// APTPL, as it was last asked for.
    persists: bool,
    registered: Vec<Registration>,
    held: Option<Held>,
}

/// How a nexus stands to the reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    #[default]
    Stranger,
    Registered,
    Holder,
}

/// Reservations as they will be when they are kept, and who is to be told.
pub(super) struct Change {
    pub(super) next: Reservations,
    pub(super) told: Vec<(InitiatorPort, Attention)>,
}

impl Reservations {
    pub(super) fn kind(&self) -> Option<Kind> {
        self.held.as_ref().map(|held| held.kind)
    }

    pub(super) fn standing(&self, port: &InitiatorPort) -> Standing {
        match (self.key(port), &self.held) {
            (None, _) => Standing::Stranger,
            (Some(_), Some(held)) if held.by.as_ref().is_none_or(|by| by == port) => {
                Standing::Holder
            }
            (Some(_), _) => Standing::Registered,
        }
    }

    pub(super) fn has_registrations(&self) -> bool {
        !self.registered.is_empty()
    }

    fn key(&self, port: &InitiatorPort) -> Option<Key> {
        self.registered.iter().find(|entry| entry.port == *port).map(|entry| entry.key)
    }

    /// The key of the holder, where there is one alone.
    fn held_with(&self) -> Option<Key> {
        self.key(self.held.as_ref()?.by.as_ref()?)
    }
}

#[cfg(test)]
mod tests;
