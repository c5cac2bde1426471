//! A disk that can lose its power, or its owner, between any two of its steps.
//!
//! A write is queued, then in flight, then completed, then durable. Completions come in any order.
//! A flush makes durable exactly what had completed when the flush was submitted; everything else
//! that reached the device is outstanding, and a power cut may keep any part of it.
use std::collections::VecDeque;
use std::sync::Arc;

use block::{Buf, ByteLen, ByteOffset, Completion, DiskError, Io, IoId, SectorSize};

use crate::Rng;

mod cache;
mod crash;
mod faults;
mod image;
mod queue;
mod sparse;
#[cfg(test)]
mod tests;
mod write;

pub use crash::{Budget, CrashImages, Outstanding, OutstandingSector, OutstandingWrite};
pub use faults::EIO;
pub use image::Image;

use cache::Cache;
use faults::Faults;
use sparse::Sparse;
use write::Write;

/// How completions are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The oldest first, and as soon as it is asked for.
    Immediate,
    /// In any order, and not always at once.
    Random,
}

/// What reached the device since it was made. IOs count when they are kicked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub trims: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// IOs that came after the stop, and never complete.
    pub swallowed: u64,
}

struct Queued {
    id: IoId,
    io: Io,
    /// The device's clock at submission.
    submitted_at: u64,
}

struct InFlight {
    id: IoId,
    task: Task,
}

enum Task {
    /// A device may look at the medium at any time between submission and completion: `taken`
    /// says that it has looked.
    Read {
        at: u64,
        buf: Buf,
        taken: bool,
    },
    Write(Arc<Write>),
    Trim(Arc<Write>),
    Allocate {
        at: u64,
        len: u64,
    },
    Flush {
        covers: u64,
        no: u64,
    },
    Refused(DiskError),
}

/// The simulated disk. Everything it does by chance follows from its seed.
pub struct CrashDisk {
    cache: Cache,
    rng: Rng,
    delivery: Delivery,
    queue: Vec<Queued>,
    in_flight: VecDeque<InFlight>,
    faults: Faults,
    counters: Counters,
    stop_at: Option<u64>,
    /// What comes behind the stop is refused with an error instead of being swallowed.
    refuses: bool,
    refused: VecDeque<Completion>,
    sparse: Option<Sparse>,
    /// Somebody waited: the next call for a completion must give one.
    owed: bool,
}

impl CrashDisk {
    /// A new disk of zeros, which delivers at once and writes its sectors without tearing.
    pub fn new(size: ByteLen, sector: SectorSize, seed: u64) -> CrashDisk {
        CrashDisk::from_image(Image::new(size, sector), seed)
    }

    /// The disk as it comes back after a power cut: all of the image is durable.
    pub fn from_image(image: Image, seed: u64) -> CrashDisk {
        CrashDisk::from_cache(Cache::new(image), Rng::new(seed))
    }

    fn from_cache(cache: Cache, rng: Rng) -> CrashDisk {
        CrashDisk {
            cache,
            rng,
            delivery: Delivery::Immediate,
            queue: Vec::new(),
            in_flight: VecDeque::new(),
            faults: Faults::default(),
            counters: Counters::default(),
            stop_at: None,
            refuses: false,
            refused: VecDeque::new(),
            sparse: None,
            owed: false,
        }
    }

    pub fn with_delivery(mut self, delivery: Delivery) -> CrashDisk {
        self.delivery = delivery;
        self
    }

    /// What the disk claims to write without tearing. It is only a claim: a crash tears as told.
    pub fn with_physical_sector(mut self, physical: SectorSize) -> CrashDisk {
        self.cache.set_physical_sector(physical);
        self
    }

    /// The disk lies in a sparse file, on a file system with this much space.
    pub fn with_space(mut self, space: ByteLen) -> CrashDisk {
        self.sparse = Some(Sparse::new(space.0));
        self
    }

    /// What the file system below a sparse file has left from now on.
    pub fn set_space_left(&mut self, space: ByteLen) {
        self.sparse.as_mut().expect("the disk is sparse").set_left(space.0);
    }

    /// Makes the disk larger, at once and for good.
    pub fn grow(&mut self, size: ByteLen) {
        self.cache.grow(size);
    }

    // Steps.

    /// How many IOs are at the device and have not completed.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Completes the IO at a place among those in flight, which stand in order of submission.
    pub fn complete_one(&mut self, index: usize) -> Completion {
        let count = self.in_flight.len();
        let Some(InFlight { id, task }) = self.in_flight.remove(index) else {
            panic!("IO {index} cannot complete: {count} are in flight");
        };
        let result = self.finish(task);
        Completion { id, result }
    }

    /// Lets this many writes and flushes reach the device since it was made, and no more: later
    /// ones are swallowed and never complete. Reads are still served.
    pub fn stop_at(&mut self, boundary: u64) {
        self.stop_at = Some(boundary);
    }

    /// Like [`CrashDisk::stop_at`], but later writes and flushes end at once with an error: for
    /// callers that would wait for ever.
    pub fn refuse_at(&mut self, boundary: u64) {
        self.stop_at = Some(boundary);
        self.refuses = true;
    }

    /// Whether the boundary of [`CrashDisk::stop_at`] is reached: it is time for the crash.
    pub fn stopped(&self) -> bool {
        self.stop_at.is_some_and(|stop| self.write_boundary() >= stop)
    }

    /// How many writes and flushes reached the device: each is a moment to crash after.
    pub fn write_boundary(&self) -> u64 {
        self.counters.writes + self.counters.flushes
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    // Ends.

    /// All that a power cut now may undo. IOs that were not kicked are not at the device.
    pub fn outstanding(&self) -> Outstanding {
        Outstanding::of(&self.cache)
    }

    /// What a power cut now may leave, where the device tears writes at `tear`.
    pub fn crash_images(&self, tear: SectorSize, budget: Budget, rng: &mut Rng) -> CrashImages {
        self.outstanding().images(tear, budget, rng)
    }

    /// What the next owner reads if this one is killed now while the power stays: completed
    /// writes are there, those in flight went either way, sector by sector.
    pub fn kill_image(&self, rng: &mut Rng) -> Image {
        let mut cache = self.cache.clone();
        cache.abandon(rng);
        cache.visible().clone()
    }

    /// The disk as that next owner finds it. Unlike a disk from [`CrashDisk::kill_image`] it
    /// remembers what was never flushed: a power cut soon after may still lose it.
    pub fn after_kill(&self, seed: u64) -> CrashDisk {
        let mut rng = Rng::new(seed);
        let mut cache = self.cache.clone();
        cache.abandon(&mut rng);
        let mut next = CrashDisk::from_cache(cache, rng).with_delivery(self.delivery);
        next.sparse = self.sparse.clone();
        next
    }

    /// What is durable: what remains if the power cut loses all that it may.
    pub fn durable_image(&self) -> Image {
        self.cache.durable().clone()
    }

    // Faults.

    /// The next flush that is kicked fails.
    pub fn fail_next_flush(&mut self) {
        self.fail_flush_at(self.counters.flushes);
    }

    /// Fails the flush before which `n` others were kicked since the disk was made. What it
    /// covered is not made durable by later flushes either: trying again does not help.
    pub fn fail_flush_at(&mut self, n: u64) {
        self.faults.fail_flush(n);
    }

    /// Reads which touch this range fail with [`EIO`].
    pub fn fail_reads(&mut self, at: ByteOffset, len: ByteLen) {
        self.faults.fail_reads(at, len);
    }

    /// Writes which touch this range fail with [`EIO`]; some of their sectors may be written.
    pub fn fail_writes(&mut self, at: ByteOffset, len: ByteLen) {
        self.faults.fail_writes(at, len);
    }

    /// Forgets all faults that were asked for.
    pub fn heal(&mut self) {
        self.faults.heal();
    }

    /// Rots a byte, durable and visible: its bits that are set in `mask` turn over.
    pub fn flip(&mut self, at: ByteOffset, mask: u8) {
        self.cache.flip(at, mask);
    }

    /// The newest completed bytes of a range, without an IO.
    pub fn peek(&self, at: ByteOffset, len: usize) -> Vec<u8> {
        self.cache.visible().peek(at, len)
    }

    /// Whether any part of the sector at this place was ever written.
    pub fn was_written(&self, at: ByteOffset) -> bool {
        self.cache.visible().was_written(at)
    }

    /// The sectors that were ever written, in ascending order.
    pub fn written_sectors(&self) -> impl Iterator<Item = ByteOffset> {
        self.cache.visible().written_sectors()
    }
}
