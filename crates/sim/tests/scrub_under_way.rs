//! Scrubbing while the pool changes under it.
mod rot;
mod slow;

use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Data, Disk, Position, SectorSize};
use engine::{
    CloneSpec, Op, OpError, Pool, Reply, RequestId, SnapshotSpec, SnapshotsOfDeleted, Subject,
};
use rot::{bytes_of, create, fresh, write};
use sim::CrashDisk;
use sim::workload::open_options;
use slow::{Hold, Slow};

/// A closed pool: a volume, its snapshot, and a clone that has the snapshot's block 1 in a leaf of
/// its own.
fn scene() -> CrashDisk {
    let mut pool = fresh(8 << 20, SectorSize::B4096);
    let volume = create(&mut pool, "v", 1 << 20, 4096);
    write(&mut pool, volume, 1, 1);
    let spec = SnapshotSpec { name: "s".into(), uid: [2; 16], internal: false, created: 1 };
    let taken = pool.run(Op::Snapshot { volume, position: Some(Position::new(1, 2)), spec });
    let Ok(Reply::Snapshotted(snapshot)) = taken else { panic!("{taken:?}") };
    let spec = CloneSpec { name: "c".into(), uid: [3; 16], size: None };
    let cloned = pool.run(Op::Clone { snapshot, spec });
    let Ok(Reply::Created(clone)) = cloned else { panic!("{cloned:?}") };
    write(&mut pool, clone, 2, 3);
    let spec = SnapshotSpec { name: "t".into(), uid: [4; 16], internal: false, created: 1 };
    pool.run(Op::Snapshot { volume, position: Some(Position::new(1, 3)), spec })
        .expect("a healthy disk");
    pool.close().expect("a healthy pool")
}

fn opened(disk: CrashDisk) -> Pool<Slow> {
    Pool::open(Slow::new(disk), open_options()).expect("a healthy pool")
}

/// Begins to scrub, and keeps back the reads of one moment of it.
fn scrub_until(pool: &mut Pool<Slow>, moment: u64) {
    pool.begin_scrub();
    pool.checkpoint().expect("a healthy disk");
    pool.allow_scrub(ByteLen(1 << 20));
    for _ in 0..moment {
        pool.poll();
    }
    pool.disk_mut().hold = Hold::Reads;
    pool.poll();
    pool.disk_mut().hold = Hold::Nothing;
}

fn place_of(pool: &Pool<Slow>, bytes: &[u8]) -> ByteOffset {
    let mut written = pool.disk().disk.written_sectors();
    let holds =
        |at: &ByteOffset| at.0.is_multiple_of(4096) && pool.disk().disk.peek(*at, 4096) == bytes;
    written.find(holds).expect("it lies somewhere")
}

fn finish(pool: &mut Pool<Slow>) {
    for _ in 0..10_000 {
        pool.allow_scrub(ByteLen(1 << 20));
        pool.poll();
        if pool.scrub().expect("it was begun").finished {
            return;
        }
    }
    panic!("scrubbing never ends");
}

/// Protects from a pool that stops for good, because a volume went while scrubbing looked whether
/// it has a damaged block.
#[test]
fn an_owner_of_a_damaged_block_may_go_while_it_is_looked_for() {
    for moment in 0..40 {
        let mut pool = opened(scene());
        let clone = pool.volume_named("c").expect("it was cloned");
        let place = place_of(&pool, &bytes_of(1));
        pool.disk_mut().disk.flip(place, 1);
        scrub_until(&mut pool, moment);
        let snapshots = SnapshotsOfDeleted::Refuse;
        pool.submit(RequestId(1), Op::Delete { volume: clone, snapshots });
        // Deleting a snapshot brings a checkpoint about. That may need what is held back, so
        // nothing is waited for.
        let last = pool.snapshots().last().expect("there are two").id;
        pool.submit(RequestId(2), Op::DeleteSnapshot { snapshot: last });
        for _ in 0..200 {
            pool.poll();
        }
        pool.disk_mut().release();
        finish(&mut pool);
        let status = pool.scrub().expect("it was begun");
        assert_eq!(status.damages.len(), 1, "moment {moment}: {:?}", status.damages);
    }
}

/// Protects from answers to an earlier scrubbing that are taken for those of the next: healthy
/// blocks would be called damaged.
#[test]
fn scrubbing_that_begins_anew_does_not_take_old_answers_for_its_own() {
    for moment in 0..30 {
        let mut pool = opened(scene());
        scrub_until(&mut pool, moment);
        pool.begin_scrub();
        for _ in 0..200 {
            pool.poll();
        }
        let old = std::mem::take(&mut pool.disk_mut().held);
        pool.disk_mut().hold = Hold::Reads;
        pool.allow_scrub(ByteLen(1 << 20));
        pool.poll();
        // The old ones come back first, while the new ones are under way.
        old.into_iter().for_each(|(id, io)| pool.disk_mut().disk.submit(id, io));
        for _ in 0..20 {
            pool.poll();
        }
        pool.disk_mut().release();
        finish(&mut pool);
        let status = pool.scrub().expect("it was begun");
        assert!(status.damages.is_empty(), "moment {moment}: {:?}", status.damages);
    }
}

/// Protects from good bytes that arrive late, at a place which was given to somebody else
/// meanwhile: no epoch counts, and so no place is given away, before they have arrived.
#[test]
fn a_repair_that_the_device_keeps_back_never_lands_on_somebody_else() {
    let mut pool = opened(fresh(7 << 20, SectorSize::B4096).close().expect("a healthy pool"));
    let (volume, mut seq, mut model) = (make(&mut pool), 0, BTreeMap::new());
    let mut next = |pool: &mut Pool<Slow>, granule: u64| {
        seq += 1;
        let (position, offset) = (Position::new(1, seq), ByteOffset(granule * 4096));
        let mut bytes = bytes_of(seq);
        bytes[..8].copy_from_slice(&seq.to_le_bytes());
        let op = Op::Write { volume, position, offset, data: Data::copy_of(&bytes) };
        pool.submit(RequestId(seq), op);
        (seq, granule, bytes)
    };
    let (_, granule, damaged) = next(&mut pool, 7);
    model.insert(granule, damaged.clone());
    pool.checkpoint().expect("a healthy disk");
    let place = place_of(&pool, &damaged);
    pool.disk_mut().disk.flip(place, 1);
    pool.disk_mut().hold = Hold::WritesAt(place);
    let (of, offset) = (Subject::Volume(volume), ByteOffset(granule * 4096));
    pool.submit(RequestId(0), Op::Repair { of, offset, data: Data::copy_of(&damaged) });
    pool.poll();
    assert_eq!(pool.disk().held.len(), 1, "the repair is on its way");
    pool.disk_mut().hold = Hold::Nothing;
    // The block moves, and more is written than the pool has room for without giving places away.
    let mut asked = BTreeMap::new();
    for round in 0..6_000 {
        let (id, granule, bytes) = next(&mut pool, if round == 0 { 7 } else { round % 500 });
        asked.insert(RequestId(id), (granule, bytes));
        for _ in 0..4 {
            pool.poll();
        }
        while let Some((id, answer)) = pool.reply() {
            let known = asked.remove(&id);
            match (answer, known) {
                (Ok(_), Some((granule, bytes))) => drop(model.insert(granule, bytes)),
                // Nothing can be freed as long as no epoch counts, so the queue fills up.
                (Err(OpError::Busy | OpError::NoSpace { .. }) | Ok(_), _) => {}
                (Err(error), _) => panic!("{error}"),
            }
        }
    }
    let before = pool.info().epoch;
    pool.disk_mut().release();
    while !pool.is_quiet() {
        pool.wait();
        while let Some((id, answer)) = pool.reply() {
            if let (Ok(_), Some((granule, bytes))) = (answer, asked.remove(&id)) {
                model.insert(granule, bytes);
            }
        }
    }
    let after = pool.info().epoch;
    for (granule, bytes) in model {
        let read = Op::Read { volume, offset: ByteOffset(granule * 4096), len: ByteLen(4096) };
        match pool.run(read) {
            Ok(Reply::Read(found)) => assert!(found[..] == bytes, "granule {granule}"),
            other => panic!("granule {granule}: {other:?}"),
        }
    }
    assert!(after > before, "a checkpoint had waited for the repair");
}

fn make(pool: &mut Pool<Slow>) -> engine::VolumeId {
    let spec = engine::VolumeSpec {
        name: "v".into(),
        size: ByteLen(4 << 20),
        block_size: engine::BlockSize::DEFAULT,
        ..engine::VolumeSpec::default()
    };
    match pool.run(Op::Create { spec }) {
        Ok(Reply::Created(volume)) => volume,
        other => panic!("create ended as {other:?}"),
    }
}
