//! Volumes that compress: the same bytes come back, in less space, whatever happens in between.
mod rot;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::check::{Depth, check};
use engine::compress::encode;
use engine::{
    BlockSize, Checksum, Compression, Op, OpError, Pool, Reply, SnapshotsOfDeleted, VolumeId,
    VolumeSpec, Zeroing,
};
use rot::fresh;
use sim::workload::open_options;
use sim::{CrashDisk, Image, Rng};

const PAGE: u64 = 4096;
const SIZE: u64 = 1 << 20;
const SECTORS: [SectorSize; 2] = [SectorSize::B512, SectorSize::B4096];
const NAMES: [&str; 14] = [
    "off", "on", "lz4", "gzip", "gzip-1", "gzip-2", "gzip-3", "gzip-4", "gzip-5", "gzip-7",
    "gzip-8", "gzip-9", "zle", "lzjb",
];

fn create(pool: &mut Pool<CrashDisk>, name: &str, block: u64, compression: &str) -> VolumeId {
    let spec = VolumeSpec {
        name: name.into(),
        size: ByteLen(SIZE),
        block_size: BlockSize::new(block).expect("a legal block size"),
        compression: compression.parse().expect("a known name"),
        uid: [1; 16],
    };
    match pool.run(Op::Create { spec }) {
        Ok(Reply::Created(id)) => id,
        other => panic!("create ended as {other:?}"),
    }
}

/// Every codec finds something in these: runs of zeros between words that repeat.
fn compressible(len: u64, seed: u64) -> Vec<u8> {
    let line = |at: u64| format!("{seed:>20}{:>40}", at % 97).into_bytes();
    let lines = (0..).flat_map(|at| line(at).into_iter().chain([0; 68]));
    lines.take(usize::try_from(len).expect("small")).collect()
}

fn random(len: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).expect("small")];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

/// A volume, and what it must read as.
struct Owner {
    pool: Option<Pool<CrashDisk>>,
    volume: VolumeId,
    seq: u64,
    expected: Vec<u8>,
}

impl Owner {
    fn new(sector: SectorSize, block: u64, compression: &str) -> Owner {
        let mut pool = fresh(12 << 20, sector);
        let volume = create(&mut pool, "v", block, compression);
        let expected = vec![0; usize::try_from(SIZE).expect("small")];
        Owner { pool: Some(pool), volume, seq: 0, expected }
    }

    fn pool(&mut self) -> &mut Pool<CrashDisk> {
        self.pool.as_mut().expect("it is open")
    }

    fn next(&mut self) -> Position {
        self.seq += 1;
        Position::new(1, self.seq)
    }

    fn range(&mut self, at: u64, len: usize) -> &mut [u8] {
        &mut self.expected[usize::try_from(at).expect("small")..][..len]
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let (volume, position, offset) = (self.volume, self.next(), ByteOffset(at));
        let data = Data::copy_of(bytes);
        self.pool().run(Op::Write { volume, position, offset, data }).expect("a healthy disk");
        self.range(at, bytes.len()).copy_from_slice(bytes);
    }

    fn zero(&mut self, at: u64, len: u64) {
        let (volume, position, offset) = (self.volume, self.next(), ByteOffset(at));
        let (how, len) = (Zeroing::Discard, ByteLen(len));
        let op = Op::Zero { volume, position, offset, len, how };
        self.pool().run(op).expect("a healthy disk");
        self.range(at, usize::try_from(len.0).expect("small")).fill(0);
    }

    fn read(&mut self, at: u64, len: u64) -> Result<Vec<u8>, OpError> {
        let (volume, offset, len) = (self.volume, ByteOffset(at), ByteLen(len));
        match self.pool().run(Op::Read { volume, offset, len })? {
            Reply::Read(bytes) => Ok(bytes.to_vec()),
            other => panic!("a read ended as {other:?}"),
        }
    }

    fn verify(&mut self, when: &str) {
        for (at, len) in [(0, SIZE), (512, SIZE / 2), (SIZE - 512, 512), (SIZE / 2 - 3072, 7168)] {
            let found = self.read(at, len).expect("a healthy disk");
            let right = self.range(at, found.len()) == found;
            assert!(right, "{len} bytes at {at} are wrong {when}");
        }
    }

    fn reopen(&mut self, disk: CrashDisk) {
        self.pool = Some(Pool::open(disk, open_options()).expect("a healthy pool opens"));
    }

    fn kill_and_open(&mut self) {
        let disk = self.pool.take().expect("open").abandon().after_kill(self.seq);
        self.reopen(disk);
    }

    fn close_check_and_open(&mut self) {
        let mut disk = self.pool.take().expect("open").close().expect("a healthy disk");
        let report = check(&mut disk, Depth::Data).expect("a closed pool can be checked");
        assert!(report.is_clean(), "check found {:?}", report.problems);
        self.reopen(disk);
    }

    /// Bytes that its blocks take.
    fn stored(&mut self) -> u64 {
        self.pool().checkpoint().expect("a healthy disk");
        self.pool().volumes()[0].stored.0
    }
}

/// Protects from bytes that are lost or mixed up where blocks of one volume have many lengths.
#[test]
fn bytes_come_back_through_overwrites_kills_and_closes() {
    for sector in SECTORS {
        for compression in NAMES {
            for block in [512, 4096, 8192, 65536, 131072] {
                let mut owner = Owner::new(sector, block, compression);
                let when = format!("with {compression}, blocks of {block}, {sector:?}");
                owner.write(0, &compressible(SIZE, 1));
                owner.verify(&format!("written, {when}"));
                // Whole granules that do not shrink, among those that do.
                owner.write(131072, &random(262144, 2));
                // Parts of granules: shrinking ones that grow, and the other way round.
                owner.write(512, &random(70000 / 512 * 512, 3));
                owner.write(200 * 512, &compressible(300 * 512, 4));
                owner.verify(&format!("overwritten, {when}"));
                owner.kill_and_open();
                owner.verify(&format!("killed, {when}"));
                owner.zero(300 * 512, 400 * 512);
                owner.write(SIZE - 40960, &compressible(40960, 5));
                owner.write(0, &compressible(131072, 6));
                owner.verify(&format!("after discards, {when}"));
                owner.close_check_and_open();
                owner.verify(&format!("closed, {when}"));
                owner.write(65536 + 1024, &random(1024, 7));
                owner.zero(0, 3072);
                owner.kill_and_open();
                owner.close_check_and_open();
                owner.verify(&format!("killed and closed, {when}"));
            }
        }
    }
}

/// Protects from blocks that take more pages than they need, and from pages that are never given
/// back.
#[test]
fn a_block_takes_just_the_pages_that_it_needs() {
    for sector in SECTORS {
        for name in NAMES {
            for block in [8192, 65536, 131072] {
                let mut owner = Owner::new(sector, block, name);
                let mut bytes = compressible(SIZE / 2, 1);
                bytes.extend(random(SIZE / 2, 2));
                owner.write(0, &bytes);
                let compression: Compression = name.parse().expect("a known name");
                let granules = bytes.chunks(usize::try_from(block).expect("small"));
                let pages = granules.map(|granule| {
                    encode(compression, granule).map_or(block, |(_, stored)| stored.len() as u64)
                });
                let expected: u64 = pages.sum();
                assert_eq!(owner.stored(), expected, "{name}, blocks of {block}, {sector:?}");
                assert_eq!(expected < SIZE, name != "off", "{name}, blocks of {block}");
                assert_eq!(owner.pool().volumes()[0].compression, compression);
                owner.zero(0, SIZE);
                assert_eq!(owner.stored(), 0);
                let (volume, before) = (owner.volume, owner.pool().info().free);
                delete(owner.pool(), volume).expect("a healthy disk");
                (0..3).for_each(|_| owner.pool().checkpoint().expect("a healthy disk"));
                assert!(owner.pool().info().free >= before);
                owner.pool.take().expect("open").close().expect("a healthy disk");
            }
        }
    }
}

/// Protects from compressing what a look at a sample would have told, and from trying where
/// nothing can be gained.
#[test]
fn what_cannot_shrink_is_not_compressed() {
    for (block, compression, given_up, not_shorter) in [
        (65536, "gzip-9", 16, 0),
        (65536, "lzjb", 16, 0),
        (65536, "zle", 16, 0),
        // LZ4 goes over such bytes as fast as a sample is taken.
        (65536, "lz4", 0, 16),
        (65536, "off", 0, 0),
        (4096, "gzip-9", 0, 0),
        (4096, "lz4", 0, 0),
        (512, "lz4", 0, 0),
    ] {
        let mut owner = Owner::new(SectorSize::B512, block, compression);
        owner.write(0, &random(SIZE, 1));
        let counters = owner.pool().counters();
        let found = (counters.blocks_given_up, counters.blocks_not_shorter);
        assert_eq!(found, (given_up, not_shorter), "{compression}, blocks of {block}");
        assert_eq!(counters.blocks_compressed, 0);
        assert_eq!(owner.stored(), SIZE);
    }
    let mut owner = Owner::new(SectorSize::B512, 4096, "gzip-9");
    owner.write(0, &compressible(SIZE, 1));
    assert_eq!(owner.pool().counters().blocks_compressed, 0, "a page cannot save one");
    assert_eq!(owner.stored(), SIZE);
}

/// Protects from an IO for each block: those of one write lie side by side, whatever their length.
#[test]
fn the_blocks_of_a_write_leave_and_return_with_one_io() {
    for sector in SECTORS {
        let mut owner = Owner::new(sector, 65536, "lz4");
        let mut bytes = compressible(SIZE, 1);
        bytes[65536..131072].copy_from_slice(&random(65536, 2));
        let before = owner.pool().disk().counters();
        owner.write(0, &bytes);
        let written = owner.pool().disk().counters();
        assert_eq!(written.writes - before.writes, 2, "the data and its slot");
        owner.read(0, SIZE).expect("a healthy disk");
        let read = owner.pool().disk().counters();
        assert_eq!(read.reads - written.reads, 1, "one run of blocks");
        assert!(read.bytes_read - written.bytes_read < SIZE / 2);
    }
}

/// Protects from a write that is refused for space which it would not have taken.
#[test]
fn a_full_pool_takes_what_fits_it_compressed() {
    // Blocks of 128 KiB leave about half of one.
    let mut pool = fresh((8 << 20) + (64 << 10), SectorSize::B4096);
    let volume = create(&mut pool, "small", 131072, "gzip");
    pool.checkpoint().expect("a healthy disk");
    let mut volumes = Vec::new();
    let write = |pool: &mut Pool<CrashDisk>, volume, block: u64, bytes: &[u8]| {
        let (position, offset) = (Position::new(1, block + 1), ByteOffset(block * 131072));
        let data = Data::copy_of(bytes);
        pool.run(Op::Write { volume, position, offset, data })
    };
    'full: loop {
        let volume = create(&mut pool, &format!("raw-{}", volumes.len()), 131072, "off");
        volumes.push(volume);
        for block in 0..SIZE / 131072 {
            match write(&mut pool, volume, block, &compressible(131072, block)) {
                Ok(_) => {}
                Err(OpError::NoSpace { .. }) => break 'full,
                Err(error) => panic!("{error}"),
            }
        }
    }
    write(&mut pool, volume, 0, &compressible(131072, 9)).expect("a few pages are left");
    let refused = write(&mut pool, volume, 1, &random(131072, 9));
    assert!(matches!(refused, Err(OpError::NoSpace { .. })), "but not as many as raw takes");
    for volume in volumes {
        delete(&mut pool, volume).expect("a full pool can delete");
    }
    (0..8).for_each(|_| pool.checkpoint().expect("a healthy disk"));
    write(&mut pool, volume, 1, &random(131072, 9)).expect("there is space again");
    pool.close().expect("a healthy disk");
}

/// A granule that takes one page, and two as soon as a sector in it is discarded.
fn brittle() -> Vec<u8> {
    let granule = |period| -> Vec<u8> {
        random(period, 1).into_iter().cycle().take(131072).collect::<Vec<u8>>()
    };
    let pages =
        |bytes: &[u8]| encode(Compression::Lz4, bytes).map(|(_, stored)| stored.len() / 4096);
    let fits = |period: &u64| pages(&granule(*period)) == Some(1);
    let bytes = granule((2000..4096).rev().find(fits).expect("some period fits"));
    let mut holed = bytes.clone();
    holed[65536..65536 + 512].fill(0);
    assert_eq!(pages(&holed), Some(2), "a hole costs a few bytes");
    bytes
}

/// Protects from discards that eat up what is kept for deletes: a part of a granule may compress
/// worse than all of it did.
#[test]
fn discards_that_make_blocks_longer_leave_a_full_pool_able_to_delete() {
    let mut pool = fresh(8 << 20, SectorSize::B4096);
    let volumes: Vec<VolumeId> =
        (0..200).map(|at| create(&mut pool, &format!("v-{at}"), 131072, "lz4")).collect();
    let data = Data::copy_of(&brittle());
    let mut seqs = vec![0; volumes.len()];
    let mut run = |pool: &mut Pool<CrashDisk>, at: usize, op: &dyn Fn(VolumeId, Position) -> Op| {
        seqs[at] += 1;
        pool.run(op(volumes[at], Position::new(1, seqs[at])))
    };
    let granules: Vec<(usize, u64)> =
        (0..200).flat_map(|at| (0..8).map(move |block| (at, block * 131072))).collect();
    let full = granules.iter().find(|(at, offset)| {
        let (data, offset) = (data.clone(), ByteOffset(*offset));
        let write = |volume, position| Op::Write { volume, position, offset, data: data.clone() };
        matches!(run(&mut pool, *at, &write), Err(OpError::NoSpace { .. }))
    });
    assert!(full.is_some(), "the pool is full");
    let refused = granules.iter().find(|(at, offset)| {
        let (offset, len, how) = (ByteOffset(offset + 65536), ByteLen(512), Zeroing::Discard);
        let zero = |volume, position| Op::Zero { volume, position, offset, len, how };
        matches!(run(&mut pool, *at, &zero), Err(OpError::NoSpace { .. }))
    });
    assert!(refused.is_some(), "some discards do not fit any more");
    let (free, reserve) = (pool.info().free.0, pool.info().reserve.0);
    assert!(free >= reserve / 2, "half of the reserve is left: {free} of {reserve}");
    for volume in volumes {
        delete(&mut pool, volume).expect("a full pool can delete");
    }
    pool.close().expect("a healthy disk");
}

fn delete(pool: &mut Pool<CrashDisk>, volume: VolumeId) -> Result<Reply, OpError> {
    pool.run(Op::Delete { volume, snapshots: SnapshotsOfDeleted::Refuse })
}

/// Changes bytes of an image.
fn put(image: &mut Image, at: ByteOffset, bytes: &[u8]) {
    let old = image.peek(at, bytes.len());
    for (byte, (old, new)) in (at.0..).zip(old.iter().zip(bytes)) {
        image.flip(ByteOffset(byte), old ^ new);
    }
}

/// A pool with one compressed block in its journal, whose bytes were changed together with every
/// checksum over them.
fn forged(compression: &str) -> Owner {
    let mut owner = Owner::new(SectorSize::B4096, 65536, compression);
    let granule = compressible(65536, 1);
    owner.write(0, &granule);
    owner.pool().run(Op::Flush).expect("a healthy disk");
    let stored = encode(compression.parse().expect("a known name"), &granule);
    let (_, mut stored) = stored.expect("it shrinks");
    let mut image = owner.pool.take().expect("open").abandon().kill_image(&mut Rng::new(1));
    let mut sectors = image.written_sectors();
    let place = sectors.find(|at| image.peek(*at, 512) == stored[..512]).expect("it is stored");
    drop(sectors);
    let old = Checksum::of(&stored).0.to_le_bytes();
    // The compressed length: a stream that ends too soon.
    stored[0] ^= 1;
    put(&mut image, place, &stored);
    let is_slot = |at: &ByteOffset| {
        let slot = image.peek(*at, 4096);
        slot.windows(8).any(|word| word == old) && slot[8..12] == *b"PLXJ"
    };
    let slot_at = (512..1024).map(|block| ByteOffset(block * PAGE)).find(is_slot);
    let slot_at = slot_at.expect("the record names the checksum");
    let mut slot = image.peek(slot_at, 4096);
    let at = slot.windows(8).position(|word| word == old).expect("just seen");
    slot[at..at + 8].copy_from_slice(&Checksum::of(&stored).0.to_le_bytes());
    let sum = Checksum::of(&slot[8..]).0.to_le_bytes();
    slot[..8].copy_from_slice(&sum);
    put(&mut image, slot_at, &slot);
    owner.reopen(CrashDisk::from_image(image, 1));
    owner
}

/// Protects from a block that cannot be decoded and is returned as far as it can.
#[test]
fn a_block_that_does_not_decode_is_damage() {
    for compression in ["lz4", "gzip", "zle", "lzjb"] {
        let mut owner = forged(compression);
        let damaged = |result: Result<Vec<u8>, OpError>| {
            matches!(result, Err(OpError::Damaged { offset: ByteOffset(0), .. }))
        };
        assert!(damaged(owner.read(0, 65536)), "{compression}, all of it");
        assert!(damaged(owner.read(4096, 512)), "{compression}, a part");
        assert_eq!(owner.pool().counters().damaged_blocks, 2);
        assert!(owner.read(65536, 65536).is_ok(), "{compression}, the granule behind it");
        // A write that needs the old bytes is refused; one that does not mends the granule.
        let (volume, position) = (owner.volume, owner.next());
        let (offset, data) = (ByteOffset(512), Data::copy_of(&[7; 512]));
        let merged = owner.pool().run(Op::Write { volume, position, offset, data });
        assert!(matches!(merged, Err(OpError::Damaged { .. })), "{compression}");
        let mut disk = owner.pool.take().expect("open").close().expect("a healthy disk");
        let report = check(&mut disk, Depth::Data).expect("a closed pool can be checked");
        let problem = report.problems.join("; ");
        assert!(
            report.problems.len() == 1 && problem.contains("granule 0 is damaged"),
            "{problem}"
        );
        let report = check(&mut disk, Depth::Structure).expect("a closed pool can be checked");
        assert!(report.is_clean(), "{:?}", report.problems);
        owner.reopen(disk);
        owner.write(0, &random(65536, 8));
        owner.verify("mended");
        owner.close_check_and_open();
    }
}
