//! Task management: commands are taken back, and the answer to that waits until what they asked
//! of the volume is answered. After it, nothing of them happens any more.
use std::collections::BTreeMap;

use crate::scsi::attention::Attention;
use crate::scsi::mode::Mode;
use crate::scsi::order::Outcome;
use crate::scsi::sense::Refusal;
use crate::scsi::tasks::{Draining, Slot, Stage, Task};
use crate::scsi::unit::{Output, Unit};
use crate::scsi::words::{Managed, Management, NexusId, Status};

/// Functions that wait for commands to end.
#[derive(Default)]
pub(super) struct Managing {
    under_way: BTreeMap<u64, Function>,
    next: u64,
}

struct Function {
    nexus: NexusId,
    id: u64,
    /// Commands that have not ended.
    left: usize,
}

impl Managing {
    /// Nobody waits for the answers to this nexus any more.
    pub(super) fn forget(&mut self, nexus: NexusId) {
        self.under_way.retain(|_, function| function.nexus != nexus);
    }
}

fn refused(function: Management, lun: u64, no_victims: bool) -> Option<Managed> {
    let whole_target =
        matches!(function, Management::TargetWarmReset | Management::TargetColdReset);
    match function {
        _ if lun != 0 && !whole_target => Some(Managed::NoUnit),
        Management::ClearAca => Some(Managed::NotSupported),
        Management::AbortTask { .. } if no_victims => Some(Managed::NoTask),
        _ => None,
    }
}

/// Whether a function ends commands of other initiators too.
fn concerns_others(function: Management) -> bool {
    match function {
        Management::AbortTask { .. } | Management::AbortTaskSet | Management::ClearAca => false,
        Management::ClearTaskSet
        | Management::LogicalUnitReset
        | Management::TargetWarmReset
        | Management::TargetColdReset => true,
    }
}

impl Unit {
    pub(super) fn manage(
        &mut self,
        nexus: NexusId,
        id: u64,
        lun: u64,
        function: Management,
        out: &mut Vec<Output>,
    ) {
        let victims = self.victims(nexus, function);
        let mut result = refused(function, lun, victims.is_empty());
        if result.is_none() && concerns_others(function) && self.may_only_read(nexus) {
            result = Some(Managed::Rejected);
        }
        if let Some(result) = result {
            out.push(Output::Managed { nexus, id, result });
            return;
        }
        let tells = self.mode.tells_aborted;
        self.reset_for(function);
        let unspoken = function == Management::ClearTaskSet && !tells;
        let key = self.managing.next;
        let mut left = 0;
        for slot in victims {
            let Some(task) = self.tasks.get_mut(slot) else { continue };
            let (owner, others) = (task.nexus, task.nexus != nexus && task.id.is_some());
            if others && unspoken {
                self.tell(owner, Attention::CommandsCleared);
            }
            left += usize::from(self.abort(slot, others && tells, Some(key), out));
        }
        if left == 0 {
            out.push(Output::Managed { nexus, id, result: Managed::Done });
            return;
        }
        self.managing.next += 1;
        self.managing.under_way.insert(key, Function { nexus, id, left });
    }

    fn victims(&self, nexus: NexusId, function: Management) -> Vec<Slot> {
        match function {
            Management::AbortTask { task: id } => {
                self.tasks.select(|task| task.nexus == nexus && task.id == Some(id))
            }
            Management::AbortTaskSet => self.tasks.select(|task| task.nexus == nexus),
            Management::ClearTaskSet
            | Management::LogicalUnitReset
            | Management::TargetWarmReset
            | Management::TargetColdReset => self.tasks.select(|_| true),
            Management::ClearAca => Vec::new(),
        }
    }

    /// What resets do beside taking commands back. Persistent reservations stay.
    fn reset_for(&mut self, function: Management) {
        let attention = match function {
            Management::LogicalUnitReset => Attention::UnitReset,
            Management::TargetWarmReset | Management::TargetColdReset => Attention::TargetReset,
            Management::AbortTask { .. }
            | Management::AbortTaskSet
            | Management::ClearTaskSet
            | Management::ClearAca => return,
        };
        self.reserved = None;
        self.mode = Mode::default();
        self.tell_all(attention);
    }

    fn tell(&mut self, nexus: NexusId, attention: Attention) {
        if let Some(nexus) = self.nexuses.get_mut(&nexus) {
            nexus.attentions.add(attention);
        }
    }

    /// Takes a command back. Whether it has to end first: it asked something. `tell`: its initiator
    /// hears of it.
    pub(super) fn abort(
        &mut self,
        slot: Slot,
        tell: bool,
        waiter: Option<u64>,
        out: &mut Vec<Output>,
    ) -> bool {
        let Some(task) = self.tasks.get_mut(slot) else { return false };
        if task.under_way == 0 {
            if let Some(task) = self.remove(slot) {
                self.told_aborted(&task, tell, out);
            }
            return false;
        }
        let mut draining = match std::mem::replace(&mut task.stage, Stage::Starting) {
            Stage::Draining(draining) => draining,
            Stage::Running(job) => Box::new(Draining { job: Some(job), tell, waiters: Vec::new() }),
            Stage::Waiting(_) | Stage::Starting | Stage::Ending(_) => {
                Box::new(Draining { job: None, tell, waiters: Vec::new() })
            }
        };
        draining.tell &= tell;
        draining.waiters.extend(waiter);
        task.stage = Stage::Draining(draining);
        true
    }

    /// Goes on with the end of a command that was taken back.
    pub(super) fn drain(
        &mut self,
        slot: Slot,
        draining: Box<Draining>,
        idle: bool,
        out: &mut Vec<Output>,
    ) {
        if !idle {
            if let Some(task) = self.tasks.get_mut(slot) {
                task.stage = Stage::Draining(draining);
            }
            return;
        }
        let Some(task) = self.remove(slot) else { return };
        self.told_aborted(&task, draining.tell, out);
        for key in draining.waiters {
            let Some(function) = self.managing.under_way.get_mut(&key) else { continue };
            function.left -= 1;
            if function.left == 0 {
                let (nexus, id) = (function.nexus, function.id);
                self.managing.under_way.remove(&key);
                out.push(Output::Managed { nexus, id, result: Managed::Done });
            }
        }
    }

    fn told_aborted(&self, task: &Task, tell: bool, out: &mut Vec<Output>) {
        let Some(id) = task.id.filter(|_| tell && self.nexuses.contains_key(&task.nexus)) else {
            return;
        };
        let aborted = Outcome::Refused(Refusal::Status(Status::TaskAborted));
        let response = self.response(aborted, 0);
        out.push(Output::Done { nexus: task.nexus, task: id, response });
    }

    /// Takes a task out of the set, and notes who can start now.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Task> {
        let mut ready = Vec::new();
        let task = self.tasks.remove(slot, &mut ready);
        self.ready.extend(ready);
        task
    }
}
