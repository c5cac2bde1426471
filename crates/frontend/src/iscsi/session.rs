//! A session in full feature phase. It has one connection, and ends with it.
use std::collections::BTreeMap;
use std::time::Duration;

use block::{Buf, Data};

use crate::ask::Buffers;
use crate::scsi::words::{InitiatorPort, NexusId, TaskId};

use super::budget::{Budget, ReadBudget};
use super::chap::Random;
use super::errors::{CloseReason, ProtocolError, RejectReason};
use super::events::{ManageId, Output};
use super::limits::Limits;
use super::line::Line;
use super::manage::Pending;
use super::negotiate::Params;
use super::pdu::{
    AsyncLogout, Header, Logout, LogoutKind, LogoutReply, NO_TAG, NopIn, NopOut, Order, Reject,
    Request,
};
use super::receive::{Body, Head, Segment};
use super::task::Task;
use super::text_request::Talk;
use super::window::{Place, Window};

/// What a step of a connection works with.
pub struct Cx<'a> {
    pub now: Duration,
    pub limits: &'a Limits,
    pub line: &'a mut Line,
    pub buffers: &'a mut dyn Buffers,
    pub random: &'a mut Random,
    pub out: &'a mut Vec<Output>,
}

/// What becomes of a connection after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    /// The login is negotiated: a session may begin.
    Enter,
    LoggedOut,
    /// Every session of the target ends.
    ColdReset,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    Discovery,
    Normal { nexus: NexusId, port: InitiatorPort, target: String },
}

/// What waits for its turn.
#[derive(Debug)]
pub enum Held {
    Nothing,
    Command(TaskId),
    Request(Box<(Header, Request, Vec<u8>)>),
}

/// Tags of transfers and talks. There are far fewer at a time than tags.
#[derive(Debug)]
pub struct Tags(u32);

impl Tags {
    /// Never the tag that names nothing.
    pub fn next(&mut self) -> u32 {
        self.0 = (self.0 + 1) & 0x7fff_ffff;
        self.0
    }
}

#[derive(Debug)]
pub struct Session {
    pub identity: Identity,
    pub tsih: u16,
    pub cid: u16,
    pub(super) params: Params,
    pub(super) window: Window<Held>,
    pub(super) tasks: BTreeMap<u32, Task>,
    pub(super) itts: BTreeMap<TaskId, u32>,
    pub(super) budget: Budget,
    pub(super) reads: ReadBudget,
    /// Tasks that the window does not count.
    pub(super) immediate: usize,
    pub(super) manages: BTreeMap<ManageId, Pending>,
    pub(super) talk: Talk,
    /// How often it asked for targets.
    pub(super) lists: u32,
    /// What commands without data carry.
    pub(super) empty: Data,
    is_pinged: bool,
    drain_at: Option<Duration>,
    /// The last number given to a task or a function.
    counter: u64,
    pub(super) tags: Tags,
}

impl Session {
    pub fn new(
        identity: Identity,
        tsih: u16,
        cid: u16,
        params: Params,
        cmd_sn: u32,
        limits: &Limits,
    ) -> Session {
        Session {
            identity,
            tsih,
            cid,
            params,
            window: Window::new(cmd_sn, limits.window),
            tasks: BTreeMap::new(),
            itts: BTreeMap::new(),
            budget: Budget::new(limits.write_bytes_max),
            reads: ReadBudget::new(limits.read_bytes_max),
            immediate: 0,
            manages: BTreeMap::new(),
            talk: Talk::Idle,
            lists: 0,
            empty: Buf::zeroed(0).into_data(),
            is_pinged: false,
            drain_at: None,
            counter: 0,
            tags: Tags(0),
        }
    }

    pub fn nexus(&self) -> Option<NexusId> {
        match &self.identity {
            Identity::Discovery => None,
            Identity::Normal { nexus, .. } => Some(*nexus),
        }
    }

    /// A header has come: says where its segment goes.
    pub fn begin(&mut self, cx: &mut Cx<'_>, head: &Head) -> Result<Body, ProtocolError> {
        let header = &head.header;
        let request = Request::decode(header);
        match request {
            Request::Login(_) => Err(ProtocolError::LoginInSession),
            Request::Command(command) => Ok(self.begin_command(cx, head, &command)),
            Request::DataOut(data) => self.begin_data(&data, header.segment_len()),
            Request::Snack => Ok(self.refuse(cx, header, RejectReason::Snack, None)),
            Request::Unknown { .. } => {
                Ok(self.refuse(cx, header, RejectReason::NotSupported, None))
            }
            Request::NopOut(_) | Request::Manage(_) | Request::Text(_) | Request::Logout(_) => {
                let order = request.order().filter(|order| !order.immediate);
                let place = order.map_or(Place::Inside, |order| self.window.place(order.cmd_sn));
                Ok(match place {
                    Place::Inside => Body::Whole { request, segment: Vec::new() },
                    Place::Outside => Body::Nothing(None),
                })
            }
        }
    }

    /// A PDU is there, all of it.
    pub fn end(
        &mut self,
        cx: &mut Cx<'_>,
        segment: Segment,
        is_intact: bool,
    ) -> Result<Flow, ProtocolError> {
        let header = segment.header;
        if !is_intact && !matches!(segment.body, Body::Nothing(_) | Body::Data { task: None, .. }) {
            self.reject(cx, &header, RejectReason::DataDigest);
        }
        match segment.body {
            Body::Nothing(order) => Ok(self.queue(cx, order, Held::Nothing)),
            Body::Command { itt, task } => Ok(self.end_command(cx, itt, task, is_intact)),
            Body::Data { task, itt, ttt, last, .. } => {
                self.end_data(cx, task, (itt, ttt, segment.len, last), is_intact)?;
                Ok(Flow::Continue)
            }
            Body::Whole { request, segment } => {
                let order = request.order();
                let whole = Box::new((header, request, segment));
                Ok(match order {
                    _ if !is_intact => self.queue(cx, order, Held::Nothing),
                    Some(order) if !order.immediate => {
                        self.queue(cx, Some(order), Held::Request(whole))
                    }
                    _ => match self.serve(cx, *whole) {
                        // It may have aborted what the others waited for.
                        Flow::Continue => self.queue(cx, None, Held::Nothing),
                        flow => flow,
                    },
                })
            }
        }
    }

    /// Puts something at its place in the order, and serves all whose turn it is.
    pub(super) fn queue(&mut self, cx: &mut Cx<'_>, order: Option<Order>, held: Held) -> Flow {
        if let Some(order) = order.filter(|order| !order.immediate) {
            self.window.put(order.cmd_sn, held);
        }
        while let Some(held) = self.window.turn() {
            let flow = match held {
                Held::Nothing => Flow::Continue,
                Held::Command(task) => self.turn(cx, task),
                Held::Request(whole) => self.serve(cx, *whole),
            };
            if flow != Flow::Continue {
                return flow;
            }
        }
        Flow::Continue
    }

    fn serve(&mut self, cx: &mut Cx<'_>, whole: (Header, Request, Vec<u8>)) -> Flow {
        let (header, request, segment) = whole;
        match request {
            Request::NopOut(nop) => self.nop(cx, &nop, &segment),
            Request::Manage(manage) => self.manage(cx, &header, &manage),
            Request::Text(text) => self.text(cx, &header, text, segment),
            Request::Logout(logout) => return self.logout(cx, &header, &logout),
            // These do not get here: they are dealt with as their segments come.
            Request::Command(_)
            | Request::DataOut(_)
            | Request::Login(_)
            | Request::Snack
            | Request::Unknown { .. } => {}
        }
        Flow::Continue
    }

    fn nop(&mut self, cx: &mut Cx<'_>, nop: &NopOut, data: &[u8]) {
        // Without a tag it is the answer to a ping of ours, or wants none.
        if nop.itt == NO_TAG {
            return;
        }
        let len = data.len().min(self.params.segment_max as usize);
        let numbers = cx.line.status(self.window.span());
        let header = NopIn { lun: 0, itt: nop.itt, ttt: NO_TAG }.encode(numbers);
        cx.line.send(cx.out, header, &data[..len]);
    }

    fn logout(&mut self, cx: &mut Cx<'_>, header: &Header, logout: &Logout) -> Flow {
        let (response, flow) = match logout.kind {
            LogoutKind::Session => (0, Flow::LoggedOut),
            LogoutKind::Connection if logout.cid == self.cid => (0, Flow::LoggedOut),
            LogoutKind::Connection => (1, Flow::Continue),
            LogoutKind::Recovery => (2, Flow::Continue),
            LogoutKind::Unknown => {
                self.reject(cx, header, RejectReason::InvalidField);
                return Flow::Continue;
            }
        };
        let time2wait = self.params.time2wait;
        let numbers = cx.line.status(self.window.span());
        let header = LogoutReply { itt: logout.itt, response, time2wait }.encode(numbers);
        cx.line.send(cx.out, header, &[]);
        flow
    }

    pub(super) fn reject(&mut self, cx: &mut Cx<'_>, bad: &Header, reason: RejectReason) {
        let numbers = cx.line.status(self.window.span());
        let header = Reject { reason: reason.code() }.encode(numbers);
        cx.line.send(cx.out, header, &bad.0);
    }

    /// Rejects a PDU whose segment is still to come. It keeps its place in the order.
    pub(super) fn refuse(
        &mut self,
        cx: &mut Cx<'_>,
        bad: &Header,
        reason: RejectReason,
        order: Option<Order>,
    ) -> Body {
        self.reject(cx, bad, reason);
        Body::Nothing(order)
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// Whether it is at the target of this name, with or without a stage.
    pub fn is_at(&self, iqn: &str) -> bool {
        match &self.identity {
            Identity::Discovery => false,
            Identity::Normal { target, .. } => is_named(target, iqn),
        }
    }

    /// Asks the initiator to log out.
    pub fn drain(&mut self, cx: &mut Cx<'_>) {
        if self.drain_at.is_some() {
            return;
        }
        self.drain_at = Some(cx.now + cx.limits.drain_grace);
        let within_secs = u16::try_from(cx.limits.drain_grace.as_secs()).unwrap_or(u16::MAX);
        let numbers = cx.line.status(self.window.span());
        cx.line.send(cx.out, AsyncLogout { within_secs }.encode(numbers), &[]);
    }

    /// Bytes have come: whoever sends them lives.
    pub fn heard(&mut self) {
        self.is_pinged = false;
    }

    pub fn tick(&mut self, cx: &mut Cx<'_>, heard: Duration) -> Result<(), CloseReason> {
        if self.drain_at.is_some_and(|at| cx.now >= at) {
            return Err(CloseReason::Drained);
        }
        let silence = cx.now.saturating_sub(heard);
        if silence >= cx.limits.silence_max {
            return Err(CloseReason::Silent);
        }
        let is_quiet = silence >= cx.limits.ping_after && !self.is_pinged;
        // In a discovery session pings have no place.
        if is_quiet && self.nexus().is_some() {
            self.is_pinged = true;
            let ttt = self.tags.next();
            let numbers = cx.line.note(self.window.span());
            let header = NopIn { lun: 0, itt: NO_TAG, ttt }.encode(numbers);
            cx.line.send(cx.out, header, &[]);
        }
        Ok(())
    }
}

/// Whether a name that may carry a stage is that of a target.
pub fn is_named(name: &str, iqn: &str) -> bool {
    name == iqn || crate::export::split_stage(name).0 == iqn
}
