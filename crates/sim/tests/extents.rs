//! What is allocated, by hand: the bounds of an answer, and what it must see or wait for.
mod hand;

use block::{ByteLen, ByteOffset};
use engine::{EXTENTS_MAX, Extent, Op, OpError, Reply, Subject, VolumeId};
use hand::{GRANULE, Hand};

const POOL: u64 = 8 << 20;

fn ask(of: Subject, offset: u64, len: u64) -> Op {
    Op::Extents { of, offset: ByteOffset(offset), len: ByteLen(len) }
}

fn extents(hand: &mut Hand, of: Subject, offset: u64, len: u64) -> Vec<(u64, bool)> {
    match hand.run(ask(of, offset, len)) {
        Reply::Extents(found) => plain(&found),
        other => panic!("a question for extents ended as {other:?}"),
    }
}

fn plain(extents: &[Extent]) -> Vec<(u64, bool)> {
    extents.iter().map(|extent| (extent.len.0, extent.has_data)).collect()
}

fn volume_with_a_block(hand: &mut Hand) -> VolumeId {
    let volume = hand.create(1 << 20);
    hand.write(volume, 2, 7);
    volume
}

#[test]
fn an_answer_begins_where_it_was_asked_even_within_a_granule() {
    let mut hand = Hand::new(POOL);
    let volume = volume_with_a_block(&mut hand);
    let of = Subject::Volume(volume);
    for when in ["in the journal", "in the map"] {
        let all = extents(&mut hand, of, 0, 5 * GRANULE);
        let parts = [(2 * GRANULE, false), (GRANULE, true), (2 * GRANULE, false)];
        assert_eq!(all, parts, "{when}");
        let within = extents(&mut hand, of, 2 * GRANULE + 512, 1024);
        assert_eq!(within, [(1024, true)], "{when}");
        let across = extents(&mut hand, of, 3 * GRANULE - 512, 1024);
        assert_eq!(across, [(512, true), (512, false)], "{when}");
        hand.settle();
    }
}

/// Protects from one question that keeps a pool busy with all of a huge volume.
#[test]
fn no_more_than_the_bound_is_looked_at() {
    let mut hand = Hand::new(POOL);
    let volume = volume_with_a_block(&mut hand);
    let found = extents(&mut hand, Subject::Volume(volume), 0, 1 << 32);
    assert_eq!(found.iter().map(|(len, _)| len).sum::<u64>(), EXTENTS_MAX.0);
    let beyond = hand.refused(ask(Subject::Volume(volume), 0, (1 << 32) + 512));
    assert!(matches!(beyond, OpError::BeyondEnd { .. }), "{beyond}");
}

/// Protects from an answer that a crash could contradict: it waits for what is not held.
#[test]
fn what_is_not_held_is_waited_for() {
    let mut hand = Hand::new(POOL);
    let volume = volume_with_a_block(&mut hand);
    let write = hand.submit_write(volume, 0, 9);
    let asked = hand.submit(ask(Subject::Volume(volume), 0, GRANULE));
    hand.pool.poll();
    let mut answers = Vec::new();
    while answers.len() < 2 {
        answers.extend(std::iter::from_fn(|| hand.pool.reply()));
        hand.pool.wait();
    }
    assert_eq!(answers.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [write, asked]);
    let Ok(Reply::Extents(found)) = &answers[1].1 else { panic!("{:?}", answers[1]) };
    assert_eq!(plain(found), [(GRANULE, true)]);
}

#[test]
fn a_snapshot_tells_what_it_froze() {
    let mut hand = Hand::new(POOL);
    let volume = volume_with_a_block(&mut hand);
    let snapshot = hand.snapshot(volume);
    hand.discard(volume, 0, 16);
    let frozen = [(2 * GRANULE, false), (GRANULE, true)];
    assert_eq!(extents(&mut hand, Subject::Snapshot(snapshot), 0, 3 * GRANULE), frozen);
    assert_eq!(extents(&mut hand, Subject::Volume(volume), 0, 3 * GRANULE), [(3 * GRANULE, false)]);
}
