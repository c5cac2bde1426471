use block::{ByteLen, ByteOffset, Position, Seq};

use crate::entry::Change;
use crate::message::{
    AskId, Fetched, OpenedRound, RoundFailure, RoundPoint, ToReplica, ToTarget, Wanted,
};
use crate::store::{ChangedRange, Content, StoreError, StoreOp};

use super::super::fetch::cut;
use super::rig::{Rig, SIZE, spec, write};
use super::store::GRANULE;

fn open(rig: &mut Rig, point: RoundPoint) -> Result<Box<OpenedRound>, RoundFailure> {
    rig.say(1, 5, ToReplica::OpenRound { id: AskId(1), point });
    rig.answer();
    match rig.sent.pop() {
        Some((_, ToTarget::RoundOpened { opened, .. })) => opened,
        other => panic!("{other:?}"),
    }
}

fn fetch(rig: &mut Rig, round: Position, wanted: Wanted, to: u64) -> Result<Fetched, RoundFailure> {
    let (from, to) = (ByteOffset(0), ByteOffset(to));
    rig.say(1, 5, ToReplica::Fetch { id: AskId(2), round, wanted, from, to });
    rig.answer();
    match rig.sent.pop() {
        Some((_, ToTarget::Fetched { result, .. })) => result,
        other => panic!("{other:?}"),
    }
}

/// Offset in granules, length in granules, stamp, and the byte or a hole.
fn pieces(fetched: &Fetched) -> Vec<(u64, u64, u64, Option<u8>)> {
    let piece = |piece: &crate::message::Piece| {
        let byte = match &piece.content {
            Content::Bytes(data) => Some(data[0]),
            Content::Zeros(_) => None,
        };
        let len = piece.content.len().0 / GRANULE;
        (piece.offset.0 / GRANULE, len, piece.changed.0, byte)
    };
    fetched.pieces.iter().map(piece).collect()
}

#[test]
fn a_frozen_source_does_not_move_and_tells_of_its_moment() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![write(2, 7), Change::Points(vec![1])]);
    let round = open(&mut rig, RoundPoint::Now).unwrap();
    assert_eq!((round.position, &round.shared.points[..]), (Position::new(5, 3), &[1][..]));
    assert_eq!(round.size, ByteLen(SIZE));
    rig.entries(1, 5, 4, vec![write(2, 9), Change::Points(vec![2])]);
    rig.answer();
    let since = |seq| Wanted::Changed(Seq(seq));
    let fetched = fetch(&mut rig, round.position, since(1), SIZE).unwrap();
    assert_eq!(pieces(&fetched), [(2, 1, 2, Some(7))]);
    assert_eq!(fetched.through, ByteOffset(SIZE));
    let none = fetch(&mut rig, round.position, since(3), SIZE).unwrap();
    assert!(none.pieces.is_empty());
    // All of it, and beyond its end: holes.
    let all = fetch(&mut rig, round.position, Wanted::Everything, SIZE + GRANULE).unwrap();
    assert_eq!(pieces(&all), [(0, 2, 0, None), (2, 1, 2, Some(7)), (3, 62, 0, None)]);
}

#[test]
fn a_round_is_kept_for_a_later_target_until_it_is_closed() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    let round = open(&mut rig, RoundPoint::Now).unwrap();
    rig.entries(1, 5, 2, vec![Change::Points(vec![2])]);
    rig.answer();
    let mut rig = rig.restart(1);
    rig.hello(1, 5);
    rig.answer();
    assert_eq!(rig.welcome().rounds, [round.position]);
    let everything = |rig: &mut Rig| fetch(rig, round.position, Wanted::Everything, SIZE);
    assert!(matches!(everything(&mut rig), Err(RoundFailure::Gone)), "it has to be opened first");
    let again = open(&mut rig, RoundPoint::Kept(round.position)).unwrap();
    assert_eq!(again, round);
    assert!(everything(&mut rig).is_ok());
    rig.say(1, 5, ToReplica::CloseRound { round: round.position });
    rig.answer();
    assert!(rig.store.facts().internal.is_empty());
    let gone = open(&mut rig, RoundPoint::Kept(round.position));
    assert_eq!(gone, Err(RoundFailure::Gone));
}

#[test]
fn a_round_at_a_users_snapshot_has_its_state_and_leaves_it_alone() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    let snapshots = [Change::Snapshot(spec(1)), write(0, 1), Change::Points(vec![2])];
    rig.entries(1, 5, 2, snapshots.into());
    rig.entries(1, 5, 5, vec![Change::Snapshot(spec(2))]);
    rig.answer();
    let round = open(&mut rig, RoundPoint::Snapshot(spec(1).uid)).unwrap();
    assert_eq!((round.position, &round.snapshot), (Position::new(5, 2), &Some(spec(1))));
    assert!(round.shared.points.is_empty());
    assert_eq!(round.snapshots.iter().map(|entry| entry.uid).collect::<Vec<_>>(), [spec(1).uid]);
    rig.say(1, 5, ToReplica::CloseRound { round: round.position });
    rig.answer();
    assert_eq!(rig.store.facts().snapshots.len(), 2);
}

#[test]
fn only_a_few_rounds_are_kept_the_newest() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    for seq in 2..8 {
        rig.entries(1, 5, seq, vec![Change::Flush]);
        open(&mut rig, RoundPoint::Now).unwrap();
    }
    let kept: Vec<_> = rig.store.facts().internal.iter().map(|e| e.position.seq.0).collect();
    assert_eq!(kept, [4, 5, 6, 7]);
}

#[test]
fn a_damaged_source_says_so() {
    let mut rig = Rig::new();
    rig.reign(1, 5, 1);
    rig.entries(1, 5, 2, vec![write(2, 7)]);
    let round = open(&mut rig, RoundPoint::Now).unwrap().position;
    let damaged = StoreError::Damaged { offset: ByteOffset(8192) };
    rig.store.refuse_op = Some((|op| matches!(op, StoreOp::ReadSnapshot { .. }), damaged));
    let failed = fetch(&mut rig, round, Wanted::Everything, SIZE).unwrap_err();
    assert_eq!(failed, RoundFailure::Damaged { offset: ByteOffset(8192) });
}

/// A frame has a bound: so has a fetch, and what it left out is asked for again.
#[test]
fn a_fetch_ends_where_its_bytes_do() {
    let range = |offset, len, is_data| ChangedRange {
        offset: ByteOffset(offset),
        len: ByteLen(len),
        is_data,
        changed: Seq(3),
    };
    let mib = 1 << 20;
    let ranges = [range(0, mib / 2, true), range(mib, 4 * mib, true)];
    let (parts, through) = cut(0..8 * mib, &ranges, 8 * mib, false);
    let lens: Vec<_> = parts.iter().map(|part| (part.offset, part.len)).collect();
    assert_eq!((lens, through), (vec![(0, mib / 2), (mib, mib / 2)], mib + mib / 2));
    // Holes cost nothing, gaps are looked at, and what was not looked at is not claimed.
    let (parts, through) = cut(0..8 * mib, &[range(mib, mib, false)], 3 * mib, true);
    let lens: Vec<_> = parts.iter().map(|part| (part.offset, part.len)).collect();
    assert_eq!((lens, through), (vec![(0, mib), (mib, mib), (2 * mib, mib)], 3 * mib));
}
