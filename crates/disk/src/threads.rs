//! The backend for systems without io_uring: workers that block, so that the owner never does.
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use block::{Completion, Disk, Geometry, Io, IoId, Wait};
use rustix::event::EventfdFlags;

use crate::blocking::perform;
use crate::flight::Flight;
use crate::lock;
use crate::ring::RING_ONCE;
use crate::target::{Kind, Target};

const WORKERS: usize = 8;

#[derive(Debug)]
pub(crate) struct ThreadDisk {
    target: Target,
    /// Submitted, not yet kicked.
    queued: Vec<Flight>,
    /// Kicked, and not yet seen as finished.
    outstanding: usize,
    finished: VecDeque<Completion>,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    file: Arc<File>,
    kind: Kind,
    sector_len: usize,
    work: Mutex<Work>,
    work_came: Condvar,
    done: Mutex<Vec<Completion>>,
    done_came: Condvar,
    /// Rung for every completion, for owners who watch several things at once.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct Work {
    flights: VecDeque<Flight>,
    closing: bool,
}

/// No invariant spans a panic here: each critical section is a single push, pop or append.
fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ThreadDisk {
    pub(crate) fn new(target: Target) -> io::Result<ThreadDisk> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let shared = Arc::new(Shared {
            file: Arc::clone(&target.file),
            kind: target.kind,
            sector_len: target.sector_len(),
            work: Mutex::default(),
            work_came: Condvar::new(),
            done: Mutex::default(),
            done_came: Condvar::new(),
            bell: rustix::event::eventfd(0, flags)?,
        });
        let mut disk = ThreadDisk {
            target,
            queued: Vec::new(),
            outstanding: 0,
            finished: VecDeque::new(),
            shared,
            workers: Vec::with_capacity(WORKERS),
        };
        // An early return drops the disk, which ends the workers that did start.
        for number in 0..WORKERS {
            let shared = Arc::clone(&disk.shared);
            let worker = std::thread::Builder::new()
                .name(format!("disk-io-{number}"))
                .spawn(move || shared.serve())?;
            disk.workers.push(worker);
        }
        Ok(disk)
    }

    pub(crate) fn target_mut(&mut self) -> &mut Target {
        &mut self.target
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.finished.is_empty()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.outstanding > 0
    }

    fn take(&mut self, done: &mut Vec<Completion>) {
        self.outstanding -= done.len();
        self.finished.extend(done.drain(..));
    }
}

impl Disk for ThreadDisk {
    fn geometry(&self) -> Geometry {
        self.target.geometry()
    }

    fn is_sparse(&self) -> bool {
        self.target.sparse
    }

    fn submit(&mut self, id: IoId, io: Io) {
        match self.target.admit(id, io) {
            Ok(flight) => self.queued.push(flight),
            Err(done) => self.finished.push_back(done),
        }
    }

    fn kick(&mut self) {
        let count = self.queued.len();
        if count == 0 {
            return;
        }
        self.outstanding += count;
        guard(&self.shared.work).flights.extend(self.queued.drain(..));
        for _ in 0..count.min(WORKERS) {
            self.shared.work_came.notify_one();
        }
    }

    fn complete(&mut self) -> Option<Completion> {
        if self.finished.is_empty() && self.outstanding > 0 {
            self.shared.silence();
            let shared = Arc::clone(&self.shared);
            self.take(&mut guard(&shared.done));
        }
        self.finished.pop_front()
    }
}

impl Wait for ThreadDisk {
    fn wait(&mut self, at_most: Option<Duration>) {
        self.kick();
        if !self.finished.is_empty() || self.outstanding == 0 {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let done = guard(&shared.done);
        let nothing = |done: &mut Vec<Completion>| done.is_empty();
        let mut done = match at_most {
            None => {
                shared.done_came.wait_while(done, nothing).unwrap_or_else(PoisonError::into_inner)
            }
            Some(at_most) => {
                shared
                    .done_came
                    .wait_timeout_while(done, at_most, nothing)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        self.take(&mut done);
    }
}

impl Drop for ThreadDisk {
    fn drop(&mut self) {
        guard(&self.shared.work).closing = true;
        self.shared.work_came.notify_all();
        for worker in self.workers.drain(..) {
            // A worker that panicked has said so itself, and no IO of it is under way.
            let _ = worker.join();
        }
        lock::release(&self.target.file);
    }
}

impl Shared {
    /// A worker's life: it ends when the disk closes and nothing is left to do.
    fn serve(&self) {
        while let Some(flight) = self.next() {
            let completion = perform(&self.file, self.kind, self.sector_len, flight);
            guard(&self.done).push(completion);
            self.done_came.notify_one();
            // Only a full counter refuses, and that rings as well.
            let _ = rustix::io::write(&self.bell, &RING_ONCE);
        }
    }

    /// Before completions are taken: whatever rings later is seen later.
    fn silence(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    fn next(&self) -> Option<Flight> {
        let mut work = guard(&self.work);
        loop {
            if let Some(flight) = work.flights.pop_front() {
                return Some(flight);
            }
            if work.closing {
                return None;
            }
            work = self.work_came.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
