//! Space for the catalog's file, taken before a transaction needs it.
//!
//! A database that finds the disk full in the middle of a transaction cannot be used any more until it is
//! opened again. So the blocks that a transaction may write are allocated first: within the file, whose holes
//! have none, and behind its end, where it grows. If that fails, nothing was changed.
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Pages of trees above what is stored, in the smallest transaction.
const LEAST: u64 = 1 << 20;
/// What is stored goes into fresh pages, which are half full at worst, and so do the keys beside it.
const FACTOR: u64 = 4;

#[derive(Debug)]
pub struct Space {
    /// Open as long as the database: locks of a file may go with any of its descriptors.
    file: File,
}

impl Space {
    pub fn of(path: &Path) -> io::Result<Space> {
        Ok(Space { file: File::options().read(true).write(true).open(path)? })
    }

    /// Makes sure that so many bytes can be stored.
    pub fn ensure(&self, bytes: u64) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        // The file doubles when it grows.
        let wanted = 2 * (len + LEAST + FACTOR * bytes);
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, wanted) {
            // Where it cannot be taken beforehand, the database has to find out by itself.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether an error says that there is no space, now.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
