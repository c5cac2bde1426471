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
//!   cut short counts for every pool that it may be of, and so does one of a pool whose uuid could not be read;
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

/// What stands for the uuid where that is not known. No pool's digits begin so.
const EVERY: &str = "unknown";

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
        begun(rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, len, SPACE))?;
        failures.sync()?;
        Ok(failures)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("failures")
    }

    fn in_memory(&self, pool: &str) -> PathBuf {
        self.in_memory.join(format!("pollux-failed-{pool}"))
    }

    fn appended(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(self.path())
    }

    /// A kill does not take it away once this returns; it needs no device for that. [`Failures::sync`] makes
    /// it last longer. An error means that neither place took it.
    pub fn note(&self, pool: [u8; 16]) -> io::Result<()> {
        self.note_line(&digits(pool))
    }

    /// The same of a pool whose uuid cannot be read: it may be any, so it counts for each.
    pub fn note_every(&self) -> io::Result<()> {
        self.note_line(EVERY)
    }

    fn note_line(&self, pool: &str) -> io::Result<()> {
        let in_memory = self.note_in_memory(pool);
        let in_folder = self.append(pool);
        in_folder.or(in_memory)
    }

    fn append(&self, pool: &str) -> io::Result<()> {
        // One that was cut short ends with this one at the latest.
        self.appended()?.write_all(format!("\n{pool}\n").as_bytes())
    }

    fn note_in_memory(&self, pool: &str) -> io::Result<()> {
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
        let digits = digits(pool);
        self.take_over(&digits)?;
        self.take_over(EVERY)?;
        let noted = fs::read_to_string(self.path())?;
        let counts = |line: &&str| digits.starts_with(line) || EVERY.starts_with(line);
        let lines = noted.lines().filter(|line| !line.is_empty() && counts(line));
        let failures = u128::try_from(lines.count()).expect("a usize is smaller");
        Ok(u128::from_le_bytes(pool).wrapping_add(failures).wrapping_add(marked.into()))
    }

    /// A note in memory becomes a durable line, and only then goes.
    fn take_over(&self, pool: &str) -> io::Result<()> {
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

/// Where space cannot be taken in advance, the other places are left.
fn begun(taken: rustix::io::Result<()>) -> io::Result<()> {
    match taken {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error @ (Errno::NOSPC | Errno::DQUOT)) => {
            warn!(%error, "there is no space in the state folder to note that a pool failed");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn digits(pool: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(pool))
}

#[cfg(test)]
mod tests;
