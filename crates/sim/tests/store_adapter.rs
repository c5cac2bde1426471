//! The replicas of a pool, as their machines see it: `node::store` between replication and engine.
#[path = "store_adapter/bench.rs"]
mod bench;

use std::collections::BTreeMap;

use bench::{Bench, GRANULE, bytes_of, spec_of, state_of, uid, write, write_at};
use block::{ByteLen, ByteOffset, Data, Position, Seq};
use engine::{Op, VolumeSpec};
use replication::entry::Zeroing;
use replication::state::ReplicaState;
use replication::store::{Content, Extent, StoreError, StoreOp, StoreReply, StoreTag};
use replication::words::{Incarnation, VolumeUid};
use sim::Rng;

const A: VolumeUid = VolumeUid([1; 16]);
const B: VolumeUid = VolumeUid([2; 16]);
const SEEDS: u64 = 60;

fn at(granule: u64) -> ByteOffset {
    ByteOffset(granule * GRANULE)
}

fn snapshot(seq: Option<u64>, n: u8) -> StoreOp {
    let position = seq.map(|seq| Position::new(1, seq));
    StoreOp::Snapshot { position, spec: spec_of(n), internal: seq.is_none() }
}

fn read_snapshot(n: u8, granule: u64) -> StoreOp {
    StoreOp::ReadSnapshot { snapshot: uid(n), offset: at(granule), len: ByteLen(GRANULE) }
}

fn stage_data(changed: u64, granule: u64, tag: u64) -> StoreOp {
    let content = Content::Bytes(Data::copy_of(&bytes_of(tag)));
    StoreOp::StageData {
        changed: Seq(changed),
        offset: at(granule),
        content,
        progress: granule + 1,
    }
}

fn adopt(seq: u64) -> StoreOp {
    StoreOp::Adopt { position: Position::new(2, seq), state: state_of(seq) }
}

#[test]
fn a_new_replica_is_empty_and_stays_what_it_is() {
    let mut bench = Bench::new();
    assert_eq!(bench.host().volumes(), []);
    bench.create(A, 8);
    bench.create(B, 16);
    assert_eq!(bench.host().volumes(), [A, B]);
    bench.all_done(A, vec![write(1, 3, 77), StoreOp::Flush]);
    bench = bench.killed(1);
    assert_eq!(bench.host().volumes(), [A, B]);
    let facts = bench.facts(A);
    let fresh = ReplicaState::fresh(Incarnation(9), ByteLen(8 * GRANULE));
    assert_eq!(ReplicaState::decode(&facts.state), Ok(fresh));
    assert_eq!((facts.position, facts.size), (Position::new(1, 1), ByteLen(8 * GRANULE)));
    assert_eq!((facts.costs.granule, facts.block_size), (ByteLen(GRANULE), ByteLen(GRANULE)));
    assert!(facts.snapshots.is_empty() && facts.internal.is_empty() && facts.staged.is_none());
    assert!(facts.costs.per_granule.0 > GRANULE && facts.costs.per_write.0 > GRANULE);
    assert_eq!(bench.tags(A), [0, 0, 0, 77, 0, 0, 0, 0]);
    assert_eq!(bench.facts(B).position, Position::default());
}

/// Protects from a replica that opens without the state that tells who it is.
#[test]
fn a_creation_that_was_cut_short_is_no_replica_and_can_be_finished() {
    let (mut cut, mut whole) = (0, 0);
    for stop in 0..40 {
        let mut bench = Bench::new();
        let boundary = bench.host().pool().disk().write_boundary();
        bench.host().pool_mut().disk_mut().stop_at(boundary + stop);
        let tag = StoreTag(0);
        bench.host().create(A, tag, Bench::named(A, 8), Incarnation(9));
        bench.steps(50);
        let mut bench = bench.killed(stop);
        let there = bench.host().pool().volumes().len();
        match bench.host().volumes().as_slice() {
            [] => {
                cut += there;
                bench.create(A, 8);
            }
            [A] => whole += 1,
            other => panic!("{other:?}"),
        }
        let state = ReplicaState::decode(&bench.facts(A).state).expect("it has one");
        assert_eq!(state.incarnation, Incarnation(9));
        bench.all_done(A, vec![write(1, 1, 5), StoreOp::Flush]);
    }
    assert!(cut > 0 && whole > 0, "{cut} were cut short, {whole} were not");
}

/// Protects from a volume of somebody else that a replica is made of.
#[test]
fn a_volume_that_has_content_is_not_taken_for_a_cut_creation() {
    let mut bench = Bench::new();
    let spec = VolumeSpec { uid: A.0, name: "v1".into(), ..Bench::spec(8) };
    let pool = bench.host().pool_mut();
    let Ok(engine::Reply::Created(volume)) = pool.run(Op::Create { spec }) else { panic!("no") };
    let data = Data::copy_of(&bytes_of(3));
    pool.run(Op::Write { volume, position: Position::new(1, 1), offset: at(1), data })
        .expect("there is space");
    let answer = bench.try_create(A, 8);
    assert!(matches!(answer, Err(StoreError::Refused { .. })), "{answer:?}");
    assert_eq!(bench.host().volumes(), []);
}

#[test]
fn what_names_a_snapshot_under_way_waits_for_it_with_everything_behind() {
    let mut bench = Bench::new();
    bench.create(A, 4);
    let answers = bench.together(
        A,
        vec![
            StoreOp::SetState { position: None, state: state_of(1) },
            write(1, 0, 10),
            snapshot(Some(2), 1),
            write(3, 0, 20),
            read_snapshot(1, 0),
            StoreOp::SetState { position: None, state: state_of(2) },
            write(4, 1, 30),
            StoreOp::SnapshotState { snapshot: uid(1) },
            StoreOp::Rollback { position: Position::new(1, 5), to: uid(1) },
            write(6, 2, 40),
            StoreOp::DeleteSnapshot { snapshot: uid(1) },
            read_snapshot(1, 0),
            snapshot(Some(7), 1),
            StoreOp::Flush,
        ],
    );
    assert!(matches!(&answers[4], Ok(StoreReply::Read(data)) if data[..] == bytes_of(10)));
    assert!(matches!(&answers[7], Ok(StoreReply::State(state)) if *state == state_of(1)));
    assert!(matches!(&answers[11], Err(StoreError::UnknownSnapshot)));
    assert!(matches!(&answers[13], Ok(StoreReply::Flushed)));
    for (n, answer) in answers.iter().enumerate().filter(|(n, _)| *n != 11) {
        assert!(answer.is_ok(), "{n}: {answer:?}");
    }
    assert_eq!(bench.tags(A), [10, 0, 40, 0]);
    let facts = bench.killed(3).facts(A);
    assert_eq!(facts.position, Position::new(1, 7));
    let listed: Vec<_> = facts.snapshots.iter().map(|found| (found.uid, found.position)).collect();
    assert_eq!(listed, [(uid(1), Position::new(1, 7))]);
}

#[test]
fn what_is_allocated_is_told_with_what_is_held() {
    let mut bench = Bench::new();
    bench.create(A, 8);
    let extents = || StoreOp::Extents { offset: ByteOffset(512), len: ByteLen(4 * GRANULE) };
    bench.all_done(A, vec![write(1, 1, 10)]);
    let answers = bench.together(A, vec![extents(), write(2, 9, 1), extents()]);
    let extent = |len, has_data| Extent { len: ByteLen(len), has_data };
    let parts =
        [extent(GRANULE - 512, false), extent(GRANULE, true), extent(2 * GRANULE + 512, false)];
    for answer in [&answers[0], &answers[2]] {
        assert!(matches!(answer, Ok(StoreReply::Extents(found)) if *found == parts), "{answer:?}");
    }
    let beyond = StoreOp::Extents { offset: at(8), len: ByteLen(GRANULE) };
    let answers = bench.together(A, vec![beyond]);
    assert!(matches!(&answers[0], Err(StoreError::Refused { .. })), "{answers:?}");
}

/// Protects from entries that are held above one that is not.
#[test]
fn behind_a_refused_operation_nothing_has_a_place() {
    let mut bench = Bench::new();
    bench.create(A, 4);
    let beyond = write(2, 4, 9);
    let answers = bench.together(
        A,
        vec![
            write(1, 0, 1),
            beyond,
            write(3, 1, 3),
            snapshot(Some(4), 1),
            StoreOp::Mark { position: Position::new(1, 5) },
            read_snapshot(1, 0),
            StoreOp::SetState { position: None, state: state_of(4) },
        ],
    );
    assert!(matches!(&answers[1], Err(StoreError::Refused { .. })), "{:?}", answers[1]);
    for n in [2, 3, 4] {
        assert!(matches!(&answers[n], Err(StoreError::Gap)), "{n}: {:?}", answers[n]);
    }
    assert!(matches!(&answers[5], Err(StoreError::UnknownSnapshot)));
    assert!(answers[6].is_ok());
    bench.all_done(A, vec![write(2, 3, 2), write(3, 1, 3), snapshot(Some(4), 1)]);
    assert_eq!(bench.tags(A), [1, 3, 0, 2]);
}

#[test]
fn an_import_can_be_asked_for_as_a_whole() {
    let mut bench = Bench::new();
    bench.create(A, 4);
    bench.all_done(A, vec![write(1, 0, 1), write(2, 1, 2), write(3, 2, 3)]);
    let zeros = Content::Zeros(ByteLen(GRANULE));
    bench.all_done(
        A,
        vec![
            StoreOp::Grow { size: ByteLen(6 * GRANULE) },
            StoreOp::Grow { size: ByteLen(2 * GRANULE) },
            snapshot(None, 7),
            StoreOp::Stage { base: uid(7) },
            stage_data(2, 1, 20),
            StoreOp::StageData { changed: Seq(2), offset: at(2), content: zeros, progress: 3 },
            stage_data(2, 5, 50),
            // The tail is undone: lower than where it was.
            adopt(2),
            write_at(Position::new(2, 3), at(3), Data::copy_of(&bytes_of(30))),
            StoreOp::DeleteSnapshot { snapshot: uid(7) },
            StoreOp::Flush,
        ],
    );
    assert_eq!(bench.tags(A), [1, 20, 0, 30, 0, 50]);
    let mut bench = bench.killed(5);
    let facts = bench.facts(A);
    assert_eq!(facts.position, Position::new(2, 3));
    assert_eq!(facts.state, state_of(2));
    assert_eq!((facts.staged, facts.internal.len()), (None, 0));
    assert_eq!(bench.tags(A), [1, 20, 0, 30, 0, 50]);
}

#[test]
fn an_import_goes_on_after_a_kill_and_can_be_thrown_away() {
    let mut bench = Bench::new();
    bench.create(A, 4);
    bench.all_done(
        A,
        vec![
            write(1, 0, 1),
            snapshot(None, 7),
            StoreOp::Stage { base: uid(7) },
            stage_data(1, 2, 20),
            StoreOp::Flush,
        ],
    );
    let mut bench = bench.killed(5);
    assert_eq!(bench.host().volumes(), [A], "what is staged is no replica");
    let facts = bench.facts(A);
    assert_eq!(facts.staged, Some(3));
    assert_eq!(facts.internal.iter().map(|found| found.uid).collect::<Vec<_>>(), [uid(7)]);
    let refused = bench.together(A, vec![StoreOp::Stage { base: uid(7) }]);
    assert!(matches!(&refused[0], Err(StoreError::Refused { .. })), "one at a time");
    bench.all_done(
        A,
        vec![
            stage_data(1, 3, 30),
            StoreOp::Abandon,
            StoreOp::Stage { base: uid(7) },
            stage_data(1, 1, 10),
            adopt(1),
        ],
    );
    assert_eq!(bench.tags(A), [1, 10, 0, 0]);
    let answers = bench.together(A, vec![StoreOp::Abandon, stage_data(1, 1, 1), adopt(1)]);
    assert!(answers.iter().all(|answer| matches!(answer, Err(StoreError::Refused { .. }))));
}

#[test]
fn what_changed_is_told_by_stamp() {
    let mut bench = Bench::new();
    bench.create(A, 8);
    let zero = StoreOp::Zero {
        position: Position::new(1, 4),
        offset: at(1),
        len: ByteLen(GRANULE),
        how: Zeroing::Discard,
    };
    bench.all_done(A, vec![write(1, 0, 1), write(2, 1, 2), write(3, 2, 3), zero]);
    let changed =
        |since, to| StoreOp::Changed { snapshot: uid(3), since, from: ByteOffset(0), to, max: 10 };
    let answers = bench
        .together(A, vec![snapshot(None, 3), changed(Seq(2), None), changed(Seq(0), Some(at(1)))]);
    let ranges = |n: usize| match &answers[n] {
        Ok(StoreReply::Changed { ranges, .. }) => ranges
            .iter()
            .map(|range| {
                (range.offset.0 / GRANULE, range.len.0 / GRANULE, range.is_data, range.changed.0)
            })
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(ranges(1), [(1, 1, false, 4), (2, 1, true, 3)]);
    assert_eq!(ranges(2), [(0, 1, true, 1)]);
}

#[test]
fn a_deleted_replica_takes_everything_along_and_can_be_made_anew() {
    let mut bench = Bench::new();
    bench.create(A, 4);
    bench.create(B, 4);
    bench.all_done(A, vec![write(1, 0, 1), snapshot(None, 7), StoreOp::Stage { base: uid(7) }]);
    bench.submit(A, stage_data(1, 1, 1));
    bench.submit(A, snapshot(None, 8));
    let gone = bench.tag();
    bench.host().delete(A, gone);
    bench.submit(A, StoreOp::Flush);
    let made = bench.tag();
    bench.host().create(A, made, Bench::named(A, 4), Incarnation(10));
    bench.submit(A, write(1, 2, 5));
    let answers = bench.answers();
    assert!(answers[&gone].is_ok() && answers[&made].is_ok(), "{answers:?}");
    let refused = answers.values().filter(|answer| answer.is_err()).count();
    assert_eq!(refused, 2, "a snapshot during an import, and what came behind the end");
    assert_eq!(bench.tags(A), [0, 0, 5, 0]);
    let facts = bench.facts(A);
    let state = ReplicaState::decode(&facts.state).expect("it has one");
    assert_eq!((state.incarnation, facts.internal.len()), (Incarnation(10), 0));
    let gone = bench.tag();
    bench.host().delete(A, gone);
    assert!(bench.answers()[&gone].is_ok());
    assert_eq!(bench.host().volumes(), [B]);
    let answer = bench.together(A, vec![StoreOp::Flush]);
    assert!(matches!(&answer[0], Err(StoreError::Refused { .. })));
}

#[test]
fn a_failed_pool_answers_everything() {
    let mut bench = Bench::new();
    bench.create(A, 4);
    bench.host().pool_mut().disk_mut().fail_next_flush();
    let ops =
        vec![write(1, 0, 1), StoreOp::Flush, snapshot(None, 1), read_snapshot(1, 0), adopt(1)];
    let answers = bench.together(A, ops);
    assert!(matches!(&answers[1], Err(StoreError::Failed { .. })), "{:?}", answers[1]);
    let answers = bench.together(A, vec![write(2, 0, 1), snapshot(None, 2), read_snapshot(2, 0)]);
    assert!(matches!(&answers[0], Err(StoreError::Failed { .. })), "{:?}", answers[0]);
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
}

/// The same operations one by one, and as many at once as chance will have it: the answers and all
/// bytes are the same, so nothing overtook anything.
#[test]
fn waiting_for_answers_makes_no_difference() {
    let mut done = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let ops = operations(&mut rng);
        let run = |mut pace: Box<dyn FnMut() -> bool>| {
            let mut bench = Bench::new();
            bench.create(A, 8);
            let (mut tags, mut answers) = (Vec::new(), BTreeMap::new());
            for op in &ops {
                tags.push(bench.submit(A, op.clone()));
                if pace() {
                    answers.extend(bench.answers());
                }
            }
            answers.extend(bench.answers());
            let told: Vec<String> = tags.iter().map(|tag| words(&answers[tag])).collect();
            let facts = bench.facts(A);
            let facts = format!("{:?} {:?} {:?}", facts.position, facts.snapshots, facts.staged);
            (told, bench.tags(A), facts)
        };
        let slow = run(Box::new(|| true));
        let mut chance = Rng::new(seed + 1);
        let fast = run(Box::new(move || chance.below(12) == 0));
        for (n, (slow, fast)) in slow.0.iter().zip(&fast.0).enumerate() {
            assert_eq!(slow, fast, "seed {seed}, operation {n}: {:?}", ops[n]);
        }
        assert_eq!(slow, fast, "seed {seed}");
        done += slow.0.iter().filter(|told| *told == "Done").count();
    }
    let least = usize::try_from(20 * SEEDS).expect("few");
    assert!(done > least, "nearly all of them were refused: only {done} were done");
}

fn words(answer: &Result<StoreReply, StoreError>) -> String {
    match answer {
        Ok(StoreReply::Read(data)) => format!("read {:?}", data.first()),
        Ok(other) => format!("{other:?}"),
        Err(StoreError::Gap) => "gap".into(),
        Err(other) => other.to_string(),
    }
}

/// A random sequence, most of it legal: names that are there, and some that are not.
fn operations(rng: &mut Rng) -> Vec<StoreOp> {
    let (mut seq, mut ops, mut made) = (0, Vec::new(), 0u8);
    let mut alive: Vec<u8> = Vec::new();
    for _ in 0..60 {
        let any = 1 + u8::try_from(rng.below(u64::from(made) + 1)).expect("few");
        let granule = rng.below(8);
        let mut next = || {
            seq += 1;
            Position::new(1, seq)
        };
        let some = alive.get(usize::try_from(rng.below(9)).expect("few")).copied();
        let op = match rng.below(14) {
            0..4 => {
                let data = Data::copy_of(&bytes_of(1 + rng.below(200)));
                write_at(next(), at(granule), data)
            }
            4..6 => {
                made += 1;
                alive.push(made);
                StoreOp::Snapshot { position: Some(next()), spec: spec_of(made), internal: false }
            }
            6 => match some {
                Some(some) => StoreOp::Rollback { position: next(), to: uid(some) },
                None => StoreOp::Mark { position: next() },
            },
            7 => {
                alive.retain(|found| *found != any);
                StoreOp::DeleteSnapshot { snapshot: uid(any) }
            }
            8 => read_snapshot(any, granule),
            9 => StoreOp::SnapshotState { snapshot: uid(any) },
            10 => StoreOp::SetState { position: Some(next()), state: state_of(rng.below(99)) },
            11 => StoreOp::Flush,
            12 => {
                // A whole import, now and then thrown away.
                made += 1;
                ops.push(StoreOp::Snapshot { position: None, spec: spec_of(made), internal: true });
                ops.push(StoreOp::Stage { base: uid(made) });
                ops.push(stage_data(0, granule, 1 + rng.below(200)));
                match rng.below(3) {
                    0 => StoreOp::Abandon,
                    _ => StoreOp::Adopt { position: next(), state: state_of(made.into()) },
                }
            }
            _ => StoreOp::Grow { size: ByteLen((1 + rng.below(12)) * GRANULE) },
        };
        ops.push(op);
    }
    ops
}
