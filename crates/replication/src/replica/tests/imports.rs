use block::{ByteLen, ByteOffset, Data, Position, Seq};

use crate::entry::Change;
use crate::history::{Reign, Reigns};
use crate::message::{AskId, Piece, RoundFailure, ToReplica, ToTarget};
use crate::replica::LinkId;
use crate::state::{ImportMark, SharedState, SnapshotEntry, SnapshotSpec};
use crate::store::{Content, StoreError, StoreOp};

use super::rig::{Rig, SIZE, spec, write};
use super::store::{GRANULE, GRANULE_LEN};

fn mark(seq: u64, since: u64) -> ImportMark {
    ImportMark { source: Position::new(6, seq), since: Seq(since) }
}

fn piece(granule: u64, seq: u64, byte: Option<u8>) -> Piece {
    let content = match byte {
        Some(byte) => Content::Bytes(Data::copy_of(&vec![byte; GRANULE_LEN])),
        None => Content::Zeros(ByteLen(GRANULE)),
    };
    Piece { offset: ByteOffset(granule * GRANULE), changed: Seq(seq), content }
}

/// At (5, 4), with a tail above 2 that the winner does not have; it follows term 6.
fn behind() -> Rig {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![Change::Snapshot(spec(1)), write(0, 1), Change::Snapshot(spec(2))]);
    rig.answer();
    rig.hello(2, 6);
    rig.answer();
    rig.sent.clear();
    rig
}

fn begin(rig: &mut Rig, mark: ImportMark, size: u64) -> Option<u64> {
    rig.say(2, 6, ToReplica::BeginImport { mark, size: ByteLen(size) });
    rig.answer();
    rig.sent.iter().rev().find_map(|(_, body)| match body {
        ToTarget::ImportBegun { kept } => {
            Some(kept.filter(|(of, _)| *of == mark).map_or(0, |(_, progress)| progress.0))
        }
        _ => None,
    })
}

fn import(rig: &mut Rig, pieces: Vec<Piece>, progress: u64) {
    let progress = ByteOffset(progress * GRANULE);
    rig.say(2, 6, ToReplica::Import { pieces, progress });
}

fn shared() -> Box<SharedState> {
    let reign = |term, first| Reign { term: block::Term(term), first: Seq(first) };
    let reigns = Reigns::new(vec![reign(5, 1), reign(6, 3)]).unwrap();
    let points = vec![9];
    Box::new(SharedState { size: ByteLen(2 * SIZE), reigns, points, ..SharedState::default() })
}

fn entry(n: u8, position: Position) -> SnapshotEntry {
    let SnapshotSpec { uid, name, created } = spec(n);
    SnapshotEntry { uid, name, created, position }
}

fn commit(rig: &mut Rig, snapshot: Option<SnapshotSpec>, snapshots: Vec<SnapshotEntry>) {
    let shared = shared();
    rig.say(2, 6, ToReplica::CommitImport { shared, snapshot, snapshots });
}

fn committed(rig: &Rig) -> Option<Position> {
    rig.sent.iter().find_map(|(_, body)| match body {
        ToTarget::Committed { position } => Some(*position),
        _ => None,
    })
}

fn users(rig: &Rig) -> Vec<(u8, Position)> {
    let mut all: Vec<_> =
        rig.store.facts().snapshots.iter().map(|e| (e.uid.0[0], e.position)).collect();
    all.sort();
    all
}

#[test]
fn an_import_changes_content_position_and_state_at_once() {
    let mut rig = behind();
    assert_eq!(begin(&mut rig, mark(9, 2), 2 * SIZE), Some(0));
    assert_eq!(rig.store.facts().size, ByteLen(2 * SIZE));
    rig.say(2, 6, ToReplica::OwnChanges { id: AskId(4), since: Seq(2), from: ByteOffset(0) });
    rig.answer();
    let Some((_, ToTarget::OwnChanged { ranges, next: None, .. })) = rig.sent.last() else {
        panic!("{:?}", rig.sent)
    };
    assert_eq!((ranges.len(), ranges[0].changed), (1, Seq(3)));
    import(&mut rig, vec![piece(0, 0, None), piece(5, 8, Some(5))], 6);
    import(&mut rig, vec![piece(100, 9, Some(6))], 128);
    rig.answer();
    assert!(
        matches!(rig.sent.last(), Some((_, ToTarget::Imported { progress })) if progress.0 == 128 * GRANULE)
    );
    // Until the commit nothing moves.
    assert_eq!((rig.store.byte(0), rig.store.facts().position), (1, Position::new(5, 4)));
    let listed = vec![entry(1, Position::new(5, 2)), entry(2, Position::new(6, 9))];
    commit(&mut rig, Some(spec(2)), listed);
    assert_eq!(committed(&rig), None);
    rig.answer();
    let source = Position::new(6, 9);
    assert_eq!(committed(&rig), Some(source));
    assert_eq!((rig.replica.position(), rig.replica.durable()), (source, Seq(9)));
    // The snapshot of the tail had the same uid, elsewhere.
    assert_eq!(users(&rig), [(1, Position::new(5, 2)), (2, source)]);
    assert!(rig.store.facts().internal.is_empty());
    let bytes = [0, 5, 100].map(|granule| rig.store.byte(granule * GRANULE));
    assert_eq!(bytes, [0, 5, 6]);
    let state = rig.durable_state();
    assert_eq!(state.shared, *shared());
    assert_eq!((state.import, state.pending), (None, None));
    assert_eq!(state.promise.term, block::Term(6), "its own part stays");
    // And it is in the stream.
    rig.entries(2, 6, 10, vec![Change::Flush]);
    rig.answer();
    assert_eq!(rig.acked(), Some((10, 10)));
}

/// A crash between adopting and the snapshot: the round was its boundary, so it has to be there
/// before anything else.
#[test]
fn a_crash_behind_the_adoption_is_finished_when_it_is_opened() {
    let mut rig = behind();
    begin(&mut rig, mark(9, 2), SIZE);
    import(&mut rig, vec![piece(0, 0, None)], 64);
    rig.answer();
    rig.store.refuse_op = Some((|op| matches!(op, StoreOp::Snapshot { .. }), StoreError::NoSpace));
    let at = Position::new(6, 9);
    commit(&mut rig, Some(spec(3)), vec![entry(3, at)]);
    rig.answer();
    assert!(
        rig.sent.iter().any(|(_, body)| matches!(
            body,
            ToTarget::ImportFailed { reason: RoundFailure::NoSpace }
        ))
    );
    assert_eq!(rig.dropped.last(), Some(&LinkId(2)), "the target's books are of before");
    let mut rig = rig.restart(1);
    assert_eq!(rig.store.facts().position, at);
    assert!(users(&rig).contains(&(3, at)));
    assert_eq!(rig.state().pending, None);
    assert_eq!(users(&rig).len(), users(&rig).iter().filter(|(_, it)| *it <= at).count());
    assert!(rig.store.facts().internal.is_empty(), "the base is of no use");
    rig.hello(2, 6);
    rig.answer();
    assert_eq!(rig.welcome().position, at);
    // And it is in the stream.
    rig.entries(2, 6, 10, vec![Change::Flush]);
    rig.answer();
    assert_eq!(rig.replica.position(), Position::new(6, 10));
}

/// Parts are sent ahead: behind one that failed the next must not be staged, or progress would say
/// that the failed one is there too.
#[test]
fn nothing_is_staged_behind_a_part_that_failed() {
    let mut rig = behind();
    begin(&mut rig, mark(9, 2), SIZE);
    rig.store.refuse_op = Some((|op| matches!(op, StoreOp::StageData { .. }), StoreError::NoSpace));
    import(&mut rig, vec![piece(0, 0, None)], 1);
    rig.answer();
    rig.store.refuse_op = None;
    import(&mut rig, vec![piece(5, 8, Some(5))], 6);
    rig.answer();
    assert!(!rig.sent.iter().any(|(_, body)| matches!(body, ToTarget::Imported { .. })));
    assert_eq!(rig.store.facts().staged, Some(0));
}

/// Parts may still wait for their turn when another round begins: they are of another moment than
/// its mark says, and must not be staged under it.
#[test]
fn parts_of_an_older_round_are_not_staged_under_a_newer_mark() {
    let mut rig = behind();
    begin(&mut rig, mark(9, 2), SIZE);
    // Both messages are there before the store answers anything.
    import(&mut rig, vec![piece(0, 3, Some(1))], 1);
    import(&mut rig, vec![piece(1, 3, Some(1))], 2);
    rig.say(2, 6, ToReplica::BeginImport { mark: mark(12, 2), size: ByteLen(SIZE) });
    rig.answer();
    let kept = rig.sent.iter().rev().find_map(|(_, body)| match body {
        ToTarget::ImportBegun { kept } => *kept,
        _ => None,
    });
    let (of, progress) = kept.expect("something was staged before");
    assert_eq!(of, mark(9, 2), "what is there is of the older round");
    assert_eq!(rig.state().import, Some(mark(9, 2)));
    assert!(progress.0 <= GRANULE, "the second part was refused: {progress:?}");
}

#[test]
fn the_same_import_goes_on_where_it_was() {
    let mut rig = behind();
    begin(&mut rig, mark(9, 2), SIZE);
    import(&mut rig, vec![piece(0, 0, None), piece(1, 8, Some(5))], 7);
    rig.answer();
    let mut rig = rig.restart(1);
    rig.hello(2, 6);
    rig.answer();
    assert_eq!(rig.welcome().import, Some((mark(9, 2), ByteOffset(7 * GRANULE))));
    assert_eq!(begin(&mut rig, mark(9, 2), SIZE), Some(7 * GRANULE));
    commit(&mut rig, None, Vec::new());
    rig.answer();
    assert_eq!((committed(&rig), rig.store.byte(GRANULE)), (Some(Position::new(6, 9)), 5));
    assert!(users(&rig).is_empty());
}

/// What is staged below the older progress is of the older moment until the new pass went over it:
/// the mark must not say otherwise at any crash.
#[test]
fn a_newer_point_begins_a_new_pass_and_its_mark_waits_for_the_first_part() {
    let mut rig = behind();
    begin(&mut rig, mark(9, 2), SIZE);
    import(&mut rig, vec![piece(1, 8, Some(5))], 40);
    rig.answer();
    assert_eq!(begin(&mut rig, mark(12, 2), SIZE), Some(0));
    assert_eq!(rig.state().import, Some(mark(9, 2)));
    assert_eq!(rig.store.facts().staged, Some(40 * GRANULE));
    // A part without pieces leaves nothing in the store.
    import(&mut rig, Vec::new(), 3);
    rig.answer();
    assert_eq!(rig.state().import, Some(mark(9, 2)));
    import(&mut rig, vec![piece(5, 11, Some(6)), piece(6, 12, Some(7))], 8);
    // Whatever a crash leaves: progress of the new pass before the mark, never the other way.
    while let Some((tag, result)) = rig.answers.pop_front() {
        rig.step(crate::replica::Event::Stored { tag, result });
        let (import, staged) = (rig.state().import, rig.store.facts().staged);
        assert!(import == Some(mark(9, 2)) || staged == Some(8 * GRANULE));
    }
    assert_eq!(rig.state().import, Some(mark(12, 2)));
    commit(&mut rig, None, Vec::new());
    rig.answer();
    assert_eq!(committed(&rig), Some(Position::new(6, 12)));
    assert_eq!((rig.store.byte(GRANULE), rig.store.byte(6 * GRANULE)), (5, 7));
}

/// What is staged cannot go back to an older moment; the target would believe that it had.
#[test]
fn an_older_point_or_a_larger_copy_drops_what_is_staged_and_the_connection() {
    for (mark, size) in [(mark(8, 2), SIZE), (mark(12, 2), 2 * SIZE)] {
        let mut rig = behind();
        rig.dropped.clear();
        begin(&mut rig, self::mark(9, 2), SIZE);
        import(&mut rig, vec![piece(1, 8, Some(5))], 40);
        rig.answer();
        rig.say(2, 6, ToReplica::BeginImport { mark, size: ByteLen(size) });
        rig.answer();
        assert_eq!(rig.dropped, [LinkId(2)]);
        rig.hello(3, 6);
        rig.answer();
        assert_eq!(rig.welcome().import, None);
        assert!(rig.store.facts().internal.is_empty());
    }
}

#[test]
fn another_common_position_begins_anew() {
    let mut rig = behind();
    begin(&mut rig, mark(9, 2), SIZE);
    import(&mut rig, vec![piece(1, 8, Some(5))], 40);
    rig.answer();
    assert_eq!(begin(&mut rig, mark(12, 1), SIZE), Some(0));
    assert_eq!((rig.store.facts().staged, rig.state().import), (Some(0), Some(mark(12, 1))));
    assert_eq!(rig.store.facts().internal.len(), 1);
}

#[test]
fn entries_are_not_taken_during_an_import_and_an_abandoned_one_leaves_nothing() {
    let mut rig = behind();
    begin(&mut rig, mark(9, 2), SIZE);
    rig.say(2, 6, ToReplica::AbandonImport);
    // Ordered behind it, on the content of before.
    assert_eq!(begin(&mut rig, mark(9, 2), SIZE), Some(0));
    rig.say(2, 6, ToReplica::AbandonImport);
    rig.answer();
    let facts = rig.store.facts();
    assert_eq!((facts.staged, facts.internal.len(), rig.state().import), (None, 0, None));
    begin(&mut rig, mark(9, 2), SIZE);
    rig.dropped.clear();
    rig.entries(2, 6, 5, vec![Change::Barrier { stages: Default::default() }]);
    rig.answer();
    assert_eq!(rig.dropped, [LinkId(2)]);
    assert_eq!(rig.store.facts().position, Position::new(5, 4));
    // Whoever takes it into the stream as it is makes what was staged worthless.
    rig.reign(3, 6, 5);
    let facts = rig.store.facts();
    assert_eq!((facts.position, facts.staged), (Position::new(6, 5), None));
    assert_eq!((facts.internal.len(), rig.state().import), (0, None));
}

#[test]
fn without_space_an_import_fails_and_keeps_what_it_has() {
    let mut rig = behind();
    begin(&mut rig, mark(9, 2), SIZE);
    import(&mut rig, vec![piece(1, 8, Some(5))], 2);
    rig.answer();
    let stage = |op: &StoreOp| matches!(op, StoreOp::StageData { .. });
    rig.store.refuse_op = Some((stage, StoreError::NoSpace));
    import(&mut rig, vec![piece(2, 8, Some(5)), piece(3, 8, Some(5))], 4);
    rig.answer();
    let Some((_, ToTarget::ImportFailed { reason })) = rig.sent.last() else {
        panic!("{:?}", rig.sent)
    };
    assert_eq!(*reason, RoundFailure::NoSpace);
    assert_eq!(rig.store.facts().staged, Some(2 * GRANULE));
}

/// Protects from a replica that never catches up: it goes on with what was staged, and the store refuses it each time.
#[test]
fn what_the_store_does_not_adopt_is_not_gone_on_with() {
    let mut rig = behind();
    begin(&mut rig, mark(9, 2), SIZE);
    import(&mut rig, vec![piece(1, 8, Some(5))], 2);
    rig.answer();
    let adopt = |op: &StoreOp| matches!(op, StoreOp::Adopt { .. });
    let refused = StoreError::Refused { reason: "its stamps are too high".to_owned() };
    rig.store.refuse_op = Some((adopt, refused));
    commit(&mut rig, None, Vec::new());
    rig.answer();
    assert_eq!(committed(&rig), None);
    assert_eq!((rig.store.facts().staged, rig.state().import), (None, None));
    rig.store.refuse_op = None;
    assert_eq!(begin(&mut rig, mark(9, 2), SIZE), Some(0), "from the beginning");
    import(&mut rig, vec![piece(1, 8, Some(5))], 2);
    commit(&mut rig, None, Vec::new());
    rig.answer();
    assert_eq!(committed(&rig), Some(Position::new(6, 9)));
}

/// A crash after the mark and before the staging, and the other way round, leaves nothing behind.
#[test]
fn half_an_import_is_cleared_away_when_it_is_opened() {
    let mut rig = behind();
    let stage = |op: &StoreOp| matches!(op, StoreOp::Stage { .. });
    rig.store.refuse_op = Some((stage, StoreError::NoSpace));
    begin(&mut rig, mark(9, 2), SIZE);
    assert!(rig.state().import.is_some());
    let rig = rig.restart(1);
    assert_eq!((rig.state().import, rig.store.facts().internal.len()), (None, 0));
}
