//! The backend for files in memory: each IO is one call of the owner.
//!
//! Nothing waits for a device there, so a call takes no longer than the copy that it makes, and a
//! ring would only hand it to a thread of the kernel and back.
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use block::{Buf, ByteLen, Completion, Disk, Geometry, Io, IoId, Wait};
use rustix::event::EventfdFlags;

use crate::arena::Arena;
use crate::blocking::perform;
use crate::flight::Flight;
use crate::lock;
use crate::target::Target;

/// File systems without a device, as the kernel numbers them.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;
const RAMFS: rustix::fs::FsWord = 0x8584_58f6;

/// Whether what is written there stays in memory.
pub(crate) fn is_in_memory(file: &File) -> bool {
    // Whoever cannot tell is taken for an ordinary one.
    rustix::fs::fstatfs(file).is_ok_and(|found| [TMPFS, RAMFS].contains(&found.f_type))
}

#[derive(Debug)]
pub(crate) struct CallDisk {
    target: Target,
    /// Submitted, not yet kicked.
    queued: VecDeque<Flight>,
    finished: VecDeque<Completion>,
    /// Lent for IO: memory that is used again and again is there already.
    arena: Option<Arc<Arena>>,
    /// Nothing ever completes by itself, so nobody rings it.
    bell: OwnedFd,
}

impl CallDisk {
    pub(crate) fn new(target: Target, lent: ByteLen) -> io::Result<CallDisk> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let bell = rustix::event::eventfd(0, flags)?;
        let (queued, finished) = (VecDeque::new(), VecDeque::new());
        Ok(CallDisk { target, queued, finished, arena: Arena::new(lent), bell })
    }

    pub(crate) fn target_mut(&mut self) -> &mut Target {
        &mut self.target
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.finished.is_empty()
    }
}

impl Disk for CallDisk {
    fn geometry(&self) -> Geometry {
        self.target.geometry()
    }

    fn is_sparse(&self) -> bool {
        self.target.sparse
    }

    fn submit(&mut self, id: IoId, io: Io) {
        match self.target.admit(id, io) {
            Ok(flight) => self.queued.push_back(flight),
            Err(done) => self.finished.push_back(done),
        }
    }

    fn kick(&mut self) {
        let (kind, sector_len) = (self.target.kind, self.target.sector_len());
        for flight in self.queued.drain(..) {
            self.finished.push_back(perform(&self.target.file, kind, sector_len, flight));
        }
    }

    fn complete(&mut self) -> Option<Completion> {
        self.finished.pop_front()
    }

    fn lend(&mut self, capacity: usize) -> Option<Buf> {
        self.arena.as_ref()?.lend(capacity)
    }
}

impl Wait for CallDisk {
    fn wait(&mut self, _: Option<Duration>) {
        self.kick();
    }
}

impl Drop for CallDisk {
    fn drop(&mut self) {
        lock::release(&self.target.file);
    }
}
