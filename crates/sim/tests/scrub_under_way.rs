//! Scrubbing while the pool changes under it.
mod rot;

use std::time::Duration;

use block::{
    ByteLen, ByteOffset, Completion, Disk, Geometry, Io, IoId, Position, SectorSize, Wait,
};
use engine::{CloneSpec, Op, Pool, Reply, RequestId, SnapshotSpec, SnapshotsOfDeleted};
use rot::{bytes_of, create, fresh, write};
use sim::CrashDisk;
use sim::workload::open_options;

/// A disk that keeps back reads for a while, as a slow device would.
struct SlowReads {
    disk: CrashDisk,
    holding: bool,
    held: Vec<(IoId, Io)>,
}

impl SlowReads {
    fn release(&mut self) {
        self.holding = false;
        let held = std::mem::take(&mut self.held);
        held.into_iter().for_each(|(id, io)| self.disk.submit(id, io));
    }
}

impl Disk for SlowReads {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    fn submit(&mut self, id: IoId, io: Io) {
        match io {
            Io::Read { .. } if self.holding => self.held.push((id, io)),
            io => self.disk.submit(id, io),
        }
    }
    fn kick(&mut self) {
        self.disk.kick();
    }
    fn complete(&mut self) -> Option<Completion> {
        self.disk.complete()
    }
}

impl Wait for SlowReads {
    fn wait(&mut self, at_most: Option<Duration>) {
        self.disk.wait(at_most);
    }
}

/// A closed pool: a volume, its snapshot, and a clone that has the snapshot's block 1 in a leaf of
/// its own.
fn scene() -> CrashDisk {
    let mut pool = fresh(8 << 20, SectorSize::B4096);
    let volume = create(&mut pool, "v", 1 << 20, 4096);
    write(&mut pool, volume, 1, 1);
    let spec = SnapshotSpec { name: "s".into(), uid: [2; 16], internal: false, created: 1 };
    let taken = pool.run(Op::Snapshot { volume, position: Position::new(1, 2), spec });
    let Ok(Reply::Snapshotted(snapshot)) = taken else { panic!("{taken:?}") };
    let spec = CloneSpec { name: "c".into(), uid: [3; 16], size: None };
    let cloned = pool.run(Op::Clone { snapshot, spec });
    let Ok(Reply::Created(clone)) = cloned else { panic!("{cloned:?}") };
    write(&mut pool, clone, 2, 3);
    let spec = SnapshotSpec { name: "t".into(), uid: [4; 16], internal: false, created: 1 };
    pool.run(Op::Snapshot { volume, position: Position::new(1, 3), spec }).expect("a healthy disk");
    pool.close().expect("a healthy pool")
}

fn opened(disk: CrashDisk) -> Pool<SlowReads> {
    let slow = SlowReads { disk, holding: false, held: Vec::new() };
    Pool::open(slow, open_options()).expect("a healthy pool")
}

fn finish(pool: &mut Pool<SlowReads>) {
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
        let at: Vec<ByteOffset> = pool.disk().disk.written_sectors().collect();
        let holds = |at: &ByteOffset| pool.disk().disk.peek(*at, 4096) == bytes_of(1);
        let place = at.into_iter().find(holds).expect("block 1 lies somewhere");
        pool.disk_mut().disk.flip(place, 1);
        pool.begin_scrub();
        pool.checkpoint().expect("a healthy disk");
        pool.allow_scrub(ByteLen(1 << 20));
        for _ in 0..moment {
            pool.poll();
        }
        pool.disk_mut().holding = true;
        pool.poll();
        pool.disk_mut().holding = false;
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
        pool.begin_scrub();
        pool.checkpoint().expect("a healthy disk");
        pool.allow_scrub(ByteLen(1 << 20));
        for _ in 0..moment {
            pool.poll();
        }
        pool.disk_mut().holding = true;
        pool.poll();
        pool.disk_mut().holding = false;
        pool.begin_scrub();
        for _ in 0..200 {
            pool.poll();
        }
        let old = std::mem::take(&mut pool.disk_mut().held);
        pool.disk_mut().holding = true;
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
