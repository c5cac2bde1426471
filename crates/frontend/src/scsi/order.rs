//! A command on its way through the unit: how it comes in, how it goes on, and how it ends.
use crate::ask::{Ask, Buffers};
use crate::piece::Piece;
use crate::scsi::cdb::Op;
use crate::scsi::jobs::Job;
use crate::scsi::opcodes::Row;
use crate::scsi::sense::{Refusal, Sense};
use crate::scsi::tasks::Slot;
use crate::scsi::unit::Output;
use crate::scsi::words::{Command, NexusId};

/// A command, decoded as far as it can be.
pub(super) struct Order {
    pub(super) command: Command,
    /// Its row, and what it asks for where all its fields are right.
    pub(super) decoded: Result<(&'static Row, Result<Op, Sense>), Sense>,
}

pub(super) enum Outcome {
    Good(Vec<Piece>),
    ConditionMet,
    Refused(Refusal),
}

impl Outcome {
    pub(super) const DONE: Outcome = Outcome::Good(Vec::new());

    pub(super) fn bytes(bytes: Vec<u8>) -> Outcome {
        Outcome::Good(vec![Piece::Bytes(bytes)])
    }
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Outcome {
        Outcome::Refused(refusal)
    }
}

impl From<Sense> for Outcome {
    fn from(sense: Sense) -> Outcome {
        Outcome::Refused(Refusal::Check(sense))
    }
}

/// What became of a command that was started.
pub(super) enum Begun {
    Ended(Outcome),
    /// It asked the volume, and goes on with the answers.
    Runs(Job),
    /// As before, but the initiator does not wait for it.
    RunsOn(Job),
}

impl Begun {
    pub(super) const DONE: Begun = Begun::Ended(Outcome::DONE);
}

/// What became of a job with an answer, unless that was its refusal.
pub(super) enum Next {
    Waits,
    Ends(Outcome),
}

impl Next {
    pub(super) const DONE: Next = Next::Ends(Outcome::DONE);
}

/// How a job asks the volume.
pub(super) struct Asker<'a> {
    pub(super) slot: Slot,
    pub(super) nexus: NexusId,
    /// Sets questions apart; the unit's own counter.
    pub(super) next: &'a mut u64,
    /// How many were asked here.
    pub(super) asked: u32,
    pub(super) buffers: &'a mut dyn Buffers,
    pub(super) out: &'a mut Vec<Output>,
}

impl Asker<'_> {
    pub(super) fn ask(&mut self, ask: Ask) {
        let id = self.slot.ask_id(*self.next);
        *self.next = self.next.wrapping_add(1);
        self.asked += 1;
        self.out.push(Output::Ask { nexus: self.nexus, id, ask });
    }
}
