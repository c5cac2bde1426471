//! An open pool: the one owner of a device and of everything on it.
//!
//! Operations go in by [`Pool::submit`], answers come out of [`Pool::reply`]; in between the
//! owner calls [`Pool::poll`], which takes what the device finished and goes on from there.
mod admit;
mod backing;
mod blocking;
mod change;
mod checkpoint;
mod complete;
mod create;
mod credit;
mod device;
mod failure;
mod family;
mod flush;
mod imports;
mod info;
mod look;
mod maps;
mod open;
mod pack;
mod queue;
mod read;
mod replayed;
mod room;
mod scrub;
mod seal;
mod send;
mod snapshots;
mod superblocks;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use block::{ByteLen, ByteOffset, Data, Disk, Position, Seq};

pub use blocking::{read as blocking_read, reads as blocking_reads};
pub use create::{CreateOptions, create};
pub use credit::{write_cost, zero_cost};
pub use device::{Device, Purpose, ReadKey};
pub use info::{Counters, Memory, PoolInfo, SnapshotInfo, StagingInfo, VolumeInfo};
pub use open::{Inspection, OpenOptions, inspect, read_directory, read_page};
pub use read::Extent;
pub use scrub::{Damage, Part, ScrubStatus};
pub use superblocks::{newest_superblock, pool_uuid};

use crate::error::{CheckpointError, OpError};
use crate::format::Superblock;
use crate::journal::Ring;
use crate::limits::{Limits, SLOTS_IN_FLIGHT_MAX};
use crate::map::Pages;
use crate::overlay::Overlay;
use crate::snapshot::{Orphan, Snapshot};
use crate::space::Space;
use crate::units::{ObjectId, Session, Slot, SnapshotId, VolumeId};
use crate::volume::{CloneSpec, SnapshotSpec, Volume, VolumeSpec};
use backing::Backing;
use checkpoint::Job;
use flush::Flush;
use look::Look;
use queue::Queue;
use read::Reads;
use scrub::Scrub;
use seal::InFlight;

/// What is worth a checkpoint of an idle pool: well above what a checkpoint replaces itself, or there would always
/// be a next one.
const IDLE_GAIN: u64 = 1 << 20;

/// Names an operation between its submission and its answer. The caller chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Both read as zeros afterwards and give space back; they are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    Zeroes,
    Discard,
    /// A discard for which no credit was set aside: it uses none up, and leaves the volume's own to
    /// what was paid for.
    Release,
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
    /// A write whose bytes were compared with their checksums: one for each granule that it
    /// touches, if granules have this length. Of those that it covers whole, and that are stored as
    /// they are, the checksum is kept as it is: what is stored is what was checked.
    WriteChecked {
        volume: VolumeId,
        position: Position,
        offset: ByteOffset,
        data: Data,
        granule: ByteLen,
        sums: GranuleSums,
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
    /// Replication's own state, committed together with a position. Without one it takes no place
    /// in the sequence: it is kept beside everything that was submitted to the volume before.
    SetState {
        volume: VolumeId,
        position: Option<Position>,
        state: Vec<u8>,
    },
    /// Without a position it takes no place in the sequence.
    Grow {
        volume: VolumeId,
        position: Option<Position>,
        size: ByteLen,
    },
    Create {
        spec: VolumeSpec,
    },
    /// Refused while the volume is attached, or has snapshots that `snapshots` does not speak of.
    Delete {
        volume: VolumeId,
        snapshots: SnapshotsOfDeleted,
    },
    /// A volume is served to somebody (or no longer): it is not deleted or rolled back by mistake.
    Attach {
        volume: VolumeId,
        attached: bool,
    },
    /// A frozen point of everything that was submitted to this volume before. Without a position
    /// it takes no place in the sequence, and has the one that the volume is at.
    Snapshot {
        volume: VolumeId,
        position: Option<Position>,
        spec: SnapshotSpec,
    },
    /// The snapshot is gone at once; its space comes back step by step. While volumes that were
    /// cloned from it need it, it is kept, hidden.
    DeleteSnapshot {
        snapshot: SnapshotId,
    },
    ReadSnapshot {
        snapshot: SnapshotId,
        offset: ByteOffset,
        len: ByteLen,
    },
    /// A new volume with the content of a snapshot. Its sequence begins above the snapshot's.
    Clone {
        snapshot: SnapshotId,
        spec: CloneSpec,
    },
    /// The volume becomes what it was at the snapshot. Newer snapshots stay. Its size stays too.
    Rollback {
        volume: VolumeId,
        position: Position,
        to: SnapshotId,
        /// Also while the volume is attached.
        force: bool,
    },
    /// Space that is promised to a volume from now on: others leave it free, and the volume's
    /// writes use it up. Refused if there is not so much; less than before is always possible.
    Credit {
        volume: VolumeId,
        bytes: ByteLen,
    },
    /// Begins an import: a hidden volume with the present content of a volume, as its newest
    /// snapshot has it, takes what arrives; [`Op::Adopt`] makes it the volume's.
    Stage {
        volume: VolumeId,
        base: SnapshotId,
    },
    /// A part of an import. `changed` is a seq of the volume's own sequence, or 0 if it comes from
    /// another. `progress` is kept together with it: where to go on after a crash.
    StageData {
        staging: VolumeId,
        changed: Seq,
        offset: ByteOffset,
        content: Staged,
        progress: u64,
    },
    /// Ends an import: the volume has the content of the staging volume, all or nothing. It may
    /// have any position afterwards, also a lower one: a replica undoes the end of a history that
    /// lost.
    Adopt {
        volume: VolumeId,
        staging: VolumeId,
        position: Position,
        stamps: Stamps,
        /// Replication's own state, committed together with it; `None` leaves it as it is.
        state: Option<Vec<u8>>,
    },
    /// What changed in a snapshot's content, at most `max` ranges from `from` on and before `to`,
    /// or the end. No more map pages are looked into than so many either, or than 64: there may be
    /// fewer ranges, even none, before all of it was looked at.
    Changed {
        snapshot: SnapshotId,
        since: Since,
        from: ByteOffset,
        to: Option<ByteOffset>,
        max: usize,
        runs: Runs,
    },
    /// What is allocated from `offset` on, as a read would see it. Of a range that is longer than
    /// [`crate::EXTENTS_MAX`] only that much is looked at.
    Extents {
        of: Subject,
        offset: ByteOffset,
        len: ByteLen,
    },
    /// Good bytes of a granule whose stored copy is damaged. They replace it where it lies, so
    /// everything that shares it is whole again; they must be what was stored.
    Repair {
        of: Subject,
        offset: ByteOffset,
        data: Data,
    },
    /// The space that a volume or snapshot takes, as of the last checkpoint.
    Usage {
        of: Subject,
    },
}

/// The checksums of granules that follow one another.
#[derive(Clone, Debug)]
pub enum GranuleSums {
    One(u64),
    Many(Arc<[u64]>),
}

impl GranuleSums {
    fn list(&self) -> &[u64] {
        match self {
            GranuleSums::One(only) => std::slice::from_ref(only),
            GranuleSums::Many(list) => list,
        }
    }
}

/// What can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Volume(VolumeId),
    Snapshot(SnapshotId),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Volume(id) => write!(f, "volume {id}"),
            Subject::Snapshot(id) => write!(f, "snapshot {id}"),
        }
    }
}

/// What becomes of the snapshots of a volume that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotsOfDeleted {
    /// A volume that has some is not deleted.
    Refuse,
    /// They stay and can be read and cloned.
    Keep,
    /// They are deleted as well.
    Delete,
}

/// What an import brings.
#[derive(Debug)]
pub enum Staged {
    Bytes(Data),
    Zeros(ByteLen),
}

/// Which `changed` the blocks of an import have afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// Those that came with them: catching up within one volume's sequence.
    Keep,
    /// The seq of the adoption: a mirror, whose source counts differently.
    Renew,
}

/// From where on changes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Everything that is allocated.
    Start,
    /// Changed later than this seq; holes too.
    Seq(Seq),
    /// Differs from this snapshot of the same volume; holes too.
    Snapshot(SnapshotId),
}

/// What is told as one range of an answer to what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// What lies side by side, whenever it changed.
    Joined,
    /// What lies side by side and changed by the same operation, so that a copy of it can have the
    /// same stamps.
    ByStamp,
}

/// The answer to an operation. All but reads and questions mean: held.
#[derive(Debug)]
pub enum Reply {
    Read(Data),
    Done,
    Flushed,
    Created(VolumeId),
    Snapshotted(SnapshotId),
    Changed(Changes),
    /// From the asked offset on, without gaps; neighbours differ in kind.
    Extents(Vec<Extent>),
    Usage(Usage),
}

/// A run of a snapshot's content that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedRange {
    pub offset: ByteOffset,
    pub len: ByteLen,
    /// Whether it is allocated; if not, it reads as zeros.
    pub is_data: bool,
    /// The highest stamp in it; the only one if runs are asked for by stamp.
    pub changed: Seq,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// In order, without overlaps. May name a little more than really changed, never less.
    pub ranges: Vec<ChangedRange>,
    /// Where to ask on, if this was not all.
    pub next: Option<ByteOffset>,
    /// Map pages that were looked at.
    pub pages: u64,
}

/// Space of one volume or snapshot, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What its allocated blocks hold, before compression.
    pub logical: ByteLen,
    /// What they take on the device; without the map.
    pub stored: ByteLen,
    /// The part of `stored` that nothing else in the pool has: neither the snapshot before it nor
    /// anything that came after it.
    pub unique: ByteLen,
    /// `stored` without `unique`.
    pub shared: ByteLen,
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
    /// Objects that changed since the last freeze, and volumes that go with the next one.
    dirty: BTreeSet<ObjectId>,
    deleting: BTreeSet<VolumeId>,
    snapshots: BTreeMap<SnapshotId, Snapshot>,
    /// Those that only wait to be dropped.
    deleted_snapshots: BTreeSet<SnapshotId>,
    orphans: BTreeMap<ObjectId, Orphan>,
    next_object: u64,
    /// Updates since the last freeze, and those that the running checkpoint merges.
    active: Overlay,
    frozen: Option<Overlay>,
    queue: Queue,
    in_flight: InFlight,
    reads: Reads,
    looks: Vec<Look>,
    scrub: Option<Box<Scrub>>,
    /// Good bytes on their way over bad ones. No place is given to somebody else meanwhile.
    mending: usize,
    /// Checkpoints that are still wanted to write superblocks anew.
    superblocks_due: u8,
    /// No checkpoint is to begin by itself.
    holding: bool,
    flush: Flush,
    /// Of a sparse device.
    backing: Option<Backing>,
    job: Option<Box<Job>>,
    checkpoint_wanted: bool,
    /// Bytes that were zeroed or discarded since the last checkpoint began.
    zeroed: u64,
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
    /// How often the device has failed, this time included.
    failures: u64,
    /// Writes of the mark of a failure that are under way.
    marking: usize,
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
            self.run_backing();
            self.run_checkpoint();
            self.run_queue();
            self.run_reads();
            self.run_looks();
            self.run_scrub();
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
        self.hope_for_backing();
        if self.is_serving() && self.job.is_none() && self.gain_waits() {
            self.checkpoint_wanted = true;
            self.poll();
        }
    }

    /// Whether space would come back that only waits for checkpoints: one to take what was discarded out of the
    /// maps, and the next to let it be used again. Without this a pool in which nobody writes any more would keep
    /// what was given back to it.
    fn gain_waits(&self) -> bool {
        let waiting = self.space.layout.bytes(self.space.pending()).0;
        self.zeroed.max(waiting) >= IDLE_GAIN
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
            self.mark_failure();
        }
        // Nothing goes on over it: a checkpoint that still committed would name data that the
        // device has dropped.
        self.job = None;
        let error = self.failed_error();
        let waiting = self.queue.drain().chain(self.in_flight.drain()).chain(self.flush.drain());
        let looking = std::mem::take(&mut self.looks).into_iter().map(|look| look.id);
        for id in waiting.chain(self.reads.drain()).chain(looking) {
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
