//! Operations that are submitted before those in front of them are done.
mod hand;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize, Seq};
use engine::{
    Changes, CreateOptions, Op, OpError, Pool, Reply, RequestId, Runs, Since, SnapshotId,
    SnapshotSpec, SnapshotsOfDeleted, Staged, Stamps, Subject, VolumeId, VolumeSpec,
};
use hand::{GRANULE, Hand, bytes_of};
use sim::CrashDisk;
use sim::workload::open_options;

const POOL: u64 = 16 << 20;

/// Submits all of them at once, and returns their answers in order.
fn together(hand: &mut Hand, ops: Vec<Op>) -> Vec<Result<Reply, OpError>> {
    let count = ops.len();
    for (id, op) in (0..).zip(ops) {
        hand.pool.submit(RequestId(id), op);
    }
    hand.pool.poll();
    let mut answers: Vec<Option<Result<Reply, OpError>>> = (0..count).map(|_| None).collect();
    while answers.iter().any(Option::is_none) {
        match hand.pool.reply() {
            Some((RequestId(id), answer)) => {
                answers[usize::try_from(id).expect("few")] = Some(answer);
            }
            None => hand.pool.wait(),
        }
    }
    answers.into_iter().flatten().collect()
}

fn write_op(hand: &mut Hand, volume: VolumeId, granule: u64, tag: u64) -> Op {
    let (position, offset) = (hand.place(volume), ByteOffset(granule * GRANULE));
    Op::Write { volume, position, offset, data: Data::copy_of(&bytes_of(tag)) }
}

/// Protects from a journal that cannot be replayed: deleting a volume with its snapshots takes
/// the same ones when it is done and when it is done again.
#[test]
fn a_snapshot_is_deleted_once_if_its_volume_goes_before_it() {
    let mut hand = Hand::new(POOL);
    let start = hand.settle();
    let volume = hand.create(64);
    hand.write(volume, 1, 1);
    let first = hand.snapshot(volume);
    hand.write(volume, 1, 2);
    let second = hand.snapshot(volume);
    hand.settle();
    let answers = together(
        &mut hand,
        vec![
            Op::Delete { volume, snapshots: SnapshotsOfDeleted::Delete },
            Op::DeleteSnapshot { snapshot: first },
        ],
    );
    answers[0].as_ref().expect("nothing is in its way");
    hand = hand.killed(1);
    let listed = hand.pool.snapshots();
    assert!(listed.iter().all(|info| info.hidden), "{first} and {second} are gone: {listed:?}");
    assert_eq!(hand.settle(), start, "all space came back");
    hand.checked();
}

/// Protects from a volume that is deleted though it has a snapshot: one that was asked for before.
#[test]
fn a_volume_is_not_deleted_over_a_snapshot_that_is_on_its_way() {
    let mut hand = Hand::new(POOL);
    let volume = hand.create(64);
    hand.write(volume, 1, 1);
    let position = hand.place(volume);
    let spec = SnapshotSpec { name: "s".into(), uid: [2; 16], internal: false, created: 0 };
    let answers = together(
        &mut hand,
        vec![
            Op::Snapshot { volume, position: Some(position), spec },
            Op::Delete { volume, snapshots: SnapshotsOfDeleted::Refuse },
        ],
    );
    assert!(matches!(answers[1], Err(OpError::HasSnapshots { count: 1, .. })), "{answers:?}");
}

fn stage(hand: &mut Hand, volume: VolumeId, base: SnapshotId) -> VolumeId {
    match hand.run(Op::Stage { volume, base }) {
        Reply::Created(staging) => staging,
        other => panic!("staging ended as {other:?}"),
    }
}

/// Protects from a write that is acknowledged into a volume whose content an import replaces.
#[test]
fn a_second_import_keeps_others_out_while_the_first_is_given_up() {
    let mut hand = Hand::new(POOL);
    let volume = hand.create(64);
    hand.write(volume, 1, 1);
    let base = hand.snapshot(volume);
    let staging = stage(&mut hand, volume, base);
    // Not settled, so that the second import has to wait for a checkpoint.
    let stage_data = Op::StageData {
        staging,
        changed: Seq(0),
        offset: ByteOffset(0),
        content: Staged::Bytes(Data::copy_of(&bytes_of(9))),
        progress: 1,
    };
    hand.run(stage_data);
    let snapshots = SnapshotsOfDeleted::Refuse;
    let other = hand.create(64);
    let waits = write_op(&mut hand, other, 0, 1);
    hand.pool.submit(RequestId(0), waits);
    hand.pool.submit(RequestId(1), Op::Delete { volume: staging, snapshots });
    hand.pool.submit(RequestId(2), Op::Stage { volume, base });
    let mut begun = false;
    hand.pool.poll();
    while !begun {
        match hand.pool.reply() {
            Some((RequestId(7), Err(OpError::Staging { .. }))) => hand.pool.wait(),
            Some((RequestId(7), other)) => panic!("a write came between: {other:?}"),
            Some((RequestId(id), answer)) => {
                answer.expect("a healthy disk");
                begun = id == 2;
            }
            None => {
                // At every moment until the second import has begun.
                let position = Position::new(1, 1000);
                let (offset, data) = (ByteOffset(0), Data::copy_of(&bytes_of(5)));
                hand.pool.submit(RequestId(7), Op::Write { volume, position, offset, data });
            }
        }
    }
}

fn changed(hand: &mut Hand, snapshot: SnapshotId, since: Since) -> Changes {
    let op = Op::Changed {
        snapshot,
        since,
        from: ByteOffset(0),
        to: None,
        max: 1000,
        runs: Runs::Joined,
    };
    match hand.run(op) {
        Reply::Changed(changes) => changes,
        other => panic!("a question ended as {other:?}"),
    }
}

/// Protects from an import that forgets what a rollback stamped: its base has the same content,
/// but not the stamps that came since.
#[test]
fn an_import_keeps_the_stamps_of_the_volume_and_not_those_of_its_base() {
    for settled in [true, false] {
        let granules = 64;
        let mut hand = Hand::new(POOL);
        let volume = hand.create(granules);
        hand.write(volume, 1, 1);
        hand.write(volume, granules - 1, 2);
        let base = hand.snapshot(volume);
        hand.write(volume, 1, 3);
        let seen = hand.snapshot(volume);
        hand.roll_back(volume, base);
        if settled {
            hand.settle();
        }
        let staging = stage(&mut hand, volume, base);
        let position = hand.place(volume);
        hand.run(Op::StageData {
            staging,
            changed: position.seq,
            offset: ByteOffset((granules - 1) * GRANULE),
            content: Staged::Bytes(Data::copy_of(&bytes_of(9))),
            progress: 1,
        });
        let stamps = Stamps::Keep;
        hand.run(Op::Adopt { volume, staging, position, stamps, state: None });
        let now = hand.snapshot(volume);
        assert_eq!(hand.read(Subject::Snapshot(now), 1), bytes_of(1));
        assert_eq!(hand.read(Subject::Snapshot(seen), 1), bytes_of(3));
        let at = hand.position_of(seen).seq;
        for since in [Since::Seq(at), Since::Snapshot(seen)] {
            let changes = changed(&mut hand, now, since);
            let named = changes.ranges.iter().any(|range| {
                range.offset.0 <= GRANULE && range.offset.0 + range.len.0 >= 2 * GRANULE
            });
            assert!(named, "the first differs from {since:?}: {changes:?}");
        }
        hand.checked();
    }
}

/// Protects from reading what a power cut takes back: nobody sees a rollback before it is held.
#[test]
fn a_rollback_is_not_seen_before_it_is_held() {
    let mut disk = CrashDisk::new(ByteLen(POOL), SectorSize::B512, 5);
    engine::create(&mut disk, &CreateOptions::default()).expect("a fresh disk");
    let mut hand = Hand::on(Pool::open(disk, open_options()).expect("a fresh pool"));
    let volume = hand.create(64);
    hand.write(volume, 1, 1);
    let to = hand.snapshot(volume);
    hand.write(volume, 1, 2);
    hand.settle();
    assert_eq!(hand.read(Subject::Volume(volume), 1), bytes_of(2));
    // The journal record of the rollback never arrives.
    let boundary = hand.pool.disk().write_boundary();
    hand.pool.disk_mut().stop_at(boundary);
    let position = hand.place(volume);
    hand.pool.submit(RequestId(1), Op::Rollback { volume, position, to, force: false });
    hand.pool.poll();
    let (offset, len) = (ByteOffset(GRANULE), ByteLen(GRANULE));
    hand.pool.submit(RequestId(2), Op::Read { volume, offset, len });
    for _ in 0..100 {
        hand.pool.poll();
        match hand.pool.reply() {
            Some((RequestId(2), Ok(Reply::Read(bytes)))) => {
                assert_eq!(bytes[..], bytes_of(2), "the rollback may still be lost");
            }
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
}

/// Protects from a pool that stops for good: the volume of a partial write was never made.
#[test]
fn parts_of_a_volume_that_could_not_be_made_are_refused() {
    let mut hand = Hand::new(8 << 20);
    let big = hand.create(1 << 16);
    for granule in 0.. {
        let op = write_op(&mut hand, big, granule, 1);
        match hand.pool.run(op) {
            Ok(_) => {}
            Err(OpError::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let part = |volume, seq| Op::Write {
        volume,
        position: Position::new(1, seq),
        offset: ByteOffset(512),
        data: Data::copy_of(&[7; 512]),
    };
    let next = hand.pool.volumes().iter().map(|info| info.id.0).max().expect("one") + 1;
    for number in next..next + 1000 {
        let spec = VolumeSpec {
            name: format!("late-{number}"),
            size: ByteLen(1 << 20),
            uid: [1; 16],
            ..VolumeSpec::default()
        };
        let volume = VolumeId(number);
        let ops = vec![Op::Create { spec }, part(volume, 1), part(volume, 2)];
        let answers = together(&mut hand, ops);
        match &answers[0] {
            Ok(Reply::Created(made)) => assert_eq!(*made, volume, "numbers are given in order"),
            Err(OpError::NoSpace { .. }) => {
                let unknown = |answer| matches!(answer, &Err(OpError::UnknownVolume { .. }));
                assert!(answers[1..].iter().all(unknown), "{answers:?}");
                return;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the pool never fills up");
}
