//! A device that failed carries a mark (E10, P8).
//!
//! When a write or a flush is lost, the device may have dropped what it completed before; the next flush
//! would succeed and tell nothing of it. So the number of failures is written into the pool itself, before
//! anything else, and whoever opens the pool is told it. The mark is not flushed: it has to outlive the
//! process, not the power, and nothing is tried again over a failed flush. The next opening begins with one.
use block::{Buf, ByteOffset, Disk, Wait};

use crate::error::OpenError;
use crate::format::{FAILURE_MARK_PAGE, FAILURE_MARKS_AT, FailureMark, Superblock};
use crate::pool::{OpenOptions, Pool, Purpose, blocking, newest_superblock};

/// What the pool on a device says of its failures. A copy that cannot be read may have told of one.
pub(super) fn failures<D: Wait>(disk: &mut D, superblock: &Superblock) -> u64 {
    let copies = FAILURE_MARKS_AT.map(|at| {
        let bytes = blocking::read(disk, ByteOffset(at), FAILURE_MARK_PAGE);
        bytes.map_or(1, |bytes| FailureMark::failures(&bytes, superblock.pool()))
    });
    copies.into_iter().max().unwrap_or(0)
}

fn mark(superblock: &Superblock, failures: u64) -> Buf {
    let mut bytes = Buf::zeroed(FAILURE_MARK_PAGE);
    FailureMark { pool: superblock.pool(), failures }.encode(&mut bytes);
    bytes
}

/// A flush or write that failed before the pool was open: it is marked, as far as its device lets us.
pub(super) fn marked<D: Wait, T>(
    disk: &mut D,
    options: &OpenOptions,
    result: Result<T, OpenError>,
) -> Result<T, OpenError> {
    if let Err(OpenError::Device(error)) = &result
        && error.loses_writes()
        // Without a superblock there is no pool to mark, and none that could be opened later.
        && let Ok(superblock) = newest_superblock(disk, options)
    {
        let failures = failures(disk, &superblock) + 1;
        for at in FAILURE_MARKS_AT {
            // One of two places is enough, and the caller hears of the failure in any case.
            let _ = blocking::write(disk, ByteOffset(at), mark(&superblock, failures).into_data());
        }
    }
    result
}

impl<D: Disk> Pool<D> {
    /// Begins to write the mark. Called once, when the pool fails.
    pub(super) fn mark_failure(&mut self) {
        self.failures += 1;
        for at in FAILURE_MARKS_AT {
            let bytes = mark(&self.superblock, self.failures);
            self.device.write(ByteOffset(at), bytes.into_data(), Purpose::FailureMark);
            self.marking += 1;
        }
    }
}

impl<D: Wait> Pool<D> {
    /// Until the device has taken the mark of a failure, or refused it.
    pub(super) fn finish_marking(&mut self) {
        while self.marking > 0 {
            self.wait();
        }
    }
}
