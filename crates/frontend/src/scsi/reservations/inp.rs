//! PERSISTENT RESERVE IN.
use super::{Held, Key, Reservations, Standing, transport_id};
use crate::scsi::bytes::long;
use crate::scsi::cdb::ReserveIn;
use crate::scsi::inquiry::TARGET_PORT;

pub(crate) fn report(reservations: &Reservations, query: ReserveIn) -> Vec<u8> {
    let list = match query {
        ReserveIn::Keys => {
            let keys = reservations.registered.iter().map(|entry| entry.key.0.to_be_bytes());
            keys.collect::<Vec<_>>().concat()
        }
        ReserveIn::Reservation => reservation(reservations),
        ReserveIn::Capabilities => return capabilities(reservations),
        ReserveIn::FullStatus => full_status(reservations),
    };
    let mut bytes = reservations.generation.to_be_bytes().to_vec();
    bytes.extend(long(list.len()));
    bytes.extend(list);
    bytes
}

fn reservation(reservations: &Reservations) -> Vec<u8> {
    let Some(Held { kind, .. }) = &reservations.held else { return Vec::new() };
    let Key(key) = reservations.held_with().unwrap_or(Key(0));
    let mut bytes = key.to_be_bytes().to_vec();
    bytes.extend([0; 5]);
    bytes.extend([*kind as u8, 0, 0]);
    bytes
}

fn capabilities(reservations: &Reservations) -> Vec<u8> {
    /// CRH (RESERVE beside these), SIP_C, ATP_C, PTPL_C.
    const CAN: u8 = 0x1D;
    /// TMV: the kinds that follow are valid.
    const KINDS_VALID: u8 = 0x80;
    /// All six.
    const KINDS: [u8; 2] = [0xEA, 0x01];
    let mut bytes = vec![0, 8, CAN, KINDS_VALID | u8::from(reservations.persists)];
    bytes.extend(KINDS);
    bytes.extend([0, 0]);
    bytes
}

fn full_status(reservations: &Reservations) -> Vec<u8> {
    const HOLDER: u8 = 0x01;
    let mut bytes = Vec::new();
    for entry in &reservations.registered {
        let holds = reservations.standing(&entry.port) == Standing::Holder;
        let kind = reservations.kind().filter(|_| holds).map_or(0, |kind| kind as u8);
        let port = transport_id::encode(&entry.port);
        bytes.extend(entry.key.0.to_be_bytes());
        bytes.extend([0, 0, 0, 0, if holds { HOLDER } else { 0 }, kind, 0, 0, 0, 0]);
        bytes.extend(TARGET_PORT.to_be_bytes());
        bytes.extend(long(port.len()));
        bytes.extend(port);
    }
    bytes
}
