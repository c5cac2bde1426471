//! Waiting until the kernel has written what it has in memory, for no longer than a while.
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, io, thread};

use thiserror::Error;

#[derive(Debug, Error)]
pub enum SyncError {
    /// The kernel has given up, and what it could not write is lost.
    #[error("{0}")]
    Lost(io::Error),
    /// Everything was written, and is not durable yet.
    #[error("{0}")]
    Failed(io::Error),
    /// Nothing is lost yet. It goes on by itself.
    #[error("it is still being written after {0:?}")]
    Late(Duration),
}

/// Calls `sync`, which may block for as long as requests wait for a target. The kernel tells of a failure once, to one
/// of those who ask: what `is_lost` then is noted in the file `note`, also if nobody waits for it any more.
pub fn within(
    wait: Duration,
    note: PathBuf,
    sync: impl FnOnce() -> io::Result<()> + Send + 'static,
    is_lost: impl FnOnce() -> bool + Send + 'static,
) -> Result<(), SyncError> {
    let (done, result) = mpsc::channel();
    // The folder as it is now: what is noted late is not of the attachment that has its path by then.
    let folder = note.parent().and_then(|folder| fs::File::open(folder).ok());
    thread::spawn(move || {
        let synced = sync().map_err(|error| match is_lost() {
            true => SyncError::Lost(error),
            false => SyncError::Failed(error),
        });
        if let Err(SyncError::Lost(error)) = &synced {
            write_note(folder.as_ref(), &note, error);
        }
        // Nobody waits any more if it took too long.
        let _ = done.send(synced);
    });
    match result.recv_timeout(wait) {
        Ok(synced) => synced,
        Err(_) => Err(SyncError::Late(wait)),
    }
}

/// Where a loss cannot be noted it is told all the same; a folder that is gone was given up.
fn write_note(folder: Option<&fs::File>, note: &Path, error: &io::Error) {
    let name = note.file_name().unwrap_or(note.as_os_str());
    let same = folder.map(|it| format!("/proc/self/fd/{}", it.as_raw_fd()));
    let note = same.map_or(note.to_owned(), |folder| Path::new(&folder).join(name));
    let _ = fs::write(note, error.to_string());
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn note(name: &str) -> PathBuf {
        let note = std::env::temp_dir().join(format!("pollux-sync-{name}-{}", std::process::id()));
        // Of an earlier run.
        let _ = fs::remove_file(&note);
        note
    }

    fn noted(note: &Path) -> String {
        let begun = Instant::now();
        loop {
            match fs::read_to_string(note) {
                Ok(text) if !text.is_empty() => break,
                _ => assert!(begun.elapsed() < Duration::from_secs(20), "nothing is noted"),
            }
            thread::yield_now();
        }
        let text = fs::read_to_string(note).expect("it is there");
        fs::remove_file(note).expect("it is there");
        text
    }

    #[test]
    fn what_is_written_leaves_no_note() {
        let note = note("done");
        within(Duration::from_secs(20), note.clone(), || Ok(()), || true).expect("it is written");
        assert!(!note.exists());
    }

    #[test]
    fn a_flush_that_failed_can_be_repeated() {
        let note = note("flush");
        let failed = || Err(io::Error::from_raw_os_error(libc::EIO));
        let error = within(Duration::from_secs(20), note.clone(), failed, || false);
        assert!(matches!(&error, Err(SyncError::Failed(_))), "{error:?}");
        assert!(!note.exists(), "nothing is lost");
    }

    #[test]
    fn a_failure_is_told_and_noted() {
        let at = note("failed");
        let failed = || Err(io::Error::from_raw_os_error(libc::EIO));
        let error = within(Duration::from_secs(20), at.clone(), failed, || true);
        assert!(matches!(&error, Err(SyncError::Lost(_))), "{error:?}");
        assert!(noted(&at).contains("Input/output error"));
    }

    /// Protects from a second attempt that finds nothing wrong: the first one was told, and was not listening.
    #[test]
    fn a_failure_that_nobody_waits_for_is_noted() {
        let at = note("late");
        let (go_on, held) = mpsc::channel::<()>();
        let stuck = move || {
            held.recv().expect("somebody lets it go on");
            Err(io::Error::from_raw_os_error(libc::EIO))
        };
        let error = within(Duration::from_millis(20), at.clone(), stuck, || true);
        assert!(matches!(&error, Err(SyncError::Late(_))), "{error:?}");
        assert!(!at.exists(), "nothing is lost yet");
        go_on.send(()).expect("it waits");
        assert!(noted(&at).contains("Input/output error"));
    }

    /// Protects from an attachment that is told of a loss which the one before it had.
    #[test]
    fn a_late_note_is_not_of_the_next_attachment() {
        let folder = note("folder");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        let at = folder.join("unwritten");
        let before = fs::File::open(&folder).expect("the folder");
        let error = io::Error::from_raw_os_error(libc::EIO);
        write_note(Some(&before), &at, &error);
        assert!(at.exists());
        fs::remove_dir_all(&folder).expect("it is given up");
        fs::create_dir(&folder).expect("the next one");
        write_note(Some(&before), &at, &error);
        assert!(!at.exists());
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
