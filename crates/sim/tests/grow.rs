//! A pool that grows: what was there stays, what came is used, at any moment of a power cut.
mod rot;

use block::{ByteLen, ByteOffset, Data, Position, SectorSize};
use engine::check::{Depth, check};
use engine::{Op, OpError, Pool};
use rot::{create, fresh, write};
use sim::workload::open_options;
use sim::{Budget, CrashDisk, Rng};

/// Protects from space beyond the old end that is lost, or used before the pool has it.
#[test]
fn a_grown_pool_uses_what_it_gained() {
    for sector in [SectorSize::B512, SectorSize::B4096] {
        for (from, to) in [(8 << 20, 9 << 20), (8 << 20, 64 << 20), (17 << 20, 300 << 20)] {
            let mut pool = fresh(from, sector);
            let volume = create(&mut pool, "v", 1 << 30, 4096);
            (1..=rot::WRITES).for_each(|granule| write(&mut pool, volume, granule, granule));
            let before = pool.info();
            pool.disk_mut().grow(ByteLen(to));
            assert_eq!(pool.grow().expect("a healthy disk"), ByteLen(to));
            let gained = pool.info().free.0 - before.free.0;
            assert!(gained * 100 >= (to - from) * 90, "{gained} of {} came in", to - from);
            let written = fill(&mut pool, volume);
            // Superblocks, journal and reserve of the smallest pool take a good 3 MiB.
            assert!(written + (4 << 20) >= to * 8 / 10, "{written} bytes fitted into {to}");
            let mut disk = pool.close().expect("a healthy pool closes");
            let report = check(&mut disk, Depth::Data).expect("a closed pool");
            assert!(report.is_clean(), "{:?}", report.problems);
        }
    }
}

fn fill(pool: &mut Pool<CrashDisk>, volume: engine::VolumeId) -> u64 {
    let data = Data::copy_of(&vec![7; 256 << 10]);
    for count in 0.. {
        let (position, offset) = (Position::new(2, 100 + count), ByteOffset(count << 18));
        match pool.run(Op::Write { volume, position, offset, data: data.clone() }) {
            Ok(_) => {}
            Err(OpError::NoSpace { .. }) => return count << 18,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("the pool fills up")
}

/// Protects from a power cut while the pool grows: it is the old one or the new one.
#[test]
fn a_power_cut_while_growing_leaves_the_old_pool_or_the_new_one() {
    let (mut old, mut new) = (0, 0);
    for boundary in 1..40 {
        let mut pool = fresh(8 << 20, SectorSize::B512);
        let volume = create(&mut pool, "v", 1 << 20, 4096);
        (1..=rot::WRITES).for_each(|granule| write(&mut pool, volume, granule, granule));
        pool.run(Op::Flush).expect("a healthy disk");
        pool.disk_mut().grow(ByteLen(24 << 20));
        let now = pool.disk().write_boundary();
        pool.disk_mut().stop_at(now + boundary);
        grow_until_stopped(&mut pool);
        let disk = pool.abandon();
        let mut rng = Rng::new(boundary);
        for image in disk.crash_images(SectorSize::B512, Budget::default(), &mut rng).take(40) {
            let pool = Pool::open(CrashDisk::from_image(image, 1), open_options()).expect("opens");
            match pool.info().size.0 >> 20 {
                8 => old += 1,
                24 => new += 1,
                size => panic!("a pool of {size} MiB"),
            }
            let mut disk = pool.abandon();
            let report = check(&mut disk, Depth::Structure).expect("a recovered pool");
            assert!(report.is_clean(), "{:?}", report.problems);
            let pool = Pool::open(disk, open_options()).expect("opens");
            assert_eq!(rot::count_blocks(pool), rot::WRITES);
        }
    }
    println!("{old} images of the old pool, {new} of the new one");
    assert!(old > 50 && new > 50, "both sides of the moment were seen: {old} and {new}");
}

/// `grow` waits for the device, which never answers once it is stopped.
fn grow_until_stopped(pool: &mut Pool<CrashDisk>) {
    pool.begin_grow();
    while !pool.is_quiet() && !pool.disk().stopped() {
        pool.wait();
    }
}
