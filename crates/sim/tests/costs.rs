//! What snapshots, their deletion and deltas cost, counted in map pages: never in time.
mod rot;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize, Seq};
use engine::{
    BlockSize, Changes, Compression, CreateOptions, Limits, Op, OpenOptions, Pool, Reply, Runs,
    Since, SnapshotId, SnapshotSpec, VolumeId, VolumeSpec,
};
use sim::{CrashDisk, Rng};

const GIB: u64 = 1 << 30;

struct Writer {
    pool: Pool<CrashDisk>,
    volume: VolumeId,
    seq: u64,
    rng: Rng,
    size: u64,
}

impl Writer {
    fn new(size: u64) -> Writer {
        let mut disk = CrashDisk::new(ByteLen(512 << 20), SectorSize::B4096, 5);
        let options = CreateOptions { uuid: *b"a pool of a test", ..CreateOptions::default() };
        engine::create(&mut disk, &options).expect("a fresh disk");
        let limits = Limits { cache_pages: 1 << 16, ..Limits::default() };
        let mut pool = Pool::open(disk, OpenOptions::with(limits)).expect("a fresh pool");
        let spec = VolumeSpec {
            name: "v".into(),
            size: ByteLen(size),
            block_size: BlockSize::DEFAULT,
            compression: Compression::Off,
            uid: [1; 16],
        };
        let Ok(Reply::Created(volume)) = pool.run(Op::Create { spec }) else {
            panic!("a volume can be made")
        };
        Writer { pool, volume, seq: 0, rng: Rng::new(7), size }
    }

    fn position(&mut self) -> Position {
        self.seq += 1;
        Position::new(1, self.seq)
    }

    /// Blocks at random places all over the volume.
    fn scatter(&mut self, count: u64) {
        for _ in 0..count {
            let offset = ByteOffset(self.rng.below(self.size / 4096) * 4096);
            let data = Data::copy_of(&[7; 4096]);
            let (volume, position) = (self.volume, self.position());
            self.pool.run(Op::Write { volume, position, offset, data }).expect("there is space");
        }
    }

    /// Blocks next to one another at the start of the volume.
    fn write_first(&mut self, count: u64) {
        for at in 0..count {
            let data = Data::copy_of(&[9; 4096]);
            let (volume, position) = (self.volume, self.position());
            let op = Op::Write { volume, position, offset: ByteOffset(at * 4096), data };
            self.pool.run(op).expect("there is space");
        }
    }

    fn snapshot(&mut self) -> SnapshotId {
        let name = format!("snapshot {}", self.seq);
        let spec = SnapshotSpec { name, uid: [2; 16], internal: false, created: 0 };
        let (volume, position) = (self.volume, self.position());
        match self.pool.run(Op::Snapshot { volume, position: Some(position), spec }) {
            Ok(Reply::Snapshotted(id)) => id,
            other => panic!("a snapshot ended as {other:?}"),
        }
    }

    fn settle(&mut self) {
        loop {
            self.pool.checkpoint().expect("a healthy disk");
            if self.pool.info().reclaimable.0 == 0 {
                return;
            }
        }
    }

    /// Pages that are read and written until an operation is done and in the maps.
    fn pages(&mut self, what: impl FnOnce(&mut Writer)) -> u64 {
        self.settle();
        let before = self.pool.counters();
        what(self);
        self.settle();
        let after = self.pool.counters();
        after.map_pages_written - before.map_pages_written + after.map_pages_read
            - before.map_pages_read
    }

    fn changed(&mut self, snapshot: SnapshotId, since: Since) -> Changes {
        let op = Op::Changed {
            snapshot,
            since,
            from: ByteOffset(0),
            to: None,
            max: 1 << 15,
            runs: Runs::Joined,
        };
        match self.pool.run(op) {
            Ok(Reply::Changed(changes)) => changes,
            other => panic!("the question ended as {other:?}"),
        }
    }
}

/// Protects from a snapshot whose price grows with the volume or with its history.
#[test]
fn a_snapshot_costs_the_same_whatever_the_volume_and_its_past() {
    let mut costs = Vec::new();
    for size in [GIB, 1024 * GIB] {
        let mut writer = Writer::new(size);
        writer.scatter(2_000);
        costs.push(writer.pages(|writer| {
            writer.snapshot();
        }));
    }
    let mut writer = Writer::new(GIB);
    writer.scatter(500);
    for _ in 0..1_000 {
        writer.snapshot();
        writer.scatter(1);
    }
    costs.push(writer.pages(|writer| {
        writer.snapshot();
    }));
    println!("pages for a snapshot: of 1 GiB, of 1 TiB, with 1,000 before it: {costs:?}");
    // Volume and snapshot, and the directory above them, which is a level higher with 1,000.
    assert!(costs[0] <= 8 && costs[2] <= costs[0] + 2, "{costs:?}");
    assert_eq!(costs[0], costs[1], "the size of the volume does not matter");
}

/// Protects from a deletion that walks what it does not free.
#[test]
fn deleting_a_snapshot_costs_what_it_frees() {
    let mut costs = Vec::new();
    for changed in [10, 100, 1_000] {
        let mut writer = Writer::new(64 * GIB);
        writer.scatter(10_000);
        let first = writer.snapshot();
        // In one place, so that what is freed grows with the number of blocks alone.
        writer.write_first(changed);
        let second = writer.snapshot();
        writer.write_first(changed);
        writer.settle();
        let before = writer.pool.counters().dropped_pages;
        let free = writer.pool.info().free;
        writer.pool.run(Op::DeleteSnapshot { snapshot: second }).expect("it is there");
        writer.settle();
        let pages = writer.pool.counters().dropped_pages - before;
        let freed = (writer.pool.info().free.0 - free.0) / 4096;
        costs.push((changed, freed, pages));
        assert!(freed >= changed, "{changed} blocks were only in this snapshot, {freed} freed");
        assert!(pages <= changed / 128 + 6, "{pages} pages for {changed} blocks");
        writer.pool.run(Op::DeleteSnapshot { snapshot: first }).expect("it is there");
        writer.settle();
    }
    println!("blocks only in the snapshot, pages freed, map pages looked into: {costs:?}");
}

/// Protects from a delta that walks what did not change.
#[test]
fn a_delta_looks_only_at_what_changed() {
    let mut writer = Writer::new(1024 * GIB);
    writer.scatter(15_000);
    let before = writer.snapshot();
    let since = Seq(writer.seq);
    writer.settle();
    writer.scatter(1_000);
    let after = writer.snapshot();
    writer.settle();
    let whole = writer.changed(after, Since::Start);
    let delta = writer.changed(after, Since::Seq(since));
    let pair = writer.changed(after, Since::Snapshot(before));
    println!("map pages: all {}, since {}, pair {}", whole.pages, delta.pages, pair.pages);
    let bytes = |changes: &Changes| changes.ranges.iter().map(|range| range.len.0).sum::<u64>();
    assert!((990 * 4096..=1_000 * 4096).contains(&bytes(&delta)), "{}", bytes(&delta));
    assert_eq!(delta.ranges, pair.ranges);
    // A leaf each, and the pages above them: the topmost two levels are shared.
    assert!(delta.pages <= 2 * 1_000 + 130, "{} pages for 1,000 blocks", delta.pages);
    assert!(whole.pages > 15_000, "the whole map is much larger");
    let none = writer.changed(after, Since::Seq(Seq(writer.seq)));
    assert!(none.ranges.is_empty() && none.pages <= 1, "nothing changed, {} pages", none.pages);
}
