//! The small state as bytes: it always fits, comes back as it was, and nothing else is believed.
#![forbid(unsafe_code)]
#[allow(dead_code, reason = "each test takes what it needs of it")]
mod random;

use block::{ByteLen, Position, Seq, Term};
use random::Rng;
use replication::encoding::{Malformed, SEQ_END};
use replication::history::{REIGNS_MAX, Reign, Reigns};
use replication::membership::{MEMBERS_MAX, Member, Membership, Voters};
use replication::state::{
    CLONES_MAX, DOOMED_MAX, Doomed, ImportMark, NAME_MAX, POINTS_MAX, Promise, RESERVATIONS_MAX,
    ReplicaState, STATE_MAX, STATE_VERSION, SharedState, SnapshotSpec, Stages,
};
use replication::words::{
    Boot, Incarnation, Powered, ReplicaId, SnapshotUid, StageNumber, VolumeUid,
};

const STATES: u64 = 2000;

/// Everything that can be there, each at its bound.
fn longest() -> ReplicaState {
    let last = Seq(SEQ_END - 1);
    let member =
        |n: usize| Member { replica: ReplicaId(n as u64), incarnation: Incarnation(u64::MAX) };
    let voters = Voters::of(&(0..MEMBERS_MAX).map(member).collect::<Vec<_>>());
    let reign = |n: usize| Reign {
        term: Term(u64::MAX - (REIGNS_MAX - n) as u64),
        first: Seq(last.0 - (REIGNS_MAX - n) as u64),
    };
    let reigns = Reigns::new((0..REIGNS_MAX).map(reign).collect()).expect("they grow");
    let shared = SharedState {
        reigns,
        size: ByteLen(u64::MAX),
        membership: Membership { version: u64::MAX, voters: voters.clone(), next: Some(voters) },
        doomed: vec![Doomed { snapshot: SnapshotUid([7; 16]), at: last }; DOOMED_MAX],
        clones: vec![(SnapshotUid([7; 16]), VolumeUid([8; 16])); CLONES_MAX],
        reservations: vec![9; RESERVATIONS_MAX],
        points: vec![9; POINTS_MAX],
        stages: Stages {
            lowest: StageNumber(u64::MAX),
            last: StageNumber(u64::MAX),
            plain_refused: true,
        },
        closed: last,
    };
    let name = "n".repeat(NAME_MAX);
    ReplicaState {
        incarnation: Incarnation(u64::MAX),
        promise: Promise { term: Term(u64::MAX), run: Boot(u64::MAX) },
        membership_seen: u64::MAX,
        dirty: Some(Powered { kernel: u128::MAX, device: u128::MAX }),
        regressed: true,
        import: Some(ImportMark {
            source: Position { term: Term(u64::MAX), seq: last },
            since: last,
        }),
        pending: Some(SnapshotSpec { uid: SnapshotUid([7; 16]), name, created: u64::MAX }),
        shared,
    }
}

/// Protects from a replica that works until its state is one byte too long, and then never again.
#[test]
fn the_longest_state_fits_the_store() {
    let longest = longest();
    let bytes = longest.encode();
    println!("the longest state has {} bytes", bytes.len());
    assert!(bytes.len() <= STATE_MAX, "{} bytes", bytes.len());
    assert_eq!(ReplicaState::decode(&bytes), Ok(longest));
    // No random one is longer than what was thought to be the longest.
    let mut rng = Rng(1);
    for _ in 0..STATES {
        assert!(rng.state().encode().len() <= bytes.len());
    }
}

#[test]
fn a_state_comes_back_as_it_was() {
    let mut rng = Rng(2);
    for _ in 0..STATES {
        let state = rng.state();
        assert_eq!(ReplicaState::decode(&state.encode()), Ok(state));
    }
    let fresh = ReplicaState::fresh(Incarnation(5), ByteLen(1 << 30));
    assert_eq!(ReplicaState::decode(&fresh.encode()), Ok(fresh));
}

/// Protects from replicas of a clone that do not agree, and from a clone that takes over what is only its
/// origin's.
#[test]
fn a_clone_begins_with_the_history_of_its_snapshot_and_nothing_else() {
    let reigns = [(4, 1), (7, 20), (9, 90)];
    let reigns = reigns.map(|(term, first)| Reign { term: Term(term), first: Seq(first) });
    let origin = SharedState {
        reigns: Reigns::new(reigns.to_vec()).expect("they grow"),
        closed: Seq(19),
        ..longest().shared
    };
    let (at, size) = (Position::new(7, 50), ByteLen(1 << 30));
    let made = ReplicaState::cloned(Incarnation(3), &origin, at, size);
    let shared = SharedState {
        reigns: Reigns::new(reigns[..2].to_vec()).expect("they grow"),
        size,
        closed: Seq(50),
        ..SharedState::default()
    };
    let promise = Promise { term: Term(7), run: Boot(0) };
    let expected =
        ReplicaState { incarnation: Incarnation(3), promise, shared, ..ReplicaState::default() };
    assert_eq!(made, expected);
    let other = ReplicaState::cloned(Incarnation(4), &origin, at, size);
    assert_eq!(other.shared, made.shared, "what is shared does not know which replica it is of");
    assert_eq!(ReplicaState::decode(&made.encode()), Ok(made));
}

#[test]
fn a_part_of_a_state_is_no_state() {
    let mut rng = Rng(3);
    for _ in 0..20 {
        let bytes = rng.state().encode();
        for len in 0..bytes.len() {
            assert!(ReplicaState::decode(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
        }
        let more = [bytes.as_slice(), &[0]].concat();
        assert!(ReplicaState::decode(&more).is_err(), "a byte too many");
    }
}

/// What is read is what would be written: no two encodings are one state.
#[test]
fn changed_bytes_are_refused_or_another_state() {
    let mut rng = Rng(4);
    for _ in 0..STATES * 10 {
        let mut bytes = rng.state().encode();
        for _ in 0..=rng.below(3) {
            let at = rng.index(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        if let Ok(state) = ReplicaState::decode(&bytes) {
            assert_eq!(state.encode(), bytes);
        }
    }
}

#[test]
fn random_bytes_do_no_harm() {
    let mut rng = Rng(5);
    for _ in 0..STATES * 10 {
        let len = rng.index(600);
        let mut bytes = rng.bytes(len);
        if let Some(first) = bytes.first_mut() {
            *first = STATE_VERSION;
        }
        let _ = ReplicaState::decode(&bytes);
    }
}

/// Protects from a newer replica's state that an older program reads as something else.
#[test]
fn another_version_is_refused_with_both_named() {
    let mut bytes = Rng(6).state().encode();
    bytes[0] = STATE_VERSION + 1;
    let error = ReplicaState::decode(&bytes).expect_err("another version");
    assert_eq!(
        error,
        Malformed::Version { what: "a replica's state", found: 2, known: u16::from(STATE_VERSION) }
    );
    assert_eq!(error.to_string(), "a replica's state of version 2; this is version 1");
}
