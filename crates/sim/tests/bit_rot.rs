//! Bit rot: whatever byte flips, wrong bytes are never returned as data.
mod rot;
mod seeds;

use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, SectorSize};
use engine::{Op, OpError, Pool, Reply, VolumeId};
use rot::{bytes_of, create, fresh, write};
use sim::workload::{Paths, open_options};
use sim::{CrashDisk, Image, Rng};

/// Bytes of each used sector that are flipped; `POLLUX_ROT_BYTES` sets another number.
const BYTES: u64 = 6;
const GRANULES: [u64; 7] = [0, 1, 5, 127, 128, 200, 100_000];

/// A pool with blocks in the maps, blocks in the journal and more than one level of map, all of
/// it flushed and told.
fn pool(sector: SectorSize) -> (Pool<CrashDisk>, VolumeId) {
    let mut pool = fresh(8 << 20, sector);
    let volume = create(&mut pool, "v", 1 << 30, 4096);
    let other = create(&mut pool, "w", 1 << 20, 65536);
    for (seq, granule) in (1..).zip(GRANULES) {
        write(&mut pool, volume, granule, seq);
    }
    write(&mut pool, other, 3, 1);
    pool.checkpoint().expect("a healthy disk");
    for (seq, granule) in (100..).zip(&GRANULES[..3]) {
        write(&mut pool, volume, *granule, seq);
    }
    pool.run(Op::Flush).expect("a healthy disk");
    pool.idle();
    while !pool.is_quiet() {
        pool.wait();
    }
    (pool, volume)
}

fn read(pool: &mut Pool<CrashDisk>, volume: VolumeId, granule: u64) -> Result<Vec<u8>, OpError> {
    let (offset, len) = (ByteOffset(granule * 4096), ByteLen(4096));
    match pool.run(Op::Read { volume, offset, len })? {
        Reply::Read(bytes) => Ok(bytes.to_vec()),
        other => panic!("a read ended as {other:?}"),
    }
}

/// Opens an image with one byte flipped and reads everything.
fn try_one(image: &Image, at: ByteOffset, mask: u8, volume: VolumeId, paths: &mut Paths) {
    let mut image = image.clone();
    image.flip(at, mask);
    paths.add("bytes flipped", 1);
    let mut pool = match Pool::open(CrashDisk::from_image(image, 3), open_options()) {
        Ok(pool) => pool,
        Err(_) => return paths.add("refused to open", 1),
    };
    let mut damaged = 0;
    for granule in GRANULES {
        match read(&mut pool, volume, granule) {
            Ok(bytes) => assert_eq!(
                bytes,
                bytes_of(granule),
                "granule {granule} is wrong after flipping {at} by {mask:#x}"
            ),
            Err(OpError::Damaged { .. } | OpError::MapDamaged { .. }) => damaged += 1,
            Err(error) => panic!("granule {granule} after flipping {at}: {error}"),
        }
    }
    let second = pool.counters().second_copies;
    paths.add("served from a second copy", u64::from(second > 0));
    paths.add(if damaged > 0 { "damage reported" } else { "all bytes right" }, 1);
}

fn flip_everywhere(image: &Image, volume: VolumeId, sector: SectorSize) -> Paths {
    let sectors: Vec<ByteOffset> = image.written_sectors().collect();
    let per_sector = seeds::from_env("POLLUX_ROT_BYTES").unwrap_or(BYTES);
    seeds::run(0..sectors.len() as u64, |index| {
        let mut paths = Paths::default();
        let start = sectors[usize::try_from(index).expect("few sectors")];
        let mut rng = Rng::new(index ^ sector.bytes() << 32);
        for _ in 0..per_sector {
            let at = ByteOffset(start.0 + rng.below(512));
            try_one(image, at, 1 << rng.below(8), volume, &mut paths);
        }
        paths
    })
}

/// Protects from a flipped byte that is returned as data, in maps, directory, journal,
/// superblocks, space pages and blocks alike.
#[test]
fn a_flipped_byte_is_never_returned_as_data() {
    let mut total = Paths::default();
    for sector in [SectorSize::B512, SectorSize::B4096] {
        let (pool, volume) = pool(sector);
        let killed = pool.abandon().kill_image(&mut Rng::new(1));
        total.merge(&flip_everywhere(&killed, volume, sector));
        let pool = Pool::open(CrashDisk::from_image(killed, 1), open_options()).expect("healthy");
        let closed = pool.close().expect("a healthy pool closes").durable_image();
        total.merge(&flip_everywhere(&closed, volume, sector));
    }
    println!("{:#?}", total.counts);
    seeds::require(
        &total,
        0,
        &[
            ("bytes flipped", 4_000),
            ("refused to open", 20),
            ("served from a second copy", 50),
            ("damage reported", 100),
            ("all bytes right", 500),
        ],
    );
}

/// Protects from a scrub-less pool that returns damage as data: every byte of one block.
#[test]
fn every_byte_of_a_block_is_covered_by_its_checksum() {
    let (pool, volume) = pool(SectorSize::B4096);
    let disk = pool.abandon();
    let image = disk.kill_image(&mut Rng::new(1));
    let wanted = bytes_of(200);
    let found = image.written_sectors().find(|at| image.peek(*at, 512) == wanted[..512]);
    let place = found.expect("the block is stored as it was written");
    let mut hits = BTreeMap::new();
    for byte in 0..4096 {
        let mut rotten = image.clone();
        rotten.flip(ByteOffset(place.0 + byte), 0x04);
        let mut pool = Pool::open(CrashDisk::from_image(rotten, 3), open_options()).expect("opens");
        let result = read(&mut pool, volume, 200);
        *hits.entry(matches!(result, Err(OpError::Damaged { .. }))).or_insert(0) += 1;
    }
    assert_eq!(hits, BTreeMap::from([(true, 4096)]), "every flipped byte is found");
}

/// Protects from one bad superblock copy that takes the pool with it, and from two that are
/// passed over.
#[test]
fn one_superblock_copy_may_rot_but_not_both_of_an_epoch() {
    let (pool, volume) = pool(SectorSize::B4096);
    let epoch = pool.info().epoch.0;
    let image = pool.abandon().kill_image(&mut Rng::new(1));
    for pair in [epoch, epoch + 1] {
        let copies = rot::superblock_copies(pair);
        for copy in copies {
            let mut rotten = image.clone();
            rotten.flip(ByteOffset(copy.0 + 300), 1);
            let disk = CrashDisk::from_image(rotten, 3);
            let mut pool = Pool::open(disk, open_options()).expect("one copy is enough");
            assert_eq!(read(&mut pool, volume, 5).expect("it is there"), bytes_of(5));
        }
        let mut rotten = image.clone();
        copies.iter().for_each(|copy| rotten.flip(ByteOffset(copy.0 + 300), 1));
        let refused = Pool::open(CrashDisk::from_image(rotten, 3), open_options());
        let error = refused.map(|_| ()).expect_err("both copies are gone");
        assert!(error.to_string().contains("both copies"), "it says why: {error}");
    }
}

/// Protects from a torn copy that is left torn: a second power cut would then ruin the pair.
#[test]
fn a_torn_superblock_copy_is_mended_when_the_pool_is_opened() {
    let (pool, _) = pool(SectorSize::B4096);
    let epoch = pool.info().epoch.0;
    let mut image = pool.abandon().kill_image(&mut Rng::new(1));
    let older = rot::superblock_copies(epoch + 1);
    image.flip(ByteOffset(older[0].0 + 300), 1);
    let options = open_options();
    let pool = Pool::open(CrashDisk::from_image(image, 3), options.clone()).expect("opens");
    let disk = pool.abandon();
    for at in (0..2).flat_map(rot::superblock_copies) {
        let bytes = disk.peek(ByteOffset(at.0 + 8), 8);
        assert_eq!(bytes, b"POLLUXSB");
    }
    // Any single copy may go now.
    for at in (0..2).flat_map(rot::superblock_copies) {
        let mut image = disk.durable_image();
        image.flip(ByteOffset(at.0 + 300), 1);
        Pool::open(CrashDisk::from_image(image, 3), options.clone()).expect("one copy is enough");
    }
}
