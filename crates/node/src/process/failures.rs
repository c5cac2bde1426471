//! Pools whose device failed a write or a flush, as the node remembers them (P8).
//!
//! A device that failed may have lost what it completed before. The kernel's boot id does not tell: the
//! node that opens such a pool again, on the same machine, would take its copies for copies that lost
//! nothing. So every failure is noted, and a pool is another device behind it.
//!
//! The contract: a note is there before anything follows from the failure, and each of three places is enough:
//!
//! - a file in the state folder. Its space is taken before pools are opened, so that a full disk is no
//!   reason to lose a note. One line for each failure, the pool's uuid in hexadecimal digits; a line that was
//!   cut short counts for every pool that it may be of;
//! - a file in memory, which needs no disk. It lasts as long as the kernel runs, and so does the proof that
//!   it takes away. The next start turns it into a line of the first file;
//! - the mark that the engine writes into the pool itself.
//!
//! What was written before the note, and is lost by a kill in between, is not known to anybody: that is the
//! time between the system call that reported the failure and the next one of this process.
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use tracing::warn;

/// Where files are in memory on every Linux.
const IN_MEMORY: &str = "/dev/shm";

/// Taken for lines in advance: a hundred of them.
const SPACE: u64 = 4096;

#[derive(Clone, Debug)]
pub struct Failures {
    folder: PathBuf,
    in_memory: PathBuf,
}

impl Failures {
    /// The folder has to be there.
    pub fn open(state: &Path) -> io::Result<Failures> {
        Failures::open_beside(state, Path::new(IN_MEMORY))
    }

    fn open_beside(state: &Path, in_memory: &Path) -> io::Result<Failures> {
        let failures = Failures { folder: state.into(), in_memory: in_memory.into() };
        let file = failures.appended()?;
        let len = file.metadata()?.len();
        match rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, len, SPACE) {
            // Where it cannot be taken in advance, the other places are left.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        failures.sync()?;
        Ok(failures)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("failures")
    }

    fn in_memory(&self, pool: [u8; 16]) -> PathBuf {
        self.in_memory.join(format!("pollux-failed-{}", digits(pool)))
    }

    fn appended(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(self.path())
    }

    /// A kill does not take it away once this returns; it needs no device for that. [`Failures::sync`] makes
    /// it last longer. An error means that neither place took it.
    pub fn note(&self, pool: [u8; 16]) -> io::Result<()> {
        let in_memory = self.note_in_memory(pool);
        let in_folder = self.append(pool);
        in_folder.or(in_memory)
    }

    fn append(&self, pool: [u8; 16]) -> io::Result<()> {
        // One that was cut short ends with this one at the latest.
        self.appended()?.write_all(format!("\n{}\n", digits(pool)).as_bytes())
    }

    fn note_in_memory(&self, pool: [u8; 16]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o600).open(self.in_memory(pool)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes the file in the state folder durable.
    pub fn sync(&self) -> io::Result<()> {
        self.appended()?.sync_all()?;
        File::open(&self.folder)?.sync_all()
    }

    /// What tells this device from others, and from itself before it failed. `marked` is how many failures
    /// the pool itself tells of.
    pub fn device(&self, pool: [u8; 16], marked: u64) -> io::Result<u128> {
        self.take_over(pool)?;
        let noted = fs::read_to_string(self.path())?;
        let digits = digits(pool);
        let lines = noted.lines().filter(|line| !line.is_empty() && digits.starts_with(line));
        let failures = u128::try_from(lines.count()).expect("a usize is smaller");
        Ok(u128::from_le_bytes(pool).wrapping_add(failures).wrapping_add(marked.into()))
    }

    /// A note in memory becomes a durable line, and only then goes.
    fn take_over(&self, pool: [u8; 16]) -> io::Result<()> {
        let in_memory = self.in_memory(pool);
        if fs::symlink_metadata(&in_memory).is_err() {
            return Ok(());
        }
        self.append(pool)?;
        self.sync()?;
        if let Err(error) = fs::remove_file(&in_memory) {
            // It counts once more at the next start, which does no harm but to prove less.
            warn!(%error, note = %in_memory.display(), "the note of a failed pool cannot be removed");
        }
        Ok(())
    }
}

fn digits(pool: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(pool))
}

#[cfg(test)]
mod tests;
