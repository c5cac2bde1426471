//! Commands as values.
use crate::scsi::disk::{Lba, Span};

pub(super) type Cdb = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Report(Report),
    Medium(Medium),
    Control(Control),
}

/// Commands that only tell something, cut to what the initiator takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) query: Query,
    pub(super) allocation: usize,
}

/// What is asked. An inquiry with a page is one for vital product data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Query {
    Inquiry { page: Option<u8> },
    Luns { select: u8 },
    Capacity10,
    Capacity16,
    Mode(ModeSense),
    Reservations(ReserveIn),
    Opcodes(Opcodes),
    Functions { extended: bool },
    PortGroups { extended: bool },
    Defects { long: bool, lists: u8 },
    Log { page: u8, subpage: u8 },
    CopyStatus { id: u8 },
    CopyParameters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModeSense {
    pub(super) long: bool,
    pub(super) without_blocks: bool,
    pub(super) long_blocks: bool,
    pub(super) values: Values,
    pub(super) page: u8,
    pub(super) subpage: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    Current,
    Changeable,
    Default,
    Saved,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReserveIn {
    Keys,
    Reservation,
    Capabilities,
    FullStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opcodes {
    pub(super) options: u8,
    pub(super) opcode: u8,
    pub(super) action: u16,
    pub(super) timeouts: bool,
}

/// Commands for blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Read { span: Span },
    Write { span: Span, fua: bool },
    Verify { span: Span, check: Check },
    WriteVerify { span: Span, check: Check },
    Same { span: Span, unmap: bool, no_data: bool },
    Unmap { list: usize },
    Compare { span: Span, fua: bool },
    Or { span: Span, fua: bool },
    Prefetch { span: Span },
    Provisioning { first: Lba, allocation: usize },
    Copy { list: usize },
}

/// What a verification compares the medium with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// With its own checksums.
    Medium,
    /// With as many blocks from the initiator.
    Blocks,
    /// With the same block from the initiator, again and again.
    OneBlock,
}

/// Commands that change more than blocks, or tell what is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Ready,
    RequestSense { descriptors: bool, allocation: usize },
    Flush { span: Span, immediate: bool },
    ModeSelect { long: bool, list: usize },
    ReserveOut { action: ReserveOut, kind: u8, list: usize },
    Reserve,
    Release,
    StartStop { start: bool, flush: bool, immediate: bool },
    Prevent,
    Diagnose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReserveOut {
    Register,
    Reserve,
    Release,
    Clear,
    Preempt,
    PreemptAndAbort,
    RegisterAndIgnore,
    RegisterAndMove,
}
