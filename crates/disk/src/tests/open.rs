//! What may be opened, how, and what is left behind when it may not.
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use block::{IoMode, SectorSize};

use super::*;
use crate::Direct;

const MIB: u64 = 1 << 20;

fn refusal(path: &Path, options: &OpenOptions) -> OpenError {
    crate::open(path, options).expect_err("this must not open")
}

fn creating(size: u64) -> OpenOptions {
    OpenOptions { create: Some(ByteLen(size)), ..OpenOptions::default() }
}

fn reading() -> OpenOptions {
    OpenOptions { read_only: true, ..OpenOptions::default() }
}

/// The open flags of each descriptor that this process has of a file.
fn flags_of_descriptors(path: &Path) -> Vec<libc::c_int> {
    let wanted = std::fs::metadata(path).unwrap();
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
    let names = numbers.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| {
            std::fs::metadata(format!("/proc/self/fd/{name}"))
                .is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
        })
        .map(|name| {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{name}")).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
            libc::c_int::from_str_radix(flags.unwrap().trim(), 8).unwrap()
        })
        .collect()
}

/// Protects from two writers on one disk, and from a reader beside a writer.
#[test]
fn a_disk_has_one_writer_or_many_readers() {
    with_each_backend(|options| {
        let scratch = Scratch::file(MIB);
        let writer = crate::open(scratch.path(), options).unwrap();
        for rival in [options.clone(), reading()] {
            let error = refusal(scratch.path(), &rival);
            assert!(matches!(error, OpenError::InUse { .. }), "{error}");
            assert!(error.is_transient());
        }
        drop(writer);
        let first = crate::open(scratch.path(), &reading()).unwrap();
        let second = crate::open(scratch.path(), &reading()).unwrap();
        let error = refusal(scratch.path(), options);
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        drop((first, second));
        crate::open(scratch.path(), options).unwrap();
    });
}

/// Protects from a disk that claims to be direct and keeps its data in the page cache.
#[test]
fn a_direct_disk_is_open_for_direct_io() {
    with_each_backend(|options| {
        let scratch = Scratch::file(MIB);
        let disk = crate::open(scratch.path(), options).unwrap();
        let geometry = disk.geometry();
        let mut flags = flags_of_descriptors(scratch.path()).into_iter();
        if geometry.mode == IoMode::Buffered {
            crate::skipped!("SKIPPED: no direct IO in {}", scratch.path().display());
            return;
        }
        assert!(flags.any(|flags| flags & libc::O_DIRECT != 0));
        assert_eq!(geometry.size, ByteLen(MIB));
        assert_eq!(geometry.physical_sector, SectorSize::B4096);
    });
}

/// Protects from a disk that fails, or lies about it, where direct IO is not to be had.
#[test]
fn a_buffered_disk_works_and_says_so() {
    let mut directories = vec![std::env::temp_dir()];
    match Path::new("/dev/shm").is_dir() {
        true => directories.push("/dev/shm".into()),
        false => crate::skipped!("SKIPPED in part: no tmpfs at /dev/shm"),
    }
    for directory in directories {
        with_each_backend(|options| {
            let scratch = Scratch::absent_in(&directory);
            scratch.set_len(MIB);
            let direct = Direct::Never;
            let options = OpenOptions { direct, ..options.clone() };
            let mut disk = crate::open(scratch.path(), &options).unwrap();
            assert_eq!(disk.geometry().mode, IoMode::Buffered);
            let flags = flags_of_descriptors(scratch.path());
            assert!(flags.iter().all(|flags| flags & libc::O_DIRECT == 0));
            assert!(matches!(perform(&mut disk, write(512, 6, 1024)), Ok(Done::Written)));
            assert!(matches!(perform(&mut disk, Io::Flush), Ok(Done::Flushed)));
            assert!(matches!(perform(&mut disk, trim(8192, 4096)), Ok(Done::Trimmed)));
            drop(disk);
            let mut disk = crate::open(scratch.path(), &options).unwrap();
            let found = bytes(&mut disk, 0, 2048);
            assert_eq!([found[511], found[512], found[1535], found[1536]], [0, 6, 6, 0]);
        });
    }
}

/// Protects from file systems that allow direct IO, or do not, and declare no alignment for it.
#[test]
fn a_file_in_memory_serves_in_whichever_mode_it_allows() {
    if !Path::new("/dev/shm").is_dir() {
        crate::skipped!("SKIPPED: no tmpfs at /dev/shm");
        return;
    }
    with_each_backend(|options| {
        let scratch = Scratch::absent_in("/dev/shm");
        scratch.set_len(MIB);
        let mut disk = crate::open(scratch.path(), options).unwrap();
        eprintln!("{:?}", disk.geometry());
        let io = write(4096, 6, 65_536);
        assert!(matches!(perform(&mut disk, io), Ok(Done::Written)));
        assert!(matches!(perform(&mut disk, Io::Flush), Ok(Done::Flushed)));
        assert!(bytes(&mut disk, 4096, 65_536).iter().all(|&b| b == 6));
    });
}

/// Protects from overwriting what is there, and from a new file that cannot be used at once.
#[test]
fn creating_makes_a_new_file_and_never_takes_an_old_one() {
    let scratch = Scratch::absent();
    let mut disk = crate::open(scratch.path(), &creating(MIB)).unwrap();
    assert_eq!(disk.geometry().size, ByteLen(MIB));
    assert!(matches!(perform(&mut disk, write(0, 8, 4096)), Ok(Done::Written)));
    drop(disk);
    let error = refusal(scratch.path(), &creating(2 * MIB));
    assert!(matches!(error, OpenError::Exists { .. }), "{error}");
    let mut disk = crate::open(scratch.path(), &OpenOptions::default()).unwrap();
    assert_eq!(disk.geometry().size, ByteLen(MIB));
    assert_eq!(bytes(&mut disk, 0, 4096)[0], 8, "the old content is still there");
}

/// Protects from leaving a file behind that the next attempt would then trip over.
#[test]
fn a_failed_creation_leaves_nothing_behind() {
    let scratch = Scratch::absent();
    let too_large = refusal(scratch.path(), &creating(1 << 62));
    let action_named = too_large.to_string().starts_with("cannot set the size of");
    assert!(action_named, "{too_large}");
    assert!(!scratch.path().exists());
    for size in [0, 100, 4096 + 512] {
        let error = refusal(scratch.path(), &creating(size));
        assert!(matches!(error, OpenError::CreateSize { .. }), "{error}");
    }
    let read_only = OpenOptions { read_only: true, ..creating(MIB) };
    let error = refusal(scratch.path(), &read_only);
    assert!(matches!(error, OpenError::CreateReadOnly { .. }), "{error}");
    assert!(!scratch.path().exists());
}

/// Protects from hanging on a fifo, and from errors that leave the operator guessing.
#[test]
fn what_is_no_disk_is_refused_by_name() {
    let options = OpenOptions::default();
    let directory = Scratch::absent();
    std::fs::create_dir(directory.path()).unwrap();
    let fifo = Scratch::absent();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, fifo.path(), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let kinds = [
        (directory.path(), "directory"),
        (fifo.path(), "fifo"),
        (Path::new("/dev/null"), "character device"),
    ];
    for (path, expected) in kinds {
        match refusal(path, &options) {
            OpenError::WrongKind { found, .. } => assert_eq!(found, expected),
            other => panic!("a {expected} came to: {other}"),
        }
    }
    let absent = refusal(Scratch::absent().path(), &options);
    assert!(matches!(absent, OpenError::NotFound { .. }), "{absent}");
    let tiny = Scratch::file(100);
    let error = refusal(tiny.path(), &options);
    assert!(matches!(error, OpenError::TooSmall { .. }), "{error}");
    for depth in [0, crate::DEPTH_MAX + 1] {
        let error = refusal(tiny.path(), &OpenOptions { depth, ..options.clone() });
        assert!(matches!(error, OpenError::Depth { .. }), "{error}");
    }
}

/// Protects from a lost choice of backend.
#[test]
fn a_disk_names_its_backend() {
    with_each_backend(|options| {
        let scratch = Scratch::file(MIB);
        let disk = crate::open(scratch.path(), options).unwrap();
        let expected = match options.backend {
            Backend::Threads => "threads",
            Backend::Calls => "calls",
            _ => "io_uring",
        };
        assert_eq!(disk.backend(), expected);
    });
}

/// Protects from files in memory that are handed to threads of the kernel and back.
#[test]
fn a_file_in_memory_is_served_by_calls() {
    if !Path::new("/dev/shm").is_dir() {
        return crate::skipped!("SKIPPED: there is no /dev/shm to write to");
    }
    let scratch = Scratch::absent_in("/dev/shm");
    let mut disk = crate::open(scratch.path(), &creating(MIB)).unwrap();
    assert_eq!(disk.backend(), "calls");
    disk.submit(IoId(1), write(0, 1, 4096));
    assert!(!disk.is_ready(), "it was not kicked");
    disk.kick();
    assert!(disk.is_ready(), "a loop that sleeps now is never woken");
    assert!(disk.complete().is_some_and(|done| done.result.is_ok()));
    assert!(!disk.is_ready());
}

/// Tells the other process of the next test which file to write.
const VICTIM_PATH: &str = "POLLUX_DISK_VICTIM_PATH";

/// The other process of the next test; does nothing when it is run alone.
#[test]
fn a_process_that_writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(VICTIM_PATH) else { return };
    let mut disk = crate::open(path, &OpenOptions::default()).unwrap();
    for number in 0.. {
        disk.submit(IoId(number), write(number % 1024 * 65_536, 7, 65_536));
        if number == 128 {
            println!("writing");
        }
        while number > 64 && disk.complete().is_none() {
            disk.wait(None);
        }
    }
}

/// Protects from a disk that stays locked after a crash, and from a lock that only holds within a
/// process.
#[test]
fn the_lock_holds_against_another_process_and_ends_with_it() {
    let scratch = Scratch::file(64 * MIB);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("tests::open::a_process_that_writes_until_it_is_killed")
        .env(VICTIM_PATH, scratch.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let writing = output.lines().any(|line| line.unwrap().ends_with("writing"));
    assert!(writing, "the other process did not come that far");
    let error = refusal(scratch.path(), &OpenOptions::default());
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    while let Err(error) = crate::open(scratch.path(), &OpenOptions::default()) {
        assert!(error.is_transient(), "{error}");
        assert!(killed.elapsed() < Duration::from_secs(20), "{error}");
        std::thread::sleep(Duration::from_millis(1));
    }
    eprintln!("the lock outlived its process by {:?}", killed.elapsed());
}

/// Protects from a pool whose file system fills up under it.
#[test]
fn a_new_file_has_its_space_unless_it_is_to_be_sparse() {
    let has = |path: &Path| std::fs::metadata(path).unwrap().blocks() * 512;
    let scratch = Scratch::absent();
    let disk = crate::open(scratch.path(), &creating(4 * MIB)).unwrap();
    assert!(has(scratch.path()) >= 4 * MIB, "{}", has(scratch.path()));
    assert!(!disk.is_sparse());
    let scratch = Scratch::absent();
    let options = OpenOptions { sparse: true, ..creating(4 * MIB) };
    let disk = crate::open(scratch.path(), &options).unwrap();
    assert!(has(scratch.path()) < 4 * MIB && disk.is_sparse());
}

#[test]
fn a_file_for_which_there_is_no_space_is_not_made() {
    let scratch = Scratch::absent();
    let error = refusal(scratch.path(), &creating(8 << 40));
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
    assert!(error.to_string().contains("--sparse"), "{error}");
    assert!(!scratch.path().exists());
}
