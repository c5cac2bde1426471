//! A load of files that can be checked: every file's bytes follow from a seed and its number.
//!
//! A file is written beside its place, made durable, renamed to its place, and the rename made durable: from
//! then on it has to be there, and the [`Index`] says so. Old ones are read again from the device, past the cache.
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::OFlags;

use crate::random::Random;

const ALIGN: usize = 4096;
const LEN_MAX: u64 = 256 << 10;
/// Files that are there at a time; later ones replace earlier ones.
const PLACES: u64 = 64;
/// Between two files: the load is there to be hit in the middle, not to be fast.
const REST: Duration = Duration::from_millis(5);

/// The number of the file at each place, as far as it is durable.
pub type Index = BTreeMap<u64, u64>;

/// A folder of such files.
#[derive(Clone, Debug)]
pub struct Files {
    pub folder: PathBuf,
    pub seed: u64,
}

impl Files {
    fn bytes(&self, number: u64) -> Vec<u8> {
        let mut random = Random::new(self.seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let len = usize::try_from(1 + random.below(LEN_MAX)).expect("a file fits the memory");
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(random.draw().to_be_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    fn path(&self, place: u64) -> PathBuf {
        self.folder.join(format!("file-{place:03}"))
    }

    /// Durable when this returns.
    pub fn write(&self, number: u64) -> io::Result<u64> {
        let (draft, place) = (self.folder.join("draft"), number % PLACES);
        let mut file = File::create(&draft)?;
        file.write_all(&self.bytes(number))?;
        file.sync_all()?;
        drop(file);
        fs::rename(&draft, self.path(place))?;
        File::open(&self.folder)?.sync_all()?;
        Ok(place)
    }

    /// Holds what the device has against what has to be there.
    pub fn check(&self, place: u64, number: u64) -> Result<()> {
        let path = self.path(place);
        let found = read_past_cache(&path).with_context(|| path.display().to_string())?;
        let right = self.bytes(number);
        if found == right {
            return Ok(());
        }
        let at = found.iter().zip(&right).position(|(found, right)| found != right);
        bail!(
            "{} is not file {number}: {} bytes instead of {}, other ones from {at:?} on",
            path.display(),
            found.len(),
            right.len()
        )
    }

    pub fn check_all(&self, index: &Index) -> Result<()> {
        ensure!(!index.is_empty(), "there is nothing to check");
        index.iter().try_for_each(|(place, number)| self.check(*place, *number))
    }
}

fn read_past_cache(path: &Path) -> io::Result<Vec<u8>> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    let mut file = OpenOptions::new().read(true).custom_flags(direct).open(path)?;
    let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut space = vec![0; len.next_multiple_of(ALIGN) + ALIGN];
    let skip = space.as_ptr().align_offset(ALIGN);
    let mut bytes = &mut space[skip..skip + len.next_multiple_of(ALIGN)];
    let mut got = 0;
    while got < len {
        match file.read(bytes)? {
            0 => break,
            more => {
                got += more;
                bytes = &mut bytes[more..];
            }
        }
    }
    space.drain(..skip);
    space.truncate(got);
    Ok(space)
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// It is to write nothing for a while; and it writes nothing now.
    held: AtomicBool,
    still: AtomicBool,
    index: Mutex<Index>,
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A load that runs, until it is told to rest or something is wrong.
#[derive(Debug)]
pub struct FileLoad {
    files: Files,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl FileLoad {
    pub fn start(files: Files) -> Result<FileLoad> {
        fs::create_dir_all(&files.folder)?;
        let shared = Arc::new(Shared::default());
        let (at, told) = (files.clone(), Arc::clone(&shared));
        let thread = Some(thread::spawn(move || run(&at, &told)));
        Ok(FileLoad { files, shared, thread })
    }

    pub fn files(&self) -> &Files {
        &self.files
    }

    /// What is durable by now.
    pub fn index(&self) -> Index {
        self.shared.index().clone()
    }

    /// Until so many more files are durable.
    pub fn go_on(&mut self, more: u64, patience: Duration) -> Result<Duration> {
        let newest = |index: Index| index.values().max().map_or(0, |newest| newest + 1);
        let (begun, goal) = (Instant::now(), newest(self.index()) + more);
        while newest(self.index()) < goal {
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                self.end()?;
                bail!("the load has ended");
            }
            ensure!(begun.elapsed() < patience, "no {more} files within {patience:?}");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(begun.elapsed())
    }

    /// It writes and flushes nothing from now on, until it is let go.
    pub fn hold(&self, patience: Duration) -> Result<()> {
        self.shared.held.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        while !self.shared.still.load(Ordering::SeqCst) {
            ensure!(begun.elapsed() < patience, "the load goes on after {patience:?}");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub fn let_go(&self) {
        self.shared.held.store(false, Ordering::SeqCst);
    }

    fn end(&mut self) -> Result<()> {
        self.let_go();
        self.shared.stop.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| anyhow::anyhow!("the load panicked"))?
    }

    /// The end of it; an error if one came in between.
    pub fn rest(&mut self) -> Result<Index> {
        self.end()?;
        Ok(self.index())
    }

    /// Why it ended by itself, within so long.
    pub fn failure(&mut self, patience: Duration) -> Result<anyhow::Error> {
        let begun = Instant::now();
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            ensure!(begun.elapsed() < patience, "the load goes on after {patience:?}");
            thread::sleep(Duration::from_millis(10));
        }
        match self.end() {
            Ok(()) => bail!("the load ended without an error"),
            Err(error) => Ok(error),
        }
    }
}

impl Drop for FileLoad {
    fn drop(&mut self) {
        // Whoever waits for a device is left alone: its process may be gone.
        self.shared.stop.store(true, Ordering::SeqCst);
    }
}

fn run(files: &Files, shared: &Shared) -> Result<()> {
    let mut random = Random::new(files.seed);
    for number in 0.. {
        if shared.stop.load(Ordering::SeqCst) {
            break;
        }
        while shared.held.load(Ordering::SeqCst) {
            shared.still.store(true, Ordering::SeqCst);
            thread::sleep(REST);
        }
        shared.still.store(false, Ordering::SeqCst);
        let place = files.write(number).with_context(|| format!("writing file {number}"))?;
        shared.index().insert(place, number);
        let old = random.below(PLACES.min(number + 1));
        let known = shared.index().get(&old).copied();
        if let Some(known) = known {
            files.check(old, known)?;
        }
        thread::sleep(REST);
    }
    Ok(())
}
