//! Task management: functions that end tasks.
//!
//! From the moment a function is given to the unit, the tasks that it ends send nothing any more.
//! Should the unit not carry it out, they go on where they were.
use crate::scsi::words::{Managed, Management};

use super::errors::RejectReason;
use super::events::{ManageId, Output};
use super::pdu::{Function, Header, ManageReply, ManageRequest, NO_TAG};
use super::session::{Cx, Flow, Held, Session};
use super::task::{State, Task};
use super::window::{Place, is_before};

const COMPLETE: u8 = 0;
const NO_TASK: u8 = 1;
const NO_UNIT: u8 = 2;
const NO_REASSIGNMENT: u8 = 4;
const NOT_SUPPORTED: u8 = 5;
const REJECTED: u8 = 255;

/// A function that the unit is carrying out.
#[derive(Debug)]
pub struct Pending {
    itt: u32,
    function: Management,
}

impl Session {
    pub(super) fn manage(&mut self, cx: &mut Cx<'_>, header: &Header, request: &ManageRequest) {
        if self.nexus().is_none() {
            return self.reject(cx, header, RejectReason::NotSupported);
        }
        if request.itt == NO_TAG {
            return self.reject(cx, header, RejectReason::InvalidField);
        }
        let function = match request.function {
            Function::AbortTask => return self.abort_task(cx, request),
            Function::AbortTaskSet => Management::AbortTaskSet,
            Function::ClearAca => Management::ClearAca,
            Function::ClearTaskSet => Management::ClearTaskSet,
            Function::LogicalUnitReset => Management::LogicalUnitReset,
            Function::TargetWarmReset => Management::TargetWarmReset,
            Function::TargetColdReset => Management::TargetColdReset,
            Function::TaskReassign => return self.send_managed(cx, request.itt, NO_REASSIGNMENT),
            Function::Unknown => return self.send_managed(cx, request.itt, NOT_SUPPORTED),
        };
        let lun = request.lun;
        let is_meant = |task: &Task| match function {
            Management::AbortTask { .. } | Management::ClearAca => false,
            Management::AbortTaskSet | Management::ClearTaskSet | Management::LogicalUnitReset => {
                task.lun == lun
            }
            Management::TargetWarmReset | Management::TargetColdReset => true,
        };
        self.start(cx, request, function, |task| is_meant(task) && is_older(task, request));
    }

    fn abort_task(&mut self, cx: &mut Cx<'_>, request: &ManageRequest) {
        let Some(task) = self.tasks.get(&request.ref_itt) else {
            return self.abort_unseen(cx, request);
        };
        if let State::Gathering(_) = task.state {
            // The unit has not heard of it. Whoever held its place in the order finds it gone.
            self.forget(request.ref_itt);
            self.send_managed(cx, request.itt, COMPLETE);
            return self.grant(cx);
        }
        let id = task.id;
        let function = Management::AbortTask { task: id };
        self.start(cx, request, function, |task| task.id == id);
    }

    /// A task that is not here. If its command is still to come, it shall count as here and
    /// aborted; otherwise it was answered before.
    fn abort_unseen(&mut self, cx: &mut Cx<'_>, request: &ManageRequest) {
        let missing = request.ref_cmd_sn;
        let is_on_its_way =
            self.window.place(missing) == Place::Inside && is_before(missing, request.order.cmd_sn);
        if !is_on_its_way {
            return self.send_managed(cx, request.itt, NO_TASK);
        }
        self.window.put(missing, Held::Nothing);
        self.send_managed(cx, request.itt, COMPLETE);
    }

    /// Gives a function to the unit.
    fn start(
        &mut self,
        cx: &mut Cx<'_>,
        request: &ManageRequest,
        function: Management,
        is_meant: impl Fn(&Task) -> bool,
    ) {
        let Some(nexus) = self.nexus() else { return };
        if self.manages.len() >= cx.limits.manages_max {
            return self.send_managed(cx, request.itt, REJECTED);
        }
        let id = ManageId(self.next_number());
        for task in self.tasks.values_mut().filter(|task| task.aborting.is_none()) {
            task.aborting = is_meant(task).then_some(id);
        }
        self.manages.insert(id, Pending { itt: request.itt, function });
        cx.out.push(Output::Manage { nexus, id, lun: request.lun, function });
    }

    /// The unit has carried out a function, or not.
    pub fn managed(&mut self, cx: &mut Cx<'_>, id: ManageId, result: Managed) -> Flow {
        let Some(Pending { itt, function }) = self.manages.remove(&id) else {
            return Flow::Continue;
        };
        let response = match (result, function) {
            (Managed::Done, _) => COMPLETE,
            // It was answered meanwhile, and the answer was kept back: it is aborted.
            (Managed::NoTask, Management::AbortTask { .. }) => COMPLETE,
            (Managed::NoTask, _) => NO_TASK,
            (Managed::NoUnit, _) => NO_UNIT,
            (Managed::NotSupported, _) => NOT_SUPPORTED,
            (Managed::Rejected, _) => REJECTED,
        };
        let tasks = self.tasks.iter().filter(|(_, task)| task.aborting == Some(id));
        let tasks: Vec<_> = tasks.map(|(itt, task)| (*itt, task.id)).collect();
        for (itt, _) in &tasks {
            if response == COMPLETE {
                self.forget(*itt);
            } else if let Some(task) = self.tasks.get_mut(itt) {
                task.aborting = None;
            }
        }
        self.send_managed(cx, itt, response);
        for (_, task) in tasks {
            self.pump(cx, task);
        }
        self.grant(cx);
        match (response, function) {
            (COMPLETE, Management::TargetColdReset) => Flow::ColdReset,
            _ => Flow::Continue,
        }
    }

    fn send_managed(&mut self, cx: &mut Cx<'_>, itt: u32, response: u8) {
        let numbers = cx.line.status(self.window.span());
        cx.line.send(cx.out, ManageReply { itt, response }.encode(numbers), &[]);
    }
}

/// Whether a task came before the function that is to end it.
fn is_older(task: &Task, request: &ManageRequest) -> bool {
    task.order.immediate || is_before(task.order.cmd_sn, request.order.cmd_sn)
}
