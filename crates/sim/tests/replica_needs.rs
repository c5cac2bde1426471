//! What replication of one volume needs of the engine: operations without a place in the sequence,
//! order without gaps, histories that are undone, and stamps that are carried over as they are.
mod hand;

use block::{ByteLen, ByteOffset, Data, Position};
use engine::{
    Op, OpError, Reply, Retry, STATE_MAX, SnapshotId, SnapshotSpec, SnapshotsOfDeleted, Subject,
    VolumeId, VolumeInfo, Zeroing,
};
use hand::{GRANULE, Hand, bytes_of};

const POOL: u64 = 16 << 20;

fn info(hand: &Hand, volume: VolumeId) -> VolumeInfo {
    let listed = hand.pool.volumes();
    listed.into_iter().find(|info| info.id == volume).expect("the volume is there")
}

fn spec(name: &str) -> SnapshotSpec {
    SnapshotSpec { name: name.into(), uid: [2; 16], internal: true, created: 0 }
}

/// A snapshot that takes no place in the sequence.
fn point(hand: &mut Hand, volume: VolumeId, name: &str) -> SnapshotId {
    match hand.run(Op::Snapshot { volume, position: None, spec: spec(name) }) {
        Reply::Snapshotted(snapshot) => snapshot,
        other => panic!("a snapshot ended as {other:?}"),
    }
}

fn set_state(hand: &mut Hand, volume: VolumeId, state: &[u8]) {
    hand.run(Op::SetState { volume, position: None, state: state.into() });
}

/// Protects from state, sizes and points that move a volume's position, or lose it in a replay.
#[test]
fn what_takes_no_place_in_the_sequence_leaves_the_position_alone() {
    let mut hand = Hand::new(POOL);
    let volume = hand.create(64);
    hand.write(volume, 1, 1);
    hand.write(volume, 2, 2);
    set_state(&mut hand, volume, b"two");
    hand.run(Op::Grow { volume, position: None, size: ByteLen(100 * GRANULE) });
    let first = point(&mut hand, volume, "first");
    let again = point(&mut hand, volume, "again");
    assert_eq!(info(&hand, volume).held, Position::new(1, 2));
    hand.write(volume, 99, 3);
    let second = point(&mut hand, volume, "second");
    for step in 0..3 {
        let found = info(&hand, volume);
        assert_eq!((found.held, found.size.0), (Position::new(1, 3), 100 * GRANULE), "{step}");
        assert_eq!(found.state, b"two");
        let at = [first, again, second].map(|snapshot| hand.position_of(snapshot).seq.0);
        assert_eq!(at, [2, 2, 3], "each is where its volume was");
        // Once from the journal, once from the pages of a checkpoint.
        hand = hand.killed(7);
        if step == 1 {
            hand.settle();
        }
    }
    hand.write(volume, 4, 4);
    assert_eq!(info(&hand, volume).held, Position::new(1, 4), "the sequence has no hole");
}

/// Protects from a point that is placed where its volume was when it was asked for, though what
/// was asked before it had not been done yet.
#[test]
fn what_takes_no_place_follows_all_that_was_submitted_before_it() {
    let mut hand = Hand::new(POOL);
    let volume = hand.create(64);
    hand.submit_write(volume, 1, 1);
    hand.submit_write(volume, 2, 2);
    let op = Op::Snapshot { volume, position: None, spec: spec("after two") };
    let taken = hand.submit(op);
    hand.submit_write(volume, 3, 3);
    let answers = hand.answers();
    let Some(Ok(Reply::Snapshotted(snapshot))) = answers.get(&taken) else { panic!("{answers:?}") };
    assert_eq!(hand.position_of(*snapshot), Position::new(1, 2));
    let hand = hand.killed(7);
    assert_eq!(hand.position_of(*snapshot), Position::new(1, 2));
}

/// Protects from a point of a history whose state is that of another.
#[test]
fn a_snapshot_keeps_the_state_of_its_position() {
    let mut hand = Hand::new(POOL);
    let volume = hand.create(64);
    let states: [&[u8]; 4] = [b"", b"first", &[7; STATE_MAX], b"last"];
    let mut taken = Vec::new();
    for state in states {
        set_state(&mut hand, volume, state);
        taken.push((hand.snapshot(volume), state));
    }
    set_state(&mut hand, volume, b"later");
    for step in 0..3 {
        let listed = hand.pool.snapshots();
        for (id, state) in &taken {
            let found = listed.iter().find(|info| info.id == *id).expect("it is listed");
            assert_eq!(found.state, *state, "{step}");
        }
        assert_eq!(info(&hand, volume).state, b"later");
        // Once from the journal, then from pages.
        hand = if step == 0 { hand.killed(1) } else { hand.checked() };
    }
    let clone = hand.clone_of(taken[1].0);
    assert!(info(&hand, clone).state.is_empty(), "a clone is another volume");
    hand.roll_back(volume, taken[1].0);
    assert_eq!(info(&hand, volume).state, b"later", "content goes back, the state does not");
}

/// A write of one sector in the middle of a granule: its old bytes are needed.
fn part_of(volume: VolumeId, seq: u64, granule: u64) -> Op {
    let (position, offset) = (Position::new(1, seq), ByteOffset(granule * GRANULE + 512));
    Op::Write { volume, position, offset, data: Data::copy_of(&[9; 512]) }
}

fn whole(volume: VolumeId, seq: u64, granule: u64, tag: u64) -> Op {
    let (position, offset) = (Position::new(1, seq), ByteOffset(granule * GRANULE));
    Op::Write { volume, position, offset, data: Data::copy_of(&bytes_of(tag)) }
}

/// Damages the stored copy of a granule that holds a tag nobody else has.
fn let_rot(hand: &mut Hand, tag: u64) {
    let disk = hand.pool.disk_mut();
    let whole = bytes_of(tag);
    let mut places = disk.written_sectors().filter(|at| disk.peek(*at, 4096) == whole);
    let place = places.next().expect("it is stored somewhere");
    assert!(places.next().is_none(), "it is stored once");
    drop(places);
    disk.flip(place, 1);
}

fn is_gap(answer: &Result<Reply, OpError>, seq: u64, at: u64) -> bool {
    let (asked, at) = (Position::new(1, seq), Position::new(1, at));
    match answer {
        Err(error @ OpError::Gap { asked: found, at: there }) => {
            *found == asked && *there == at && error.retry() == Retry::Later
        }
        _ => false,
    }
}

/// Protects from a volume that has something above a gap: a replica's content would be no prefix
/// of the history, and what it says of its position a lie.
#[test]
fn nothing_is_applied_above_a_gap() {
    let mut hand = Hand::new(POOL);
    let volume = hand.create(64);
    hand.write(volume, 5, 77);
    hand.settle();
    let_rot(&mut hand, 77);
    hand.pool.keep_order(volume, true).expect("it is there");
    let tail = |hand: &mut Hand| {
        let position = |seq| Some(Position::new(1, seq));
        [
            hand.submit(whole(volume, 4, 6, 4)),
            hand.submit(Op::Grow { volume, position: position(5), size: ByteLen(80 * GRANULE) }),
            hand.submit(Op::Snapshot { volume, position: position(6), spec: spec("six") }),
            // Within what growing brings, and over what the first one brings.
            hand.submit(part_of(volume, 7, 70)),
            hand.submit(part_of(volume, 8, 6)),
            hand.submit(Op::SetState { volume, position: position(9), state: vec![9] }),
            hand.submit(Op::Mark { volume, position: Position::new(1, 10) }),
        ]
    };
    let good = hand.submit(whole(volume, 2, 1, 2));
    let rotten = hand.submit(part_of(volume, 3, 5));
    let behind = tail(&mut hand);
    let answers = hand.answers();
    assert!(answers[&good].is_ok(), "{answers:?}");
    assert!(matches!(answers[&rotten], Err(OpError::Damaged { .. })), "{answers:?}");
    for (seq, id) in (4..).zip(behind) {
        assert!(is_gap(&answers[&id], seq, 2), "{seq}: {:?}", answers[&id]);
    }
    let found = info(&hand, volume);
    assert_eq!((found.held, found.size.0), (Position::new(1, 2), 64 * GRANULE));
    let beyond = hand.refused(part_of(volume, 3, 70));
    assert!(
        matches!(beyond, OpError::BeyondEnd { .. }),
        "the refused size left no trace: {beyond}"
    );
    assert!(hand.read(Subject::Volume(volume), 6) == bytes_of(0), "nothing came behind the gap");
    // The same seqs again, now with all of the granule.
    hand = hand.killed(3);
    hand.pool.keep_order(volume, true).expect("it is there");
    hand.submit(whole(volume, 3, 5, 3));
    tail(&mut hand);
    let answers = hand.answers();
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
    let found = info(&hand, volume);
    assert_eq!((found.held, found.size.0), (Position::new(1, 10), 80 * GRANULE));
    let mut merged = bytes_of(4);
    merged[512..1024].fill(9);
    assert!(hand.read(Subject::Volume(volume), 6) == merged, "on the bytes that came before it");
    let mut hand = hand.checked();
    assert!(hand.read(Subject::Volume(volume), 6) == merged);
}

/// Protects from a pool that was full for a moment and then took what came behind.
#[test]
fn a_write_that_found_no_space_is_a_gap_for_those_behind_it() {
    let mut hand = Hand::new(8 << 20);
    let volume = hand.create(64);
    let other = hand.create(1 << 16);
    hand.write(volume, 0, 1);
    let data = Data::copy_of(&vec![7; 64 << 10]);
    for seq in 1.. {
        let (position, offset) = (Position::new(1, seq), ByteOffset(seq << 16));
        let op = Op::Write { volume: other, position, offset, data: data.clone() };
        if let Err(error) = hand.pool.run(op) {
            assert!(matches!(error, OpError::NoSpace { .. }), "{error}");
            break;
        }
    }
    hand.pool.keep_order(volume, true).expect("it is there");
    // Discards and marks would fit: they may use the reserve.
    let (offset, len, how) = (ByteOffset(0), ByteLen(GRANULE), Zeroing::Discard);
    let submit = |hand: &mut Hand| {
        let big = Op::Write {
            volume,
            position: Position::new(1, 2),
            offset,
            data: Data::copy_of(&vec![7; 128 << 10]),
        };
        let position = Position::new(1, 3);
        [
            hand.submit(big),
            hand.submit(Op::Zero { volume, position, offset, len, how }),
            hand.submit(Op::Mark { volume, position: Position::new(1, 4) }),
        ]
    };
    let ids = submit(&mut hand);
    let answers = hand.answers();
    assert!(matches!(answers[&ids[0]], Err(OpError::NoSpace { .. })), "{answers:?}");
    assert!(is_gap(&answers[&ids[1]], 3, 1) && is_gap(&answers[&ids[2]], 4, 1), "{answers:?}");
    assert!(hand.read(Subject::Volume(volume), 0) == bytes_of(1), "it was not discarded");
    hand.delete(other, SnapshotsOfDeleted::Refuse);
    submit(&mut hand);
    let answers = hand.answers();
    assert!(answers.values().all(Result::is_ok), "there is space now: {answers:?}");
    assert_eq!(info(&hand, volume).held, Position::new(1, 4));
}

/// Protects from an order that cannot be left, and from one that takes what lies behind.
#[test]
fn order_can_be_asked_for_and_left_again() {
    let mut hand = Hand::new(POOL);
    let volume = hand.create(64);
    hand.write(volume, 0, 1);
    hand.pool.keep_order(volume, true).expect("it is there");
    for (seq, retry) in [(3, Retry::Later), (1, Retry::Never)] {
        let error = hand.refused(whole(volume, seq, 1, 1));
        assert!(matches!(error, OpError::Gap { .. }) && error.retry() == retry, "{error}");
    }
    let older = Op::Mark { volume, position: Position::new(0, 2) };
    let error = hand.refused(older);
    assert!(matches!(error, OpError::Gap { .. }) && error.retry() == Retry::Never, "{error}");
    set_state(&mut hand, volume, b"beside it");
    hand.run(Op::Mark { volume, position: Position::new(4, 2) });
    hand.pool.keep_order(volume, false).expect("it is there");
    let stale = hand.refused(whole(volume, 2, 1, 1));
    assert!(matches!(stale, OpError::NotAscending { .. }), "{stale}");
    hand.run(Op::Mark { volume, position: Position::new(4, 9) });
    let unknown = hand.pool.keep_order(VolumeId(999), true);
    assert!(matches!(unknown, Err(OpError::UnknownVolume { .. })), "{unknown:?}");
}
