//! Space (Q7): an entry that may find none gets no seq, and what frees space always does.
use block::{ByteLen, ByteOffset};

use super::served;
use crate::client::{Command, CommandAnswer, CommandError, Request, RequestId};
use crate::entry::{Change, Zeroing};
use crate::state::SnapshotSpec;
use crate::target::tests::stage::{Stage, write};
use crate::target::{Event, Output};
use crate::words::{SnapshotUid, Span};

const SNAPSHOT: SnapshotUid = SnapshotUid([7; 16]);

fn zero(how: Zeroing) -> Request {
    Request::Zero { offset: ByteOffset(0), len: ByteLen(65536), how, fua: false }
}

fn command(stage: &mut Stage, id: u64, command: Command) -> Option<Result<(), CommandError>> {
    stage.step(Event::Command { id: RequestId(id), command });
    stage.heard.iter().find_map(|output| match output {
        Output::Answer { id: it, result } if *it == RequestId(id) => Some(match result {
            Ok(CommandAnswer::Done { .. }) => Ok(()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.clone()),
        }),
        _ => None,
    })
}

fn snapshot() -> Command {
    Command::Snapshot(SnapshotSpec { uid: SNAPSHOT, name: "monday".into(), created: 0 })
}

/// Pools of all replicas become full: none has anything left for the stream.
fn fill(stage: &mut Stage, replicas: u64) {
    for replica in 1..=replicas {
        stage.fake(replica).headroom = 0;
        let ack = stage.ack_of(replica);
        stage.step(ack);
    }
}

/// Three equally full pools and a snapshot: `fstrim` must not stop the volume for good. No pool
/// could apply a discard below a snapshot, and nothing behind it would ever be committed, not even
/// the deletion of the snapshot, which would help.
#[test]
fn on_full_pools_a_discard_below_a_snapshot_is_refused_and_the_snapshot_can_be_deleted() {
    let mut stage = served(3);
    assert_eq!(command(&mut stage, 5, snapshot()), Some(Ok(())));
    fill(&mut stage, 3);
    let last = stage.held(1);
    stage.ask(1, 10, zero(Zeroing::Discard));
    assert_eq!(stage.answer(10), None, "credit may be topped up");
    stage.pass(Span::secs(3));
    assert_eq!(stage.answer(10).as_deref(), Some("the pools of too many replicas are full"));
    assert_eq!(stage.held(1), last, "it got no seq");
    let gone = command(&mut stage, 6, Command::DeleteSnapshot(SNAPSHOT));
    assert_eq!(gone, Some(Ok(())), "what frees space does not wait");
    // Once the deletion is settled and its snapshot forgotten, discards free what they cover.
    stage.pass(Span::secs(2));
    stage.ask(1, 11, zero(Zeroing::Discard));
    assert_eq!(stage.answer(11).as_deref(), Some("ok"));
}

#[test]
fn on_full_pools_discards_of_a_volume_without_snapshots_empty_it() {
    let mut stage = served(3);
    fill(&mut stage, 3);
    stage.ask(1, 10, zero(Zeroing::Discard));
    assert_eq!(stage.answer(10).as_deref(), Some("ok"));
    stage.ask(1, 11, Request::Flush);
    assert_eq!(stage.answer(11).as_deref(), Some("ok"));
}

/// Zeroes that are written may have to be stored, and the blocks of a clone are its origin's too.
#[test]
fn on_full_pools_zeroes_and_discards_of_a_clone_are_refused() {
    for (is_clone, how) in [(false, Zeroing::Zeroes), (true, Zeroing::Discard)] {
        let mut stage = Stage::new(3);
        for replica in 1..=3 {
            stage.fake(replica).is_clone = is_clone;
        }
        stage.take_over(2);
        stage.pass(Span::secs(4));
        stage.log_in(1, 1, 1, None);
        fill(&mut stage, 3);
        stage.ask(1, 10, zero(how));
        stage.pass(Span::secs(3));
        assert_eq!(stage.answer(10).as_deref(), Some("the pools of too many replicas are full"));
    }
}

#[test]
fn on_full_pools_growth_and_rollbacks_are_refused() {
    let mut stage = served(3);
    assert_eq!(command(&mut stage, 5, snapshot()), Some(Ok(())));
    fill(&mut stage, 3);
    let last = stage.held(1);
    let grown = command(&mut stage, 6, Command::Resize { size: ByteLen(1 << 40) });
    assert_eq!(grown, Some(Err(CommandError::NoSpace)));
    let back = command(&mut stage, 7, Command::Rollback { to: SNAPSHOT });
    assert_eq!(back, Some(Err(CommandError::NoSpace)));
    assert_eq!(stage.held(1), last, "neither got a seq");
}

/// Protects from an entry that gets its seq while no replica can say what it has left, and that
/// all of them refuse when they are back.
#[test]
fn without_a_quorum_nothing_that_takes_space_gets_a_seq() {
    let mut stage = served(3);
    stage.cut_off(2);
    stage.cut_off(3);
    let made = command(&mut stage, 5, snapshot());
    assert!(matches!(made, Some(Err(CommandError::NotServing { .. }))), "{made:?}");
    let grown = command(&mut stage, 6, Command::Resize { size: ByteLen(1 << 40) });
    assert!(matches!(grown, Some(Err(CommandError::NotServing { .. }))), "{grown:?}");
}

/// One full pool of three: its replica is passed over, the others have credit.
#[test]
fn a_quorum_with_credit_is_enough() {
    let mut stage = served(3);
    assert_eq!(command(&mut stage, 5, snapshot()), Some(Ok(())));
    stage.fake(3).headroom = 0;
    let ack = stage.ack_of(3);
    stage.step(ack);
    stage.ask(1, 10, zero(Zeroing::Discard));
    stage.ask(1, 11, write(1));
    assert_eq!(stage.answer(10).as_deref(), Some("ok"));
    assert_eq!(stage.answer(11).as_deref(), Some("ok"));
    let zeros = |entry: &crate::entry::Entry| matches!(entry.change, Change::Zero { .. });
    assert!(stage.fake(1).entries.iter().any(zeros));
}

/// Protects from a list of snapshots that does not fit the message in which a replica tells it.
#[test]
fn a_volume_has_a_bounded_number_of_snapshots() {
    let mut stage = served(3);
    for number in 0..crate::state::SNAPSHOTS_MAX as u64 {
        let mut uid = [1; 16];
        uid[..8].copy_from_slice(&number.to_le_bytes());
        let spec = SnapshotSpec { uid: SnapshotUid(uid), name: format!("s{number}"), created: 0 };
        stage.step(Event::Command { id: RequestId(number), command: Command::Snapshot(spec) });
    }
    let more = command(&mut stage, 1 << 20, snapshot());
    assert_eq!(more, Some(Err(CommandError::TooManySnapshots)));
}
