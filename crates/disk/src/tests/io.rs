//! Reads, writes, flushes and trims.
use super::*;

const MIB: u64 = 1 << 20;

fn byte(number: u64) -> u8 {
    u8::try_from(number % 251).unwrap() + 1
}

/// Protects from IOs that end up in each other's place or memory.
#[test]
fn concurrent_ios_in_random_order_keep_to_their_places() {
    on_a_file(4 * MIB, |_, mut disk| {
        let len = 4096;
        for number in shuffled(1000) {
            let at = number * len as u64;
            disk.submit(IoId(number), write(at, byte(number), len));
            if number % 7 == 0 {
                disk.kick();
            }
        }
        for (id, result) in wait_for(&mut disk, 1000) {
            assert!(matches!(result, Ok(Done::Written)), "{id:?}: {result:?}");
        }
        for number in shuffled(1000) {
            disk.submit(IoId(number), read(number * len as u64, len));
        }
        for (id, result) in wait_for(&mut disk, 1000) {
            let Ok(Done::Read(buf)) = result else {
                panic!("{id:?}: {result:?}");
            };
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|&found| found == byte(id.0)), "{id:?}");
        }
    });
}

/// Protects from large IOs that lose their tail: in tests a ring moves 64 KiB at a time.
#[test]
fn a_large_io_moves_whole() {
    on_a_file(4 * MIB, |_, mut disk| {
        let len = usize::try_from(MIB).unwrap() + 8192;
        let mut buf = Buf::zeroed(len);
        for (place, byte) in buf.iter_mut().enumerate() {
            *byte = u8::try_from(place % 253).unwrap();
        }
        let data = buf.into_data();
        let at = ByteOffset(MIB);
        let io = Io::Write { at, data: data.clone() };
        assert!(matches!(perform(&mut disk, io), Ok(Done::Written)));
        assert!(bytes(&mut disk, at.0, len)[..] == data[..]);
        assert!(bytes(&mut disk, at.0 - 4096, 4096).iter().all(|&b| b == 0));
    });
}

/// Protects from losing what does not fit into the ring at once.
#[test]
fn more_ios_than_ring_entries_all_complete() {
    with_each_backend(|options| {
        let scratch = Scratch::file(MIB);
        let depth = 3;
        let mut disk =
            crate::open(scratch.path(), &OpenOptions { depth, ..options.clone() }).unwrap();
        for number in 0..256 {
            disk.submit(IoId(number), write(number * 4096, byte(number), 4096));
        }
        disk.kick();
        for _ in 0..256 {
            let result = poll(&mut disk).result;
            assert!(matches!(result, Ok(Done::Written)), "{result:?}");
        }
        assert!(disk.complete().is_none());
        for number in 0..256 {
            assert_eq!(bytes(&mut disk, number * 4096, 4096)[17], byte(number));
        }
    });
}

/// Protects from an owner who never sleeps and therefore never sees a completion.
#[test]
fn finished_io_shows_without_waiting() {
    on_a_file(MIB, |_, mut disk| {
        for round in 0..100 {
            disk.submit(IoId(round), write(0, 1, 4096));
            disk.kick();
            assert_eq!(poll(&mut disk).id, IoId(round));
        }
    });
}

/// Protects from a flush or a trim that never comes back, and from a trim that takes too much.
#[test]
fn flush_and_trim_complete_and_leave_the_neighbours_alone() {
    on_a_file(MIB, |_, mut disk| {
        assert!(matches!(perform(&mut disk, write(0, 9, 65_536)), Ok(Done::Written)));
        assert!(matches!(perform(&mut disk, Io::Flush), Ok(Done::Flushed)));
        assert!(matches!(perform(&mut disk, trim(8192, 4096)), Ok(Done::Trimmed)));
        assert!(matches!(perform(&mut disk, Io::Flush), Ok(Done::Flushed)));
        let found = bytes(&mut disk, 0, 65_536);
        assert!(found[..8192].iter().all(|&b| b == 9));
        assert!(found[8192..12_288].iter().all(|&b| b == 9 || b == 0));
        assert!(found[12_288..].iter().all(|&b| b == 9));
    });
}

/// Protects from writing where no device is: a file would silently grow.
#[test]
fn ranges_beyond_the_end_are_refused() {
    on_a_file(MIB, |scratch, mut disk| {
        let beyond = [
            read(MIB, 4096),
            write(MIB - 4096, 1, 8192),
            trim(MIB - 4096, 8192),
            trim(4096, u64::MAX - 4095),
            read(u64::MAX - 4095, 4096),
        ];
        for io in beyond {
            assert_eq!(kind_of_failure(&mut disk, io), DiskErrorKind::OutOfRange);
        }
        assert_eq!(std::fs::metadata(scratch.path()).unwrap().len(), MIB);
        let error = perform(&mut disk, read(MIB, 4096)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "read at byte 1048576 (4 KiB) failed: beyond the end of the device"
        );
    });
}

/// Protects from IO that works buffered and fails once the file system allows direct IO.
#[test]
fn misaligned_io_is_refused_and_empty_io_is_done_at_once() {
    on_a_file(MIB, |_, mut disk| {
        let data = Data::copy_of(&[7; 4096]).slice(256..768);
        let at = ByteOffset(0);
        let misaligned = [read(100, 4096), read(0, 100), trim(0, 77), Io::Write { at, data }];
        for io in misaligned {
            let kind = kind_of_failure(&mut disk, io);
            assert_eq!(kind, DiskErrorKind::System(libc::EINVAL));
        }
        assert!(matches!(perform(&mut disk, read(0, 0)), Ok(Done::Read(_))));
        assert!(matches!(perform(&mut disk, write(0, 1, 0)), Ok(Done::Written)));
        assert!(matches!(perform(&mut disk, trim(0, 0)), Ok(Done::Trimmed)));
    });
}

/// Protects from a reader that changes the disk.
#[test]
fn a_read_only_disk_refuses_writes_and_trims() {
    with_each_backend(|options| {
        let scratch = Scratch::file(MIB);
        let read_only = true;
        let options = OpenOptions { read_only, ..options.clone() };
        let mut disk = crate::open(scratch.path(), &options).unwrap();
        for io in [write(0, 1, 4096), trim(0, 4096)] {
            let kind = kind_of_failure(&mut disk, io);
            assert_eq!(kind, DiskErrorKind::System(libc::EROFS));
        }
        assert!(bytes(&mut disk, 0, 4096).iter().all(|&b| b == 0));
        assert!(matches!(perform(&mut disk, Io::Flush), Ok(Done::Flushed)));
    });
}

/// Protects from waiting for ever on bytes that are not there any more, and from inventing them.
#[test]
fn reads_from_a_file_that_shrank_are_short() {
    on_a_file(MIB, |scratch, mut disk| {
        // An end within a sector is the hard case: direct IO cannot go on from there.
        scratch.set_len(8192 + 100);
        for at in [4096, 8192, 65_536] {
            let kind = kind_of_failure(&mut disk, read(at, 16_384));
            assert_eq!(kind, DiskErrorKind::Short, "at {at}");
        }
        assert_eq!(bytes(&mut disk, 4096, 4096).len(), 4096);
    });
}

/// Protects from having to reopen a device to use what was added to it.
#[test]
fn a_device_that_grew_is_used_to_its_new_end() {
    on_a_file(MIB, |scratch, mut disk| {
        assert_eq!(disk.geometry().size, ByteLen(MIB));
        scratch.set_len(2 * MIB + 100);
        assert_eq!(disk.geometry().size, ByteLen(2 * MIB), "in whole sectors");
        let io = write(2 * MIB - 4096, 3, 4096);
        assert!(matches!(perform(&mut disk, io), Ok(Done::Written)));
    });
}

/// Protects from memory that is freed under the kernel, and from kicked writes that get lost.
#[test]
fn dropping_a_disk_finishes_what_was_kicked() {
    with_each_backend(|options| {
        let scratch = Scratch::file(8 * MIB);
        let depth = 16;
        let options = OpenOptions { depth, ..options.clone() };
        let mut disk = crate::open(scratch.path(), &options).unwrap();
        for number in 0..128 {
            disk.submit(IoId(number), write(number * 65_536, byte(number), 65_536));
            disk.submit(IoId(1000 + number), read(number * 65_536, 65_536));
        }
        disk.kick();
        disk.submit(IoId(9999), write(0, 255, 4096));
        drop(disk);
        let mut disk = crate::open(scratch.path(), &options).unwrap();
        for number in 0..128 {
            let found = bytes(&mut disk, number * 65_536, 65_536);
            let whole = found.iter().all(|&b| b == byte(number));
            assert!(whole, "number {number} begins with {}", found[0]);
        }
    });
}

/// Protects from sleeping when there is nothing to wake up for, or longer than was asked.
#[test]
fn waiting_ends_in_time() {
    on_a_file(MIB, |_, mut disk| {
        disk.wait(None);
        assert!(disk.complete().is_none());
        disk.submit(IoId(1), read(0, 4096));
        disk.wait(Some(Duration::ZERO));
        disk.wait(Some(Duration::MAX));
        assert_eq!(disk.complete().unwrap().id, IoId(1), "waiting kicks");
        disk.submit(IoId(2), read(MIB, 4096));
        disk.wait(None);
        assert!(disk.complete().unwrap().result.is_err(), "a refusal is a completion");
    });
}

/// Protects from a disk that works only in the thread that opened it, or first used it.
#[test]
fn an_idle_disk_may_change_its_thread() {
    on_a_file(MIB, |_, disk| {
        let use_it = |mut disk: FileDisk| {
            for round in 0..10 {
                let io = write(4096 * round, 5, 4096);
                assert!(matches!(perform(&mut disk, io), Ok(Done::Written)));
            }
            disk
        };
        let disk = std::thread::spawn(move || use_it(disk)).join().unwrap();
        let disk = use_it(disk);
        let mut disk = std::thread::spawn(move || use_it(disk)).join().unwrap();
        disk.submit(IoId(1), read(0, 4096));
        disk.kick();
        assert!(poll(&mut disk).result.is_ok());
    });
}

/// Protects from an owner that sleeps while its completions are there: the bell rings for each
/// batch unless it is there at once.
#[test]
fn the_bell_rings_when_something_is_done() {
    on_a_file(MIB, |_, mut disk| {
        for round in 0..20 {
            disk.submit(IoId(round), write(4096 * round, byte(round), 4096));
            disk.kick();
            let mut done = 0;
            while done == 0 {
                let patience = if disk.is_ready() { 0 } else { 10 };
                let mut fds = [rustix::event::PollFd::from_borrowed_fd(
                    disk.bell().unwrap(),
                    rustix::event::PollFlags::IN,
                )];
                let patience = rustix::event::Timespec { tv_sec: patience, tv_nsec: 0 };
                let rang = rustix::event::poll(&mut fds, Some(&patience)).unwrap();
                let told = rang == 1 || disk.is_ready();
                assert!(told, "a write of round {round} was never announced");
                while let Some(completion) = disk.complete() {
                    assert_eq!(completion.id, IoId(round));
                    done += 1;
                }
            }
        }
    });
}

/// Protects from a sparse file that is written where it has no space.
#[test]
fn space_is_taken_without_a_change_of_what_is_there() {
    use std::os::unix::fs::MetadataExt;
    on_a_file(MIB, |scratch, mut disk| {
        let has = || std::fs::metadata(scratch.path()).unwrap().blocks() * 512;
        assert!(disk.is_sparse());
        assert!(matches!(perform(&mut disk, write(8192, 7, 4096)), Ok(Done::Written)));
        assert!(matches!(perform(&mut disk, Io::Flush), Ok(Done::Flushed)));
        assert!(has() < MIB / 2, "the file system allocates more than it is told to");
        assert!(matches!(perform(&mut disk, allocate(0, MIB / 2)), Ok(Done::Allocated)));
        assert!((MIB / 2..MIB).contains(&has()), "{}", has());
        let found = bytes(&mut disk, 0, 65_536);
        assert!(found[8192..12_288].iter().all(|&b| b == 7));
        assert!(found[12_288..].iter().all(|&b| b == 0));
        let beyond = kind_of_failure(&mut disk, allocate(MIB - 4096, 8192));
        assert_eq!(beyond, DiskErrorKind::OutOfRange);
    });
}
