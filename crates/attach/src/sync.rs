//! Waiting until the kernel has written what it has in memory, for no longer than a while.
//!
//! The kernel reports a failure once, to one caller. So the failure is written to a file before anything else is done
//! about it: that caller may be killed, and no later one gets the report. At most one sync of each attachment runs at a
//! time in this process, however often it is requested.
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

#[derive(Clone, Debug, Error)]
pub enum SyncError {
    /// The kernel has given up, and what it could not write is lost.
    #[error("{0}")]
    Lost(Arc<io::Error>),
    /// Everything was written, and is not durable yet.
    #[error("{0}")]
    Failed(Arc<io::Error>),
    /// Nothing is lost yet. It goes on by itself.
    #[error("it is still being written after {0:?}")]
    Late(Duration),
    /// Nothing is lost yet. It has to be asked for again.
    #[error("it could not be begun, since the system has no thread for it: {0}")]
    NotBegun(Arc<io::Error>),
}

/// Where a sync leaves what the next process has to know.
#[derive(Clone, Debug)]
pub struct Notes {
    /// Says what was lost, if something was.
    pub lost: PathBuf,
    /// The place of a [`Mark`] while the sync is under way; `None`: no other process would look at it.
    pub unsettled: Option<PathBuf>,
}

/// Calls `sync`, which may block for as long as requests wait for a target. A failure is noted, also if the caller's
/// time is over, and the note is removed again if nothing `is_lost`.
///
/// A sync that another caller began is waited for first. If it succeeds, another one follows: the first may have begun
/// before the last write.
pub fn within(
    wait: Duration,
    notes: Notes,
    sync: impl FnOnce() -> io::Result<()> + Send + 'static,
    is_lost: impl FnOnce() -> bool + Send + 'static,
) -> Result<(), SyncError> {
    let spawn = |job: Job| thread::Builder::new().name("sync".into()).spawn(job).map(drop);
    within_by(spawn, wait, notes, sync, is_lost)
}

type Job = Box<dyn FnOnce() + Send>;

fn within_by(
    spawn: impl FnOnce(Job) -> io::Result<()>,
    wait: Duration,
    notes: Notes,
    sync: impl FnOnce() -> io::Result<()> + Send + 'static,
    is_lost: impl FnOnce() -> bool + Send + 'static,
) -> Result<(), SyncError> {
    let until = Instant::now() + wait;
    let place = Place::of(&notes.lost);
    let sync_of_this = loop {
        match UnderWay::begin(place.key()) {
            Ok(begun) => break begun,
            Err(other) => match other.wait(until) {
                Some(Ok(())) => {}
                Some(Err(error)) => return Err(error),
                None => return Err(SyncError::Late(wait)),
            },
        }
    };
    let under_way = Arc::clone(&sync_of_this);
    let job = move || {
        let mark = notes.unsettled.and_then(|mark| Mark::set(&place.at(&mark)));
        let result = run(&place.at(&notes.lost), sync, is_lost);
        // Only now: what was lost is noted.
        drop(mark);
        under_way.end(result);
    };
    if let Err(error) = spawn(Box::new(job)) {
        sync_of_this.end(Err(SyncError::NotBegun(Arc::new(error))));
    }
    sync_of_this.wait(until).unwrap_or(Err(SyncError::Late(wait)))
}

fn run(
    note: &Path,
    sync: impl FnOnce() -> io::Result<()>,
    is_lost: impl FnOnce() -> bool,
) -> Result<(), SyncError> {
    let Err(error) = sync() else { return Ok(()) };
    let error = Arc::new(error);
    let was_noted = note.exists();
    write_note(note, &error.to_string());
    if is_lost() {
        return Err(SyncError::Lost(error));
    }
    if !was_noted {
        // A note that cannot be removed reports a loss that did not happen, which is safe.
        let _ = fs::remove_file(note);
    }
    Err(SyncError::Failed(error))
}

/// Where a loss cannot be noted it is told all the same; a folder that is gone was given up.
pub fn write_note(note: &Path, reason: &str) {
    let _ = fs::write(note, reason);
}

/// The folder of an attachment as it is now: what is noted late is not of the attachment that has its path by then.
struct Place {
    note: PathBuf,
    folder: Option<File>,
}

/// A path, and which folder it had: device and inode. That is not used again while the folder is open.
type Key = (PathBuf, Option<(u64, u64)>);

impl Place {
    fn of(note: &Path) -> Place {
        let folder = note.parent().and_then(|folder| File::open(folder).ok());
        Place { note: note.to_owned(), folder }
    }

    fn key(&self) -> Key {
        let folder = self.folder.as_ref().and_then(|folder| folder.metadata().ok());
        (self.note.clone(), folder.map(|folder| (folder.dev(), folder.ino())))
    }

    fn at(&self, path: &Path) -> PathBuf {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let same = self.folder.as_ref().map(|it| format!("/proc/self/fd/{}", it.as_raw_fd()));
        same.map_or(path.to_owned(), |folder| Path::new(&folder).join(name))
    }
}

/// A sync that has begun.
struct UnderWay {
    key: Key,
    result: Mutex<Option<Result<(), SyncError>>>,
    ended: Condvar,
}

static ALL_UNDER_WAY: Mutex<BTreeMap<Key, Arc<UnderWay>>> = Mutex::new(BTreeMap::new());

/// Every change under these locks is made at once, also by a thread that panics.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UnderWay {
    /// The error is one that is under way already.
    fn begin(key: Key) -> Result<Arc<UnderWay>, Arc<UnderWay>> {
        let mut all = locked(&ALL_UNDER_WAY);
        if let Some(other) = all.get(&key) {
            return Err(Arc::clone(other));
        }
        let (result, ended) = (Mutex::new(None), Condvar::new());
        let begun = Arc::new(UnderWay { key: key.clone(), result, ended });
        all.insert(key, Arc::clone(&begun));
        Ok(begun)
    }

    /// From here on another one may begin.
    fn end(&self, result: Result<(), SyncError>) {
        locked(&ALL_UNDER_WAY).remove(&self.key);
        *locked(&self.result) = Some(result);
        self.ended.notify_all();
    }

    /// `None`: it goes on.
    fn wait(&self, until: Instant) -> Option<Result<(), SyncError>> {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.ended.wait_timeout_while(locked(&self.result), left, |it| it.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

/// A file that is there while it is open whether the kernel has dropped something. It is locked meanwhile: one without
/// a lock was left by a process that was killed, and the report that it may have got is gone with it.
pub struct Mark {
    path: PathBuf,
    is_left: bool,
    _lock: File,
}

impl Mark {
    /// `None`: it cannot be made, and things go on without.
    pub fn set(path: &Path) -> Option<Mark> {
        let file = File::create(path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Mark { path: path.to_owned(), is_left: false, _lock: file })
    }

    /// It stays, as if this process was killed.
    pub fn leave(mut self) {
        self.is_left = true;
    }

    /// Whether there is one of a process that was killed.
    pub fn is_left_at(path: &Path) -> bool {
        let locked =
            File::open(path).map(|file| flock(&file, FlockOperation::NonBlockingLockShared));
        !matches!(locked, Err(_) | Ok(Err(_)))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if !self.is_left {
            // One that stays is looked at by the next one that unmounts.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
