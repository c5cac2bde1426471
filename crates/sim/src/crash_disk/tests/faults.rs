//! Errors, rot, bounds, and growth.
use super::*;

fn kind(result: Result<impl std::fmt::Debug, DiskError>) -> DiskErrorKind {
    result.unwrap_err().kind
}

#[test]
fn what_a_failed_flush_covered_is_not_made_durable_by_trying_again() {
    // Protects from an engine that retries a flush, as databases once did, and loses data.
    let mut disk = disk();
    write(&mut disk, 0, SECTOR, 1);
    disk.fail_next_flush();
    assert_eq!(kind(flush(&mut disk)), DiskErrorKind::System(EIO));
    write(&mut disk, SECTOR, SECTOR, 2);
    flush(&mut disk).unwrap();
    assert_eq!(disk.peek(ByteOffset(0), 1), [1]);
    assert_eq!(firsts(&disk.durable_image(), 2), [0, 2]);
    write(&mut disk, 0, SECTOR, 3);
    flush(&mut disk).unwrap();
    assert_eq!(firsts(&disk.durable_image(), 2), [3, 2]);
    assert!(disk.outstanding().is_empty());
}

#[test]
fn the_flush_that_was_named_fails_and_no_other() {
    // Protects from a fault that hits another flush than the one under test.
    let mut disk = disk();
    disk.fail_flush_at(2);
    let failed: Vec<bool> = (0..4).map(|_| flush(&mut disk).is_err()).collect();
    assert_eq!(failed, [false, false, true, false]);
}

#[test]
fn io_that_touches_a_bad_range_fails_and_other_io_does_not() {
    // Protects from faults that spread beyond their range, or that outlive their cure.
    let mut disk = disk();
    write(&mut disk, 0, 16 * KIB, 1);
    disk.fail_reads(ByteOffset(4 * KIB), ByteLen(1));
    disk.fail_writes(ByteOffset(8 * KIB), ByteLen(SECTOR));
    assert!(read(&mut disk, 0, 4 * KIB).is_ok());
    assert!(read(&mut disk, 4 * KIB + SECTOR, 4 * KIB).is_ok());
    let error = read(&mut disk, 0, 8 * KIB).unwrap_err();
    assert_eq!((error.operation, error.len), ("read", ByteLen(8 * KIB)));
    start_write(&mut disk, 1, 8 * KIB, 8 * KIB, 2);
    assert_eq!(kind(disk.complete_one(0).result), DiskErrorKind::System(EIO));
    let left = disk.peek(ByteOffset(8 * KIB), 8192);
    assert!(left.contains(&1) && left.contains(&2), "either way");
    disk.heal();
    assert!(read(&mut disk, 0, 8 * KIB).is_ok());
    write(&mut disk, 8 * KIB, SECTOR, 3);
}

#[test]
fn rot_is_seen_and_lasts() {
    // Protects from rot that heals when the write it hit becomes durable.
    let mut disk = disk();
    write(&mut disk, 0, SECTOR, 1);
    flush(&mut disk).unwrap();
    write(&mut disk, SECTOR, SECTOR, 1);
    disk.flip(ByteOffset(3), 0x80);
    disk.flip(ByteOffset(SECTOR + 3), 0x80);
    let rotten = [1, 1, 1, 0x81, 1];
    for _ in 0..2 {
        assert_eq!(disk.peek(ByteOffset(0), 5), rotten);
        assert_eq!(disk.peek(ByteOffset(SECTOR), 5), rotten);
        disk.submit(IoId(1), Io::Flush);
        start_write(&mut disk, 2, 2 * SECTOR, SECTOR, 2);
        disk.complete_one(1).result.unwrap();
        disk.complete_one(0).result.unwrap();
    }
    assert_eq!(disk.durable_image().peek(ByteOffset(SECTOR), 5), rotten);
}

#[test]
fn written_sectors_are_known_by_the_sector() {
    // Protects from rot that is put where nobody would look.
    let mut disk = disk();
    write(&mut disk, 3 * SECTOR, 2 * SECTOR, 0);
    write(&mut disk, 128 * KIB, SECTOR, 1);
    let sectors: Vec<u64> = disk.written_sectors().map(|at| at.0 / SECTOR).collect();
    assert_eq!(sectors, [3, 4, 256]);
    assert!(disk.was_written(ByteOffset(4 * SECTOR + 100)));
    assert!(!disk.was_written(ByteOffset(5 * SECTOR)));
    assert!(!disk.durable_image().was_written(ByteOffset(4 * SECTOR)));
}

#[test]
fn io_beyond_the_end_fails_until_the_disk_has_grown() {
    // Protects from a disk that is larger than it says.
    let mut disk = disk();
    write(&mut disk, 255 * KIB, KIB, 1);
    start_write(&mut disk, 1, 255 * KIB, 2 * KIB, 2);
    assert_eq!(kind(disk.complete_one(0).result), DiskErrorKind::OutOfRange);
    let far = u64::MAX - (SECTOR - 1);
    assert_eq!(kind(read(&mut disk, far, SECTOR)), DiskErrorKind::OutOfRange);
    assert_eq!(disk.peek(ByteOffset(255 * KIB), 1024), vec![1; 1024]);
    disk.grow(ByteLen(512 * KIB));
    assert_eq!(disk.geometry().size, ByteLen(512 * KIB));
    write(&mut disk, 255 * KIB, 2 * KIB, 2);
    flush(&mut disk).unwrap();
    assert_eq!(disk.durable_image().size(), ByteLen(512 * KIB));
}

#[test]
#[should_panic(expected = "not made of sectors of 4096 bytes")]
fn io_that_is_not_made_of_sectors_is_a_bug_of_the_submitter() {
    // Protects from IO that a real device would refuse only in the field.
    let mut disk = CrashDisk::new(ByteLen(64 * KIB), SectorSize::B4096, 1);
    queue_write(&mut disk, 1, 512, 4 * KIB, 1);
}
