//! An open pool: the one owner of a device and of everything on it.
//!
//! Operations go in by [`Pool::submit`], answers come out of [`Pool::reply`]; in between the
//! owner calls [`Pool::poll`], which takes what the device finished and goes on from there.
mod admit;
mod blocking;
mod change;
mod checkpoint;
mod complete;
mod create;
mod device;
mod flush;
mod info;
mod open;
mod queue;
mod read;
mod room;
mod seal;
mod send;
mod superblocks;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use block::{ByteLen, ByteOffset, Data, Disk, Position};

pub use blocking::{read as blocking_read, reads as blocking_reads};
pub use create::{CreateOptions, create};
pub use device::{Device, Purpose, ReadKey};
pub use info::{Counters, Memory, PoolInfo, VolumeInfo};
pub use open::{Inspection, OpenOptions, inspect, read_directory, read_page};
pub use superblocks::newest_superblock;

use crate::error::{CheckpointError, OpError};
use crate::format::Superblock;
use crate::journal::Ring;
use crate::limits::{Limits, SLOTS_IN_FLIGHT_MAX};
use crate::map::{Carried, Pages};
use crate::overlay::Overlay;
use crate::space::Space;
use crate::units::{Session, Slot, VolumeId};
use crate::volume::{Volume, VolumeSpec};
use checkpoint::Job;
use flush::Flush;
use queue::Queue;
use read::Reads;
use seal::InFlight;

/// Names an operation between its submission and its answer. The caller chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Both read as zeros afterwards and give space back; they are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    Zeroes,
    Discard,
}

/// What can be asked of a pool. Offsets and lengths are multiples of 512 bytes.
#[derive(Debug)]
pub enum Op {
    Read {
        volume: VolumeId,
        offset: ByteOffset,
        len: ByteLen,
    },
    Write {
        volume: VolumeId,
        position: Position,
        offset: ByteOffset,
        data: Data,
    },
    Zero {
        volume: VolumeId,
        position: Position,
        offset: ByteOffset,
        len: ByteLen,
        how: Zeroing,
    },
    /// Answered when everything that was submitted before it is durable.
    Flush,
    /// A place in the sequence without content, for flushes and barriers that have a number.
    Mark {
        volume: VolumeId,
        position: Position,
    },
    /// Replication's own state, committed together with a position.
    SetState {
        volume: VolumeId,
        position: Position,
        state: Vec<u8>,
    },
    Grow {
        volume: VolumeId,
        position: Position,
        size: ByteLen,
    },
    Create {
        spec: VolumeSpec,
    },
    Delete {
        volume: VolumeId,
    },
}

/// The answer to an operation. All but reads mean: held.
#[derive(Debug)]
pub enum Reply {
    Read(Data),
    Done,
    Flushed,
    Created(VolumeId),
}

/// Why a pool takes no more operations.
#[derive(Clone, Debug)]
enum Condition {
    Serving,
    Closing,
    /// Final: a write or a flush failed, and what the device has is not known.
    Failed(String),
}

pub struct Pool<D: Disk> {
    device: Device<D>,
    limits: Limits,
    condition: Condition,
    /// The last that counted.
    superblock: Superblock,
    pages: Pages,
    space: Space,
    ring: Ring,
    volumes: BTreeMap<VolumeId, Volume>,
    names: HashMap<String, VolumeId>,
    /// Volumes that changed since the last freeze, and those whose space still has to come back.
    dirty: BTreeSet<VolumeId>,
    deleting: BTreeSet<VolumeId>,
    next_volume: u64,
    /// Updates since the last freeze, and those that the running checkpoint merges.
    active: Overlay,
    frozen: Option<Overlay>,
    /// Large holes that checkpoints have not finished.
    carried: Carried,
    /// Large holes that were sealed since the last freeze.
    large_holes: usize,
    queue: Queue,
    in_flight: InFlight,
    reads: Reads,
    flush: Flush,
    job: Option<Box<Job>>,
    checkpoint_wanted: bool,
    /// Old bytes came for operations that wait in the queue.
    edges_arrived: bool,
    session: Session,
    /// All slots up to here completed.
    held: Slot,
    /// All slots up to here were flushed.
    durable: Slot,
    /// The highest `durable` that a slot or superblock on the device carries.
    durable_told: Slot,
    replies: VecDeque<(RequestId, Result<Reply, OpError>)>,
    counters: Counters,
    /// Why the last checkpoint could not be made.
    failure: Option<CheckpointError>,
    #[cfg(feature = "faults")]
    fault: Option<crate::Fault>,
}

impl<D: Disk> Pool<D> {
    /// Takes what the device finished, goes on from there, and starts what follows. Never blocks.
    pub fn poll(&mut self) {
        self.turn();
        self.device.kick();
    }

    /// Like [`Pool::poll`], but new IO starts only when the owner waits for the device, which
    /// costs one system call instead of two.
    pub fn turn(&mut self) {
        while let Some((purpose, result)) = self.device.complete() {
            self.completed(purpose, result);
        }
        self.advance();
    }

    /// Everything that can go on without the device, in the order in which one waits for another.
    fn advance(&mut self) {
        loop {
            self.run_checkpoint();
            self.run_queue();
            self.run_reads();
            self.run_flush();
            // Somebody may have asked for a checkpoint, and nothing else might wake this pool.
            let checkpoint = self.job.is_none() && self.is_serving() && self.wants_checkpoint();
            if !std::mem::take(&mut self.edges_arrived) && !checkpoint {
                return;
            }
        }
    }

    /// The next answer.
    pub fn reply(&mut self) -> Option<(RequestId, Result<Reply, OpError>)> {
        self.replies.pop_front()
    }

    /// The owner has nothing to do and nothing came for a while: what was flushed is told to the
    /// journal, so that damage below it can never be taken for its end.
    pub fn idle(&mut self) {
        let room = self.ring.has_room() && self.in_flight.slots.len() < SLOTS_IN_FLIGHT_MAX;
        let told = self.durable <= self.durable_told;
        if self.is_serving() && room && !told && !self.faulty_idle() {
            self.seal_empty();
            self.device.kick();
        }
    }

    fn session(&self) -> Session {
        self.session
    }

    fn is_serving(&self) -> bool {
        matches!(self.condition, Condition::Serving)
    }

    fn answer(&mut self, id: RequestId, result: Result<Reply, OpError>) {
        self.replies.push_back((id, result));
    }

    /// The pool is out of service for good. Whoever waits is told.
    fn fail(&mut self, reason: String) {
        if !matches!(self.condition, Condition::Failed(_)) {
            self.condition = Condition::Failed(reason);
        }
        // Nothing goes on over it: a checkpoint that still committed would name data that the
        // device has dropped.
        self.job = None;
        let error = self.failed_error();
        let waiting = self.queue.drain().chain(self.in_flight.drain()).chain(self.flush.drain());
        for id in waiting.chain(self.reads.drain()) {
            self.replies.push_back((id, Err(error.clone())));
        }
    }

    fn failed_error(&self) -> OpError {
        match &self.condition {
            Condition::Failed(reason) => OpError::PoolFailed { reason: reason.clone() },
            _ => OpError::Closing,
        }
    }

    #[cfg(feature = "faults")]
    pub fn plant(&mut self, fault: crate::Fault) {
        self.fault = Some(fault);
    }

    #[cfg(feature = "faults")]
    fn has_fault(&self, fault: crate::Fault) -> bool {
        self.fault == Some(fault)
    }

    fn faulty_idle(&self) -> bool {
        #[cfg(feature = "faults")]
        return self.has_fault(crate::Fault::NoIdleDurable);
        #[cfg(not(feature = "faults"))]
        false
    }
}
