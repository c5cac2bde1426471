//! The task set: what waits, what runs, and who waits for whom.
//!
//! A task waits for every earlier one that its claim conflicts with, and starts when the last of
//! them has ended. Earlier ones never wait for later ones, so nothing waits forever. While no live
//! task claims anything for itself, nobody is looked through: a plain read or write starts at once.
use crate::ask::AskId;
use crate::scsi::claims::Claim;
use crate::scsi::jobs::Job;
use crate::scsi::order::{Order, Outcome};
use crate::scsi::words::{NexusId, TaskId};

/// Tasks that may be live at the same time. More than all the windows of a few initiators, and
/// few enough that who waits for whom stays small.
const TASKS_MAX: usize = 2048;

/// Bits of an ask id that name the slot of its task.
const SLOT_BITS: u32 = 16;
const _: () = assert!(TASKS_MAX <= 1 << SLOT_BITS);

/// Where a task is kept while it is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

impl Slot {
    fn at(index: usize) -> Slot {
        Slot(u32::try_from(index).expect("there are never more than TASKS_MAX slots"))
    }

    fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// The id of a question of the task in this slot: the slot in the lower bits, so that the answer
    /// finds its task, and the unit's counter above. The counter wraps at 47 bits, which takes 44 years
    /// at 100,000 questions a second; by then no question of the same slot is left from the last round.
    pub(super) fn ask_id(self, counter: u64) -> AskId {
        let counter = counter & ((1 << (AskId::BITS - SLOT_BITS)) - 1);
        AskId(counter << SLOT_BITS | u64::from(self.0))
    }

    /// The task that asked, from the id of its question.
    pub(super) fn of_ask(id: AskId) -> Slot {
        let slot = id.0 & ((1 << SLOT_BITS) - 1);
        Slot(u32::try_from(slot).expect("SLOT_BITS are fewer than 32"))
    }
}

/// A task that may have ended since: its slot, and which of the slot's tasks it was.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    slot: Slot,
    serial: u64,
}

pub(super) enum Stage {
    /// Something that it conflicts with is under way.
    Waiting(Box<Order>),
    /// Its command is looked at; nothing is in this stage between two events.
    Starting,
    Running(Job),
    /// Its outcome is known, but some of its questions are not answered yet.
    Ending(Outcome),
    /// It was aborted, and its questions are not answered yet.
    Draining(Box<Draining>),
}

pub(super) struct Draining {
    /// What it was, since some answers change the unit all the same.
    pub(super) job: Option<Job>,
    /// The initiator hears of the end of it.
    pub(super) tell: bool,
    /// The management functions that wait for it.
    pub(super) waiters: Vec<u64>,
}

pub(super) struct Task {
    pub(super) nexus: NexusId,
    /// `None`: it was answered before it is done.
    pub(super) id: Option<TaskId>,
    /// Bytes from the initiator that it needs.
    pub(super) took_out: u32,
    pub(super) stage: Stage,
    /// Questions without an answer.
    pub(super) under_way: u32,
    claim: Claim,
    serial: u64,
    /// How many it waits for.
    blockers: u32,
    /// Who waits for it, in the order of their arrival.
    followers: Vec<Ticket>,
}

/// A task on its way in.
pub(super) struct Arrival {
    pub(super) nexus: NexusId,
    pub(super) id: TaskId,
    pub(super) claim: Claim,
    /// Goes before everything that waits.
    pub(super) first: bool,
}

#[derive(Default)]
pub(super) struct Tasks {
    slots: Vec<Option<Task>>,
    free: Vec<Slot>,
    /// Live tasks with an exclusive claim.
    exclusive: usize,
    next_serial: u64,
    pub(super) next_ask: u64,
}

impl Tasks {
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= TASKS_MAX
    }

    /// Takes a task in. `Err`: it has to wait for others. Otherwise it is to be started.
    pub(super) fn insert(&mut self, arrival: Arrival) -> Result<Slot, Slot> {
        let serial = self.next_serial;
        self.next_serial += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot::at(self.slots.len() - 1)
        });
        let mut task = Task {
            nexus: arrival.nexus,
            id: Some(arrival.id),
            took_out: 0,
            stage: Stage::Starting,
            under_way: 0,
            claim: arrival.claim,
            serial,
            blockers: 0,
            followers: Vec::new(),
        };
        if self.exclusive > 0 || arrival.claim.is_exclusive() {
            self.queue(&mut task, slot, arrival.first);
        }
        let waits = task.blockers > 0;
        self.exclusive += usize::from(arrival.claim.is_exclusive());
        self.slots[slot.index()] = Some(task);
        if waits { Err(slot) } else { Ok(slot) }
    }

    /// Notes who must end before a task starts. One that goes first lets only those before it
    /// that run already; the others that it conflicts with wait for it.
    fn queue(&mut self, task: &mut Task, slot: Slot, first: bool) {
        let ticket = Ticket { slot, serial: task.serial };
        for (index, other) in self.slots.iter_mut().enumerate() {
            let Some(other) = other else { continue };
            if !other.claim.conflicts(task.claim) {
                continue;
            }
            if first && matches!(other.stage, Stage::Waiting(_)) {
                other.blockers += 1;
                task.followers.push(Ticket { slot: Slot::at(index), serial: other.serial });
            } else {
                task.blockers += 1;
                other.followers.push(ticket);
            }
        }
        task.followers.sort_by_key(|ticket| ticket.serial);
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Task> {
        self.slots.get_mut(slot.index())?.as_mut()
    }

    /// Takes a task out. Those that waited for nobody else can start, and are added to `ready`.
    pub(super) fn remove(&mut self, slot: Slot, ready: &mut Vec<Slot>) -> Option<Task> {
        let mut task = self.slots.get_mut(slot.index())?.take()?;
        self.free.push(slot);
        self.exclusive -= usize::from(task.claim.is_exclusive());
        for follower in std::mem::take(&mut task.followers) {
            let waiting = self.get_mut(follower.slot);
            let Some(waiting) = waiting.filter(|task| task.serial == follower.serial) else {
                continue;
            };
            waiting.blockers -= 1;
            if waiting.blockers == 0 {
                ready.push(follower.slot);
            }
        }
        Some(task)
    }

    /// The live tasks that `which` names.
    pub(super) fn select(&self, which: impl Fn(&Task) -> bool) -> Vec<Slot> {
        let live = self.slots.iter().enumerate();
        let selected = live.filter(|(_, task)| task.as_ref().is_some_and(&which));
        selected.map(|(index, _)| Slot::at(index)).collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }
}

#[cfg(test)]
mod tests;
