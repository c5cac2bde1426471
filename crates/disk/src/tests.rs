//! What all backends promise alike, on real files and devices.
mod device;
mod io;
mod open;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use block::{Buf, ByteLen, ByteOffset, Data, Disk, DiskError, DiskErrorKind, Done, Io, IoId, Wait};

use crate::{Backend, FileDisk, OpenError, OpenOptions};

/// A path that goes away with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn absent_in(directory: impl AsRef<Path>) -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pollux-disk-{}-{count}", std::process::id());
        Scratch(directory.as_ref().join(name))
    }

    pub(crate) fn absent() -> Scratch {
        Scratch::absent_in(std::env::temp_dir())
    }

    pub(crate) fn file(len: u64) -> Scratch {
        let scratch = Scratch::absent();
        scratch.set_len(len);
        scratch
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn set_len(&self, len: u64) {
        let file = std::fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.0)
            .unwrap();
        file.set_len(len).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir(&self.0);
    }
}

pub(crate) fn with(backend: Backend) -> OpenOptions {
    OpenOptions { backend, ..OpenOptions::default() }
}

/// Runs a test with each backend that this system has.
fn with_each_backend(test: impl Fn(&OpenOptions)) {
    let scratch = Scratch::file(4096);
    for backend in [Backend::Ring, Backend::Threads, Backend::Calls] {
        match crate::open(scratch.path(), &with(backend)) {
            Err(OpenError::NoRing { source }) => crate::skipped!("SKIPPED for io_uring: {source}"),
            found => {
                drop(found.unwrap());
                test(&with(backend));
            }
        }
    }
}

/// Runs a test with each backend on a fresh file of this size.
fn on_a_file(len: u64, test: impl Fn(&Scratch, FileDisk)) {
    with_each_backend(|options| {
        let scratch = Scratch::file(len);
        let disk = crate::open(scratch.path(), options).unwrap();
        test(&scratch, disk);
    });
}

pub(crate) fn read(at: u64, len: usize) -> Io {
    let (at, buf) = (ByteOffset(at), Buf::zeroed(len));
    Io::Read { at, buf }
}

pub(crate) fn write(at: u64, byte: u8, len: usize) -> Io {
    let (at, data) = (ByteOffset(at), Data::copy_of(&vec![byte; len]));
    Io::Write { at, data }
}

pub(crate) fn trim(at: u64, len: u64) -> Io {
    let (at, len) = (ByteOffset(at), ByteLen(len));
    Io::Trim { at, len }
}

pub(crate) fn allocate(at: u64, len: u64) -> Io {
    let (at, len) = (ByteOffset(at), ByteLen(len));
    Io::Allocate { at, len }
}

pub(crate) type Results = HashMap<IoId, Result<Done, DiskError>>;

/// Waits for this many completions; each must be the only one of its id.
pub(crate) fn wait_for<D: Wait>(disk: &mut D, count: usize) -> Results {
    let mut results = Results::new();
    while results.len() < count {
        match disk.complete() {
            None => disk.wait(None),
            Some(completion) => {
                let earlier = results.insert(completion.id, completion.result);
                assert!(earlier.is_none(), "{:?} completed twice", completion.id);
            }
        }
    }
    assert!(disk.complete().is_none(), "a completion that nobody asked for");
    results
}

/// Does one IO, from its submission to its end.
pub(crate) fn perform<D: Wait>(disk: &mut D, io: Io) -> Result<Done, DiskError> {
    disk.submit(IoId(77), io);
    wait_for(disk, 1).remove(&IoId(77)).unwrap()
}

pub(crate) fn bytes<D: Wait>(disk: &mut D, at: u64, len: usize) -> Buf {
    match perform(disk, read(at, len)) {
        Ok(Done::Read(buf)) => buf,
        other => panic!("a read came to {other:?}"),
    }
}

fn kind_of_failure(disk: &mut FileDisk, io: Io) -> DiskErrorKind {
    perform(disk, io).unwrap_err().kind
}

/// Polls, without ever waiting, until something is finished.
pub(crate) fn poll<D: Disk>(disk: &mut D) -> block::Completion {
    let start = Instant::now();
    loop {
        if let Some(completion) = disk.complete() {
            return completion;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "nothing shows");
        std::thread::yield_now();
    }
}

/// Numbers without an obvious order, the same in each run.
pub(crate) fn shuffled(count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..numbers.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = usize::try_from(state % (last as u64 + 1)).unwrap();
        numbers.swap(last, other);
    }
    numbers
}
