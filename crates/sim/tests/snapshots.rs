//! Snapshots, clones and rollbacks in every order: nothing that is left changes, and all space
//! comes back.
mod hand;

use block::Position;
use engine::{Op, OpError, SnapshotId, SnapshotsOfDeleted, Subject, VolumeId};
use hand::{Hand, Tags, orders};

const GRANULES: u64 = 40;
const POOL: u64 = 8 << 20;

/// A volume with several snapshots, and what each of them holds.
struct Line {
    volume: VolumeId,
    now: Tags,
    snapshots: Vec<(SnapshotId, Tags)>,
}

fn line(hand: &mut Hand, count: u64) -> Line {
    let volume = hand.create(GRANULES);
    let mut now = vec![0; usize::try_from(GRANULES).expect("few")];
    let mut snapshots = Vec::new();
    for round in 0..count {
        hand.change(volume, &mut now, round);
        snapshots.push((hand.snapshot(volume), now.clone()));
    }
    hand.change(volume, &mut now, count);
    Line { volume, now, snapshots }
}

impl Line {
    fn verify(&self, hand: &mut Hand, left: impl Fn(usize) -> bool, when: &str) {
        for (at, (snapshot, tags)) in self.snapshots.iter().enumerate() {
            if left(at) {
                hand.assert_holds(Subject::Snapshot(*snapshot), tags, when);
            }
        }
    }
}

/// Protects from a deletion that takes a block which another snapshot needs, or leaves one that
/// nobody needs.
#[test]
fn five_snapshots_may_be_deleted_in_any_order() {
    let mut hand = Hand::new(POOL);
    let start = hand.settle();
    for (round, order) in orders(5).into_iter().enumerate() {
        let line = line(&mut hand, 5);
        for (done, at) in order.iter().enumerate() {
            hand.delete_snapshot(line.snapshots[*at].0);
            // Now right after the deletion, now when it is through, now after a kill.
            match (round + done) % 4 {
                0 => drop(hand.settle()),
                1 => hand = hand.killed(round as u64),
                _ => {}
            }
            let when = format!("order {order:?}, {} deleted", done + 1);
            line.verify(&mut hand, |at| !order[..=done].contains(&at), &when);
            hand.assert_holds(Subject::Volume(line.volume), &line.now, &when);
        }
        hand.settle();
        hand = hand.checked();
        hand.delete(line.volume, SnapshotsOfDeleted::Refuse);
        assert_eq!(hand.settle(), start, "order {order:?}: all space came back");
    }
    hand.checked();
}

/// Protects from a clone that loses what it shares with its origin, whoever goes first.
#[test]
fn origin_snapshot_and_clone_may_go_in_any_order() {
    let mut hand = Hand::new(POOL);
    let start = hand.settle();
    for order in orders(3) {
        for early in [true, false] {
            let mut line = line(&mut hand, 1);
            let (snapshot, frozen) = line.snapshots[0].clone();
            let clone = hand.clone_of(snapshot);
            let mut cloned = frozen.clone();
            if early {
                hand.settle();
            }
            hand.change(clone, &mut cloned, 7);
            hand.change(line.volume, &mut line.now, 8);
            for (done, what) in order.iter().enumerate() {
                match what {
                    0 => hand.delete(line.volume, SnapshotsOfDeleted::Keep),
                    1 => hand.delete_snapshot(snapshot),
                    _ => hand.delete(clone, SnapshotsOfDeleted::Refuse),
                }
                if early {
                    hand.settle();
                }
                let (gone, when) = (&order[..=done], format!("order {order:?}, {}", done + 1));
                let all = [
                    (0, Subject::Volume(line.volume), &line.now),
                    (1, Subject::Snapshot(snapshot), &frozen),
                    (2, Subject::Volume(clone), &cloned),
                ];
                for (what, subject, tags) in all {
                    if !gone.contains(&what) {
                        hand.assert_holds(subject, tags, &when);
                    }
                }
            }
            assert_eq!(hand.settle(), start, "order {order:?}: all space came back");
            hand = hand.checked();
        }
    }
}

/// Protects from a clone of a clone that depends on more than it should, or on less.
#[test]
fn links_of_a_chain_of_clones_may_go_in_any_order() {
    let mut hand = Hand::new(POOL);
    let start = hand.settle();
    for order in orders(4) {
        let mut volume = hand.create(GRANULES);
        let mut now = vec![0; usize::try_from(GRANULES).expect("few")];
        let mut links = Vec::new();
        for round in 0..4 {
            hand.change(volume, &mut now, round);
            let snapshot = hand.snapshot(volume);
            let frozen = now.clone();
            hand.change(volume, &mut now, round + 10);
            links.push((volume, now.clone(), snapshot, frozen.clone()));
            volume = hand.clone_of(snapshot);
            now = frozen;
        }
        for (done, at) in order.iter().enumerate() {
            let way = [SnapshotsOfDeleted::Keep, SnapshotsOfDeleted::Delete][done % 2];
            hand.delete(links[*at].0, way);
            if way == SnapshotsOfDeleted::Keep {
                hand.delete_snapshot(links[*at].2);
            }
            if at % 2 == 0 {
                hand.settle();
            }
            let when = format!("order {order:?}, {} deleted", done + 1);
            for (at, (volume, tags, snapshot, frozen)) in links.iter().enumerate() {
                if !order[..=done].contains(&at) {
                    hand.assert_holds(Subject::Volume(*volume), tags, &when);
                    hand.assert_holds(Subject::Snapshot(*snapshot), frozen, &when);
                }
            }
            hand.assert_holds(Subject::Volume(volume), &now, &when);
        }
        hand = hand.checked();
        hand.delete(volume, SnapshotsOfDeleted::Refuse);
        assert_eq!(hand.settle(), start, "order {order:?}: all space came back");
    }
    hand.checked();
}

/// Protects from a rollback that leaves something newer behind, or takes it from newer snapshots.
#[test]
fn a_volume_rolls_back_to_any_snapshot_and_on_to_any_other() {
    let mut hand = Hand::new(POOL);
    let start = hand.settle();
    for first in 0..5 {
        for second in 0..5 {
            let line = line(&mut hand, 5);
            let volume = Subject::Volume(line.volume);
            hand.grow(line.volume, GRANULES + 8);
            hand.write(line.volume, GRANULES + 3, 77);
            for (step, to) in [first, second].into_iter().enumerate() {
                let (snapshot, tags) = &line.snapshots[to];
                hand.roll_back(line.volume, *snapshot);
                if (first + second) % 2 == step {
                    hand.settle();
                }
                let when = format!("rolled back to {first}, then {second}");
                let beyond = [tags.clone(), vec![0; 8]].concat();
                hand.assert_holds(volume, &beyond, &when);
                line.verify(&mut hand, |_| true, &when);
                let mut now = beyond;
                hand.change(line.volume, &mut now, 9 + step as u64);
                hand = hand.killed(first as u64);
                hand.assert_holds(volume, &now, &when);
                line.verify(&mut hand, |_| true, &when);
            }
            hand.settle();
            hand = hand.checked();
            hand.delete(line.volume, SnapshotsOfDeleted::Delete);
            assert_eq!(hand.settle(), start, "{first}, {second}: all space came back");
        }
    }
}

/// Protects from snapshots that go with their volume, or cannot be deleted without it.
#[test]
fn snapshots_outlive_their_volume() {
    let mut hand = Hand::new(POOL);
    let start = hand.settle();
    for order in orders(4) {
        let line = line(&mut hand, 4);
        let volume = line.volume;
        let error = hand.refused(Op::Delete { volume, snapshots: SnapshotsOfDeleted::Refuse });
        assert!(matches!(error, OpError::HasSnapshots { .. }), "{error}");
        hand.delete(volume, SnapshotsOfDeleted::Keep);
        hand = hand.killed(3);
        for (done, at) in order.iter().enumerate() {
            let when = format!("order {order:?}, {done} deleted");
            line.verify(&mut hand, |at| !order[..done].contains(&at), &when);
            let (snapshot, tags) = &line.snapshots[*at];
            let clone = hand.clone_of(*snapshot);
            hand.delete_snapshot(*snapshot);
            hand.settle();
            hand.assert_holds(Subject::Volume(clone), tags, &when);
            hand.delete(clone, SnapshotsOfDeleted::Refuse);
        }
        assert_eq!(hand.settle(), start, "order {order:?}: all space came back");
        hand = hand.checked();
    }
}

/// Protects from a volume that is taken away from somebody who uses it.
#[test]
fn a_volume_that_is_attached_is_neither_deleted_nor_rolled_back_by_mistake() {
    let mut hand = Hand::new(POOL);
    let Line { volume, snapshots, now } = line(&mut hand, 1);
    let (to, frozen) = snapshots[0].clone();
    hand.run(Op::Attach { volume, attached: true });
    hand = hand.killed(1).checked();
    let error = hand.refused(Op::Delete { volume, snapshots: SnapshotsOfDeleted::Delete });
    assert!(matches!(error, OpError::Attached { .. }), "{error}");
    let position = Position::new(1, 1000);
    let error = hand.refused(Op::Rollback { volume, position, to, force: false });
    assert!(matches!(error, OpError::Attached { .. }), "{error}");
    hand.assert_holds(Subject::Volume(volume), &now, "after it was refused");
    hand.run(Op::Rollback { volume, position, to, force: true });
    hand.assert_holds(Subject::Volume(volume), &frozen, "rolled back on purpose");
    hand.run(Op::Attach { volume, attached: false });
    hand.delete(volume, SnapshotsOfDeleted::Delete);
    let error = hand.refused(Op::DeleteSnapshot { snapshot: to });
    assert!(matches!(error, OpError::UnknownSnapshot { .. }), "{error}");
    assert!(hand.pool.volumes().is_empty(), "nobody uses it any more");
}
