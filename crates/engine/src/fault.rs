//! Planted faults: mechanisms that can be turned off, so that the simulator can show that it
//! would notice. Compiled only under the feature `faults`, which only `sim` enables.

/// Stands in every build that has planted faults, so that a release can be checked to lack it.
pub const MARKER: &str = "POLLUX-PLANTED-FAULT";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A write is acknowledged when its own slot completed, whatever lower slots do.
    AckBeforeLowerSlots,
    /// A device flush is issued while lower slots are still in flight.
    FlushBeforeLowerSlots,
    /// No record follows an idle flush to say what became durable.
    NoIdleDurable,
    /// Freed space is given out again before a checkpoint took its records out of replay.
    ReuseBeforeCheckpoint,
    /// Replay takes the first bad slot for the end, whatever later ones say.
    ReplayStopsEarly,
    /// Replay takes slots of another session, so of an older lap, for its own.
    ReplayOlderSession,
    /// Where both copies of the newest superblock are bad, the older epoch is opened.
    OpenOlderEpoch,
    /// Replay does not look whether unflushed data arrived.
    ReplayTrustsData,
    /// What becomes a hole keeps the stamp that it had.
    HoleStampsOff,
    /// A rollback stamps nothing.
    RollbackStampsOff,
    /// What dies in a volume is freed though its newest snapshot still has it.
    FreeDeadEarly,
    /// A deleted snapshot is dropped though clones go on from it.
    OriginFreed,
}
