//! One disk, shared by all its sessions: events in, questions and responses out.
use std::collections::{BTreeMap, VecDeque};

use block::ByteLen;

use crate::ask::{Answer, Ask, AskError, AskId, Buffers};
use crate::export::Export;
use crate::scsi::attention::{Attention, Attentions};
use crate::scsi::claims::Claim;
use crate::scsi::copy::Copied;
use crate::scsi::disk::Disk;
use crate::scsi::inquiry::Identity;
use crate::scsi::jobs::{self, Answered, Job};
use crate::scsi::manage::Managing;
use crate::scsi::mode::Mode;
use crate::scsi::order::{Asker, Begun, Next, Order, Outcome};
use crate::scsi::reservations::{self, BadReservations, Change, Reservations, Standing};
use crate::scsi::sense::{Code, During, Refusal, Sense};
use crate::scsi::tasks::{Arrival, Slot, Stage, Tasks};
use crate::scsi::words::{
    Attribute, Command, InitiatorPort, Managed, Management, NexusId, Response, Rights, Status,
    TaskId,
};
use crate::scsi::{elsewhere, opcodes};

#[derive(Debug)]
pub enum Event {
    NexusUp { nexus: NexusId, port: InitiatorPort, rights: Rights },
    NexusLost { nexus: NexusId },
    Command { nexus: NexusId, task: TaskId, command: Command },
    Manage { nexus: NexusId, id: u64, lun: u64, function: Management },
    Answered { id: AskId, result: Result<Answer, AskError> },
    Resized { size: ByteLen },
}

#[derive(Debug)]
pub enum Output {
    Ask { nexus: NexusId, id: AskId, ask: Ask },
    Done { nexus: NexusId, task: TaskId, response: Response },
    Managed { nexus: NexusId, id: u64, result: Managed },
}

pub(super) struct Nexus {
    pub(super) port: InitiatorPort,
    pub(super) rights: Rights,
    pub(super) attentions: Attentions,
    pub(super) standing: Standing,
    /// The last copy whose outcome is kept.
    pub(super) copied: Option<Copied>,
}

/// A served volume as a disk.
pub struct Unit {
    pub(super) disk: Disk,
    pub(super) uid: [u8; 16],
    pub(super) identity: Identity,
    pub(super) mode: Mode,
    pub(super) reservations: Reservations,
    /// How many bytes of reservations the volume keeps.
    pub(super) room: usize,
    /// Who has the disk by RESERVE(6).
    pub(super) reserved: Option<NexusId>,
    pub(super) nexuses: BTreeMap<NexusId, Nexus>,
    pub(super) tasks: Tasks,
    pub(super) managing: Managing,
    /// Tasks that waited and can start.
    pub(super) ready: VecDeque<Slot>,
}

impl Unit {
    /// `reservations`: what [`Ask::Reservations`] last kept, or nothing. `room`: how many bytes of
    /// them the volume keeps.
    pub fn new(
        export: Export,
        identity: Identity,
        reservations: &[u8],
        room: usize,
    ) -> Result<Unit, BadReservations> {
        Ok(Unit {
            disk: Disk::new(&export),
            uid: export.uid,
            identity,
            mode: Mode::default(),
            reservations: reservations::decode(reservations)?,
            room,
            reserved: None,
            nexuses: BTreeMap::new(),
            tasks: Tasks::default(),
            managing: Managing::default(),
            ready: VecDeque::new(),
        })
    }

    pub fn step(&mut self, event: Event, buffers: &mut dyn Buffers, out: &mut Vec<Output>) {
        match event {
            Event::NexusUp { nexus, port, rights } => self.nexus_up(nexus, port, rights),
            Event::NexusLost { nexus } => self.nexus_lost(nexus, out),
            Event::Command { nexus, task, command } => {
                self.command(nexus, task, command, buffers, out);
            }
            Event::Manage { nexus, id, lun, function } => {
                self.manage(nexus, id, lun, function, out);
            }
            Event::Answered { id, result } => self.answered(id, result, buffers, out),
            Event::Resized { size } => {
                if self.disk.resize(size) {
                    self.tell_all(Attention::CapacityChanged);
                }
            }
        }
        while let Some(slot) = self.ready.pop_front() {
            self.start_waiting(slot, buffers, out);
        }
    }

    /// Whether nothing waits or runs.
    pub fn is_idle(&self) -> bool {
        self.tasks.is_idle()
    }

    fn nexus_up(&mut self, nexus: NexusId, port: InitiatorPort, rights: Rights) {
        let standing = self.reservations.standing(&port);
        let mut attentions = Attentions::default();
        attentions.add(Attention::PowerOn);
        self.nexuses.insert(nexus, Nexus { port, rights, attentions, standing, copied: None });
    }

    fn nexus_lost(&mut self, nexus: NexusId, out: &mut Vec<Output>) {
        if self.nexuses.remove(&nexus).is_none() {
            return;
        }
        if self.reserved == Some(nexus) {
            self.reserved = None;
        }
        self.managing.forget(nexus);
        for slot in self.tasks.select(|task| task.nexus == nexus) {
            self.abort(slot, false, None, out);
        }
    }

    pub(super) fn tell_all(&mut self, attention: Attention) {
        self.nexuses.values_mut().for_each(|nexus| nexus.attentions.add(attention));
    }

    pub(super) fn tell_others(&mut self, but: NexusId, attention: Attention) {
        for (_, nexus) in self.nexuses.iter_mut().filter(|(id, _)| **id != but) {
            nexus.attentions.add(attention);
        }
    }

    fn command(
        &mut self,
        nexus: NexusId,
        id: TaskId,
        command: Command,
        buffers: &mut dyn Buffers,
        out: &mut Vec<Output>,
    ) {
        let early = if command.lun != 0 {
            Some(elsewhere::answer(&command, &self.identity))
        } else if command.attribute == Attribute::Aca {
            Some(Sense::illegal(Code::INVALID_MESSAGE).into())
        } else if self.tasks.is_full() {
            Some(Refusal::Status(Status::TaskSetFull).into())
        } else {
            None
        };
        if let Some(outcome) = early {
            let response = self.response(outcome, command.data_out.len());
            out.push(Output::Done { nexus, task: id, response });
            return;
        }
        let decoded = opcodes::find(&command.cdb);
        let claim = match (&command.attribute, &decoded) {
            (Attribute::Ordered, _) => Claim::All,
            (_, Ok((_, Ok(op)))) => Claim::of(op, &command.data_out, &self.disk),
            _ => Claim::Nothing,
        };
        let first = command.attribute == Attribute::HeadOfQueue;
        let arrival = Arrival { nexus, id, claim, first };
        let order = Order { command, decoded };
        match self.tasks.insert(arrival) {
            Ok(slot) => self.start(slot, nexus, &order, buffers, out),
            Err(slot) => {
                if let Some(task) = self.tasks.get_mut(slot) {
                    task.stage = Stage::Waiting(Box::new(order));
                }
            }
        }
    }

    fn start_waiting(&mut self, slot: Slot, buffers: &mut dyn Buffers, out: &mut Vec<Output>) {
        // It may have been aborted since it could start.
        let Some(task) = self.tasks.get_mut(slot) else { return };
        let nexus = task.nexus;
        let Stage::Waiting(order) = std::mem::replace(&mut task.stage, Stage::Starting) else {
            unreachable!("only what waits becomes ready");
        };
        self.start(slot, nexus, &order, buffers, out);
    }

    fn start(
        &mut self,
        slot: Slot,
        nexus: NexusId,
        order: &Order,
        buffers: &mut dyn Buffers,
        out: &mut Vec<Output>,
    ) {
        let mut next = self.tasks.next_ask;
        let mut asker = Asker { slot, nexus, next: &mut next, asked: 0, buffers, out };
        let mut took_out = order.command.data_out.len();
        let begun = self.admit(nexus, order).and_then(|(row, op)| {
            took_out = self.need(&op);
            self.perform(nexus, row, &op, &order.command, &mut asker)
        });
        let asked = asker.asked;
        self.tasks.next_ask = next;
        let Some(task) = self.tasks.get_mut(slot) else { return };
        task.took_out = u32::try_from(took_out).unwrap_or(u32::MAX);
        task.under_way = asked;
        match begun {
            Ok(Begun::Ended(outcome)) => self.finish(slot, outcome, out),
            Err(refusal) => self.finish(slot, refusal.into(), out),
            Ok(Begun::Runs(job)) => task.stage = Stage::Running(job),
            Ok(Begun::RunsOn(job)) => {
                task.stage = Stage::Running(job);
                if let Some(id) = task.id.take() {
                    let response = self.response(Outcome::DONE, 0);
                    out.push(Output::Done { nexus, task: id, response });
                }
            }
        }
    }

    fn answered(
        &mut self,
        id: AskId,
        result: Answered,
        buffers: &mut dyn Buffers,
        out: &mut Vec<Output>,
    ) {
        let slot = Slot::of_ask(id);
        let Some(task) = self.tasks.get_mut(slot).filter(|task| task.under_way > 0) else {
            // Nothing was asked under this name.
            return;
        };
        task.under_way -= 1;
        let (nexus, idle) = (task.nexus, task.under_way == 0);
        match std::mem::replace(&mut task.stage, Stage::Starting) {
            Stage::Waiting(_) | Stage::Starting => unreachable!("who has asked runs"),
            Stage::Running(job) => self.go_on(slot, nexus, job, result, buffers, out),
            Stage::Ending(outcome) if idle => self.finish(slot, outcome, out),
            ending @ Stage::Ending(_) => task.stage = ending,
            Stage::Draining(mut draining) => {
                self.end_aborted(nexus, draining.job.take(), result);
                self.drain(slot, draining, idle, out);
            }
        }
    }

    fn go_on(
        &mut self,
        slot: Slot,
        nexus: NexusId,
        mut job: Job,
        result: Answered,
        buffers: &mut dyn Buffers,
        out: &mut Vec<Output>,
    ) {
        let mut next = self.tasks.next_ask;
        let mut asker = Asker { slot, nexus, next: &mut next, asked: 0, buffers, out };
        let step = match job {
            Job::Reserve(change) => {
                let kept = jobs::settled(result, During::Writing, &self.disk);
                return self.settle(slot, kept, |unit| unit.adopt(*change), out);
            }
            Job::Mode(mode) => {
                let durable = jobs::settled(result, During::Writing, &self.disk);
                return self.settle(slot, durable, |unit| unit.switch(nexus, mode), out);
            }
            ref mut job => job.answered(result, &self.disk, &mut asker),
        };
        let asked = asker.asked;
        self.tasks.next_ask = next;
        if let Job::Copy(copy) = &job {
            let good = match &step {
                Ok(Next::Waits) => None,
                Ok(Next::Ends(_)) => Some(true),
                Err(_) => Some(false),
            };
            self.note_copy(nexus, copy, good);
        }
        let Some(task) = self.tasks.get_mut(slot) else { return };
        task.under_way += asked;
        match step.unwrap_or_else(|refusal| Next::Ends(refusal.into())) {
            Next::Waits => task.stage = Stage::Running(job),
            Next::Ends(outcome) if task.under_way == 0 => self.finish(slot, outcome, out),
            Next::Ends(outcome) => task.stage = Stage::Ending(outcome),
        }
    }

    /// What an answer changes although its command was aborted: reservations that are kept are so
    /// for all, and a copy is no longer under way.
    fn end_aborted(&mut self, nexus: NexusId, job: Option<Job>, result: Answered) {
        let kept = jobs::settled(result, During::Writing, &self.disk).is_ok();
        match job {
            Some(Job::Reserve(change)) if kept => self.adopt(*change),
            Some(Job::Copy(copy)) => {
                self.note_copy(nexus, &copy, Some(false));
            }
            _ => {}
        }
    }

    /// Ends a task that changes the unit if the volume agreed.
    fn settle(
        &mut self,
        slot: Slot,
        settled: Result<(), Refusal>,
        change: impl FnOnce(&mut Unit),
        out: &mut Vec<Output>,
    ) {
        let outcome = match settled {
            Ok(()) => {
                change(self);
                Outcome::DONE
            }
            Err(refusal) => refusal.into(),
        };
        self.finish(slot, outcome, out);
    }

    /// Takes reservations over that are kept now.
    fn adopt(&mut self, change: Change) {
        self.reservations = change.next;
        for nexus in self.nexuses.values_mut() {
            nexus.standing = self.reservations.standing(&nexus.port);
            for (_, attention) in change.told.iter().filter(|(port, _)| *port == nexus.port) {
                nexus.attentions.add(*attention);
            }
        }
    }

    pub(super) fn switch(&mut self, by: NexusId, mode: Mode) {
        self.mode = mode;
        self.tell_others(by, Attention::ModeChanged);
    }

    fn finish(&mut self, slot: Slot, outcome: Outcome, out: &mut Vec<Output>) {
        let Some(task) = self.remove(slot) else { return };
        match (task.id, outcome) {
            (Some(id), outcome) => {
                let took_out = usize::try_from(task.took_out).unwrap_or(usize::MAX);
                let response = self.response(outcome, took_out);
                out.push(Output::Done { nexus: task.nexus, task: id, response });
            }
            (None, Outcome::Refused(Refusal::Check(sense))) => {
                if let Some(nexus) = self.nexuses.get_mut(&task.nexus) {
                    nexus.attentions.add(Attention::Deferred(sense));
                }
            }
            (None, _) => {}
        }
    }

    pub(super) fn response(&self, outcome: Outcome, took_out: usize) -> Response {
        let (status, sense, data_in) = match outcome {
            Outcome::Good(data) => (Status::Good, Vec::new(), data),
            Outcome::ConditionMet => (Status::ConditionMet, Vec::new(), Vec::new()),
            Outcome::Refused(Refusal::Status(status)) => (status, Vec::new(), Vec::new()),
            Outcome::Refused(Refusal::Check(sense)) => {
                let sense = sense.encode(self.mode.descriptor_sense);
                (Status::CheckCondition, sense, Vec::new())
            }
        };
        let took_out = u32::try_from(took_out).unwrap_or(u32::MAX);
        Response { status, sense, data_in, took_out }
    }
}
