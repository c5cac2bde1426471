//! Pools in a known state, of everything that the format can say. Images of them are kept for
//! every version of the format, and opened for ever.
use block::{ByteLen, ByteOffset, Data, Position, SectorSize, Seq};
use engine::check::{Depth, check};
use engine::{
    BlockSize, CloneSpec, CreateOptions, Limits, Op, OpenOptions, Pool, Reply, SnapshotId,
    SnapshotSpec, SnapshotsOfDeleted, Staged, VolumeId, VolumeSpec, Zeroing,
};

use crate::{CrashDisk, Image};

/// How a pool was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// In order: nothing to replay.
    Closed,
    /// Killed, with updates, snapshots and more in its journal.
    Killed,
}

const COMPRESSIONS: [&str; 6] = ["off", "lz4", "gzip-1", "gzip-9", "zle", "lzjb"];
const MIB: u64 = 1 << 20;

/// Small, so that images are, and so that work is left unfinished.
fn options() -> OpenOptions {
    OpenOptions::with(Limits { cache_pages: 64, emptied_leaves: 1, ..Limits::default() })
}

/// Bytes that compress a little, each value in its own way.
fn bytes(value: u64, len: usize) -> Vec<u8> {
    let byte = |at: usize| {
        let word = (at as u64 / 48 + value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if at % 48 < 20 { word.to_le_bytes()[at % 8] | 1 } else { 0 }
    };
    (0..len).map(byte).collect()
}

struct Scene {
    pool: Pool<CrashDisk>,
    seq: u64,
}

impl Scene {
    fn run(&mut self, op: Op) -> Reply {
        self.pool.run(op).unwrap_or_else(|error| panic!("a fixture could not be made: {error}"))
    }

    fn position(&mut self) -> Position {
        self.seq += 1;
        Position::new(3, self.seq)
    }

    fn create(&mut self, name: &str, size: u64, block_size: u64, compression: &str) -> VolumeId {
        let spec = VolumeSpec {
            name: name.into(),
            size: ByteLen(size),
            block_size: BlockSize::new(block_size).expect("a legal block size"),
            compression: compression.parse().expect("a legal name"),
            uid: [7; 16],
        };
        match self.run(Op::Create { spec }) {
            Reply::Created(id) => id,
            other => panic!("create ended as {other:?}"),
        }
    }

    fn write(&mut self, volume: VolumeId, offset: u64, len: usize, value: u64) {
        let (position, data) = (self.position(), Data::copy_of(&bytes(value, len)));
        self.run(Op::Write { volume, position, offset: ByteOffset(offset), data });
    }

    fn zero(&mut self, volume: VolumeId, offset: u64, len: u64, how: Zeroing) {
        let (offset, len, position) = (ByteOffset(offset), ByteLen(len), self.position());
        self.run(Op::Zero { volume, position, offset, len, how });
    }

    fn snapshot(&mut self, volume: VolumeId, name: &str, internal: bool) -> SnapshotId {
        let spec = SnapshotSpec { name: name.into(), uid: [8; 16], internal, created: 1_234_567 };
        let position = self.position();
        match self.run(Op::Snapshot { volume, position: Some(position), spec }) {
            Reply::Snapshotted(id) => id,
            other => panic!("a snapshot ended as {other:?}"),
        }
    }

    fn clone_of(&mut self, snapshot: SnapshotId, name: &str) -> VolumeId {
        let spec = CloneSpec { name: name.into(), uid: [9; 16], size: Some(ByteLen(80 * MIB)) };
        match self.run(Op::Clone { snapshot, spec }) {
            Reply::Created(id) => id,
            other => panic!("a clone ended as {other:?}"),
        }
    }

    /// The history that every image holds.
    fn play(&mut self) {
        for name in COMPRESSIONS {
            let volume = self.create(name, 8 * MIB, 65536, name);
            self.write(volume, 0, 1 << 17, 1);
            self.write(volume, 5 * MIB + 512, 3 * 512, 2);
        }
        let main = self.create("main", 64 * MIB, 4096, "off");
        self.write(main, 0, 8192, 10);
        self.write(main, 40 * MIB, 1 << 16, 11);
        let first = self.snapshot(main, "first", false);
        self.write(main, 4096, 4096, 12);
        self.zero(main, 40 * MIB, 4096, Zeroing::Zeroes);
        let second = self.snapshot(main, "second", false);
        let copy = self.clone_of(first, "copy");
        self.write(copy, 79 * MIB, 4096, 13);
        let position = self.position();
        self.run(Op::Rollback { volume: main, position, to: first, force: false });
        self.write(main, 8192, 4096, 14);
        self.run(Op::Attach { volume: main, attached: true });
        // A snapshot that is needed by a clone, and its volume gone.
        let gone = self.create("gone", 64 * MIB, 4096, "off");
        self.write(gone, 0, 4096, 20);
        let origin = self.snapshot(gone, "origin", false);
        let heir = self.clone_of(origin, "heir");
        self.write(heir, 4096, 4096, 21);
        self.run(Op::Delete { volume: gone, snapshots: SnapshotsOfDeleted::Delete });
        let _ = second;
        self.import();
        // More to drop than one checkpoint does.
        let torn = self.create("torn", 512 * MIB, 4096, "off");
        (0..24).for_each(|leaf| self.write(torn, leaf * 4 * MIB, 512, 30 + leaf));
        let old = self.snapshot(torn, "old", true);
        (0..24).for_each(|leaf| self.write(torn, leaf * 4 * MIB, 512, 60 + leaf));
        self.pool.checkpoint().expect("a healthy disk");
        self.run(Op::DeleteSnapshot { snapshot: old });
        self.zero(torn, 32 * MIB, 400 * MIB, Zeroing::Discard);
        let (position, state) = (self.position(), b"what replication keeps".to_vec());
        self.run(Op::SetState { volume: torn, position: Some(position), state });
        self.pool.checkpoint().expect("a healthy disk");
    }

    /// An import that is not finished.
    fn import(&mut self) {
        let into = self.create("into", 8 * MIB, 4096, "off");
        self.write(into, 0, 4096, 25);
        let base = self.snapshot(into, "base", true);
        let staging = match self.run(Op::Stage { volume: into, base }) {
            Reply::Created(id) => id,
            other => panic!("staging ended as {other:?}"),
        };
        let content = Staged::Bytes(Data::copy_of(&bytes(26, 4096)));
        let (changed, offset) = (Seq(5), ByteOffset(4096));
        self.run(Op::StageData { staging, changed, offset, content, progress: 8192 });
    }

    /// What the journal of a killed pool holds.
    fn more(&mut self) {
        let main = self.pool.volume_named("main").expect("it was made");
        self.write(main, 12288, 4096, 15);
        self.snapshot(main, "last", false);
        self.write(main, 12288, 4096, 16);
        let (position, size) = (self.position(), ByteLen(96 * MIB));
        self.run(Op::Grow { volume: main, position: Some(position), size });
        let position = self.position();
        self.run(Op::Mark { volume: main, position });
        let late = self.create("late", 8 * MIB, 65536, "lz4");
        self.write(late, 0, 1 << 16, 17);
        let (position, state) = (self.position(), b"of the journal".to_vec());
        self.run(Op::SetState { volume: late, position: Some(position), state });
        self.run(Op::Attach { volume: late, attached: true });
        self.run(Op::Flush);
    }
}

/// Makes a pool and leaves it.
pub fn make(sector: SectorSize, left: Left) -> Image {
    let mut disk =
        CrashDisk::new(ByteLen(16 * MIB), SectorSize::B512, 5).with_physical_sector(sector);
    let create = CreateOptions { uuid: *b"a kept pool .. 1", ..CreateOptions::default() };
    engine::create(&mut disk, &create).expect("a fresh disk");
    let pool = Pool::open(disk, options()).expect("a fresh pool");
    let mut scene = Scene { pool, seq: 0 };
    scene.play();
    match left {
        Left::Closed => scene.pool.close().expect("a healthy disk").durable_image(),
        Left::Killed => {
            scene.more();
            scene.pool.abandon().durable_image()
        }
    }
}

fn compare(found: Result<Reply, engine::OpError>, value: u64) -> Result<(), String> {
    match found {
        Ok(Reply::Read(data)) if value == 0 && data.iter().all(|byte| *byte == 0) => Ok(()),
        Ok(Reply::Read(data)) if value > 0 && data[..] == bytes(value, data.len())[..] => Ok(()),
        other => Err(format!("value {value} is read as {other:?}")),
    }
}

/// Opens an image and compares everything that [`make`] put there.
pub fn verify(image: Image, left: Left) -> Result<(), String> {
    let mut disk = CrashDisk::from_image(image, 1);
    let report = check(&mut disk, Depth::Data).map_err(|error| error.to_string())?;
    if !report.is_clean() {
        return Err(format!("check found {:?}", report.problems));
    }
    let found = engine::inspect(&mut disk).map_err(|error| error.to_string())?;
    if found.info.reclaimable.0 == 0 || found.snapshots.iter().all(|found| !found.hidden) {
        return Err("nothing is left to be dropped".into());
    }
    let mut pool = Pool::open(disk, options()).map_err(|error| error.to_string())?;
    if (pool.counters().replayed_slots > 0) != (left == Left::Killed) {
        return Err(format!("{} slots were replayed", pool.counters().replayed_slots));
    }
    let read = |pool: &mut Pool<CrashDisk>, name: &str, offset: u64, len: u64, value: u64| {
        let volume = pool.volume_named(name).ok_or_else(|| format!("volume {name} is missing"))?;
        let found = pool.run(Op::Read { volume, offset: ByteOffset(offset), len: ByteLen(len) });
        compare(found, value).map_err(|problem| format!("{name} at {offset}: {problem}"))
    };
    for name in COMPRESSIONS {
        read(&mut pool, name, 0, 1 << 17, 1)?;
        read(&mut pool, name, 5 * MIB + 512, 3 * 512, 2)?;
        read(&mut pool, name, 5 * MIB, 512, 0)?;
    }
    let newest = if left == Left::Killed { 16 } else { 0 };
    for (name, offset, len, value) in [
        ("main", 0, 8192, 10),
        ("main", 8192, 4096, 14),
        ("main", 12288, 4096, newest),
        ("main", 40 * MIB, 1 << 16, 11),
        ("copy", 0, 8192, 10),
        ("copy", 40 * MIB, 1 << 16, 11),
        ("copy", 79 * MIB, 4096, 13),
        ("heir", 0, 4096, 20),
        ("heir", 4096, 4096, 21),
        ("into", 0, 4096, 25),
        ("into", 4096, 4096, 0),
        ("torn", 28 * MIB, 512, 67),
        ("torn", 32 * MIB, 512, 0),
    ] {
        read(&mut pool, name, offset, len, value)?;
    }
    if left == Left::Killed {
        read(&mut pool, "late", 0, 1 << 16, 17)?;
    }
    verify_snapshots(&mut pool, left)?;
    verify_facts(&pool, left)
}

fn verify_snapshots(pool: &mut Pool<CrashDisk>, left: Left) -> Result<(), String> {
    let shown: Vec<(String, SnapshotId)> = pool
        .snapshots()
        .into_iter()
        .filter(|snapshot| !snapshot.hidden)
        .map(|snapshot| (snapshot.name, snapshot.id))
        .collect();
    let names: Vec<&str> = shown.iter().map(|(name, _)| name.as_str()).collect();
    let expected: &[&str] = match left {
        Left::Closed => &["first", "second", "base"],
        Left::Killed => &["first", "second", "base", "last"],
    };
    if names != expected {
        return Err(format!("the snapshots are {names:?}, not {expected:?}"));
    }
    for (name, offset, len, value) in [
        ("first", 0, 8192, 10),
        ("first", 40 * MIB, 1 << 16, 11),
        ("second", 4096, 4096, 12),
        ("second", 40 * MIB, 4096, 0),
        ("base", 0, 4096, 25),
        ("last", 12288, 4096, 15),
    ] {
        let Some((_, snapshot)) = shown.iter().find(|(found, _)| found == name) else { continue };
        let (snapshot, offset, len) = (*snapshot, ByteOffset(offset), ByteLen(len));
        compare(pool.run(Op::ReadSnapshot { snapshot, offset, len }), value)
            .map_err(|problem| format!("snapshot {name} at {offset}: {problem}"))?;
    }
    Ok(())
}

fn verify_facts(pool: &Pool<CrashDisk>, left: Left) -> Result<(), String> {
    let volumes = pool.volumes();
    let volume = |name: &str| volumes.iter().find(|v| v.name == name && v.staging.is_none());
    let staging = volumes.iter().find_map(|volume| volume.staging);
    let late = volume("late").is_some_and(|late| late.attached && late.state == b"of the journal");
    let facts = [
        ("late is there if the journal has it", late == (left == Left::Killed)),
        ("main is attached", volume("main").is_some_and(|volume| volume.attached)),
        ("copy has grown", volume("copy").is_some_and(|volume| volume.size.0 == 80 * MIB)),
        ("an import waits at 8192", staging.is_some_and(|staging| staging.progress == 8192)),
        (
            "torn has its state",
            volume("torn").is_some_and(|volume| volume.state == b"what replication keeps"),
        ),
    ];
    match facts.iter().find(|(_, holds)| !holds) {
        Some((fact, _)) => Err(format!("it does not hold that {fact}")),
        None => Ok(()),
    }
}
