//! The words between a transport and the disk.
use block::Data;

use crate::piece::Piece;

/// One session of an initiator (an I_T nexus). Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NexusId(pub u64);

/// Names a command between its arrival and its response. Never used twice within a nexus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// The initiator's end of a nexus, as reservations know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InitiatorPort {
    pub name: String,
    pub isid: [u8; 6],
}

/// What a nexus may do with the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rights {
    #[default]
    Write,
    /// To this nexus the disk is write-protected.
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    Untagged,
    Simple,
    Ordered,
    HeadOfQueue,
    Aca,
}

/// A command with all the data that the initiator sent for it.
#[derive(Clone, Debug)]
pub struct Command {
    /// The eight bytes of the LUN field.
    pub lun: u64,
    pub cdb: [u8; 16],
    pub attribute: Attribute,
    /// As long as the initiator announced; empty if it sends none.
    pub data_out: Data,
    /// Bytes that the initiator is ready to take.
    pub room_in: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Good,
    CheckCondition,
    ConditionMet,
    Busy,
    ReservationConflict,
    TaskSetFull,
    AcaActive,
    TaskAborted,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: Status,
    /// Sense data, with CHECK CONDITION.
    pub sense: Vec<u8>,
    /// What the command returns, already cut to its allocation length; the transport cuts it to
    /// what the initiator takes, and reports the residual against `data_in` as it is here.
    pub data_in: Vec<Piece>,
    /// Bytes of `data_out` that the command needed; the transport reports what differs.
    pub took_out: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Management {
    AbortTask { task: TaskId },
    AbortTaskSet,
    ClearAca,
    ClearTaskSet,
    LogicalUnitReset,
    TargetWarmReset,
    TargetColdReset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Managed {
    Done,
    NoTask,
    NoUnit,
    NotSupported,
    /// The nexus may not do that: it would end commands of others.
    Rejected,
}
