//! Hostile bytes, for a bounded time: no decoder of messages or states may panic, believe what it
//! would not write, or set memory aside that nobody sent.
//!
//! Most changes repair the checksum: it protects from accidents, not from a peer that was taken
//! over. `POLLUX_FUZZ_SECONDS` and `POLLUX_FUZZ_SEED` are as for the engine's decoders.
#![forbid(unsafe_code)]
#[allow(dead_code, reason = "each test takes what it needs of it")]
mod random;
#[path = "../../engine/tests/fuzz_decoders/running.rs"]
#[allow(dead_code, reason = "the engine's decoders need more of it")]
mod running;

use random::Rng;
use random::messages::reseal;
use replication::message::{
    decode_to_replica, decode_to_target, encode_to_replica, encode_to_target,
};
use replication::state::ReplicaState;
use running::{fuzz, note, resident_peak_mib};

/// Frames have at most 4 MiB, and these have far less.
const RESIDENT_MAX_MIB: u64 = 128;

/// Every decoder; what is accepted is exactly what was given.
fn decode(bytes: &[u8]) {
    if let Ok(message) = decode_to_replica(bytes) {
        assert_eq!(encode_to_replica(&message).to_bytes(), bytes);
    }
    if let Ok(message) = decode_to_target(bytes) {
        assert_eq!(encode_to_target(&message).to_bytes(), bytes);
    }
    if let Ok(state) = ReplicaState::decode(bytes) {
        assert_eq!(state.encode(), bytes);
    }
}

fn bounded_memory() {
    let peak = resident_peak_mib();
    assert!(peak <= RESIDENT_MAX_MIB, "{peak} MiB of memory were in use");
}

/// Protects from a decoder that trusts a length which it did not compare with anything.
#[test]
fn no_decoder_panics_on_random_bytes() {
    fuzz("random messages", |seed| {
        let rng = &mut Rng(seed.next());
        let len = [rng.index(100), rng.index(4096)][rng.index(2)];
        note(format!("{len} random bytes"));
        let mut bytes = rng.bytes(len);
        decode(&bytes);
        // As far as the kinds and their fields.
        let frame = rng.frame();
        for at in (0..bytes.len().min(24)).filter(|at| *at != 16) {
            bytes[at] = frame[at];
        }
        let told = u32::try_from(len).expect("short").to_le_bytes();
        let head = bytes.len().min(4);
        bytes[..head].copy_from_slice(&told[..head]);
        reseal(&mut bytes);
        decode(&bytes);
    });
    bounded_memory();
}

/// Protects from a message whose fields are believed because its checksum is right.
#[test]
fn no_decoder_panics_on_a_forged_message() {
    fuzz("forged messages", |seed| {
        let rng = &mut Rng(seed.next());
        let mut bytes = rng.frame();
        let changes: Vec<String> = (0..=rng.below(3)).map(|_| rng.damage(&mut bytes)).collect();
        note(changes.join(", "));
        decode(&bytes);
        reseal(&mut bytes);
        decode(&bytes);
    });
    bounded_memory();
}

/// Protects from a replica that brings its process down because of what its pool kept.
#[test]
fn no_decoder_panics_on_a_changed_state() {
    fuzz("changed states", |seed| {
        let rng = &mut Rng(seed.next());
        let mut bytes = rng.state().encode();
        let changes: Vec<String> = (0..=rng.below(3)).map(|_| rng.damage(&mut bytes)).collect();
        let len = if rng.chance() { bytes.len() } else { rng.index(bytes.len()) };
        note(format!("{}; cut to {len}", changes.join(", ")));
        decode(&bytes[..len]);
    });
    bounded_memory();
}
