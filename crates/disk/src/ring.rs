//! The backend of choice: io_uring, one system call for a whole batch.
mod discard;
mod setup;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{Buf, ByteLen, Completion, Disk, Geometry, Io, IoId, Wait};
use io_uring::types::{Fd, Fixed, FsyncFlags};
use io_uring::{opcode, squeue};
use rustix::event::EventfdFlags;

use crate::arena::Arena;
use crate::flight::{Flight, Next};
use crate::lock;
use crate::target::{Kind, Target};
pub(crate) use discard::RING_ONCE;

use discard::Discarder;
use setup::{Delivery, Uring};
use slots::{Slot, Slots};

/// The kernel moves less than 2 GiB at a time anyway; the rest of an IO follows by itself. Tests
/// come to that more often.
const ENTRY_LEN_MAX: usize = if cfg!(test) { 64 << 10 } else { 1 << 30 };

/// The only entry that is no slot's: waiting for the discarder's bell.
const BELL: u64 = u64::MAX;

/// How long to leave a kernel alone that has no memory for our requests.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct RingDisk {
    target: Target,
    uring: Uring,
    /// Outlives the ring: fields are dropped in this order.
    arena: Option<Arc<Arena>>,
    depth: u32,
    delivery: Vec<Delivery>,
    /// Submitted, in order; the first `kicked` of them were kicked, and wait for room.
    queue: VecDeque<Flight>,
    kicked: usize,
    /// Everything that the kernel may be working on.
    slots: Slots,
    /// Slots whose IO is to be pushed once more.
    again: Vec<Slot>,
    /// Entries that were pushed and whose results were not seen.
    pushed: usize,
    /// Room for results between the ring and their slots; kept for its memory only.
    results: Vec<(u64, i32)>,
    finished: VecDeque<Completion>,
    discarder: Option<Discarder>,
    bell_watched: bool,
    bell: Option<OwnedFd>,
}

/// What came of entering the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered {
    Done,
    /// Nothing bad happened, but maybe nothing else did.
    Retry,
    /// The kernel is short of memory.
    Later,
}

impl RingDisk {
    /// Gives the target back where the system refuses a ring.
    pub(crate) fn new(
        target: Target,
        depth: u32,
        registered: ByteLen,
    ) -> Result<RingDisk, (Target, io::Error)> {
        RingDisk::with_delivery(target, depth, &Delivery::BEST_FIRST, registered)
    }

    fn with_delivery(
        target: Target,
        depth: u32,
        delivery: &[Delivery],
        registered: ByteLen,
    ) -> Result<RingDisk, (Target, io::Error)> {
        let arena = Arena::new(registered);
        let trims_by_call = target.kind == Kind::Device && !target.read_only;
        let parts = Uring::new(&target.file, depth, delivery, arena.as_deref()).and_then(|uring| {
            let discarder = trims_by_call.then(|| Discarder::new(&target)).transpose()?;
            Ok((uring, discarder))
        });
        let (uring, discarder) = match parts {
            Ok(parts) => parts,
            Err(error) => return Err((target, error)),
        };
        Ok(RingDisk {
            target,
            uring,
            arena,
            depth,
            delivery: delivery.to_vec(),
            queue: VecDeque::new(),
            kicked: 0,
            slots: Slots::default(),
            again: Vec::new(),
            pushed: 0,
            results: Vec::new(),
            finished: VecDeque::new(),
            discarder,
            bell_watched: false,
            bell: None,
        })
    }

    pub(crate) fn target_mut(&mut self) -> &mut Target {
        &mut self.target
    }

    /// Rung by the kernel for every result, and for work that leads to results once the ring is
    /// entered. The ring's own descriptor is not: while nobody enters the ring, it wakes nobody.
    /// Made when somebody wants it, since ringing costs.
    pub(crate) fn bell(&mut self) -> io::Result<BorrowedFd<'_>> {
        if self.bell.is_none() {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let bell = rustix::event::eventfd(0, flags)?;
            self.uring.ring_for_results(&bell)?;
            self.bell = Some(bell);
        }
        Ok(self.bell.as_ref().expect("it was just made").as_fd())
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.finished.is_empty()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.outstanding() > 0
    }

    fn outstanding(&self) -> usize {
        let discards = self.discarder.as_ref().map_or(0, Discarder::outstanding);
        self.kicked + self.slots.len() + discards
    }

    /// Moves into the ring what may go there; the kernel learns of it when it is entered.
    fn launch(&mut self) {
        while let Some(slot) = self.again.pop() {
            if !self.push(slot) {
                break;
            }
        }
        let room = self.uring.entries().min(self.depth as usize);
        while self.kicked > 0 && self.slots.len() < room {
            let flight = self.queue.pop_front();
            let flight = flight.expect("kicked counts the front of the queue");
            self.kicked -= 1;
            match &mut self.discarder {
                Some(discarder) if matches!(flight.io, Io::Trim { .. }) => discarder.send(flight),
                _ => {
                    let slot = self.slots.insert(flight);
                    self.push(slot);
                }
            }
        }
        self.watch_bell();
    }

    /// Pushes what is left of an IO, or notes it for later where the ring is full.
    fn push(&mut self, slot: Slot) -> bool {
        let arena = self.arena.as_deref().filter(|_| self.uring.registered);
        let entry = entry(self.slots.get(slot), arena).user_data(slot.user_data());
        // SAFETY: the entry names memory of the flight in this slot. That memory is on the heap
        // and does not move with its owner; the flight stays in the slot, which nothing else
        // reads or writes, until `settle` sees its result or `drop` leaks it. `adopt` pushes
        // a slot to another ring only when the first is gone and its kernel side never saw it.
        let pushed = unsafe { self.uring.push(&entry) };
        if pushed {
            self.pushed += 1;
        } else {
            self.again.push(slot);
        }
        pushed
    }

    fn watch_bell(&mut self) {
        let Some(discarder) = &self.discarder else {
            return;
        };
        if self.bell_watched || discarder.outstanding() == 0 {
            return;
        }
        let events = u32::from(rustix::event::PollFlags::IN.bits());
        let entry = opcode::PollAdd::new(Fd(discarder.bell()), events).build();
        // SAFETY: the entry names no memory.
        if unsafe { self.uring.push(&entry.user_data(BELL)) } {
            self.pushed += 1;
            self.bell_watched = true;
        }
    }

    /// Launches and sends, as far as there is room.
    fn send(&mut self) {
        loop {
            self.launch();
            if self.uring.unsent() == 0 || self.enter(0, None) == Entered::Later {
                return;
            }
        }
    }

    fn enter(&mut self, want: usize, at_most: Option<Duration>) -> Entered {
        let Err(error) = self.uring.enter(want, at_most) else {
            return Entered::Done;
        };
        match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME) => Entered::Retry,
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => Entered::Later,
            Some(libc::EEXIST) => {
                self.adopt();
                Entered::Retry
            }
            _ => panic!("io_uring refuses to be entered, which is a bug: {error}"),
        }
    }

    /// Makes a new ring for this thread, after the old one turned out to be bound to another.
    fn adopt(&mut self) {
        self.take_visible();
        assert_eq!(
            self.pushed,
            self.uring.unsent(),
            "a disk may change its thread only when none of its IO is in flight"
        );
        self.uring =
            Uring::new(&self.target.file, self.depth, &self.delivery, self.arena.as_deref())
                .expect("a system that allowed one ring allows another");
        if let Some(bell) = &self.bell {
            self.uring.ring_for_results(bell).expect("a ring that was just made takes a bell");
        }
        self.pushed = 0;
        self.bell_watched = false;
        self.again.clear();
        self.again.extend(self.slots.taken());
    }

    /// Takes the results that are there, entering the kernel only if it says that it has more.
    fn harvest(&mut self) {
        if !self.take_visible() && self.uring.wants_entering() {
            self.enter(0, None);
            self.take_visible();
        }
        // What was kicked goes on by itself when there is room; what was not waits for its kick.
        self.send();
    }

    fn take_visible(&mut self) -> bool {
        let mut results = std::mem::take(&mut self.results);
        results.extend(self.uring.visible());
        self.pushed -= results.len();
        let any = !results.is_empty();
        for (user_data, result) in results.drain(..) {
            match (user_data, &mut self.discarder) {
                (BELL, Some(discarder)) => {
                    self.bell_watched = false;
                    discarder.collect(&mut self.finished);
                }
                _ => self.settle(Slot::from_user_data(user_data), result),
            }
        }
        self.results = results;
        any
    }

    /// The kernel is done with a slot's memory: either the IO is over, or its rest is pushed anew.
    fn settle(&mut self, slot: Slot, result: i32) {
        let outcome = usize::try_from(result).map_err(|_| -result);
        let sector_len = self.target.sector_len();
        match self.slots.get(slot).advance(outcome, sector_len) {
            Next::Again => self.again.push(slot),
            Next::End(result) => {
                let flight = self.slots.remove(slot);
                self.finished.push_back(flight.end(result));
            }
        }
    }
}

/// The entry for what is left of an IO.
fn entry(flight: &mut Flight, arena: Option<&Arena>) -> squeue::Entry {
    let fixed = |bytes: &[u8]| arena.is_some_and(|arena| arena.holds(bytes));
    let done = flight.done;
    let entry_len = |len: usize| {
        u32::try_from(len.min(ENTRY_LEN_MAX)).expect("the most that an entry takes fits")
    };
    match &mut flight.io {
        Io::Read { at, buf } => {
            let rest = &mut buf[done..];
            let (len, offset) = (entry_len(rest.len()), at.0 + done as u64);
            if fixed(rest) {
                opcode::ReadFixed::new(Fixed(0), rest.as_mut_ptr(), len, 0).offset(offset).build()
            } else {
                opcode::Read::new(Fixed(0), rest.as_mut_ptr(), len).offset(offset).build()
            }
        }
        Io::Write { at, data } => {
            let rest = &data[done..];
            let (len, offset) = (entry_len(rest.len()), at.0 + done as u64);
            if fixed(rest) {
                opcode::WriteFixed::new(Fixed(0), rest.as_ptr(), len, 0).offset(offset).build()
            } else {
                opcode::Write::new(Fixed(0), rest.as_ptr(), len).offset(offset).build()
            }
        }
        // Neither linked nor drained: it covers writes that had completed, and those are behind.
        Io::Flush => opcode::Fsync::new(Fixed(0)).flags(FsyncFlags::DATASYNC).build(),
        Io::Trim { at, len } => opcode::Fallocate::new(Fixed(0), len.0)
            .offset(at.0)
            .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
            .build(),
        Io::Allocate { at, len } => opcode::Fallocate::new(Fixed(0), len.0)
            .offset(at.0)
            .mode(libc::FALLOC_FL_KEEP_SIZE)
            .build(),
    }
}

impl Disk for RingDisk {
    fn geometry(&self) -> Geometry {
        self.target.geometry()
    }

    fn is_sparse(&self) -> bool {
        self.target.sparse
    }

    fn submit(&mut self, id: IoId, io: Io) {
        match self.target.admit(id, io) {
            Ok(flight) => self.queue.push_back(flight),
            Err(done) => self.finished.push_back(done),
        }
    }

    fn kick(&mut self) {
        self.kicked = self.queue.len();
        self.send();
    }

    fn complete(&mut self) -> Option<Completion> {
        if self.finished.is_empty() && self.outstanding() > 0 {
            self.harvest();
        }
        self.finished.pop_front()
    }

    fn lend(&mut self, capacity: usize) -> Option<Buf> {
        if !self.uring.registered {
            return None;
        }
        self.arena.as_ref()?.lend(capacity)
    }
}

impl Wait for RingDisk {
    fn wait(&mut self, at_most: Option<Duration>) {
        let deadline = at_most.and_then(|at_most| Instant::now().checked_add(at_most));
        self.kicked = self.queue.len();
        loop {
            self.take_visible();
            if !self.finished.is_empty() || self.outstanding() == 0 {
                return self.send();
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                self.send();
                return self.harvest();
            }
            // Sending and waiting are one system call.
            self.launch();
            if self.enter(1, left) == Entered::Later {
                std::thread::sleep(SHORTAGE_PAUSE);
            }
        }
    }
}

impl Drop for RingDisk {
    fn drop(&mut self) {
        self.queue.truncate(self.kicked);
        self.take_visible();
        while self.kicked + self.slots.len() > 0 {
            self.launch();
            match self.uring.enter(1, None).map_err(|e| e.raw_os_error()) {
                Ok(()) | Err(Some(libc::EINTR)) => {}
                Err(Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM)) => {
                    std::thread::sleep(SHORTAGE_PAUSE);
                }
                // The ring is bound to another thread, or broken. What is still in its hands must
                // then stay valid for ever, and the lock must last until the kernel is done.
                Err(_) => return std::mem::forget(std::mem::take(&mut self.slots)),
            }
            self.take_visible();
        }
        self.uring.release_file();
        lock::release(&self.target.file);
    }
}
