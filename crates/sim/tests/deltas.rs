//! Imports: a volume becomes what a snapshot of another one is, by what changed in between.
mod hand;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize, Seq};
use engine::{
    ChangedRange, Op, OpError, Pool, Reply, Runs, Since, SnapshotId, SnapshotsOfDeleted, Staged,
    Stamps, Subject, VolumeId, Zeroing,
};
use hand::{GRANULE, Hand, Tags};
use sim::workload::open_options;
use sim::{Budget, CrashDisk, Rng};

const GRANULES: u64 = 300;
const POOL: u64 = 16 << 20;

fn changed(hand: &mut Hand, snapshot: SnapshotId, since: Since, max: usize) -> Vec<ChangedRange> {
    let (mut from, mut ranges) = (ByteOffset(0), Vec::new());
    loop {
        let Reply::Changed(page) =
            hand.run(Op::Changed { snapshot, since, from, to: None, max, runs: Runs::Joined })
        else {
            panic!("no changes")
        };
        assert!(page.ranges.len() <= max, "as many as were asked for");
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

fn stage(hand: &mut Hand, volume: VolumeId, base: SnapshotId) -> VolumeId {
    match hand.run(Op::Stage { volume, base }) {
        Reply::Created(staging) => staging,
        other => panic!("an import began as {other:?}"),
    }
}

/// Brings ranges of a snapshot into an import, the first of them as part `from` + 1.
fn bring(
    hand: &mut Hand,
    snapshot: SnapshotId,
    staging: VolumeId,
    ranges: &[ChangedRange],
    from: u64,
) {
    for (progress, range) in (from + 1..).zip(ranges) {
        let content = match range.is_data {
            false => Staged::Zeros(range.len),
            true => {
                let read = |granule| hand.read(Subject::Snapshot(snapshot), granule);
                let bytes: Vec<u8> = granules_of(range).flat_map(read).collect();
                Staged::Bytes(Data::copy_of(&bytes))
            }
        };
        let (changed, offset) = (range.changed, range.offset);
        hand.run(Op::StageData { staging, changed, offset, content, progress });
    }
}

fn adopt(hand: &mut Hand, volume: VolumeId, staging: VolumeId, seq: u64, stamps: Stamps) {
    let position = Position::new(1, seq);
    hand.run(Op::Adopt { volume, staging, position, stamps, state: None });
    hand.places.insert(volume, seq);
}

/// A source whose snapshots are two operations apart at least, with everything that can happen to
/// a volume between them.
struct Source {
    volume: VolumeId,
    snapshots: Vec<(SnapshotId, Tags)>,
    /// What it held at each seq, from 0 on.
    held: Vec<Tags>,
}

impl Source {
    fn new(hand: &mut Hand) -> Source {
        let volume = hand.create(GRANULES);
        let mut now = vec![0; usize::try_from(GRANULES).expect("few")];
        let mut source = Source { volume, snapshots: Vec::new(), held: vec![now.clone()] };
        let set = |now: &mut Tags, granule: u64, tag: u64| {
            now[usize::try_from(granule).expect("few")] = tag;
        };
        for granule in 0..20 {
            hand.write(volume, granule * 7, granule + 1);
            set(&mut now, granule * 7, granule + 1);
            source.held.push(now.clone());
        }
        source.take(hand, &now);
        // Written over, discarded, discarded and filled again, zeros where nothing was.
        hand.write(volume, 7, 100);
        set(&mut now, 7, 100);
        source.held.push(now.clone());
        hand.discard(volume, 14, 30);
        (14..44).for_each(|granule| set(&mut now, granule, 0));
        source.held.push(now.clone());
        hand.write(volume, 21, 101);
        set(&mut now, 21, 101);
        source.held.push(now.clone());
        hand.discard(volume, 200, 50);
        source.held.push(now.clone());
        source.take(hand, &now);
        // A rollback to the first, and some more.
        let (first, tags) = source.snapshots[0].clone();
        hand.roll_back(volume, first);
        now.clone_from(&tags);
        source.held.push(now.clone());
        hand.write(volume, 14, 102);
        set(&mut now, 14, 102);
        source.held.push(now.clone());
        source.take(hand, &now);
        // It grows, and is written in the new part.
        hand.grow(volume, GRANULES + 50);
        now.extend([0; 50]);
        source.held.push(now.clone());
        hand.write(volume, GRANULES + 20, 103);
        set(&mut now, GRANULES + 20, 103);
        source.held.push(now.clone());
        hand.discard(volume, 0, 14);
        (0..14).for_each(|granule| set(&mut now, granule, 0));
        source.held.push(now.clone());
        source.take(hand, &now);
        source
    }

    fn take(&mut self, hand: &mut Hand, now: &Tags) {
        self.snapshots.push((hand.snapshot(self.volume), now.clone()));
        self.held.push(now.clone());
    }
}

fn tag(tags: &[u64], granule: u64) -> u64 {
    tags.get(usize::try_from(granule).expect("few")).copied().unwrap_or(0)
}

fn assert_covers(ranges: &[ChangedRange], old: &[u64], new: &[u64], what: &str) {
    for granule in 0..new.len() as u64 {
        let named = ranges.iter().any(|range| granules_of(range).contains(&granule));
        let same = tag(old, granule) == tag(new, granule);
        assert!(same || named, "{what}: granule {granule} is missing in {ranges:?}");
    }
    for range in ranges {
        let is_data = |granule| tag(new, granule) != 0;
        assert!(granules_of(range).all(|granule| is_data(granule) == range.is_data), "{range:?}");
    }
}

/// Protects from changes that a query does not name, whatever two moments it is about.
#[test]
fn changes_between_any_two_moments_are_named() {
    for settled in [false, true] {
        let mut hand = Hand::new(POOL);
        let source = Source::new(&mut hand);
        if settled {
            hand.settle();
        }
        for (newer, (snapshot, tags)) in source.snapshots.iter().enumerate() {
            for max in [1, 3, 1000] {
                let ranges = changed(&mut hand, *snapshot, Since::Start, max);
                assert_covers(&ranges, &[], tags, "all that is allocated");
                assert!(ranges.iter().all(|range| range.is_data), "and nothing else");
                for (older, old) in &source.snapshots[..newer] {
                    let ranges = changed(&mut hand, *snapshot, Since::Snapshot(*older), max);
                    assert_covers(&ranges, old, tags, "between two snapshots");
                }
            }
            let last = hand.position_of(*snapshot).seq.0;
            for seq in 0..=last {
                let old = &source.held[usize::try_from(seq).expect("few")];
                let ranges = changed(&mut hand, *snapshot, Since::Seq(Seq(seq)), 1000);
                assert_covers(&ranges, old, tags, &format!("since {seq}"));
            }
        }
    }
}

/// A copy of the first snapshot that goes on to each of the others.
fn follow(stamps: Stamps, by_seq: bool) {
    let mut hand = Hand::new(POOL);
    let source = Source::new(&mut hand);
    let copy = hand.create(GRANULES);
    let mut base = hand.snapshot(copy);
    let mut before: Option<SnapshotId> = None;
    for (snapshot, tags) in &source.snapshots {
        let place = hand.position_of(*snapshot);
        let since = match before {
            None => Since::Start,
            Some(older) if by_seq => Since::Seq(hand.position_of(older).seq),
            Some(older) => Since::Snapshot(older),
        };
        let ranges = changed(&mut hand, *snapshot, since, 2);
        if tags.len() as u64 > GRANULES {
            hand.grow(copy, tags.len() as u64);
        }
        let staging = stage(&mut hand, copy, base);
        let kept = hand.read(Subject::Volume(copy), 7);
        bring(&mut hand, *snapshot, staging, &ranges, 0);
        hand.assert_holds(Subject::Volume(staging), tags, "before it is adopted");
        assert_eq!(hand.read(Subject::Volume(copy), 7), kept, "nothing has changed yet");
        let next = match stamps {
            Stamps::Keep => place,
            Stamps::Renew => Position::new(1, hand.places[&copy] + 20),
        };
        adopt(&mut hand, copy, staging, next.seq.0 - 1, stamps);
        hand = hand.killed(7);
        hand.assert_holds(Subject::Volume(copy), tags, "adopted");
        let old_base = std::mem::replace(&mut base, hand.snapshot_at(copy, next));
        if before.is_some() {
            let ranges = changed(&mut hand, base, Since::Snapshot(old_base), 1000);
            let at = source.snapshots.iter().position(|(id, _)| Some(*id) == before);
            let old = &source.snapshots[at.expect("it is one of them")].1;
            assert_covers(&ranges, old, tags, "between two snapshots of the copy");
        }
        if stamps == Stamps::Keep && by_seq {
            let first = hand.position_of(source.snapshots[0].0).seq.0;
            for seq in first..=place.seq.0 {
                let old = &source.held[usize::try_from(seq).expect("few")];
                let ranges = changed(&mut hand, base, Since::Seq(Seq(seq)), 1000);
                assert_covers(&ranges, old, tags, &format!("since {seq} of the source"));
            }
        }
        before = Some(*snapshot);
    }
    hand.settle();
    let mut hand = hand.checked();
    let last = &source.snapshots.last().expect("four").1;
    hand.assert_holds(Subject::Volume(copy), last, "in the end");
}

/// Protects from a mirror that differs from its source.
#[test]
fn a_mirror_follows_by_comparing_snapshots() {
    follow(Stamps::Renew, false);
}

#[test]
fn a_mirror_follows_by_the_seq_of_its_last_snapshot() {
    follow(Stamps::Renew, true);
}

/// Protects from a replica that caught up and does not know when what changed.
#[test]
fn a_replica_catches_up_with_the_stamps_of_its_source() {
    follow(Stamps::Keep, true);
}

#[test]
fn a_replica_catches_up_by_comparing_snapshots() {
    follow(Stamps::Keep, false);
}

/// Protects from an import that cannot go on after a crash, and from a volume that changes under
/// one.
#[test]
fn an_import_goes_on_after_a_kill_from_where_it_was() {
    let mut hand = Hand::new(POOL);
    let source = Source::new(&mut hand);
    let (snapshot, tags) = &source.snapshots[1];
    let ranges = changed(&mut hand, *snapshot, Since::Start, 1000);
    let volume = hand.create(GRANULES);
    let base = hand.snapshot(volume);
    let staging = stage(&mut hand, volume, base);
    for part in 0..ranges.len() {
        let progress = |hand: &Hand| {
            let found = hand.pool.volumes().into_iter().find(|info| info.id == staging);
            found.and_then(|info| info.staging).expect("it is listed").progress
        };
        assert_eq!(progress(&hand), part as u64, "what was said last");
        bring(&mut hand, *snapshot, staging, &ranges[part..=part], part as u64);
        hand = hand.killed(part as u64);
        assert_eq!(progress(&hand), part as u64 + 1, "a kill loses nothing");
    }
    let (position, offset, len) = (Position::new(1, 50), ByteOffset(0), ByteLen(GRANULE));
    let data = Data::copy_of(&hand::bytes_of(9));
    let meanwhile = [
        Op::Write { volume, position, offset, data },
        Op::Zero { volume, position, offset, len, how: Zeroing::Zeroes },
        Op::Grow { volume, position: Some(position), size: ByteLen(2 * GRANULES * GRANULE) },
        Op::Rollback { volume, position, to: base, force: true },
    ];
    for op in meanwhile {
        let error = hand.refused(op);
        assert!(matches!(error, OpError::Staging { .. }), "{error}");
    }
    hand.assert_holds(Subject::Volume(volume), &[0; 20], "nothing has changed yet");
    adopt(&mut hand, volume, staging, 60, Stamps::Renew);
    hand.assert_holds(Subject::Volume(volume), tags, "adopted");
    assert!(hand.pool.volumes().iter().all(|info| info.staging.is_none()), "it is gone");
    hand.write(volume, 0, 5);
    let error = hand.refused(Op::Stage { volume, base });
    assert!(matches!(error, OpError::BaseMoved { .. }), "{error}");
    hand.checked();
}

/// Protects from an import that leaves something behind when it is given up.
#[test]
fn an_abandoned_import_leaves_nothing_behind() {
    let mut hand = Hand::new(POOL);
    let source = Source::new(&mut hand);
    let (snapshot, _) = &source.snapshots[3];
    let ranges = changed(&mut hand, *snapshot, Since::Start, 1000);
    let volume = hand.create(GRANULES + 50);
    hand.write(volume, 5, 55);
    let base = hand.snapshot(volume);
    let start = hand.settle();
    for parts in [0, 1, ranges.len()] {
        let staging = stage(&mut hand, volume, base);
        bring(&mut hand, *snapshot, staging, &ranges[..parts], 0);
        if parts == 1 {
            hand.settle();
        }
        hand.delete(staging, SnapshotsOfDeleted::Refuse);
        hand.assert_holds(Subject::Volume(volume), &[0, 0, 0, 0, 0, 55, 0], "as it was");
        assert_eq!(hand.settle(), start, "after {parts} parts all space came back");
    }
    hand.write(volume, 0, 5);
    hand.checked();
}

/// Protects from an adoption that a power cut takes apart.
#[test]
fn a_power_cut_while_adopting_leaves_the_old_content_or_the_new_one() {
    let (mut old, mut new) = (0, 0);
    for boundary in 0..30 {
        let mut hand = Hand::new(POOL);
        let source = Source::new(&mut hand);
        let (snapshot, tags) = &source.snapshots[2];
        let ranges = changed(&mut hand, *snapshot, Since::Start, 1000);
        let volume = hand.create(GRANULES);
        let base = hand.snapshot(volume);
        let staging = stage(&mut hand, volume, base);
        bring(&mut hand, *snapshot, staging, &ranges, 0);
        hand.run(Op::Flush);
        let now = hand.pool.disk().write_boundary();
        hand.pool.disk_mut().refuse_at(now + boundary);
        let (position, stamps) = (Position::new(1, 60), Stamps::Renew);
        // Somewhere in the adoption, its flush, or the checkpoint behind it the power goes.
        let _ = hand.pool.run(Op::Adopt { volume, staging, position, stamps, state: None });
        let _ = hand.pool.run(Op::Flush);
        let _ = hand.pool.checkpoint();
        let mut rng = Rng::new(boundary);
        let disk = hand.pool.abandon();
        for image in disk.crash_images(SectorSize::B512, Budget::default(), &mut rng).take(20) {
            let disk = CrashDisk::from_image(image, 1);
            let pool = Pool::open(disk, open_options()).expect("opens");
            let mut hand = Hand::on(pool);
            let staged = hand.pool.volumes().iter().any(|info| info.staging.is_some());
            let held = if staged { &vec![0; tags.len()] } else { tags };
            hand.assert_holds(Subject::Volume(volume), held, "after a power cut");
            *if staged { &mut old } else { &mut new } += 1;
            hand.checked();
        }
    }
    println!("{old} images before the adoption, {new} after it");
    assert!(old > 0 && new > 0, "both sides of the moment were seen: {old} and {new}");
}
