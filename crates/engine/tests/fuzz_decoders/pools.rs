//! Whole pools, in every state that has bytes of its own, with the places of their structures.
use block::{ByteLen, ByteOffset, Data, Position, SectorSize, Seq};
use engine::check::{self, Depth};
use engine::{
    BlockSize, CloneSpec, Compression, CreateOptions, Limits, Op, OpenOptions, Pool, Reply,
};
use engine::{SnapshotId, SnapshotSpec, SnapshotsOfDeleted, Staged, Stamps, VolumeId};
use engine::{VolumeSpec, Zeroing};

use crate::disk::{MemDisk, PAGE};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Superblock,
    Slot,
    Page,
}

#[derive(Clone, Copy)]
pub struct Structure {
    pub kind: Kind,
    pub at: usize,
    pub len: usize,
}

impl std::fmt::Debug for Structure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at {:#x}", self.kind, self.at)
    }
}

pub struct Image {
    pub name: String,
    pub disk: MemDisk,
    pub structures: Vec<Structure>,
}

/// Pools in every state that has bytes of its own: new, closed, and lost with a journal to replay.
pub fn images() -> Vec<Image> {
    let mut images = Vec::new();
    for sector in [SectorSize::B512, SectorSize::B4096] {
        for ending in ["new", "closed", "lost"] {
            let disk = made(sector, ending);
            let mut structures = disk.structures();
            // Only what opening or checking looks at is worth changing.
            let mut looked = disk.clone();
            let report = check::check(&mut looked, Depth::Data).expect("the image is whole");
            assert_eq!(report.problems, Vec::<String>::new(), "{sector:?} {ending}");
            let pool = Pool::open(looked, OpenOptions::with(Limits::tiny()));
            let looked = pool.expect("the image is whole").abandon();
            structures.retain(|s| looked.looked_at.contains(&(s.at / PAGE)));
            for kind in [Kind::Superblock, Kind::Slot, Kind::Page] {
                let some = structures.iter().any(|s| s.kind == kind);
                assert!(some || ending != "lost", "a lost pool without {kind:?}");
            }
            let name = format!("{ending} pool of {} B sectors", sector.bytes());
            images.push(Image { name, disk, structures });
        }
    }
    images
}

fn made(sector: SectorSize, ending: &str) -> MemDisk {
    let mut disk = MemDisk::blank(sector);
    // The tag of the pool is 0, which is the one that `decode_any` takes slots of.
    let uuid = [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let journal = Some(ByteLen(256 << 10));
    let options = CreateOptions { uuid, journal, ..CreateOptions::default() };
    engine::create(&mut disk, &options).expect("a pool fits");
    if ending == "new" {
        return disk;
    }
    let pool = Pool::open(disk, OpenOptions::with(Limits::tiny())).expect("it is new");
    let mut owner = Owner { pool, seq: 0 };
    // Maps of three levels, of one, and of one that has to become two.
    let a = owner.create("a", 96 << 20, 4096);
    let b = owner.create("b", 4 << 20, 128 << 10);
    let c = owner.create("c", 256 << 10, 512);
    for leaf in 0..12 {
        owner.write(a, leaf * (7 << 20), 8192);
    }
    owner.write(b, 0, 200 << 10);
    owner.write(c, 512, 1024);
    let packed = owner.create("packed", 1 << 20, 64 << 10);
    owner.write(packed, 0, 200 << 10);
    let first = owner.snapshot(a, "first");
    owner.snapshot(b, "of b");
    owner.pool.checkpoint().expect("nothing fails");
    // More leaves than one checkpoint drops: the rest is an orphan for a while.
    owner.discard(a, 0, 30 << 20);
    let e = owner.clone_of(first, "e");
    let second = owner.snapshot(a, "second");
    owner.pool.checkpoint().expect("nothing fails");
    owner.write(a, 4096, 300 << 10);
    owner.write(e, 1 << 20, 8192);
    owner.discard(b, 1024, 150 << 10);
    let position = owner.next();
    owner.run(Op::SetState { volume: c, position: Some(position), state: vec![5; 100] });
    let position = owner.next();
    owner.run(Op::Grow { volume: c, position: Some(position), size: ByteLen(2 << 20) });
    let position = owner.next();
    owner.run(Op::Mark { volume: b, position });
    owner.run(Op::Delete { volume: b, snapshots: SnapshotsOfDeleted::Keep });
    owner.import(c);
    let position = owner.next();
    owner.run(Op::Rollback { volume: a, position, to: first, force: false });
    owner.run(Op::Attach { volume: a, attached: true });
    owner.run(Op::DeleteSnapshot { snapshot: second });
    owner.run(Op::Flush);
    owner.create("d", 1 << 20, 4096);
    owner.write(a, 8 << 20, 4096);
    owner.write(packed, 100 << 10, 128 << 10);
    owner.snapshot(a, "third");
    owner.write(a, 9 << 20, 4096);
    match ending {
        "closed" => owner.pool.close().expect("nothing fails"),
        _ => owner.pool.abandon(),
    }
}

struct Owner {
    pool: Pool<MemDisk>,
    seq: u64,
}

impl Owner {
    fn run(&mut self, op: Op) -> Reply {
        self.pool.run(op).expect("the operation is legal")
    }

    fn next(&mut self) -> Position {
        self.seq += 1;
        Position::new(1, self.seq)
    }

    fn create(&mut self, name: &str, size: u64, block: u64) -> VolumeId {
        let block_size = BlockSize::new(block).expect("a legal block");
        let spec = VolumeSpec {
            name: name.into(),
            size: ByteLen(size),
            block_size,
            compression: if block > 4096 { Compression::Lz4 } else { Compression::Off },
            uid: [7; 16],
        };
        match self.run(Op::Create { spec }) {
            Reply::Created(volume) => volume,
            other => panic!("a volume was created as {other:?}"),
        }
    }

    fn write(&mut self, volume: VolumeId, at: u64, len: usize) {
        let (position, offset) = (self.next(), ByteOffset(at));
        let data = Data::copy_of(&vec![(at >> 12).to_le_bytes()[0] | 1; len]);
        self.run(Op::Write { volume, position, offset, data });
    }

    fn snapshot(&mut self, volume: VolumeId, name: &str) -> SnapshotId {
        let position = self.next();
        let spec =
            SnapshotSpec { name: name.into(), uid: [8; 16], internal: false, created: 1 << 40 };
        match self.run(Op::Snapshot { volume, position: Some(position), spec }) {
            Reply::Snapshotted(snapshot) => snapshot,
            other => panic!("a snapshot was made as {other:?}"),
        }
    }

    fn clone_of(&mut self, snapshot: SnapshotId, name: &str) -> VolumeId {
        let spec = CloneSpec { name: name.into(), uid: [9; 16], size: None };
        match self.run(Op::Clone { snapshot, spec }) {
            Reply::Created(volume) => volume,
            other => panic!("a clone was made as {other:?}"),
        }
    }

    /// An import that ended, and one that is under way.
    fn import(&mut self, volume: VolumeId) {
        for round in ["once", "twice"] {
            let base = self.snapshot(volume, round);
            let staging = match self.run(Op::Stage { volume, base }) {
                Reply::Created(staging) => staging,
                other => panic!("an import was begun as {other:?}"),
            };
            let data = |len| Staged::Bytes(Data::copy_of(&vec![6; len]));
            for (at, content) in [(0, data(8192)), (16384, Staged::Zeros(ByteLen(4096)))] {
                let (changed, offset) = (Seq(3), ByteOffset(at));
                self.run(Op::StageData { staging, changed, offset, content, progress: at + 1 });
            }
            if round == "once" {
                let position = self.next();
                self.run(Op::Adopt {
                    volume,
                    staging,
                    position,
                    stamps: Stamps::Renew,
                    state: None,
                });
            }
        }
    }

    fn discard(&mut self, volume: VolumeId, at: u64, len: u64) {
        let (position, offset, len) = (self.next(), ByteOffset(at), ByteLen(len));
        self.run(Op::Zero { volume, position, offset, len, how: Zeroing::Discard });
    }
}
