//! Opening a disk that its last owner may not have let go of yet.
//!
//! The kernel keeps the lock of a killed process until its last IO is over. Whoever opens the disk
//! right after would be told that it is in use, by nobody.
use std::path::Path;
use std::time::{Duration, Instant};

use disk::{FileDisk, OpenError, OpenOptions};

/// Between two tries: far less than the tens of milliseconds that a lock lingers.
const PAUSE: Duration = Duration::from_millis(5);

/// Opens a disk, and tries again for a while where that may help.
pub fn open(path: &Path, options: &OpenOptions, patience: Duration) -> Result<FileDisk, OpenError> {
    let begun = Instant::now();
    loop {
        match disk::open(path, options) {
            Err(error) if error.is_transient() && begun.elapsed() < patience => {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}
