//! Scrubbing: every flipped byte is found, whoever has it is named, and what can be mended is.
mod rot;
mod seeds;

use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::check::{Depth, check};
use engine::{
    CloneSpec, Op, OpError, Part, Pool, Reply, ScrubStatus, SnapshotId, SnapshotSpec, Subject,
    VolumeId,
};
use rot::{bytes_of, create, fresh, write};
use sim::workload::open_options;
use sim::{CrashDisk, Rng};

/// A volume with two snapshots and a clone of the first; what is at which granule.
struct Scene {
    volume: VolumeId,
    clone: VolumeId,
    snapshots: [SnapshotId; 2],
}

fn snapshot(pool: &mut Pool<CrashDisk>, volume: VolumeId, seq: u64, name: &str) -> SnapshotId {
    let spec = SnapshotSpec { name: name.into(), uid: [2; 16], internal: false, created: 1 };
    match pool.run(Op::Snapshot { volume, position: Some(Position::new(1, seq)), spec }) {
        Ok(Reply::Snapshotted(id)) => id,
        other => panic!("a snapshot ended as {other:?}"),
    }
}

fn scene(sector: SectorSize) -> (Pool<CrashDisk>, Scene) {
    let mut pool = fresh(8 << 20, sector);
    let volume = create(&mut pool, "v", 1 << 30, 4096);
    for (seq, granule) in [(1, 0), (2, 1), (3, 200), (4, 100_000)] {
        write(&mut pool, volume, granule, seq);
    }
    let first = snapshot(&mut pool, volume, 5, "first");
    write(&mut pool, volume, 1, 6);
    write(&mut pool, volume, 2, 7);
    let second = snapshot(&mut pool, volume, 8, "second");
    write(&mut pool, volume, 0, 9);
    let spec = CloneSpec { name: "c".into(), uid: [3; 16], size: None };
    let clone = match pool.run(Op::Clone { snapshot: first, spec }) {
        Ok(Reply::Created(id)) => id,
        other => panic!("a clone ended as {other:?}"),
    };
    write(&mut pool, clone, 3, 6);
    // Both pairs of superblocks, and nothing left to be dropped.
    pool.checkpoint().expect("a healthy disk");
    pool.checkpoint().expect("a healthy disk");
    (pool, Scene { volume, clone, snapshots: [first, second] })
}

/// Scrubs all of a pool, a little at a time.
fn scrub(pool: &mut Pool<CrashDisk>) -> ScrubStatus {
    pool.begin_scrub();
    loop {
        pool.allow_scrub(ByteLen(16 << 10));
        pool.poll();
        while !pool.is_quiet() {
            pool.wait();
        }
        let status = pool.scrub().expect("it was begun");
        if status.finished {
            return status.clone();
        }
        pool.wait();
    }
}

fn place_of(pool: &mut Pool<CrashDisk>, bytes: &[u8]) -> Vec<ByteOffset> {
    let sectors: Vec<ByteOffset> = pool.disk().written_sectors().collect();
    let holds = |at: &ByteOffset| at.0.is_multiple_of(4096) && pool.disk().peek(*at, 4096) == bytes;
    sectors.into_iter().filter(holds).collect()
}

/// Protects from damage that nobody looks for: what an offline check of the same bytes calls
/// damaged, scrubbing finds; and it finds nothing in a healthy pool.
fn every_flipped_byte(sector: SectorSize) {
    let (mut pool, _) = scene(sector);
    let healthy = scrub(&mut pool);
    assert_eq!(healthy.damages, [], "a healthy pool");
    assert!(healthy.verified.0 > 40 * 4096, "only {} were looked at", healthy.verified);
    let sectors: Vec<ByteOffset> = pool.disk().written_sectors().collect();
    let (mut found, mut mended, mut rng) = (BTreeMap::new(), 0, Rng::new(11));
    for start in sectors {
        let at = ByteOffset(start.0 + rng.below(512));
        let mask = 1 << rng.below(8);
        pool.disk_mut().flip(at, mask);
        let mut copy = CrashDisk::from_image(pool.disk().durable_image(), 1);
        let harm = match check(&mut copy, Depth::Data) {
            Ok(report) => !report.is_clean() || report.superblocks_to_mend > 0,
            Err(_) => true,
        };
        let before = pool.disk().peek(start, 512);
        let status = scrub(&mut pool);
        // The checkpoint with which scrubbing begins may have written it anew.
        let gone = || {
            let mut copy = CrashDisk::from_image(pool.disk().durable_image(), 1);
            let found = check(&mut copy, Depth::Data);
            found.is_ok_and(|report| report.is_clean() && report.superblocks_to_mend == 0)
        };
        let seen = !status.damages.is_empty();
        assert!(!harm || seen || gone(), "a flip at {at} was not found");
        for damage in &status.damages {
            *found.entry(name(&damage.part)).or_insert(0) += 1;
            let range = damage.at.0..damage.at.0 + damage.len.0;
            assert!(range.contains(&at.0), "a flip at {at} is reported as {damage:?}");
        }
        mended += status.repaired;
        if pool.disk().peek(start, 512) == before {
            pool.disk_mut().flip(at, mask);
        }
        assert_eq!(scrub(&mut pool).damages, [], "after a flip at {at} was undone or mended");
    }
    println!("{sector:?}: {found:?}, {mended} mended");
    for part in ["superblock", "directory", "space map", "map", "data"] {
        assert!(found.get(part).is_some_and(|count| *count >= 4), "{part}: {found:?}");
    }
}

fn name(part: &Part) -> &'static str {
    match part {
        Part::Superblock => "superblock",
        Part::Journal => "journal",
        Part::Directory => "directory",
        Part::SpaceMap => "space map",
        Part::Map { .. } => "map",
        Part::Data { .. } => "data",
    }
}

#[test]
fn every_flipped_byte_of_small_sectors_is_found() {
    every_flipped_byte(SectorSize::B512);
}

#[test]
fn every_flipped_byte_of_large_sectors_is_found() {
    every_flipped_byte(SectorSize::B4096);
}

/// Protects from live slots of the journal that nobody looks at: what they recorded is put into
/// the maps while memory still has it.
#[test]
fn a_damaged_slot_is_found_and_no_longer_needed() {
    let (mut pool, scene) = scene(SectorSize::B4096);
    pool.begin_scrub();
    pool.allow_scrub(ByteLen(1));
    while pool.scrub().is_some_and(|status| status.verified.0 == 0) {
        pool.poll();
        pool.wait();
    }
    // Superblocks were looked at; now slots come that the maps do not have yet.
    write(&mut pool, scene.volume, 7, 20);
    pool.run(Op::Flush).expect("a healthy disk");
    let slots = (2 << 20)..(2 << 20) + (256 << 10);
    let journal: Vec<ByteOffset> = pool
        .disk()
        .written_sectors()
        .filter(|at| slots.contains(&at.0) && at.0.is_multiple_of(4096))
        .collect();
    for at in &journal {
        pool.disk_mut().flip(ByteOffset(at.0 + 80), 4);
    }
    while !pool.scrub().is_some_and(|status| status.finished) {
        pool.allow_scrub(ByteLen(1 << 20));
        pool.poll();
        pool.wait();
    }
    let status = pool.scrub().expect("it was begun").clone();
    assert!(status.damages.iter().any(|damage| damage.part == Part::Journal), "{status:?}");
    pool.checkpoint().expect("a healthy disk");
    let mut pool = Pool::open(pool.abandon().after_kill(2), open_options()).expect("opens");
    let read = Op::Read { volume: scene.volume, offset: ByteOffset(7 * 4096), len: ByteLen(4096) };
    match pool.run(read) {
        Ok(Reply::Read(bytes)) => assert_eq!(&bytes[..], bytes_of(7)),
        other => panic!("a read ended as {other:?}"),
    }
}

/// Protects from damage that is reported for one owner and left in the others; and from a repair
/// with bytes that are not what was stored.
#[test]
fn owners_are_named_and_repaired_together() {
    let (mut pool, scene) = scene(SectorSize::B4096);
    let [first, second] = scene.snapshots;
    // Granule 200 was never written again: everybody has it.
    let places = place_of(&mut pool, &bytes_of(200));
    let [place] = places[..] else { panic!("one copy of the block, not {places:?}") };
    pool.disk_mut().flip(ByteOffset(place.0 + 17), 0x20);
    let status = scrub(&mut pool);
    let [damage] = &status.damages[..] else { panic!("one damage, not {:?}", status.damages) };
    let Part::Data { offset, owners } = &damage.part else { panic!("{damage:?}") };
    let mut owners = owners.clone();
    owners.sort();
    let all = [
        Subject::Volume(scene.volume),
        Subject::Volume(scene.clone),
        Subject::Snapshot(first),
        Subject::Snapshot(second),
    ];
    assert_eq!((*offset, &owners[..]), (ByteOffset(200 * 4096), &all[..]));
    let good = Data::copy_of(&bytes_of(200));
    let other = Data::copy_of(&bytes_of(199));
    let of = Subject::Snapshot(second);
    let refused = pool.run(Op::Repair { of, offset: *offset, data: other });
    assert!(matches!(refused, Err(OpError::OtherBytes { .. })), "{refused:?}");
    pool.run(Op::Repair { of, offset: *offset, data: good }).expect("the right bytes");
    assert_eq!(scrub(&mut pool).damages, []);
    let read = Op::Read { volume: scene.clone, offset: *offset, len: ByteLen(4096) };
    match pool.run(read) {
        Ok(Reply::Read(bytes)) => assert_eq!(&bytes[..], bytes_of(200)),
        other => panic!("a read ended as {other:?}"),
    }
}

/// Protects from a repair, or a mended page, that lands in a place which was given to somebody
/// else meanwhile: scrubbing and repairing go on beside writes, and nothing is ever wrong.
#[test]
fn repairs_do_not_race_live_writes() {
    let paths = seeds::run(1..41, |seed| {
        let mut rng = Rng::new(seed);
        let (mut pool, scene) = scene(SectorSize::B4096);
        let mut newest = BTreeMap::from([(0, 0), (1, 1), (2, 2), (200, 200), (100_000, 100_000)]);
        let (mut seq, mut id, mut waiting, mut repaired) = (100, 0, 0, 0);
        for step in 0..400u64 {
            let granules: Vec<u64> = newest.keys().copied().collect();
            let granule = *rng.pick(&granules);
            match rng.below(6) {
                0 => {
                    for place in place_of(&mut pool, &bytes_of(newest[&granule])) {
                        pool.disk_mut().flip(ByteOffset(place.0 + rng.below(4096)), 8);
                    }
                }
                1 | 2 => {
                    let data = Data::copy_of(&bytes_of(newest[&granule]));
                    let (of, offset) = (Subject::Volume(scene.volume), ByteOffset(granule * 4096));
                    (id, waiting) = (id + 1, waiting + 1);
                    pool.submit(engine::RequestId(id), Op::Repair { of, offset, data });
                }
                3 => pool.begin_scrub(),
                _ => {
                    seq += 1;
                    let value = step * 1_000 + granule % 1_000;
                    newest.insert(granule, value);
                    let data = Data::copy_of(&bytes_of(value));
                    let (volume, position) = (scene.volume, Position::new(1, seq));
                    let offset = ByteOffset(granule * 4096);
                    (id, waiting) = (id + 1, waiting + 1);
                    let op = Op::Write { volume, position, offset, data };
                    pool.submit(engine::RequestId(id), op);
                }
            }
            pool.allow_scrub(ByteLen(1 << 16));
            pool.poll();
            if rng.chance(1, 3) {
                while waiting > 0 {
                    while let Some((_, answer)) = pool.reply() {
                        waiting -= 1;
                        repaired += u64::from(answer.is_ok());
                    }
                    if waiting > 0 {
                        pool.wait();
                    }
                }
            }
        }
        while pool.reply().is_some() || !pool.is_quiet() {
            pool.wait();
        }
        // Bring everything back, then nothing may be wrong anywhere.
        for (granule, value) in &newest {
            let data = Data::copy_of(&bytes_of(*value));
            let (of, offset) = (Subject::Volume(scene.volume), ByteOffset(granule * 4096));
            pool.run(Op::Repair { of, offset, data }).expect("what the model has was stored");
        }
        let blocks_of_snapshots = [(0, 0), (1, 1), (200, 200), (100_000, 100_000)];
        for (granule, value) in blocks_of_snapshots {
            let data = Data::copy_of(&bytes_of(value));
            let (of, offset) = (Subject::Snapshot(scene.snapshots[0]), ByteOffset(granule * 4096));
            pool.run(Op::Repair { of, offset, data }).expect("what the snapshot has");
        }
        let second = Subject::Snapshot(scene.snapshots[1]);
        for (of, granule) in [(second, 1), (second, 2), (Subject::Volume(scene.clone), 3)] {
            let (data, offset) = (Data::copy_of(&bytes_of(granule)), ByteOffset(granule * 4096));
            pool.run(Op::Repair { of, offset, data }).expect("what it has");
        }
        let status = scrub(&mut pool);
        assert_eq!(status.damages, [], "after everything was repaired");
        let mut paths = sim::workload::Paths::default();
        paths.add("answered", repaired);
        paths
    });
    println!("{:?}", paths.counts);
}

/// Protects from a page that is called mended though the device did not take the good copy.
#[test]
fn a_copy_that_cannot_be_written_stays_reported() {
    let (mut pool, _) = scene(SectorSize::B4096);
    let healthy: Vec<ByteOffset> = pool.disk().written_sectors().collect();
    let magic = |at: &&ByteOffset| {
        let page = pool.disk().peek(**at, 512);
        at.0.is_multiple_of(4096) && page[8..12] == *b"PLXP" && page[14] == 1
    };
    // Some map pages are older versions that nobody has; those are not looked at.
    let pages: Vec<ByteOffset> = healthy.iter().filter(magic).copied().collect();
    let mut refused = 0;
    for at in pages {
        pool.disk_mut().flip(ByteOffset(at.0 + 100), 1);
        let damaged = pool.disk().peek(at, 512);
        pool.disk_mut().fail_writes(at, ByteLen(4096));
        let status = scrub(&mut pool);
        for damage in &status.damages {
            assert_eq!((damage.at, damage.repaired), (at, false), "{damage:?}");
            refused += 1;
        }
        assert_eq!(status.repaired, 0, "nothing was mended");
        pool.disk_mut().heal();
        // The checkpoint with which scrubbing begins may have written it anew.
        if pool.disk().peek(at, 512) == damaged {
            pool.disk_mut().flip(ByteOffset(at.0 + 100), 1);
        }
    }
    assert!(refused >= 4, "only {refused} damaged pages were found");
    assert_eq!(scrub(&mut pool).damages, []);
}
