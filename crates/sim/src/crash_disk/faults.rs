//! The errors that a disk was told to give.
use std::collections::BTreeSet;
use std::ops::Range;

use block::{ByteLen, ByteOffset, DiskError, DiskErrorKind};

/// The system's number for an error of the medium.
pub const EIO: i32 = 5;

#[derive(Clone, Default)]
pub(super) struct Faults {
    flushes: BTreeSet<u64>,
    reads: Vec<Range<u64>>,
    writes: Vec<Range<u64>>,
}

impl Faults {
    pub(super) fn fail_flush(&mut self, no: u64) {
        self.flushes.insert(no);
    }

    pub(super) fn fail_reads(&mut self, at: ByteOffset, len: ByteLen) {
        self.reads.push(range(at.0, len.0));
    }

    pub(super) fn fail_writes(&mut self, at: ByteOffset, len: ByteLen) {
        self.writes.push(range(at.0, len.0));
    }

    pub(super) fn heal(&mut self) {
        *self = Faults::default();
    }

    pub(super) fn of_flush(&mut self, no: u64) -> Option<DiskError> {
        let failed = self.flushes.remove(&no);
        failed.then(|| error("flush", 0, 0, DiskErrorKind::System(EIO)))
    }

    pub(super) fn of_read(&self, at: u64, len: u64) -> Option<DiskError> {
        let failed = touches(&self.reads, at, len);
        failed.then(|| error("read", at, len, DiskErrorKind::System(EIO)))
    }

    pub(super) fn of_write(&self, at: u64, len: u64) -> Option<DiskError> {
        let failed = touches(&self.writes, at, len);
        failed.then(|| error("write", at, len, DiskErrorKind::System(EIO)))
    }
}

pub(super) fn error(operation: &'static str, at: u64, len: u64, kind: DiskErrorKind) -> DiskError {
    DiskError { operation, at: ByteOffset(at), len: ByteLen(len), kind }
}

fn range(at: u64, len: u64) -> Range<u64> {
    at..at.saturating_add(len)
}

fn touches(ranges: &[Range<u64>], at: u64, len: u64) -> bool {
    let asked = range(at, len);
    ranges.iter().any(|bad| bad.start < asked.end && asked.start < bad.end)
}
