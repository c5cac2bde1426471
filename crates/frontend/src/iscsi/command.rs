//! SCSI commands of a session: their data, their turn, their response.
use crate::scsi::words::{Attribute, Command, NexusId, Response, TaskId};

use super::data_in;
use super::errors::{ProtocolError, RejectReason};
use super::events::Output;
use super::pdu::{DataOut, NO_TAG, R2t, ScsiCommand};
use super::receive::{Ahs, Body, Head};
use super::session::{Cx, Flow, Held, Session};
use super::task::{Arrival, Direction, Failure, Gather, State, Task};
use super::window::Place;

impl Session {
    /// A command's header has come: makes a task of it.
    pub(super) fn begin_command(
        &mut self,
        cx: &mut Cx<'_>,
        head: &Head,
        command: &ScsiCommand,
    ) -> Body {
        let order = command.order;
        if !order.immediate && self.window.place(order.cmd_sn) == Place::Outside {
            return Body::Nothing(None);
        }
        let attribute = match self.admit(cx, command) {
            Ok(attribute) => attribute,
            Err(reason) => return self.refuse(cx, &head.header, reason, Some(order)),
        };
        let gather = self.gather(cx, command, head.ahs, head.header.segment_len());
        let id = TaskId(self.next_number());
        let task = Task {
            id,
            lun: command.lun,
            cdb: command.cdb,
            attribute,
            order,
            direction: match (command.read, command.write) {
                (_, true) => Direction::Out,
                (true, false) => Direction::In,
                (false, false) => Direction::None,
            },
            expected: command.expected,
            state: State::Gathering(gather),
            aborting: None,
            r2ts: 0,
        };
        self.immediate += usize::from(order.immediate);
        self.tasks.insert(command.itt, task);
        self.itts.insert(id, command.itt);
        Body::Command { itt: command.itt, task: id }
    }

    /// Whether a command may become a task. It was allowed by its number.
    fn admit(&self, cx: &Cx<'_>, command: &ScsiCommand) -> Result<Attribute, RejectReason> {
        if self.nexus().is_none() {
            return Err(RejectReason::NotSupported);
        }
        if command.order.immediate && self.immediate >= cx.limits.immediate_max {
            return Err(RejectReason::TooManyImmediate);
        }
        if self.tasks.contains_key(&command.itt) {
            return Err(RejectReason::TaskInProgress);
        }
        let attribute = command.attribute.filter(|_| command.itt != NO_TAG);
        attribute.ok_or(RejectReason::InvalidField)
    }

    /// What data a command waits for, and where it goes; or why it fails.
    fn gather(
        &mut self,
        cx: &mut Cx<'_>,
        command: &ScsiCommand,
        ahs: Ahs,
        segment: usize,
    ) -> Gather {
        let params = &self.params;
        let len = if command.write { command.expected } else { 0 };
        let unasked_max = params.first_burst.min(len);
        let first = u32::try_from(segment).unwrap_or(u32::MAX);
        let follows = command.write && !command.last;
        let moved = if command.read { command.expected } else { len };
        let failure = match () {
            _ if command.read && command.write || ahs.bidirectional => Some(Failure::NotSupported),
            _ if ahs.long_cdb => Some(Failure::NotSupported),
            _ if moved > cx.limits.transfer_max => Some(Failure::TooLong),
            _ if first > 0 && !(command.write && params.immediate_data) => {
                Some(Failure::UnexpectedData)
            }
            _ if follows && params.initial_r2t => Some(Failure::UnexpectedData),
            _ if first > unasked_max => Some(Failure::WrongAmount),
            _ => None,
        };
        let mut gather = Gather::new(len, first, follows.then_some(unasked_max));
        gather.failure = failure;
        if failure.is_none() && len > 0 {
            let unasked = if follows { unasked_max } else { first };
            gather.room = self.budget.take(len as usize, unasked as usize, cx.buffers);
        }
        gather
    }

    /// A command is there, with the data that came along.
    pub(super) fn end_command(
        &mut self,
        cx: &mut Cx<'_>,
        itt: u32,
        id: TaskId,
        is_intact: bool,
    ) -> Flow {
        let Some(task) = self.tasks.get_mut(&itt) else { return Flow::Continue };
        let order = task.order;
        if let (State::Gathering(gather), false) = (&mut task.state, is_intact) {
            gather.failure = gather.failure.or(Some(Failure::DataLost));
        }
        match order.immediate {
            true => self.turn(cx, id),
            false => self.queue(cx, Some(order), Held::Command(id)),
        }
    }

    /// All commands before this one are here. It may have been aborted since it came.
    pub(super) fn turn(&mut self, cx: &mut Cx<'_>, id: TaskId) -> Flow {
        let Some(task) = self.itts.get(&id).and_then(|itt| self.tasks.get_mut(itt)) else {
            return Flow::Continue;
        };
        if !task.order.immediate {
            self.window.open();
        }
        if let State::Gathering(gather) = &mut task.state {
            gather.has_turn = true;
            if gather.is_starved() {
                self.budget.starved.push_back(id);
            }
        }
        self.pump(cx, id);
        self.grant(cx);
        Flow::Continue
    }

    /// A data PDU's header has come. Data of tasks that are gone is no error: it may have been on
    /// its way when they were aborted.
    pub(super) fn begin_data(
        &mut self,
        data: &DataOut,
        segment: usize,
    ) -> Result<Body, ProtocolError> {
        let DataOut { itt, ttt, data_sn, offset, last } = *data;
        let body = |task| Body::Data { task, itt, ttt, offset, last };
        let Some(task) = self.tasks.get_mut(&itt) else { return Ok(body(None)) };
        let len = u32::try_from(segment).unwrap_or(u32::MAX);
        match &mut task.state {
            State::Gathering(gather) => {
                gather.incoming(Arrival { itt, ttt, data_sn, offset, len })?;
                Ok(body(Some(task.id)))
            }
            State::Given | State::Answered(_) if task.aborting.is_some() => Ok(body(None)),
            State::Given | State::Answered(_) => Err(ProtocolError::UnexpectedData { itt }),
        }
    }

    pub(super) fn end_data(
        &mut self,
        cx: &mut Cx<'_>,
        task: Option<TaskId>,
        (itt, ttt, len, is_last): (u32, u32, usize, bool),
        is_intact: bool,
    ) -> Result<(), ProtocolError> {
        let Some(id) = task else { return Ok(()) };
        let task = self.tasks.get_mut(&itt).filter(|task| task.id == id);
        let Some(State::Gathering(gather)) = task.map(|task| &mut task.state) else {
            return Ok(());
        };
        if !is_intact {
            gather.failure = gather.failure.or(Some(Failure::DataLost));
        }
        gather.arrived(itt, ttt, u32::try_from(len).unwrap_or(u32::MAX), is_last)?;
        self.pump(cx, id);
        self.grant(cx);
        Ok(())
    }

    /// Where the next bytes of a segment belong, if somebody wants them.
    pub fn place(&mut self, body: &Body, at: usize, left: usize) -> Option<&mut [u8]> {
        let (itt, id, offset) = match body {
            Body::Command { itt, task } => (itt, task, 0),
            Body::Data { itt, task: Some(task), offset, .. } => (itt, task, *offset as usize),
            Body::Data { task: None, .. } | Body::Nothing(_) | Body::Whole { .. } => return None,
        };
        let task = self.tasks.get_mut(itt).filter(|task| task.id == *id)?;
        match &mut task.state {
            State::Gathering(gather) => gather.place(offset + at, left),
            State::Given | State::Answered(_) => None,
        }
    }

    /// Does for a task what can be done: asks for data, gives it to the unit, answers it.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>, id: TaskId) {
        self.ask_for_data(cx, id);
        let Some(nexus) = self.nexus() else { return };
        let Some(&itt) = self.itts.get(&id) else { return };
        let Some(task) = self.tasks.get_mut(&itt).filter(|task| task.aborting.is_none()) else {
            return;
        };
        let room_in = task.room_in() as usize;
        match &mut task.state {
            State::Gathering(gather) if gather.is_done() => match gather.failure {
                Some(failure) => self.finish(cx, itt, failure.response()),
                None if gather.is_held => {}
                None => {
                    if self.reads.waiting.is_empty() && self.reads.has_room(room_in) {
                        self.reads.give(room_in);
                        give(cx, nexus, task, &self.empty);
                    } else {
                        gather.is_held = true;
                        self.reads.waiting.push_back(id);
                    }
                }
            },
            State::Answered(_) => {
                if let State::Answered(response) = std::mem::replace(&mut task.state, State::Given)
                {
                    self.finish(cx, itt, response);
                }
            }
            State::Gathering(_) | State::Given => {}
        }
    }

    fn ask_for_data(&mut self, cx: &mut Cx<'_>, id: TaskId) {
        let Some(&itt) = self.itts.get(&id) else { return };
        let span = self.window.span();
        let Some(task) = self.tasks.get_mut(&itt).filter(|task| task.aborting.is_none()) else {
            return;
        };
        let State::Gathering(gather) = &mut task.state else { return };
        while gather.may_ask(self.params.r2ts) {
            let ttt = self.tags.next();
            let burst = gather.ask(self.params.burst, ttt);
            let r2t = R2t {
                lun: task.lun,
                itt,
                ttt,
                r2t_sn: task.r2ts,
                offset: burst.offset,
                len: burst.len,
            };
            task.r2ts += 1;
            cx.line.send(cx.out, r2t.encode(cx.line.note(span)), &[]);
        }
    }

    /// Gives memory to those who wait for it, in order.
    pub(super) fn grant(&mut self, cx: &mut Cx<'_>) {
        self.grant_writes(cx);
        self.give_held(cx);
    }

    /// The owner has sent something: so much is left.
    pub fn unsent(&mut self, cx: &mut Cx<'_>, bytes: usize) {
        self.reads.unsent(bytes);
        self.give_held(cx);
    }

    /// Gives commands to the unit that waited until there is room for what they read.
    fn give_held(&mut self, cx: &mut Cx<'_>) {
        let Some(nexus) = self.nexus() else { return };
        while let Some(&id) = self.reads.waiting.front() {
            // It may have been aborted since.
            let task = self.itts.get(&id).and_then(|itt| self.tasks.get_mut(itt));
            if let Some(task) = task {
                let len = task.room_in() as usize;
                if let (State::Gathering(gather), Some(_)) = (&mut task.state, task.aborting) {
                    // It comes back if that fails.
                    gather.is_held = false;
                } else {
                    if !self.reads.has_room(len) {
                        return;
                    }
                    self.reads.give(len);
                    give(cx, nexus, task, &self.empty);
                }
            }
            self.reads.waiting.pop_front();
        }
    }

    fn grant_writes(&mut self, cx: &mut Cx<'_>) {
        while let Some(&id) = self.budget.starved.front() {
            let task = self.itts.get(&id).and_then(|itt| self.tasks.get_mut(itt));
            if let Some(task) = task
                && let State::Gathering(gather) = &mut task.state
                && gather.is_starved()
            {
                let len = task.expected as usize;
                if !self.budget.has_room(len) {
                    return;
                }
                self.budget.grow(gather, len, cx.buffers);
            }
            self.budget.starved.pop_front();
            self.pump(cx, id);
        }
    }

    /// The unit has answered.
    pub fn respond(&mut self, cx: &mut Cx<'_>, id: TaskId, response: Response) {
        let Some(&itt) = self.itts.get(&id) else { return };
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        match (&task.state, task.aborting) {
            (State::Given, None) => {
                self.finish(cx, itt, response);
                self.grant(cx);
            }
            (State::Given, Some(_)) => task.state = State::Answered(response),
            (State::Gathering(_) | State::Answered(_), _) => {}
        }
    }

    /// Answers a task and forgets it.
    fn finish(&mut self, cx: &mut Cx<'_>, itt: u32, response: Response) {
        if let Some(task) = self.forget(itt) {
            let data: usize = response.data_in.iter().map(|piece| piece.as_bytes().len()).sum();
            self.reads.answered(data.min(task.room_in() as usize));
            data_in::answer(cx, &self.params, self.window.span(), itt, &task, response);
        }
    }

    /// Forgets a task: its tag, its place in the window and its memory are free.
    pub(super) fn forget(&mut self, itt: u32) -> Option<Task> {
        let task = self.tasks.remove(&itt)?;
        self.itts.remove(&task.id);
        let had_turn = match &task.state {
            State::Gathering(gather) => {
                self.budget.release(&gather.room);
                gather.has_turn
            }
            State::Given | State::Answered(_) => {
                if task.direction == Direction::Out {
                    self.budget.release_whole(task.expected as usize);
                }
                self.reads.release(task.room_in() as usize);
                true
            }
        };
        match task.order.immediate {
            true => self.immediate -= 1,
            false if had_turn => self.window.finish(),
            false => {}
        }
        Some(task)
    }

    /// Whether more bytes are welcome. They always are while something is on its way without which
    /// nothing gets done: data, or the command before those that wait for their turn.
    pub fn wants_bytes(&self) -> bool {
        !self.budget.is_exceeded()
            || self.window.has_gap()
            || self.tasks.values().any(|task| match &task.state {
                State::Gathering(gather) => gather.awaits(),
                State::Given | State::Answered(_) => false,
            })
    }
}

fn give(cx: &mut Cx<'_>, nexus: NexusId, task: &mut Task, empty: &block::Data) {
    let State::Gathering(gather) = &mut task.state else { return };
    let data_out = gather.take(empty);
    task.state = State::Given;
    let command = Command {
        lun: task.lun,
        cdb: task.cdb,
        attribute: task.attribute,
        data_out,
        room_in: task.room_in(),
    };
    cx.out.push(Output::Command { nexus, task: task.id, command });
}
