use block::{ByteLen, ByteOffset, Position, Seq, Term};

use crate::entry::{Change, Zeroing};
use crate::history::Reign;
use crate::message::{AskId, Leaving, ReadFailure, ToReplica, ToTarget};
use crate::replica::LinkId;
use crate::store::{Extent, StoreError, StoreOp};
use crate::sums::Sums;
use crate::words::{Moment, SnapshotUid, Span};

use super::rig::{Rig, SIZE, spec, write};

fn left(rig: &Rig) -> Option<(u64, Leaving)> {
    rig.sent.iter().find_map(|(_, body)| match body {
        ToTarget::Left { at, reason } => Some((at.0, reason.clone())),
        _ => None,
    })
}

/// An ack above an unanswered entry would count a write that can still fail.
#[test]
fn held_counts_only_over_a_prefix() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![write(0, 1)]);
    rig.answer();
    rig.sent.clear();
    rig.entries(1, 5, 3, vec![write(1, 1), write(2, 1), write(3, 1)]);
    rig.answer_last();
    rig.answer_last();
    assert_eq!(rig.acked(), None);
    rig.answer_last();
    assert_eq!(rig.acked(), Some((5, 2)));
}

/// Protects from an ack for every single entry.
#[test]
fn answers_that_came_together_are_one_ack() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![write(0, 1)]);
    rig.answer();
    rig.sent.clear();
    rig.entries(1, 5, 3, (0..20).map(|n| write(n, 1)).collect());
    rig.answer_together();
    let acks = rig.sent.iter().filter(|(_, body)| matches!(body, ToTarget::Ack { .. })).count();
    assert_eq!((acks, rig.acked()), (1, Some((22, 2))));
}

#[test]
fn a_failure_among_answers_that_came_together_is_where_it_was() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.store.refuse = Some((Seq(4), StoreError::NoSpace, false));
    rig.entries(1, 5, 2, vec![write(0, 1), write(1, 2), write(2, 3), Change::Flush]);
    rig.answer_together();
    rig.answer();
    assert_eq!(left(&rig), Some((4, Leaving::NoSpace)));
    assert_eq!(rig.acked(), Some((3, 3)));
}

/// A flush makes durable what was given to the store before it, not what came since.
#[test]
fn durable_is_what_was_given_before_the_flush() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![write(0, 1), Change::Flush]);
    rig.answer_first(); // the mark
    let flush = rig.answers.len();
    rig.entries(1, 5, 4, vec![write(1, 1)]);
    assert!(rig.answers.len() > flush);
    rig.answer();
    assert_eq!(rig.acked(), Some((4, 3)));
    rig.store.cut_power();
    assert_eq!(rig.store.byte(0), 1);
}

#[test]
fn one_flush_serves_a_batch() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.store.log.clear();
    rig.entries(1, 5, 2, vec![Change::Flush, Change::Points(vec![1]), Change::Close]);
    rig.answer();
    let flushes = rig.store.log.iter().filter(|op| matches!(op, StoreOp::Flush)).count();
    assert_eq!((flushes, rig.acked()), (1, Some((4, 4))));
    let shared = rig.durable_state().shared;
    assert_eq!((shared.points, shared.closed), (vec![1], Seq(4)));
    assert_eq!(shared.reigns.list(), [Reign { term: Term(5), first: Seq(1) }]);
}

#[test]
fn without_space_it_leaves_where_it_failed_and_has_everything_below() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.store.refuse = Some((Seq(4), StoreError::NoSpace, false));
    let points = Change::Points(vec![7]);
    rig.entries(1, 5, 2, vec![write(0, 1), write(1, 2), write(2, 3), points, write(3, 4)]);
    rig.answer();
    assert_eq!(left(&rig), Some((4, Leaving::NoSpace)));
    assert_eq!(rig.replica.position(), Position::new(5, 3));
    // The state is that of the position: the entry that changed it never took place.
    assert!(rig.replica.state().shared.points.is_empty());
    rig.sent.clear();
    rig.entries(1, 5, 7, vec![write(0, 9)]);
    rig.say(
        1,
        5,
        ToReplica::Read {
            id: AskId(1),
            of: crate::message::RoundPoint::Now,
            offset: ByteOffset(0),
            len: ByteLen(4096),
        },
    );
    rig.answer();
    assert_eq!(rig.acked(), None);
    let (_, body) = rig.sent.last().unwrap();
    assert!(
        matches!(body, ToTarget::ReadDone { result: Ok(_), .. }),
        "what it has may repair others"
    );
    // A new hello, and it is in the stream again.
    rig.store.refuse = None;
    rig.hello(2, 5);
    rig.answer();
    assert_eq!(rig.welcome().position, Position::new(5, 3));
    assert!(rig.welcome().shared.points.is_empty());
    rig.entries(2, 5, 4, vec![write(2, 3)]);
    rig.answer();
    assert_eq!(rig.acked(), Some((4, 3)));
}

#[test]
fn a_damaged_granule_under_a_partial_write_makes_it_leave_at_that_seq() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    let offset = ByteOffset(512);
    rig.store.refuse = Some((Seq(3), StoreError::Damaged { offset }, true));
    rig.entries(1, 5, 2, vec![write(0, 1), write(1, 2), write(2, 3)]);
    // The answers behind come first; nothing is said before all are in.
    rig.answer_first();
    while rig.answers.len() > 1 {
        rig.answer_last();
        assert_eq!(left(&rig), None);
    }
    rig.answer();
    assert_eq!(left(&rig), Some((3, Leaving::Damaged { offset })));
}

#[test]
fn a_busy_store_gets_the_same_entries_again_in_order() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.store.refuse = Some((Seq(3), StoreError::Busy, true));
    rig.entries(1, 5, 2, vec![write(0, 1), Change::Points(vec![7]), write(2, 3), Change::Flush]);
    rig.answer();
    assert_eq!(rig.replica.position(), Position::new(5, 2));
    assert!(rig.replica.durable() < Seq(3), "a flush before the second try has nothing of it");
    rig.tick_after(Span::millis(100));
    rig.answer();
    assert_eq!(rig.acked(), Some((5, 5)));
    assert_eq!(left(&rig), None);
    assert_eq!(rig.durable_state().shared.points, [7]);
}

#[test]
fn a_gap_or_bytes_that_are_not_what_was_sent_end_the_connection() {
    let wrong = || match write(0, 1) {
        Change::Write { offset, data, .. } => {
            let sums = Sums::of(ByteLen(4096), offset, &[7; 4096]);
            Change::Write { offset, data, sums }
        }
        other => other,
    };
    for (first, change) in [(3, write(0, 1)), (1, write(0, 1)), (2, wrong())] {
        let mut rig = Rig::new();
        rig.reign(1, 5, 1);
        rig.entries(1, 5, first, vec![change]);
        rig.answer();
        assert_eq!(rig.dropped, [LinkId(1)]);
        assert_eq!(rig.store.facts().position, Position::new(5, 1));
    }
}

#[test]
fn entries_before_the_welcome_do_nothing() {
    let mut rig = Rig::new();
    rig.hello(1, 5);
    rig.entries(1, 5, 1, vec![Change::Flush]);
    rig.answer();
    assert_eq!(rig.replica.position(), Position::default());
}

/// A tail that is undone must not have taken away what the winner still has.
#[test]
fn a_snapshot_goes_only_when_its_deletion_is_durable_on_a_quorum() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    let uid = spec(1).uid;
    rig.entries(1, 5, 2, vec![Change::Snapshot(spec(1)), Change::DeleteSnapshot(uid)]);
    rig.answer();
    let snapshots = |rig: &Rig| rig.store.facts().snapshots.len();
    for (settled, there) in [(2, 1), (3, 0)] {
        rig.say(1, 5, ToReplica::Renew { sent: Moment(1), settled: Seq(settled) });
        rig.answer();
        assert_eq!((snapshots(&rig), rig.replica.snapshots().len()), (there, there));
    }
    assert!(rig.state().shared.doomed.is_empty());
    // The crash between the two: the mark is there, the snapshot is not.
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![Change::Snapshot(spec(1)), Change::DeleteSnapshot(uid)]);
    rig.answer();
    rig.say(1, 5, ToReplica::Renew { sent: Moment(1), settled: Seq(3) });
    let mut rig = rig.restart(1);
    assert_eq!((snapshots(&rig), rig.state().shared.doomed.len()), (0, 1));
    rig.hello(2, 5);
    rig.answer();
    rig.say(2, 5, ToReplica::Renew { sent: Moment(1), settled: Seq(3) });
    rig.answer();
    assert!(rig.state().shared.doomed.is_empty());
}

#[test]
fn the_copy_is_larger_before_the_sequence_says_so() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    let size = ByteLen(2 * SIZE);
    rig.entries(1, 5, 2, vec![write(0, 1), Change::Resize { size }, write(70, 2)]);
    rig.answer();
    assert_eq!(rig.acked(), Some((4, 4)));
    assert_eq!((rig.state().shared.size, rig.store.facts().size), (size, size));
    let refused = StoreError::Refused { reason: "no".to_owned() };
    rig.store.refuse_op = Some((|op| matches!(op, StoreOp::Grow { .. }), refused));
    rig.entries(1, 5, 5, vec![Change::Resize { size: ByteLen(4 * SIZE) }, write(0, 3)]);
    rig.answer();
    assert_eq!(left(&rig), Some((5, Leaving::Failed { reason: "no".to_owned() })));
    assert_eq!(rig.state().shared.size, size);
}

#[test]
fn snapshots_zeroes_rollbacks_and_reads_reach_the_store() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    let to = spec(1).uid;
    let zero = Change::Zero { offset: ByteOffset(0), len: ByteLen(4096), how: Zeroing::Discard };
    rig.entries(1, 5, 2, vec![write(0, 7), Change::Snapshot(spec(1)), zero]);
    rig.answer();
    assert_eq!(rig.store.byte(0), 0);
    rig.entries(1, 5, 5, vec![Change::Rollback { to }]);
    rig.say(
        1,
        5,
        ToReplica::Read {
            id: AskId(1),
            of: crate::message::RoundPoint::Now,
            offset: ByteOffset(0),
            len: ByteLen(4096),
        },
    );
    rig.answer();
    let read = rig.sent.iter().find_map(|(_, body)| match body {
        ToTarget::ReadDone { result: Ok(data), .. } => Some(data[0]),
        _ => None,
    });
    assert_eq!(read, Some(7));
    let [snapshot] = rig.replica.snapshots() else { panic!("one snapshot") };
    assert_eq!((snapshot.uid, snapshot.position), (SnapshotUid([1; 16]), Position::new(5, 3)));
}

#[test]
fn headroom_is_what_is_left_of_the_credit_and_is_filled_up() {
    let mut rig = Rig::new();
    rig.answer();
    rig.hello(1, 5);
    rig.answer();
    assert_eq!(rig.welcome().headroom, ByteLen(1 << 20));
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![write(0, 1)]);
    rig.answer();
    let (_, last) = rig.sent.last().unwrap();
    let expected = ByteLen((1 << 20) - 5100);
    assert!(matches!(last, ToTarget::Ack { headroom, .. } if *headroom == expected));
    rig.store.log.clear();
    rig.entries(1, 5, 3, (0..110).map(|_| write(0, 1)).collect());
    rig.answer();
    assert!(rig.log_has(|op| matches!(op, StoreOp::Credit { .. })));
    let (_, last) = rig.sent.last().unwrap();
    assert!(matches!(last, ToTarget::Ack { headroom, .. } if headroom.0 > 1 << 19));
}

#[test]
fn a_store_with_less_space_gives_less_credit() {
    let mut rig = Rig::new();
    rig.answer();
    let large = |op: &StoreOp| matches!(op, StoreOp::Credit { bytes } if bytes.0 > 300_000);
    rig.store.refuse_op = Some((large, StoreError::NoSpace));
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, (0..110).map(|_| write(0, 1)).collect());
    rig.answer();
    let headroom = rig.replica.credit.headroom();
    assert!(headroom.0 > 0 && headroom.0 <= 1 << 19, "{headroom}");
}

/// Protects from a pool whose last part is written at what one grant in a second allows.
#[test]
fn what_a_store_with_less_space_gave_is_filled_up_without_a_pause() {
    let mut rig = Rig::new();
    let large = |op: &StoreOp| matches!(op, StoreOp::Credit { bytes } if bytes.0 > 300_000);
    rig.store.refuse_op = Some((large, StoreError::NoSpace));
    rig.answer();
    rig.reign(1, 5, 1);
    for round in 0..20 {
        rig.entries(1, 5, 2 + round * 20, (0..20).map(|_| write(0, 1)).collect());
        rig.answer();
        let headroom = rig.replica.credit.headroom();
        assert!(headroom.0 > 100_000, "{headroom} after {round} rounds");
    }
}

/// Protects from a store that is asked in every turn though it has nothing.
#[test]
fn a_store_that_has_nothing_is_left_in_peace() {
    let mut rig = Rig::new();
    rig.answer();
    rig.reign(1, 5, 1);
    let any = |op: &StoreOp| matches!(op, StoreOp::Credit { .. });
    rig.store.refuse_op = Some((any, StoreError::NoSpace));
    rig.entries(1, 5, 2, (0..110).map(|_| write(0, 1)).collect());
    rig.answer();
    rig.store.log.clear();
    for round in 0..20 {
        rig.entries(1, 5, 112 + round, vec![write(0, 1)]);
        rig.answer();
    }
    assert!(!rig.log_has(any));
}

#[test]
fn what_is_allocated_is_asked_of_the_store_and_told() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![write(1, 7)]);
    let ask = |id| ToReplica::Extents { id: AskId(id), offset: ByteOffset(0), len: ByteLen(12288) };
    rig.say(1, 5, ask(1));
    rig.answer();
    let told = |rig: &Rig| {
        rig.sent.iter().rev().find_map(|(_, body)| match body {
            ToTarget::ExtentsDone { id, result } => Some((id.0, result.clone())),
            _ => None,
        })
    };
    let extent = |len, has_data| Extent { len: ByteLen(len), has_data };
    let found = vec![extent(4096, false), extent(4096, true), extent(4096, false)];
    assert_eq!(told(&rig), Some((1, Ok(found))));
    let offset = ByteOffset(4096);
    for (error, failure) in [
        (StoreError::Damaged { offset }, ReadFailure::Damaged { offset }),
        (StoreError::Busy, ReadFailure::Busy),
        (StoreError::Failed { reason: "no".to_owned() }, ReadFailure::Failed),
    ] {
        rig.store.refuse_op = Some((|op| matches!(op, StoreOp::Extents { .. }), error));
        rig.say(1, 5, ask(2));
        rig.answer();
        assert_eq!(told(&rig), Some((2, Err(failure))));
    }
}
