//! The real [`Disk`]: a regular file or a block device, past the page cache where that can be had.
//!
//! Three backends do the same work: io_uring, a pool of threads for systems that refuse it, and
//! plain calls for files in memory, where nothing ever waits.
//! The ring has a region of memory that is registered once; buffers that it lends are read and
//! written without being pinned again for each IO.
/// Says on the real standard error that a test was skipped: the test runner would keep a captured
/// line to itself.
#[cfg(test)]
macro_rules! skipped {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
#[cfg(test)]
pub(crate) use skipped;

mod arena;
mod blocking;
mod calls;
mod error;
mod flight;
mod ioctl;
mod lock;
mod open;
mod options;
mod probe;
mod ring;
mod target;
#[cfg(test)]
mod tests;
mod threads;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use block::{Buf, Completion, Disk, Geometry, Io, IoId, Wait};

pub use error::OpenError;
pub use open::{allocate, open};
pub use options::{Backend, DEPTH_MAX, Direct, OpenOptions};

/// An open device. While it lives, no other process of this kind can open the same one.
///
/// It may be handed to another thread when none of its IO is in flight. Dropping it waits for
/// everything that was kicked; what was only submitted never starts.
#[derive(Debug)]
pub struct FileDisk(Driver);

#[derive(Debug)]
enum Driver {
    Ring(Box<ring::RingDisk>),
    Threads(threads::ThreadDisk),
    Calls(calls::CallDisk),
}

impl Driver {
    fn target_mut(&mut self) -> &mut target::Target {
        match self {
            Driver::Ring(disk) => disk.target_mut(),
            Driver::Threads(disk) => disk.target_mut(),
            Driver::Calls(disk) => disk.target_mut(),
        }
    }
}

impl FileDisk {
    /// Which backend does the work: "io_uring", "threads" or "calls".
    pub fn backend(&self) -> &'static str {
        match self.0 {
            Driver::Ring(_) => "io_uring",
            Driver::Threads(_) => "threads",
            Driver::Calls(_) => "calls",
        }
    }

    /// What an event loop watches, for edges, once nothing [`is_ready`](FileDisk::is_ready): it
    /// rings when a completion can be had. It may ring without need, and stays readable; it never
    /// fails to ring.
    pub fn bell(&mut self) -> io::Result<BorrowedFd<'_>> {
        match &mut self.0 {
            Driver::Ring(disk) => disk.bell(),
            Driver::Threads(disk) => Ok(disk.bell()),
            Driver::Calls(disk) => Ok(disk.bell()),
        }
    }
}

impl FileDisk {
    /// Whether a completion is here already, for which nobody rings any more.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Driver::Ring(disk) => disk.is_ready(),
            Driver::Threads(disk) => disk.is_ready(),
            Driver::Calls(disk) => disk.is_ready(),
        }
    }

    /// Whether something is under way, and may be done at any moment.
    pub fn is_waiting(&self) -> bool {
        match &self.0 {
            Driver::Ring(disk) => disk.is_waiting(),
            Driver::Threads(disk) => disk.is_waiting(),
            Driver::Calls(_) => false,
        }
    }
}

impl Disk for FileDisk {
    fn geometry(&self) -> Geometry {
        match &self.0 {
            Driver::Ring(disk) => disk.geometry(),
            Driver::Threads(disk) => disk.geometry(),
            Driver::Calls(disk) => disk.geometry(),
        }
    }

    fn submit(&mut self, id: IoId, io: Io) {
        match &mut self.0 {
            Driver::Ring(disk) => disk.submit(id, io),
            Driver::Threads(disk) => disk.submit(id, io),
            Driver::Calls(disk) => disk.submit(id, io),
        }
    }

    fn kick(&mut self) {
        match &mut self.0 {
            Driver::Ring(disk) => disk.kick(),
            Driver::Threads(disk) => disk.kick(),
            Driver::Calls(disk) => disk.kick(),
        }
    }

    fn complete(&mut self) -> Option<Completion> {
        match &mut self.0 {
            Driver::Ring(disk) => disk.complete(),
            Driver::Threads(disk) => disk.complete(),
            Driver::Calls(disk) => disk.complete(),
        }
    }

    fn is_sparse(&self) -> bool {
        match &self.0 {
            Driver::Ring(disk) => disk.is_sparse(),
            Driver::Threads(disk) => disk.is_sparse(),
            Driver::Calls(disk) => disk.is_sparse(),
        }
    }

    fn lend(&mut self, capacity: usize) -> Option<Buf> {
        match &mut self.0 {
            Driver::Ring(disk) => disk.lend(capacity),
            Driver::Threads(_) => None,
            Driver::Calls(disk) => disk.lend(capacity),
        }
    }
}

impl Wait for FileDisk {
    fn wait(&mut self, at_most: Option<Duration>) {
        match &mut self.0 {
            Driver::Ring(disk) => disk.wait(at_most),
            Driver::Threads(disk) => disk.wait(at_most),
            Driver::Calls(disk) => disk.wait(at_most),
        }
    }
}
