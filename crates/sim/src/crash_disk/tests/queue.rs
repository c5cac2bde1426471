//! Order, visibility, delivery, and the boundary at which a run stops.
use super::*;

#[test]
fn nothing_reaches_the_device_before_the_kick() {
    // Protects from crash images that hold writes which the engine had not handed over.
    let mut disk = disk();
    queue_write(&mut disk, 1, 0, SECTOR, 7);
    assert_eq!((disk.in_flight(), disk.write_boundary()), (0, 0));
    assert!(disk.outstanding().is_empty());
    disk.kick();
    assert_eq!((disk.in_flight(), disk.write_boundary()), (1, 1));
    assert_eq!(disk.outstanding().writes().len(), 1);
}

#[test]
fn a_read_sees_completed_writes_and_either_side_of_those_in_flight() {
    // Protects from a disk that shows a write in flight always, or never.
    let mut disk = disk();
    write(&mut disk, 0, 8 * KIB, 1);
    assert_eq!(read(&mut disk, 0, 8 * KIB).unwrap(), vec![1; 8192]);
    start_write(&mut disk, 1, 0, 4 * KIB, 2);
    let seen = read(&mut disk, 0, 8 * KIB).unwrap();
    assert!(seen.chunks(512).all(|s| s.iter().all(|b| b == &s[0])));
    assert!(seen[..4096].contains(&1) && seen[..4096].contains(&2));
    assert_eq!(seen[4096..], [1; 4096]);
    disk.complete_one(0).result.unwrap();
    assert_eq!(read(&mut disk, 0, 4 * KIB).unwrap(), vec![2; 4096]);
}

#[test]
fn of_two_writes_in_flight_together_either_may_be_the_last() {
    // Protects from an engine that takes the order of completions for the order on the medium.
    let mut winners = [false; 3];
    for seed in 0..20 {
        let mut disk = CrashDisk::new(ByteLen(64 * KIB), SectorSize::B4096, seed);
        start_write(&mut disk, 1, 0, 4 * KIB, 1);
        start_write(&mut disk, 2, 0, 4 * KIB, 2);
        finish_all(&mut disk);
        let seen = disk.peek(ByteOffset(0), 1)[0];
        winners[usize::from(seen)] = true;
        flush(&mut disk).unwrap();
        assert!(disk.outstanding().is_empty());
        assert_eq!(disk.durable_image().peek(ByteOffset(0), 1)[0], seen);
    }
    assert_eq!(winners, [false, true, true]);
}

#[test]
fn of_two_writes_one_after_the_other_the_later_is_seen() {
    // Protects from calling writes concurrent which were not.
    for seed in 0..20 {
        let mut disk = CrashDisk::new(ByteLen(64 * KIB), SectorSize::B4096, seed);
        start_write(&mut disk, 1, 0, 4 * KIB, 1);
        start_write(&mut disk, 2, 0, 4 * KIB, 2);
        finish_all(&mut disk);
        write(&mut disk, 0, 4 * KIB, 3);
        assert_eq!(disk.peek(ByteOffset(0), 1), [3]);
    }
}

#[test]
fn waiting_always_makes_progress_and_random_delivery_reorders() {
    // Protects from a run that hangs, and from one in which completions are always in order.
    let mut disk = disk().with_delivery(Delivery::Random);
    for id in 0..50 {
        queue_write(&mut disk, id, id * SECTOR, SECTOR, 1);
    }
    let (mut order, mut pauses) = (Vec::new(), 0);
    while order.len() < 50 {
        disk.wait(None);
        let first = disk.complete().expect("a completion after a wait");
        order.push(first.id.0);
        while let Some(next) = disk.complete() {
            order.push(next.id.0);
        }
        pauses += 1;
    }
    assert!(pauses > 1);
    assert_ne!(order, (0..50).collect::<Vec<_>>());
    order.sort_unstable();
    assert_eq!(order, (0..50).collect::<Vec<_>>());
    disk.wait(None);
    assert!(disk.complete().is_none(), "nothing is outstanding");
}

#[test]
fn immediate_delivery_is_oldest_first() {
    // Protects plain tests of the engine from orders that they did not ask for.
    let mut disk = disk();
    for id in 0..10 {
        queue_write(&mut disk, id, 0, SECTOR, 1);
    }
    assert!(disk.complete().is_none(), "nothing was kicked");
    disk.kick();
    let order: Vec<u64> = std::iter::from_fn(|| disk.complete()).map(|c| c.id.0).collect();
    assert_eq!(order, (0..10).collect::<Vec<_>>());
}

#[test]
fn the_disk_stops_within_a_batch_and_swallows_what_follows() {
    // Protects from a harness that crashes later than it says.
    let mut disk = disk();
    disk.stop_at(2);
    for id in 0..4 {
        queue_write(&mut disk, id, id * SECTOR, SECTOR, 1);
    }
    assert!(!disk.stopped());
    disk.kick();
    assert!(disk.stopped());
    assert_eq!((disk.in_flight(), disk.write_boundary()), (2, 2));
    finish_all(&mut disk);
    disk.submit(IoId(9), Io::Flush);
    disk.kick();
    disk.wait(None);
    assert!(disk.complete().is_none());
    assert_eq!(disk.counters().swallowed, 3);
    assert_eq!(read(&mut disk, 0, 2 * KIB).unwrap()[..1024], [1; 1024]);
    assert_eq!(firsts(&disk.durable_image(), 4), [0; 4]);
    assert_eq!(disk.outstanding().sectors(SectorSize::B512).len(), 2);
}

#[test]
fn the_counters_count_what_was_kicked() {
    // Protects from boundaries that do not match the writes and flushes of a run.
    let mut disk = disk();
    write(&mut disk, 0, 4 * KIB, 1);
    write(&mut disk, 0, SECTOR, 1);
    flush(&mut disk).unwrap();
    read(&mut disk, 0, SECTOR).unwrap();
    let (at, len) = (ByteOffset(0), ByteLen(SECTOR));
    disk.submit(IoId(1), Io::Trim { at, len });
    disk.kick();
    let counters = disk.counters();
    assert_eq!((counters.writes, counters.flushes), (2, 1));
    assert_eq!((counters.reads, counters.trims), (1, 1));
    assert_eq!((counters.bytes_written, counters.bytes_read), (4608, 512));
    assert_eq!(disk.write_boundary(), 3);
}

#[test]
fn a_run_depends_on_its_seed_and_on_nothing_else() {
    // Protects from a failure that cannot be had again.
    let run = |seed: u64| {
        let mut disk = CrashDisk::new(ByteLen(1 << 20), SectorSize::B512, seed)
            .with_delivery(Delivery::Random);
        let mut workload = Rng::new(99);
        let mut order = Vec::new();
        for id in 0..200 {
            let at = workload.below(500) * SECTOR;
            let byte = workload.next_u64().to_le_bytes()[0];
            match workload.below(10) {
                0 => disk.submit(IoId(id), Io::Flush),
                1 => {
                    let (at, len) = (ByteOffset(at), ByteLen(16 * KIB));
                    disk.submit(IoId(id), Io::Trim { at, len });
                }
                _ => queue_write(&mut disk, id, at, 4 * KIB, byte),
            }
            disk.kick();
            order.extend(disk.complete().map(|c| c.id.0));
        }
        let all = |image: Image| image.peek(ByteOffset(0), 1 << 20);
        let mut rng = Rng::new(seed);
        let crashed: Vec<_> =
            disk.crash_images(SectorSize::B512, Budget::default(), &mut rng).map(all).collect();
        (order, crashed, all(disk.kill_image(&mut rng)))
    };
    assert!(run(1) == run(1));
    assert!(run(1) != run(2));
}
