//! What can go wrong, one enum per surface. Every error names what is wrong and what to do, and
//! answers whether trying again can help.
use block::{ByteLen, ByteOffset, DiskError, Position, Seq};
use thiserror::Error;

use crate::format::{Malformed, PageProblem};
use crate::limits::{NAME_MAX, POOL_MIN, SEQ_MAX, STATE_MAX, VOLUME_MAX, WRITE_MAX};
use crate::pool::Subject;
use crate::space::Contradiction;
use crate::units::{Epoch, SnapshotId, VolumeId};

/// What a caller may do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same call may succeed later.
    Later,
    /// The same call will fail again: it has to be changed.
    Never,
    /// The copy on this pool is damaged: another replica has to answer.
    Elsewhere,
    /// The pool is out of service.
    PoolFailed,
}

/// Why an operation on a volume was refused or failed. Nothing was changed by it.
#[derive(Clone, Debug, Error)]
pub enum OpError {
    #[error(
        "volume {volume} does not exist in this pool; `pollux disk volume list` lists those that do"
    )]
    UnknownVolume { volume: VolumeId },
    #[error(
        "snapshot {snapshot} does not exist in this pool; `pollux disk snapshot list` lists those that do"
    )]
    UnknownSnapshot { snapshot: SnapshotId },
    #[error(
        "snapshot {snapshot} is not of volume {volume}; clone it, or name one of the volume's own"
    )]
    ForeignSnapshot { snapshot: SnapshotId, volume: VolumeId },
    #[error(
        "volume {volume} has {count} snapshots; delete them first, or say what is to become of them"
    )]
    HasSnapshots { volume: VolumeId, count: usize },
    #[error(
        "snapshot {base} is newer than {snapshot}: a difference goes from the older to the newer"
    )]
    BaseIsNewer { base: SnapshotId, snapshot: SnapshotId },
    #[error("volume {volume} is in use; detach it first")]
    Attached { volume: VolumeId },
    #[error(
        "volume {volume} is part of an import under way; finish the import or abandon it first"
    )]
    Staging { volume: VolumeId },
    #[error("volume {volume} takes no import: none was begun, or it has ended")]
    NotStaging { volume: VolumeId },
    #[error(
        "volume {volume} has changed since snapshot {snapshot}; roll it back, or take a new snapshot"
    )]
    BaseMoved { snapshot: SnapshotId, volume: VolumeId },
    #[error(
        "what the volume is to become has stamps up to {highest:?}, but the volume would be at {at}: \
         blocks of another sequence are staged with stamp 0, and those that were undone are staged anew"
    )]
    ForeignStamps { highest: Seq, at: Position },
    #[error("{name:?} exists already; choose another name or delete it first")]
    DuplicateName { name: String },
    #[error(
        "{name:?} cannot name a volume: it needs 1 to {NAME_MAX} bytes without control characters"
    )]
    BadName { name: String },
    #[error(
        "a volume of {size} cannot be: the size must be a multiple of {unit} bytes, more than 0 \
         and at most {}",
        ByteLen(VOLUME_MAX)
    )]
    BadSize { size: ByteLen, unit: u64 },
    #[error("a volume cannot shrink: it has {has}, {asked} was asked for")]
    Shrink { has: ByteLen, asked: ByteLen },
    #[error("offset {} and length {} must be multiples of 512 bytes", offset.0, len.0)]
    Unaligned { offset: ByteOffset, len: ByteLen },
    #[error("the length must be more than 0")]
    Empty,
    #[error("{len} in one operation is too long: split it, at most {} at once", ByteLen(WRITE_MAX))]
    TooLong { len: ByteLen },
    #[error("{} bytes at {offset} reach beyond the end of the volume, which has {} bytes", len.0, size.0)]
    BeyondEnd { offset: ByteOffset, len: ByteLen, size: ByteLen },
    #[error("the operation has position {asked}, but the volume is at {at} already")]
    NotAscending { asked: Position, at: Position },
    #[error(
        "position {asked} does not follow {at}, where the volume is: what lies between was refused, \
         or never came; submit that first"
    )]
    Gap { asked: Position, at: Position },
    #[error("position {asked} is beyond the highest seq that a map can keep, {SEQ_MAX}")]
    SeqTooHigh { asked: Position },
    #[error("{len} bytes of replication state are too many: at most {STATE_MAX}")]
    StateTooLong { len: usize },
    #[error(
        "no space: {needed} more would be needed beside the reserve; delete volumes or snapshots, \
         which always works, discard unused ranges, or grow the pool"
    )]
    NoSpace { needed: ByteLen },
    #[error("too many operations are waiting; try again when some were answered")]
    Busy,
    #[error(
        "the stored copy of {offset} of {of} is damaged: its checksum does not match, or it cannot \
         be decoded"
    )]
    Damaged { of: Subject, offset: ByteOffset },
    #[error("a map page of {of} is damaged in both places: {problem}")]
    MapDamaged { of: Subject, problem: PageProblem },
    #[error("a repair brings exactly one granule of {granule} bytes, from where it begins")]
    NotAGranule { granule: u64 },
    #[error(
        "these bytes are not what was stored at {offset} of {of}: another source has to be asked"
    )]
    OtherBytes { of: Subject, offset: ByteOffset },
    #[error("the device failed: {0}")]
    Device(#[from] DiskError),
    #[error("the pool has failed and takes no operations: {reason}")]
    PoolFailed { reason: String },
    #[error("the pool is being closed")]
    Closing,
}

impl OpError {
    pub fn retry(&self) -> Retry {
        match self {
            OpError::Busy | OpError::NoSpace { .. } => Retry::Later,
            // When what is missing has come. What lies behind the volume never fits again.
            OpError::Gap { asked, at } if asked.seq > at.seq && asked.term >= at.term => {
                Retry::Later
            }
            OpError::Damaged { .. } | OpError::MapDamaged { .. } | OpError::Device(_) => {
                Retry::Elsewhere
            }
            OpError::PoolFailed { .. } | OpError::Closing => Retry::PoolFailed,
            _ => Retry::Never,
        }
    }
}

/// Why a pool could not be made. The device is as it was.
#[derive(Clone, Debug, Error)]
pub enum CreateError {
    #[error("{size} is too small for a pool: at least {} is needed", ByteLen(POOL_MIN))]
    TooSmall { size: ByteLen },
    #[error("{size} is too large for a pool with sectors of {sector} bytes: at most {max}")]
    TooLarge { size: ByteLen, sector: u64, max: ByteLen },
    #[error("the device addresses sectors of {device} bytes; the pool cannot use {asked}")]
    Sector { device: u64, asked: u64 },
    #[error("the device holds a pool already; say that it may be overwritten, or choose another")]
    HoldsPool,
    #[error("a journal of {asked} cannot be: it needs {min} to {max}")]
    Journal { asked: ByteLen, min: ByteLen, max: ByteLen },
    #[error("the device failed: {0}")]
    Device(#[from] DiskError),
}

/// Why a pool could not be opened.
#[derive(Clone, Debug, Error)]
pub enum OpenError {
    #[error("this is no Pollux pool; `pollux disk create` makes one")]
    NotAPool,
    #[error(
        "the pool has format version {found}, this program knows {known}: use the release that \
         wrote it"
    )]
    Version { found: u32, known: u32 },
    #[error(
        "both copies of one superblock are damaged (the other pair is of epoch {other}): an older \
         state is not opened silently; restore the device or rebuild this replica"
    )]
    SuperblockDamaged { other: Epoch },
    #[error(
        "the device has {has}, the pool needs {needs}: it was cut short; restore its full length"
    )]
    Truncated { has: ByteLen, needs: ByteLen },
    #[error("the pool's sectors have {pool} bytes, the device cannot address less than {device}")]
    Sector { pool: u64, device: u64 },
    #[error(
        "journal slot {slot} is damaged, though a later one shows that it was durable (through \
         {durable}): what it recorded is lost; rebuild this replica"
    )]
    JournalDamaged { slot: u64, durable: u64 },
    #[error("a page of the {what} is damaged in both places: {problem}; rebuild this replica")]
    PageDamaged { what: &'static str, problem: PageProblem },
    #[error("the pool's bytes contradict themselves: {0}; rebuild this replica")]
    Malformed(#[from] Malformed),
    #[error("the device failed: {0}")]
    Device(#[from] DiskError),
    #[error(
        "the pool's file is sparse, and there is no space where it is: opening it needs {needed}; make some, \
         and open it again"
    )]
    NoSpace { needed: ByteLen },
    #[error("the pool failed while it was opened: {reason}")]
    Failed { reason: String },
    #[error("the pool's parts contradict one another: {0}; rebuild this replica")]
    Contradiction(#[from] Contradiction),
}

impl OpenError {
    /// Whether the device may have lost what it was given before.
    pub fn device_failed(&self) -> bool {
        match self {
            OpenError::Device(error) => error.loses_writes(),
            OpenError::Failed { .. } => true,
            _ => false,
        }
    }

    pub fn retry(&self) -> Retry {
        match self {
            OpenError::Device(_) | OpenError::Truncated { .. } | OpenError::NoSpace { .. } => {
                Retry::Later
            }
            OpenError::NotAPool | OpenError::Version { .. } | OpenError::Sector { .. } => {
                Retry::Never
            }
            _ => Retry::Elsewhere,
        }
    }
}

/// Why a checkpoint could not be made. The pool has failed.
#[derive(Clone, Debug, Error)]
pub enum CheckpointError {
    #[error("{0}")]
    Device(#[from] DiskError),
    #[error("a page of the {what} is damaged in both places: {problem}")]
    PageDamaged { what: &'static str, problem: PageProblem },
    #[error("{0}")]
    Contradiction(#[from] Contradiction),
    #[error("the pool has failed: {reason}")]
    PoolFailed { reason: String },
}
