//! Reservations as the volume keeps them.
//!
//! One byte of version; then the generation (4 bytes), flags (1), the kind that is held (1, zero
//! for none), the number of its holder (2, all ones for all), the number of registrations (2);
//! then each of these: its key (8), session identifier (6), the length of its name (1), and the name.
//! Nothing at all means that there never was one.
use thiserror::Error;

use super::transport_id::NAME_MAX;
use super::{Held, Key, Kind, Registration, Reservations};
use crate::scsi::words::InitiatorPort;

/// 1: the first.
const VERSION: u8 = 1;
const PERSISTS: u8 = 0x01;
const HELD_BY_ALL: u16 = 0xFFFF;

/// Reservations that cannot be read back. Serving without them could give two initiators the
/// disk at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadReservations {
    #[error("the reservations are of version {found}, which a newer program wrote; use that one")]
    Version { found: u8 },
    #[error("the reservations end early or go on too long; the volume's catalog is damaged")]
    Length,
    #[error("the reservations contradict themselves ({what}); the volume's catalog is damaged")]
    Contradiction { what: &'static str },
}

pub(crate) fn encode(reservations: &Reservations) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend(reservations.generation.to_be_bytes());
    bytes.push(if reservations.persists { PERSISTS } else { 0 });
    let (kind, holder) = match &reservations.held {
        None => (0, 0),
        Some(Held { kind, by: None }) => (*kind as u8, HELD_BY_ALL),
        Some(Held { kind, by: Some(by) }) => {
            let holder = reservations.registered.iter().position(|entry| entry.port == *by);
            (*kind as u8, number(holder.expect("who holds is registered")))
        }
    };
    bytes.push(kind);
    bytes.extend(holder.to_be_bytes());
    bytes.extend(number(reservations.registered.len()).to_be_bytes());
    for Registration { port, key } in &reservations.registered {
        bytes.extend(key.0.to_be_bytes());
        bytes.extend(port.isid);
        bytes.push(u8::try_from(port.name.len()).expect("names are checked when they come in"));
        bytes.extend(port.name.as_bytes());
    }
    bytes
}

fn number(index: usize) -> u16 {
    u16::try_from(index).expect("the number of registrations is checked when one is added")
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], BadReservations> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(BadReservations::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadReservations> {
        self.take(N)?.try_into().map_err(|_| BadReservations::Length)
    }

    fn byte(&mut self) -> Result<u8, BadReservations> {
        Ok(self.array::<1>()?[0])
    }
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Reservations, BadReservations> {
    if bytes.is_empty() {
        return Ok(Reservations::default());
    }
    let mut reader = Reader(bytes);
    let found = reader.byte()?;
    if found != VERSION {
        return Err(BadReservations::Version { found });
    }
    let generation = u32::from_be_bytes(reader.array()?);
    let flags = reader.byte()?;
    let (kind, holder) = (reader.byte()?, u16::from_be_bytes(reader.array()?));
    let count = u16::from_be_bytes(reader.array()?);
    let mut registered = Vec::new();
    for _ in 0..count {
        registered.push(registration(&mut reader, &registered)?);
    }
    if !reader.0.is_empty() {
        return Err(BadReservations::Length);
    }
    if flags & !PERSISTS != 0 {
        return Err(BadReservations::Contradiction { what: "unknown flags" });
    }
    let held = held(kind, holder, &registered)?;
    Ok(Reservations { generation, persists: flags & PERSISTS != 0, registered, held })
}

fn registration(
    reader: &mut Reader,
    earlier: &[Registration],
) -> Result<Registration, BadReservations> {
    let wrong = |what| Err(BadReservations::Contradiction { what });
    let key = Key(u64::from_be_bytes(reader.array()?));
    let isid = reader.array()?;
    let len = usize::from(reader.byte()?);
    let Ok(name) = std::str::from_utf8(reader.take(len)?) else {
        return wrong("a name is no text");
    };
    let port = InitiatorPort { name: name.to_owned(), isid };
    if key == Key(0) {
        return wrong("a key is zero");
    }
    if name.is_empty() || name.len() > NAME_MAX {
        return wrong("a name has a wrong length");
    }
    if earlier.iter().any(|entry| entry.port == port) {
        return wrong("a port is registered twice");
    }
    Ok(Registration { port, key })
}

fn held(
    kind: u8,
    holder: u16,
    registered: &[Registration],
) -> Result<Option<Held>, BadReservations> {
    let wrong = |what| Err(BadReservations::Contradiction { what });
    if kind == 0 {
        return if holder == 0 { Ok(None) } else { wrong("a holder of nothing") };
    }
    let Some(kind) = Kind::of(kind) else { return wrong("an unknown kind") };
    match (kind.is_for_all(), registered.get(usize::from(holder))) {
        (true, _) if holder == HELD_BY_ALL && !registered.is_empty() => {
            Ok(Some(Held { kind, by: None }))
        }
        (false, Some(entry)) => Ok(Some(Held { kind, by: Some(entry.port.clone()) })),
        _ => wrong("nobody holds the reservation"),
    }
}
