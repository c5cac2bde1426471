//! Trims of block devices: a ring has no operation for them, and the call for them blocks.
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use block::Completion;
use rustix::event::EventfdFlags;

use crate::blocking::perform;
use crate::flight::Flight;
use crate::target::Target;

#[expect(clippy::host_endian_bytes, reason = "the kernel of this host reads it")]
pub(crate) const RING_ONCE: [u8; 8] = 1u64.to_ne_bytes();

/// A thread that trims, one range after the other.
#[derive(Debug)]
pub(super) struct Discarder {
    /// `None` only while it is being dropped.
    jobs: Option<Sender<Flight>>,
    done: Receiver<Completion>,
    outstanding: usize,
    /// Readable after a trim was done, so that a ring can wait for that too.
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Discarder {
    pub(super) fn new(target: &Target) -> io::Result<Discarder> {
        let (jobs, jobs_taken) = channel::<Flight>();
        let (done_sent, done) = channel();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(rustix::event::eventfd(0, flags)?);
        let rung = Arc::clone(&bell);
        let (file, kind, sector_len) = (Arc::clone(&target.file), target.kind, target.sector_len());
        let thread = std::thread::Builder::new().name("disk-discard".into()).spawn(move || {
            for flight in jobs_taken {
                // The owner may be gone already, and then nobody listens.
                let _ = done_sent.send(perform(&file, kind, sector_len, flight));
                // Only a full counter can refuse this, and that is a bell which rings.
                let _ = rustix::io::write(&rung, &RING_ONCE);
            }
        })?;
        Ok(Discarder { jobs: Some(jobs), done, outstanding: 0, bell, thread: Some(thread) })
    }

    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    pub(super) fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    pub(super) fn send(&mut self, flight: Flight) {
        self.outstanding += 1;
        self.jobs
            .as_ref()
            .and_then(|jobs| jobs.send(flight).ok())
            .expect("the thread takes jobs until this is dropped");
    }

    /// Silences the bell and takes what is done, in this order: a trim that ends in between is
    /// taken now and rings once more, which is harmless.
    pub(super) fn collect(&mut self, finished: &mut VecDeque<Completion>) {
        // Nothing to read means that it did not ring.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        while let Ok(completion) = self.done.try_recv() {
            self.outstanding -= 1;
            finished.push_back(completion);
        }
    }
}

impl Drop for Discarder {
    fn drop(&mut self) {
        // The thread finishes what it was sent, and then finds no more senders.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has said so itself.
            let _ = thread.join();
        }
    }
}
