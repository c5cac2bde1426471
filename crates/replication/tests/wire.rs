//! Messages as frames: they come back as they were, and nothing else is believed.
#![forbid(unsafe_code)]
#[allow(dead_code, reason = "each test takes what it needs of it")]
mod random;

use block::{ByteLen, ByteOffset, Data, Position, Seq, Term};
use random::Rng;
use random::messages::{TO_REPLICA, TO_TARGET, reseal};
use replication::encoding::Malformed;
use replication::entry::{Change, Entry};
use replication::membership::{MEMBERS_MAX, Member, Membership, Voters};
use replication::message::{
    AskId, BATCH_MAX, FRAME_MAX, Fetched, ForReplica, ForTarget, Leaving, Piece, REASON_MAX,
    ToReplica, ToTarget, WIRE_VERSION, Welcome, decode_to_replica, decode_to_target,
    encode_to_replica, encode_to_target,
};
use replication::replica::ROUNDS_MAX;
use replication::state::{
    NAME_MAX, RESERVATIONS_MAX, SNAPSHOTS_FIT, SNAPSHOTS_MAX, SnapshotEntry, SnapshotSpec,
};
use replication::store::Content;
use replication::words::{Incarnation, ReplicaId, SnapshotUid};

const EACH: u64 = 200;
const HEAD: usize = 32;
const SUM_AT: usize = 8;

/// What was read is what was sent: the same words, and the same bytes when it is sent again.
#[test]
fn every_message_comes_back_as_it_was() {
    let mut rng = Rng(1);
    for kind in (0..TO_REPLICA).flat_map(|kind| (0..EACH).map(move |_| kind)) {
        let message = rng.for_replica(kind);
        let frame = encode_to_replica(&message).to_bytes();
        let back = decode_to_replica(&frame).expect("what was encoded can be decoded");
        assert_eq!(format!("{back:?}"), format!("{message:?}"));
        assert_eq!(encode_to_replica(&back).to_bytes(), frame);
        assert!(decode_to_target(&frame).is_err(), "it is not for a target");
    }
    for kind in (0..TO_TARGET).flat_map(|kind| (0..EACH).map(move |_| kind)) {
        let message = rng.for_target(kind);
        let frame = encode_to_target(&message).to_bytes();
        let back = decode_to_target(&frame).expect("what was encoded can be decoded");
        assert_eq!(format!("{back:?}"), format!("{message:?}"));
        assert_eq!(encode_to_target(&back).to_bytes(), frame);
        assert!(decode_to_replica(&frame).is_err(), "it is not for a replica");
    }
}

fn write(seq: u64, byte: u8, len: usize) -> Entry {
    let data = Data::copy_of(&vec![byte; len]);
    Entry { seq: Seq(seq), change: Change::write(ByteLen(4096), ByteOffset(0), data) }
}

fn entries(list: Vec<Entry>) -> ForReplica {
    ForReplica { term: Term(7), body: ToReplica::Entries(list) }
}

#[test]
fn every_write_has_its_own_bytes_where_direct_io_wants_them() {
    let sent = vec![write(1, 1, 4096), write(2, 2, 512), write(3, 3, 8192)];
    let frame = encode_to_replica(&entries(sent)).to_bytes();
    let back = decode_to_replica(&frame).expect("a good frame");
    let ToReplica::Entries(back) = back.body else { panic!("entries were sent") };
    for (entry, len) in back.iter().zip([4096, 512, 8192]) {
        let Change::Write { offset, data, sums } = &entry.change else { panic!("writes") };
        assert_eq!(data.len(), len);
        assert!(data.iter().all(|byte| u64::from(*byte) == entry.seq.0));
        assert!(sums.are_of(*offset, data));
        assert!(data.is_aligned(512));
    }
}

/// Protects from a piece of an import that was changed on its way and becomes a volume's content.
#[test]
fn damaged_data_of_a_piece_is_found() {
    let content = Content::Bytes(Data::copy_of(&[5; 4096]));
    let piece = Piece { offset: ByteOffset(0), changed: Seq(3), content };
    let import = ToReplica::Import { pieces: vec![piece.clone()], progress: ByteOffset(4096) };
    let mut frame = encode_to_replica(&ForReplica { term: Term(1), body: import }).to_bytes();
    *frame.last_mut().expect("a byte") ^= 1;
    let what = "data does not match its checksum";
    assert_eq!(decode_to_replica(&frame).expect_err("damage"), Malformed::Field { what });

    let fetched = Fetched { pieces: vec![piece], through: ByteOffset(4096) };
    let done = ToTarget::Fetched { id: AskId(1), result: Ok(fetched) };
    let read = ToTarget::ReadDone { id: AskId(1), result: Ok(Data::copy_of(&[5; 512])) };
    for body in [done, read] {
        let mut frame = encode_to_target(&ForTarget { term: Term(1), body }).to_bytes();
        *frame.last_mut().expect("a byte") ^= 1;
        assert_eq!(decode_to_target(&frame).expect_err("damage"), Malformed::Field { what });
    }
}

/// The checksum of a write is made where its bytes enter, and travels with them to the store.
#[test]
fn damaged_data_of_a_write_contradicts_the_checksum_that_came_with_it() {
    let mut frame = encode_to_replica(&entries(vec![write(1, 1, 512)])).to_bytes();
    *frame.last_mut().expect("a byte") ^= 1;
    let ToReplica::Entries(back) = decode_to_replica(&frame).expect("left to the replica").body
    else {
        panic!("entries were sent")
    };
    let Change::Write { offset, data, sums } = &back[0].change else { panic!("a write") };
    assert!(!sums.are_of(*offset, data));
}

#[test]
fn a_part_of_a_frame_is_no_frame() {
    let mut rng = Rng(2);
    for _ in 0..60 {
        let frame = rng.frame();
        let step = 1 + frame.len() / 500;
        for len in (0..frame.len()).step_by(step) {
            let mut part = frame[..len].to_vec();
            assert!(decode_to_replica(&part).is_err() && decode_to_target(&part).is_err());
            // Also if it says that this is all of it.
            if let Some(told) = part.get_mut(..4) {
                told.copy_from_slice(&u32::try_from(len).expect("short").to_le_bytes());
            }
            reseal(&mut part);
            let _ = (decode_to_replica(&part), decode_to_target(&part));
        }
    }
}

#[test]
fn a_flipped_bit_outside_of_the_data_is_found() {
    let mut rng = Rng(3);
    for _ in 0..3000 {
        let frame = rng.frame();
        let meta = u32::from_le_bytes(frame[20..24].try_into().expect("four bytes"));
        let covered = HEAD + usize::try_from(meta).expect("short");
        let mut damaged = frame.clone();
        let at = rng.index(covered);
        damaged[at] ^= 1 << rng.below(8);
        let refused = decode_to_replica(&damaged).is_err() && decode_to_target(&damaged).is_err();
        assert!(refused, "byte {at} of {covered}");
    }
}

/// Behind a checksum that is right, everything is either refused or can be sent again as it is.
#[test]
fn a_forged_frame_is_refused_or_another_message() {
    let mut rng = Rng(4);
    for _ in 0..30_000 {
        let mut frame = rng.frame();
        for _ in 0..=rng.below(3) {
            rng.damage(&mut frame);
        }
        reseal(&mut frame);
        if let Ok(message) = decode_to_replica(&frame) {
            assert_eq!(encode_to_replica(&message).to_bytes(), frame);
        }
        if let Ok(message) = decode_to_target(&frame) {
            assert_eq!(encode_to_target(&message).to_bytes(), frame);
        }
    }
}

/// Protects from two versions that talk past each other while a cluster is upgraded.
#[test]
fn another_version_is_refused_with_both_named() {
    let mut frame =
        encode_to_replica(&ForReplica { term: Term(1), body: ToReplica::Recovered }).to_bytes();
    frame[6..8].copy_from_slice(&(WIRE_VERSION + 6).to_le_bytes());
    // Whatever the rest of it looks like by then.
    frame[SUM_AT..].fill(0xee);
    let error = decode_to_replica(&frame).expect_err("another version");
    let (found, known) = (WIRE_VERSION + 6, WIRE_VERSION);
    assert_eq!(error, Malformed::Version { what: "a message", found, known });
    assert_eq!(error.to_string(), "a message of version 8; this is version 2");
    let what = "this is no frame: another magic number";
    assert_eq!(
        decode_to_target(&[32; 64]).expect_err("no frame"),
        Malformed::Field { what: "length of a frame" }
    );
    let mut other = [0; 64];
    other[0] = 64;
    assert_eq!(decode_to_target(&other).expect_err("no frame"), Malformed::Field { what });
}

/// Protects from four bytes that make a replica ask for all memory.
#[test]
fn a_list_is_not_longer_than_its_frame() {
    let mut frame = encode_to_replica(&entries(vec![write(1, 1, 512)])).to_bytes();
    frame[HEAD..HEAD + 4].copy_from_slice(&0x3f_ffff_u32.to_le_bytes());
    reseal(&mut frame);
    let error = decode_to_replica(&frame).expect_err("too many");
    assert_eq!(error, Malformed::Field { what: "entries" });
}

/// Protects from a batch of entries that is legal and yet has no frame.
#[test]
fn entries_within_their_bound_fit_a_frame() {
    let member = Member { replica: ReplicaId(1), incarnation: Incarnation(1) };
    let voters = Voters::of(&[member; MEMBERS_MAX]);
    let name = "n".repeat(NAME_MAX);
    for change in [
        Change::Flush,
        Change::Reservations(vec![1; RESERVATIONS_MAX]),
        Change::Snapshot(SnapshotSpec { uid: SnapshotUid([1; 16]), name, created: 1 }),
        Change::Membership(Membership { version: 1, voters: voters.clone(), next: Some(voters) }),
        write(1, 1, 512).change,
        write(1, 1, 1 << 20).change,
    ] {
        let count = BATCH_MAX / change.bytes();
        let all = (0..count).map(|seq| Entry { seq: Seq(seq), change: change.clone() }).collect();
        let frame = encode_to_replica(&entries(all)).to_bytes();
        assert!(frame.len() <= FRAME_MAX);
    }
}

#[test]
fn a_long_reason_is_cut_between_letters() {
    let reason = Leaving::Failed { reason: "ü".repeat(REASON_MAX) };
    let left = ToTarget::Left { at: Seq(1), reason };
    let frame = encode_to_target(&ForTarget { term: Term(1), body: left }).to_bytes();
    let back = decode_to_target(&frame).expect("a good frame");
    let ToTarget::Left { reason: Leaving::Failed { reason }, .. } = back.body else {
        panic!("it left")
    };
    assert_eq!(reason, "ü".repeat(REASON_MAX / 2));
}

/// Protects from a replica whose snapshots do not fit its welcome: its node would stop with every
/// hello.
#[test]
fn as_many_snapshots_as_there_may_be_fit_a_frame_and_more_are_refused() {
    let snapshot = |number: usize| SnapshotEntry {
        uid: SnapshotUid([1; 16]),
        name: format!("{number:0width$}", width = NAME_MAX),
        created: 1,
        position: Position::new(1, 1),
    };
    let welcome = |count: usize| {
        let welcome = Welcome { snapshots: (0..count).map(snapshot).collect(), ..Rng(1).welcome() };
        let body = ToTarget::Welcome(Box::new(welcome));
        encode_to_target(&ForTarget { term: Term(1), body }).to_bytes()
    };
    const { assert!(SNAPSHOTS_MAX <= SNAPSHOTS_FIT) };
    let whole = decode_to_target(&welcome(SNAPSHOTS_FIT)).expect("it fits");
    assert!(matches!(whole.body, ToTarget::Welcome(it) if it.snapshots.len() == SNAPSHOTS_FIT));
    let error =
        decode_to_target(&welcome(SNAPSHOTS_FIT + 1)).expect_err("it could not be passed on");
    assert_eq!(error, Malformed::Field { what: "more snapshots than a volume can have" });
}

/// Protects a target from a list of rounds that fills a frame: what it keeps of each replica is compared with it.
#[test]
fn a_welcome_with_more_rounds_than_a_replica_keeps_is_refused() {
    let welcome = |count: u64| {
        let rounds = (1..=count).map(|seq| Position::new(1, seq)).collect();
        let body = ToTarget::Welcome(Box::new(Welcome { rounds, ..Rng(1).welcome() }));
        encode_to_target(&ForTarget { term: Term(1), body }).to_bytes()
    };
    let whole = decode_to_target(&welcome(ROUNDS_MAX as u64)).expect("as many as it may keep");
    assert!(matches!(whole.body, ToTarget::Welcome(it) if it.rounds.len() == ROUNDS_MAX));
    for count in [ROUNDS_MAX as u64 + 1, 200_000] {
        let error = decode_to_target(&welcome(count)).expect_err("too many");
        assert_eq!(error, Malformed::Field { what: "more rounds than a replica keeps" });
    }
}
