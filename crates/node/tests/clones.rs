//! Replicas that begin as a snapshot of another volume in their pool.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use block::{ByteLen, ByteOffset, Data, Position, Seq};
use disk::FileDisk;
use engine::{CloneSpec, CreateOptions, Op, Pool, VolumeSpec};
use node::store::Host;
use replication::entry::Change;
use replication::state::{Origin, ReplicaState, SnapshotSpec, Stages};
use replication::store::{StoreError, StoreOp, StoreReply, StoreTag};
use replication::sums::Sums;
use replication::words::{Incarnation, SnapshotUid, VolumeUid};

const MIB: u64 = 1 << 20;
const GRANULE: u64 = 4096;
const SOURCE: VolumeUid = VolumeUid([1; 16]);
const CLONE: VolumeUid = VolumeUid([2; 16]);
const SNAPSHOT: SnapshotUid = SnapshotUid([7; 16]);
/// Of the snapshot: behind a barrier and two writes.
const AT: Position = Position { term: block::Term(5), seq: Seq(4) };
const ORIGIN: Origin = Origin { volume: SOURCE, snapshot: SNAPSHOT, at: AT };

type Answer = Result<StoreReply, StoreError>;

struct Bench {
    host: Host<FileDisk>,
    path: PathBuf,
    tags: u64,
}

fn open(path: &Path) -> Host<FileDisk> {
    let disk = disk::open(path, &disk::OpenOptions::default()).unwrap();
    Host::new(Pool::open(disk, engine::OpenOptions::default()).unwrap())
}

impl Bench {
    /// A pool with a volume whose snapshot can be cloned.
    fn new(name: &str) -> Bench {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("clones-{name}"));
        let _ = std::fs::remove_file(&path);
        let create = Some(ByteLen(32 * MIB));
        let options = disk::OpenOptions { create, ..disk::OpenOptions::default() };
        let mut disk = disk::open(&path, &options).unwrap();
        engine::create(&mut disk, &CreateOptions::default()).unwrap();
        drop(disk);
        let mut bench = Bench { host: open(&path), path, tags: 0 };
        bench.make_source();
        bench
    }

    fn make_source(&mut self) {
        let tag = self.tag();
        self.host.create(SOURCE, tag, spec("source", 4 * MIB), Incarnation(9));
        self.answer(tag).unwrap();
        // As a replica does it: a barrier, two writes, the snapshot, and one more write.
        let mut state = ReplicaState::fresh(Incarnation(9), ByteLen(4 * MIB));
        let barrier = Change::Barrier { stages: Stages::default() };
        state.shared.follow(at(1), &barrier).unwrap();
        let state = state.encode();
        self.op(SOURCE, StoreOp::SetState { position: Some(at(1)), state }).unwrap();
        self.write(SOURCE, 2, 0, 0xaa);
        self.write(SOURCE, 3, 1, 0xbb);
        let spec = SnapshotSpec { uid: SNAPSHOT, name: "monday".into(), created: 1 };
        let position = Some(AT);
        self.op(SOURCE, StoreOp::Snapshot { position, spec, internal: false }).unwrap();
        self.write(SOURCE, 5, 0, 0xcc);
    }

    fn tag(&mut self) -> StoreTag {
        self.tags += 1;
        StoreTag(self.tags)
    }

    fn answer(&mut self, tag: StoreTag) -> Answer {
        self.answers(&[tag]).remove(&tag).unwrap()
    }

    fn answers(&mut self, tags: &[StoreTag]) -> BTreeMap<StoreTag, Answer> {
        let mut answers = BTreeMap::new();
        loop {
            answers.extend(self.host.poll().into_iter().map(|(_, tag, answer)| (tag, answer)));
            if tags.iter().all(|tag| answers.contains_key(tag)) {
                return answers;
            }
            self.host.pool_mut().wait();
        }
    }

    fn op(&mut self, volume: VolumeUid, op: StoreOp) -> Answer {
        let tag = self.tag();
        self.host.submit(volume, tag, op);
        self.answer(tag)
    }

    fn write(&mut self, volume: VolumeUid, seq: u64, granule: u64, byte: u8) {
        let (offset, data) = (ByteOffset(granule * GRANULE), Data::copy_of(&[byte; 4096]));
        let sums = Sums::of(ByteLen(GRANULE), offset, &data);
        self.op(volume, StoreOp::Write { position: at(seq), offset, data, sums }).unwrap();
    }

    /// The first byte of a granule.
    fn read(&mut self, volume: VolumeUid, granule: u64) -> u8 {
        let (offset, len) = (ByteOffset(granule * GRANULE), ByteLen(GRANULE));
        match self.op(volume, StoreOp::Read { offset, len }) {
            Ok(StoreReply::Read(data)) => data[0],
            other => panic!("a read ended as {other:?}"),
        }
    }

    fn clone(&mut self, spec: VolumeSpec, origin: Origin) -> Answer {
        let tag = self.tag();
        self.host.create_from(CLONE, tag, spec, Incarnation(11), Some(origin));
        self.answer(tag)
    }

    fn delete(&mut self, volume: VolumeUid) -> Answer {
        let tag = self.tag();
        self.host.delete(volume, tag);
        self.answer(tag)
    }

    fn opened_again(self) -> Bench {
        self.host.into_pool().close().unwrap();
        Bench { host: open(&self.path), ..self }
    }
}

fn at(seq: u64) -> Position {
    Position::new(AT.term.0, seq)
}

fn spec(name: &str, size: u64) -> VolumeSpec {
    VolumeSpec { name: name.into(), size: ByteLen(size), ..VolumeSpec::default() }
}

/// Protects from a clone that has more or less than its snapshot, in its content or in its state.
#[test]
fn a_clone_is_what_its_snapshot_is() {
    let mut bench = Bench::new("same");
    bench.clone(spec("clone", 8 * MIB), ORIGIN).unwrap();
    let mut bench = bench.opened_again();
    let facts = bench.host.facts(CLONE).unwrap();
    assert_eq!((facts.position, facts.size), (AT, ByteLen(8 * MIB)));
    assert!(facts.snapshots.is_empty() && facts.internal.is_empty());
    let origin = bench.host.snapshot(SOURCE, SNAPSHOT).unwrap();
    assert_eq!((origin.position, origin.shared.size), (AT, ByteLen(4 * MIB)));
    let state = ReplicaState::cloned(Incarnation(11), &origin.shared, AT, ByteLen(8 * MIB));
    assert_eq!(ReplicaState::decode(&facts.state), Ok(state));
    let content: Vec<u8> = (0..3).map(|granule| bench.read(CLONE, granule)).collect();
    assert_eq!(content, [0xaa, 0xbb, 0]);
    // Its sequence goes on above the snapshot, and is its own.
    bench.write(CLONE, 5, 1, 0xdd);
    assert_eq!((bench.read(CLONE, 1), bench.read(SOURCE, 1)), (0xdd, 0xbb));
    assert_eq!((bench.read(CLONE, 0), bench.read(SOURCE, 0)), (0xaa, 0xcc));
    bench.op(CLONE, StoreOp::Grow { size: ByteLen(12 * MIB) }).unwrap();
}

#[test]
fn what_is_no_snapshot_of_the_volume_is_not_cloned() {
    let mut bench = Bench::new("refused");
    let unknown = Err(StoreError::UnknownSnapshot);
    let other = Origin { snapshot: SnapshotUid([8; 16]), ..ORIGIN };
    let undone = Origin { at: Position::new(4, AT.seq.0), ..ORIGIN };
    let nobodys = Origin { volume: VolumeUid([3; 16]), ..ORIGIN };
    for origin in [other, undone, nobodys] {
        let answer = bench.clone(spec("clone", 4 * MIB), origin);
        assert_eq!(answer.map(|_| ()), unknown, "{origin:?}");
    }
    let large =
        VolumeSpec { block_size: engine::BlockSize::new(8192).unwrap(), ..spec("clone", 4 * MIB) };
    for spec in [spec("clone", 2 * MIB), large] {
        let answer = bench.clone(spec, ORIGIN);
        assert!(matches!(answer, Err(StoreError::Refused { .. })), "{answer:?}");
    }
    assert_eq!(bench.host.volumes(), [SOURCE]);
    bench.clone(spec("clone", 4 * MIB), ORIGIN).unwrap();
}

/// Protects from a creation that a crash cut short: it must not count, and must not be in the way.
#[test]
fn a_clone_without_its_state_is_no_replica() {
    for taken_up in [true, false] {
        let mut bench = Bench::new(if taken_up { "taken-up" } else { "thrown-away" });
        let of = bench.host.pool().snapshots()[0].id;
        let half = CloneSpec { name: "clone".into(), uid: CLONE.0, size: Some(ByteLen(4 * MIB)) };
        bench.host.pool_mut().run(Op::Clone { snapshot: of, spec: half }).unwrap();
        let mut bench = bench.opened_again();
        assert_eq!(bench.host.volumes(), [SOURCE]);
        assert!(bench.host.has_half_made(CLONE));
        if taken_up {
            bench.clone(spec("clone", 4 * MIB), ORIGIN).unwrap();
            assert_eq!(bench.read(CLONE, 0), 0xaa);
        } else {
            bench.delete(CLONE).unwrap();
            assert!(bench.host.pool().volume_named("clone").is_none());
            assert!(bench.delete(CLONE).is_err(), "there is none");
        }
        assert!(!bench.host.has_half_made(CLONE));
    }
}

/// Protects from a clone that loses its content with its origin, and from space that never comes back.
#[test]
fn a_clone_outlives_its_origin() {
    let mut bench = Bench::new("outlives");
    bench.clone(spec("clone", 4 * MIB), ORIGIN).unwrap();
    bench.delete(SOURCE).unwrap();
    let mut bench = bench.opened_again();
    assert_eq!(bench.host.volumes(), [CLONE]);
    assert_eq!((bench.read(CLONE, 0), bench.read(CLONE, 1)), (0xaa, 0xbb));
    assert!(bench.host.facts(CLONE).unwrap().snapshots.is_empty(), "it is not the clone's");
    bench.delete(CLONE).unwrap();
    let bench = bench.opened_again().opened_again();
    assert!(bench.host.pool().volumes().is_empty() && bench.host.pool().snapshots().is_empty());
}

/// Protects from a volume with the same uid that an operator brought here by other tools.
#[test]
fn what_has_content_is_not_what_a_crash_left() {
    let mut bench = Bench::new("content");
    let uid = CLONE.0;
    let made = bench.host.pool_mut().run(Op::Create { spec: VolumeSpec { uid, ..spec("x", MIB) } });
    let Ok(engine::Reply::Created(volume)) = made else { panic!("{made:?}") };
    assert!(bench.host.has_half_made(CLONE));
    bench.host.pool_mut().run(Op::Mark { volume, position: at(1) }).unwrap();
    assert!(!bench.host.has_half_made(CLONE));
    assert!(bench.delete(CLONE).is_err());
    assert!(bench.clone(spec("x", 4 * MIB), ORIGIN).is_err());
    assert!(bench.host.pool().volume_named("x").is_some());
}

/// Protects from a clone that is made in vain, and from one that is in nobody's hands: its origin goes
/// while it is made.
#[test]
fn a_clone_is_made_though_its_origin_goes_meanwhile() {
    let mut bench = Bench::new("meanwhile");
    let (cloned, deleted) = (bench.tag(), bench.tag());
    let wanted = spec("clone", 4 * MIB);
    bench.host.create_from(CLONE, cloned, wanted, Incarnation(11), Some(ORIGIN));
    bench.host.delete(SOURCE, deleted);
    let mut answers = bench.answers(&[cloned, deleted]);
    answers.remove(&cloned).unwrap().unwrap();
    answers.remove(&deleted).unwrap().unwrap();
    let mut bench = bench.opened_again();
    assert_eq!(bench.host.volumes(), [CLONE]);
    assert_eq!((bench.read(CLONE, 0), bench.read(CLONE, 1)), (0xaa, 0xbb));
}

/// Protects from content that nobody can get rid of: what tells where it began was dropped.
#[test]
fn what_a_crash_left_of_a_clone_can_be_deleted_behind_its_origin() {
    let mut bench = Bench::new("behind");
    let of = bench.host.pool().snapshots()[0].id;
    let half = CloneSpec { name: "clone".into(), uid: CLONE.0, size: None };
    bench.host.pool_mut().run(Op::Clone { snapshot: of, spec: half }).unwrap();
    let mut bench = bench.opened_again();
    bench.delete(SOURCE).unwrap();
    for _ in 0..4 {
        bench.host.pool_mut().checkpoint().unwrap();
    }
    assert!(bench.host.pool().snapshots().is_empty(), "the origin is dropped");
    assert!(bench.host.has_half_made(CLONE));
    bench.delete(CLONE).unwrap();
    assert!(bench.host.pool().volumes().is_empty());
}

/// Protects from content that is back after a power cut, though somebody was told that it is gone.
#[test]
fn a_deletion_is_answered_when_it_is_durable() {
    let mut bench = Bench::new("durable");
    bench.op(SOURCE, StoreOp::Flush).unwrap();
    let flushes = bench.host.pool().counters().flushes;
    bench.delete(SOURCE).unwrap();
    assert!(bench.host.pool().counters().flushes > flushes);
    assert!(!bench.host.has(SOURCE));
}
