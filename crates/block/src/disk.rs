//! The door to a device: submit and complete, never blocking, never async.
use std::fmt;
use std::time::Duration;

use crate::{Buf, ByteLen, ByteOffset, Data};

/// Names one IO between its submission and its completion. The submitter chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// One device operation. Offsets, lengths and memory are multiples of the sector.
#[derive(Debug)]
pub enum Io {
    Read {
        at: ByteOffset,
        buf: Buf,
    },
    Write {
        at: ByteOffset,
        data: Data,
    },
    /// Covers exactly the writes that had completed when the flush was submitted.
    Flush,
    /// Tells the device that a range is not needed: it may give the space back. What it reads
    /// as afterwards is not promised, and nobody may rely on it.
    Trim {
        at: ByteOffset,
        len: ByteLen,
    },
    /// Takes space for a range of a [sparse](Disk::is_sparse) device, so that writes to it need none. What
    /// the range holds does not change. Without space it is refused, and nothing else follows from that.
    Allocate {
        at: ByteOffset,
        len: ByteLen,
    },
}

/// What came of an IO.
#[derive(Debug)]
pub enum Done {
    Read(Buf),
    Written,
    Flushed,
    Trimmed,
    Allocated,
}

#[derive(Debug)]
pub struct Completion {
    pub id: IoId,
    pub result: Result<Done, DiskError>,
}

/// The device's unit of writing, and so of allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorSize {
    B512,
    B4096,
}

impl SectorSize {
    pub fn bytes(self) -> u64 {
        match self {
            SectorSize::B512 => 512,
            SectorSize::B4096 => 4096,
        }
    }

    pub fn from_bytes(bytes: u64) -> Option<SectorSize> {
        match bytes {
            512 => Some(SectorSize::B512),
            4096 => Some(SectorSize::B4096),
            _ => None,
        }
    }
}

/// How bytes reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// Past the page cache: a completed write is on the device.
    Direct,
    /// Through the page cache, where direct IO is not to be had.
    Buffered,
}

impl fmt::Display for IoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoMode::Direct => "direct",
            IoMode::Buffered => "buffered",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub size: ByteLen,
    /// The smallest unit that a direct IO may address.
    pub sector: SectorSize,
    /// The unit that the device writes without tearing: what a new pool allocates in.
    pub physical_sector: SectorSize,
    pub mode: IoMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// The range is not within the device.
    OutOfRange,
    /// The device or the system refused; the number is the system's error number.
    System(i32),
    /// Fewer bytes moved than asked, and trying again moved none.
    Short,
}

/// A device operation that failed. Never retried by the disk itself.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation} at {at} ({len}) failed: {}", self.reason())]
pub struct DiskError {
    pub operation: &'static str,
    pub at: ByteOffset,
    pub len: ByteLen,
    pub kind: DiskErrorKind,
}

impl DiskError {
    /// Whether the device may have lost what it was given: not by a read, nor by a trim.
    pub fn loses_writes(&self) -> bool {
        matches!(self.operation, "write" | "flush")
    }

    /// Whether the system had no space for it.
    pub fn is_full(&self) -> bool {
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        matches!(self.kind, DiskErrorKind::System(ENOSPC | EDQUOT))
    }

    fn reason(&self) -> String {
        match self.kind {
            DiskErrorKind::OutOfRange => "beyond the end of the device".into(),
            DiskErrorKind::System(code) => std::io::Error::from_raw_os_error(code).to_string(),
            DiskErrorKind::Short => "the device moved fewer bytes than asked".into(),
        }
    }
}

/// A device. One owner; completions may come in any order.
pub trait Disk {
    /// Size and sector; the size is looked up anew, since a device may grow.
    fn geometry(&self) -> Geometry;

    /// Queues an IO. Nothing is promised about when it starts until [`Disk::kick`].
    fn submit(&mut self, id: IoId, io: Io);

    /// Hands everything that was queued to the device, as one batch where it can.
    fn kick(&mut self);

    /// The next finished IO, if there is one.
    fn complete(&mut self) -> Option<Completion>;

    /// Whether parts of it may have no space yet, as those of a sparse file have none: a write to them may
    /// find none. [`Io::Allocate`] takes it beforehand.
    fn is_sparse(&self) -> bool {
        false
    }

    /// A buffer of this capacity, a power of two of pages, in memory that the device knows
    /// already: IO from and to it is cheaper. `None` when none is left, or the device has no use
    /// for such.
    fn lend(&mut self, capacity: usize) -> Option<Buf> {
        let _ = capacity;
        None
    }
}

/// A device that is lent: its owner has it back when the borrower is done, or has failed.
impl<D: Disk> Disk for &mut D {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }

    fn submit(&mut self, id: IoId, io: Io) {
        (**self).submit(id, io);
    }

    fn kick(&mut self) {
        (**self).kick();
    }

    fn complete(&mut self) -> Option<Completion> {
        (**self).complete()
    }

    fn is_sparse(&self) -> bool {
        (**self).is_sparse()
    }

    fn lend(&mut self, capacity: usize) -> Option<Buf> {
        (**self).lend(capacity)
    }
}

impl<D: Wait> Wait for &mut D {
    fn wait(&mut self, at_most: Option<Duration>) {
        (**self).wait(at_most);
    }
}

/// Waiting is not the engine's: it belongs to whoever owns the loop.
pub trait Wait: Disk {
    /// Kicks, then sleeps until a completion can be had or the time is over. Returns at once when
    /// nothing is outstanding.
    fn wait(&mut self, at_most: Option<Duration>);
}
