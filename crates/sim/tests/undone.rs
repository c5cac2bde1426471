//! A replica whose history lost: its end is undone by an import that takes it back, with the stamps
//! that the winner's blocks have, and it goes on from there as if it had never been.
mod hand;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize, Seq};
use engine::{
    ChangedRange, Op, OpError, Pool, Reply, Runs, STATE_MAX, Since, SnapshotId, SnapshotSpec,
    SnapshotsOfDeleted, Staged, Stamps, Subject, VolumeId,
};
use hand::{GRANULE, Hand, Tags, bytes_of};
use sim::workload::open_options;
use sim::{Budget, CrashDisk, Rng};

const GRANULES: u64 = 300;
const POOL: u64 = 16 << 20;
/// The last seq that both histories have.
const COMMON: u64 = 24;

fn changed(hand: &mut Hand, snapshot: SnapshotId, since: Since, runs: Runs) -> Vec<ChangedRange> {
    let (mut from, mut ranges) = (ByteOffset(0), Vec::new());
    loop {
        let op = Op::Changed { snapshot, since, from, to: None, max: 3, runs };
        let Reply::Changed(page) = hand.run(op) else { panic!("no changes") };
        ranges.extend(page.ranges);
        match page.next {
            Some(next) => from = next,
            None => return ranges,
        }
    }
}

fn granules_of(range: &ChangedRange) -> std::ops::Range<u64> {
    range.offset.0 / GRANULE..(range.offset.0 + range.len.0) / GRANULE
}

fn index(granule: u64) -> usize {
    usize::try_from(granule).expect("few granules")
}

/// The stamp of every granule of a snapshot, 0 where nothing ever was.
fn stamps(hand: &mut Hand, snapshot: SnapshotId) -> Vec<u64> {
    let mut stamps = vec![0; index(GRANULES)];
    for range in changed(hand, snapshot, Since::Seq(Seq(0)), Runs::ByStamp) {
        granules_of(&range).for_each(|granule| stamps[index(granule)] = range.changed.0);
    }
    stamps
}

fn point(hand: &mut Hand, volume: VolumeId, name: &str) -> SnapshotId {
    let spec = SnapshotSpec { name: name.into(), uid: [2; 16], internal: true, created: 0 };
    match hand.run(Op::Snapshot { volume, position: None, spec }) {
        Reply::Snapshotted(snapshot) => snapshot,
        other => panic!("a snapshot ended as {other:?}"),
    }
}

fn stage(hand: &mut Hand, volume: VolumeId, base: SnapshotId) -> VolumeId {
    match hand.run(Op::Stage { volume, base }) {
        Reply::Created(staging) => staging,
        other => panic!("an import began as {other:?}"),
    }
}

/// Two replicas of one volume, the second of which has lost.
struct Replicas {
    winner: VolumeId,
    loser: VolumeId,
    /// What the winner holds, and what the loser held where their histories part.
    tags: Tags,
    common: Tags,
    /// A snapshot of the loser where they part, and one of what is to be undone.
    shared: SnapshotId,
    lost: SnapshotId,
}

impl Replicas {
    fn new(hand: &mut Hand) -> Replicas {
        let [winner, loser] = [0, 1].map(|_| hand.create(GRANULES));
        let mut common = vec![0; index(GRANULES)];
        for volume in [winner, loser] {
            for granule in 0..20 {
                hand.write(volume, granule * 14, granule + 1);
                common[index(granule * 14)] = granule + 1;
            }
            hand.discard(volume, 0, 20);
            (0..20).for_each(|granule| common[granule] = 0);
            hand.discard(volume, 290, 10);
            hand.write(volume, 299, 40);
            common[299] = 40;
            // Behind its neighbours, which changed earlier.
            hand.write(volume, 28, 41);
            common[28] = 41;
            assert_eq!(hand.places[&volume], COMMON);
        }
        let shared = point(hand, loser, "shared");
        // What the loser did alone: over blocks, into holes, discards, and a rollback, which stamps
        // whole leaves, also behind the end of the volume.
        hand.write(loser, 42, 900);
        hand.write(loser, 150, 901);
        hand.discard(loser, 56, 100);
        hand.discard(loser, 200, 4);
        hand.write(loser, 201, 902);
        let lost = point(hand, loser, "lost");
        hand.write(loser, 5, 903);
        hand.write(loser, 280, 905);
        hand.roll_back(loser, lost);
        hand.write(loser, 290, 904);
        // What the winner did meanwhile.
        let mut tags = common.clone();
        hand.write(winner, 42, 50);
        hand.write(winner, 43, 51);
        hand.discard(winner, 70, 1);
        (tags[42], tags[43], tags[70]) = (50, 51, 0);
        Replicas { winner, loser, tags, common, shared, lost }
    }

    /// Brings everything that either side changed since they part, as the winner has it.
    fn bring(&self, hand: &mut Hand, run: u64) -> VolumeId {
        let of_winner = point(hand, self.winner, &format!("of the winner {run}"));
        let of_loser = point(hand, self.loser, &format!("of the loser {run}"));
        let stamps = stamps(hand, of_winner);
        let since = Since::Seq(Seq(COMMON));
        let mut union = vec![false; index(GRANULES)];
        for snapshot in [of_winner, of_loser] {
            for range in changed(hand, snapshot, since, Runs::Joined) {
                granules_of(&range).for_each(|granule| union[index(granule)] = true);
            }
        }
        let staging = stage(hand, self.loser, of_loser);
        for granule in (0..GRANULES).filter(|granule| union[index(*granule)]) {
            let content = match self.tags[index(granule)] {
                0 => Staged::Zeros(ByteLen(GRANULE)),
                tag => Staged::Bytes(Data::copy_of(&bytes_of(tag))),
            };
            let (changed, offset) = (Seq(stamps[index(granule)]), ByteOffset(granule * GRANULE));
            hand.run(Op::StageData { staging, changed, offset, content, progress: granule });
        }
        staging
    }

    /// Where the winner is, in a term of its own.
    fn place(&self, hand: &Hand) -> Position {
        Position::new(2, hand.places[&self.winner])
    }
}

fn adopt(volume: VolumeId, staging: VolumeId, position: Position, state: &[u8]) -> Op {
    let (stamps, state) = (Stamps::Keep, Some(state.to_vec()));
    Op::Adopt { volume, staging, position, stamps, state }
}

fn held(hand: &Hand, volume: VolumeId) -> (Position, Position, Vec<u8>) {
    let listed = hand.pool.volumes();
    let info = listed.into_iter().find(|info| info.id == volume).expect("it is there");
    (info.held, info.durable, info.state)
}

/// Protects from a replica that cannot go back, that keeps something of the history that lost, or
/// whose stamps are not those of the others afterwards.
#[test]
fn the_end_of_a_history_that_lost_is_undone() {
    for settled in [false, true] {
        let mut hand = Hand::new(POOL);
        let replicas = Replicas::new(&mut hand);
        let (winner, loser) = (replicas.winner, replicas.loser);
        if settled {
            hand.settle();
        }
        hand.run(Op::SetState { volume: loser, position: None, state: b"lost".to_vec() });
        let staging = replicas.bring(&mut hand, 0);
        let place = replicas.place(&hand);
        assert!(place.seq.0 < hand.places[&loser], "it goes back");
        hand.run(adopt(loser, staging, place, b"undone"));
        hand.places.insert(loser, place.seq.0);
        for step in 0..3 {
            hand.assert_holds(Subject::Volume(loser), &replicas.tags, "undone");
            let (at, _, state) = held(&hand, loser);
            assert_eq!((at, &state[..]), (place, &b"undone"[..]), "{step}");
            hand = hand.killed(step);
        }
        hand.run(Op::Flush);
        assert_eq!(held(&hand, loser).1, place, "what is durable went back as well");
        // The snapshots are as they were, differences from them are named, and they can go.
        hand.assert_holds(Subject::Snapshot(replicas.shared), &replicas.common, "where they part");
        let now = point(&mut hand, loser, "now");
        for (older, tags) in
            [(replicas.shared, &replicas.common), (replicas.lost, &lost(&replicas))]
        {
            let ranges = changed(&mut hand, now, Since::Snapshot(older), Runs::Joined);
            for granule in (0..GRANULES).filter(|at| tags[index(*at)] != replicas.tags[index(*at)])
            {
                let named = ranges.iter().any(|range| granules_of(range).contains(&granule));
                assert!(named, "granule {granule} since {older}: {ranges:?}");
            }
        }
        let of_winner = point(&mut hand, winner, "now");
        assert_eq!(stamps(&mut hand, now), stamps(&mut hand, of_winner), "the same stamps");
        // Back to what was undone: its stamps mean nothing here.
        let position = Position::new(2, place.seq.0 + 1);
        let back =
            hand.refused(Op::Rollback { volume: loser, position, to: replicas.lost, force: true });
        assert!(matches!(back, OpError::ForeignStamps { .. }), "{back}");
        hand.run(Op::Rollback { volume: loser, position, to: replicas.shared, force: true });
        hand.delete_snapshot(replicas.lost);
        // The sequence goes on from the lower position.
        let stale = Op::Mark { volume: loser, position };
        assert!(matches!(hand.refused(stale), OpError::NotAscending { .. }));
        hand.run(Op::Mark { volume: loser, position: Position::new(2, place.seq.0 + 2) });
        hand.settle();
        hand.checked().assert_holds(Subject::Volume(loser), &replicas.common, "rolled back");
    }
}

/// What the loser held at its lost snapshot.
fn lost(replicas: &Replicas) -> Tags {
    let mut tags = replicas.common.clone();
    (tags[42], tags[150]) = (900, 901);
    (56..156).chain(200..204).for_each(|granule| tags[granule] = 0);
    tags[201] = 902;
    tags
}

/// Protects from stamps of the lost history that stay: they could not be told from later changes.
#[test]
fn an_import_that_leaves_lost_blocks_cannot_take_a_volume_back() {
    let mut hand = Hand::new(POOL);
    let replicas = Replicas::new(&mut hand);
    let loser = replicas.loser;
    let base = point(&mut hand, loser, "base");
    let staging = stage(&mut hand, loser, base);
    let before = held(&hand, loser);
    let error = hand.refused(adopt(loser, staging, replicas.place(&hand), b"undone"));
    assert!(matches!(error, OpError::ForeignStamps { .. }), "{error}");
    assert_eq!(held(&hand, loser), before, "nothing has changed");
    let long = adopt(loser, staging, Position::new(2, 99), &[0; STATE_MAX + 1]);
    assert!(matches!(hand.refused(long), OpError::StateTooLong { .. }));
    let high = adopt(loser, staging, Position::new(2, 1 << 56), b"");
    assert!(matches!(hand.refused(high), OpError::SeqTooHigh { .. }));
    hand.run(adopt(loser, staging, Position::new(2, 99), &[7; STATE_MAX]));
    let hand = hand.killed(1);
    assert_eq!(held(&hand, loser).2, [7; STATE_MAX], "the longest that there can be");
}

/// Protects from a volume that is told to be durable where it no longer is: of two positions the
/// later one counts, not the higher one.
#[test]
fn what_is_durable_goes_back_with_the_volume() {
    let mut hand = Hand::new(POOL);
    let volume = hand.create(GRANULES);
    hand.write(volume, 1, 1);
    for seq in 2..9 {
        hand.run(Op::Mark { volume, position: Position::new(1, seq) });
    }
    let base = point(&mut hand, volume, "base");
    hand.run(Op::Flush);
    assert_eq!(held(&hand, volume).1, Position::new(1, 8));
    let staging = stage(&mut hand, volume, base);
    let lower = Position::new(1, 4);
    hand.run(adopt(volume, staging, lower, b""));
    assert_eq!(held(&hand, volume).0, lower);
    hand.run(Op::Flush);
    assert_eq!(held(&hand, volume).1, lower);
    hand.run(Op::Mark { volume, position: Position::new(1, 5) });
    hand.pool.checkpoint().expect("a healthy disk");
    assert_eq!(held(&hand, volume).1, Position::new(1, 5), "and on from there");
}

/// Protects from operations behind an adoption that are judged by the higher position.
#[test]
fn what_follows_an_adoption_goes_on_from_its_position_though_it_still_waits() {
    let mut hand = Hand::new(POOL);
    let replicas = Replicas::new(&mut hand);
    let (loser, place) = (replicas.loser, replicas.place(&hand));
    let staging = replicas.bring(&mut hand, 0);
    let at = |seq| Position::new(2, place.seq.0 + seq);
    hand.submit(adopt(loser, staging, place, b"undone"));
    hand.submit(Op::Mark { volume: loser, position: at(1) });
    let stale = hand.submit(Op::Mark { volume: loser, position: at(1) });
    let mut answers = hand.answers();
    let stale = answers.remove(&stale).expect("it was answered");
    assert!(matches!(stale, Err(OpError::NotAscending { .. })), "{stale:?}");
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
    hand.pool.keep_order(loser, true).expect("it is there");
    let (offset, data) = (ByteOffset(42 * GRANULE + 512), Data::copy_of(&[9; 512]));
    hand.run(Op::Write { volume: loser, position: at(2), offset, data });
    let mut merged = bytes_of(50);
    merged[512..1024].fill(9);
    assert!(hand.read(Subject::Volume(loser), 42) == merged, "on the winner's bytes");
    let mut hand = hand.killed(2);
    assert_eq!(held(&hand, loser).0, at(2));
    assert!(hand.read(Subject::Volume(loser), 42) == merged);
}

/// Protects from an adoption that a power cut takes apart: content, position and state are those
/// before it, or those after it.
#[test]
fn a_power_cut_while_a_history_is_undone_leaves_it_whole_or_undone() {
    let (mut old, mut new) = (0, 0);
    for boundary in 0..24 {
        let mut hand = Hand::new(POOL);
        let replicas = Replicas::new(&mut hand);
        let (loser, place) = (replicas.loser, replicas.place(&hand));
        hand.run(Op::SetState { volume: loser, position: None, state: b"lost".to_vec() });
        let before = Position::new(1, hand.places[&loser]);
        let staging = replicas.bring(&mut hand, 0);
        hand.run(Op::Flush);
        let now = hand.pool.disk().write_boundary();
        hand.pool.disk_mut().refuse_at(now + boundary);
        let _ = hand.pool.run(adopt(loser, staging, place, b"undone"));
        let _ = hand.pool.run(Op::Flush);
        let _ = hand.pool.checkpoint();
        let disk = hand.pool.abandon();
        let mut rng = Rng::new(boundary);
        for image in disk.crash_images(SectorSize::B512, Budget::default(), &mut rng).take(10) {
            let disk = CrashDisk::from_image(image, 1);
            let mut hand = Hand::on(Pool::open(disk, open_options()).expect("opens"));
            let (at, _, state) = held(&hand, loser);
            if at == before {
                assert_eq!(state, b"lost");
                assert!(hand.read(Subject::Volume(loser), 42) == bytes_of(900));
                old += 1;
            } else {
                assert_eq!((at, &state[..]), (place, &b"undone"[..]));
                hand.assert_holds(Subject::Volume(loser), &replicas.tags, "undone");
                new += 1;
            }
            hand.checked();
        }
    }
    println!("{old} images before the adoption, {new} after it");
    assert!(old > 0 && new > 0, "both sides of the moment were seen: {old} and {new}");
}

/// Protects from a catch-up that knows no more than the highest stamp of a run, and from a part
/// that is answered with more than was asked for.
#[test]
fn changes_can_be_asked_for_by_stamp_and_in_parts() {
    let mut hand = Hand::new(POOL);
    let volume = hand.create(GRANULES);
    for granule in [10, 11, 12, 13] {
        hand.write(volume, granule, granule);
    }
    hand.discard(volume, 20, 4);
    hand.discard(volume, 22, 4);
    let old = point(&mut hand, volume, "old");
    let all = |hand: &mut Hand, snapshot, runs| -> Vec<(u64, u64, bool, u64)> {
        let ranges = changed(hand, snapshot, Since::Seq(Seq(0)), runs);
        let range = |range: &ChangedRange| {
            let granules = granules_of(range);
            (granules.start, granules.end, range.is_data, range.changed.0)
        };
        ranges.iter().map(range).collect()
    };
    let joined = vec![(10, 14, true, 4), (20, 26, false, 6)];
    assert_eq!(all(&mut hand, old, Runs::Joined), joined);
    let data = (10..14).zip(1..).map(|(granule, seq)| (granule, granule + 1, true, seq));
    let by_stamp: Vec<_> = data.chain([(20, 22, false, 5), (22, 26, false, 6)]).collect();
    assert_eq!(all(&mut hand, old, Runs::ByStamp), by_stamp);
    // A part of it, from the middle of a granule to the middle of another.
    let (since, runs) = (Since::Seq(Seq(0)), Runs::ByStamp);
    let (from, to) = (ByteOffset(11 * GRANULE + 512), Some(ByteOffset(20 * GRANULE + 1)));
    let part = Op::Changed { snapshot: old, since, from, to, max: 100, runs };
    let Reply::Changed(part) = hand.run(part) else { panic!("no changes") };
    let places: Vec<_> = part.ranges.iter().map(|range| range.offset.0 / GRANULE).collect();
    assert_eq!((places, part.next), (vec![11, 12, 13, 20], None));
    // A rollback stamps whole leaves: the stamp that stands for an entry is its own.
    hand.write(volume, 12, 99);
    hand.roll_back(volume, old);
    let seq = hand.places[&volume];
    let new = point(&mut hand, volume, "new");
    let stamped = all(&mut hand, new, Runs::ByStamp);
    assert!(stamped.iter().all(|range| range.3 == seq), "{stamped:?}");
    let later = changed(&mut hand, new, Since::Seq(Seq(seq - 1)), Runs::ByStamp);
    assert_eq!(later.len(), stamped.len(), "seen by its stamp as well");
    hand.write(volume, 13, 98);
    let last = point(&mut hand, volume, "last");
    let data = all(&mut hand, last, Runs::ByStamp).into_iter().filter(|range| range.2);
    let data: Vec<_> = data.collect();
    assert_eq!(data, [(10, 13, true, seq), (13, 14, true, seq + 1)]);
    hand.delete(volume, SnapshotsOfDeleted::Delete);
    hand.settle();
    hand.checked();
}
