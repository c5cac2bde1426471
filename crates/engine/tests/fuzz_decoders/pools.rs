//! Whole pools, in every state that has bytes of its own, with the places of their structures.
use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::check::{self, Depth};
use engine::{BlockSize, CreateOptions, Limits, Op, OpenOptions, Pool, Reply, VolumeId};
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
    let a = owner.create("a", 64 << 20, 4096);
    let b = owner.create("b", 4 << 20, 128 << 10);
    let c = owner.create("c", 1 << 20, 512);
    for leaf in 0..12 {
        owner.write(a, leaf * (5 << 20), 8192);
    }
    owner.write(b, 0, 200 << 10);
    owner.write(c, 512, 1024);
    owner.pool.checkpoint().expect("nothing fails");
    // More leaves than one checkpoint empties: the rest is carried over.
    owner.discard(a, 0, 30 << 20);
    owner.pool.checkpoint().expect("nothing fails");
    owner.write(a, 4096, 300 << 10);
    owner.discard(b, 1024, 150 << 10);
    let position = owner.next();
    owner.run(Op::SetState { volume: c, position, state: vec![5; 100] });
    let position = owner.next();
    owner.run(Op::Grow { volume: c, position, size: ByteLen(2 << 20) });
    let position = owner.next();
    owner.run(Op::Mark { volume: b, position });
    owner.run(Op::Delete { volume: b });
    owner.run(Op::Flush);
    owner.create("d", 1 << 20, 4096);
    owner.write(a, 8 << 20, 4096);
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
        let spec = VolumeSpec { name: name.into(), size: ByteLen(size), block_size, uid: [7; 16] };
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

    fn discard(&mut self, volume: VolumeId, at: u64, len: u64) {
        let (position, offset, len) = (self.next(), ByteOffset(at), ByteLen(len));
        self.run(Op::Zero { volume, position, offset, len, how: Zeroing::Discard });
    }
}
