//! Hostile bytes, for a bounded time: no initiator or client may bring a node down, or make it set
//! memory aside beyond its bounds.
//!
//! Each driver runs its machine against a scripted volume; the bytes choose what arrives, how it is
//! cut, and when answers come. `POLLUX_FUZZ_SECONDS` and `POLLUX_FUZZ_SEED` are as for the engine's
//! decoders.
#![forbid(unsafe_code)]
#[path = "../../engine/tests/fuzz_decoders/running.rs"]
#[allow(dead_code, reason = "the engine's decoders need more of it")]
mod running;

use running::{fuzz, note, resident_peak_mib};

/// Payloads under way are bounded by the machines; this is some of them at once, and the program.
const RESIDENT_MAX_MIB: u64 = 1024;

fn drive(name: &str, machine: fn(&[u8])) {
    fuzz(name, |seed| {
        let len = usize::try_from(seed.next() % 4096).expect("short");
        note(format!("{len} bytes"));
        let bytes: Vec<u8> = (0..len).map(|_| seed.next().to_le_bytes()[0]).collect();
        machine(&bytes);
    });
    let peak = resident_peak_mib();
    assert!(peak <= RESIDENT_MAX_MIB, "{peak} MiB of memory were in use");
}

#[test]
fn nbd_survives_any_client() {
    drive("NBD", frontend::nbd::drive);
}

#[test]
fn iscsi_survives_any_initiator() {
    drive("iSCSI", frontend::iscsi::drive);
}

#[test]
fn scsi_survives_any_command() {
    drive("SCSI", frontend::scsi::drive);
}
