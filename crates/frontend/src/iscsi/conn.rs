//! A connection: takes bytes, and is first a login, then a session.
use std::time::Duration;

use crate::ask::Buffers;
use crate::export::OpenError;
use crate::scsi::words::NexusId;

use super::chap::Random;
use super::errors::{CloseReason, LoginError, ProtocolError};
use super::events::{ConnNo, Found, Output};
use super::limits::Limits;
use super::line::Line;
use super::login::{self, Kind, Login};
use super::pdu::{Header, LoginRequest, Request};
use super::receive::{Body, Head, Receiver, Segment};
use super::session::{Cx, Flow, Identity, Session};

/// What the portal lends to a connection for a step.
pub struct Env<'a> {
    pub now: Duration,
    pub limits: &'a Limits,
    pub random: &'a mut Random,
    pub buffers: &'a mut dyn Buffers,
    pub out: &'a mut Vec<Output>,
}

impl Env<'_> {
    fn with<'b>(&'b mut self, line: &'b mut Line) -> Cx<'b> {
        Cx {
            now: self.now,
            limits: self.limits,
            line,
            buffers: self.buffers,
            random: self.random,
            out: self.out,
        }
    }
}

#[derive(Debug)]
pub enum Phase {
    Login(Box<Login>),
    Full(Box<Session>),
}

#[derive(Debug)]
pub struct Conn {
    pub phase: Phase,
    portal: String,
    /// Where the initiator is.
    pub peer: String,
    line: Line,
    receiver: Receiver,
    heard: Duration,
    /// When the present phase began.
    since: Duration,
}

/// What a step through the bytes came to.
enum Progress {
    /// More bytes are needed.
    Hungry,
    Done(Flow),
}

impl Conn {
    pub fn new(conn: ConnNo, portal: String, peer: String, now: Duration, limits: &Limits) -> Conn {
        Conn {
            phase: Phase::Login(Box::new(Login::new(now + limits.login_time_max))),
            portal,
            peer,
            line: Line::new(conn),
            receiver: Receiver::new(false, false),
            heard: now,
            since: now,
        }
    }

    /// The nexus that the owner knows of.
    pub fn nexus(&self) -> Option<NexusId> {
        match &self.phase {
            Phase::Login(login) => {
                login.entering().and_then(|(_, session)| session).map(|session| NexusId(session.0))
            }
            Phase::Full(session) => session.nexus(),
        }
    }

    /// Whether it is a discovery session.
    pub fn is_discovery(&self) -> bool {
        matches!(&self.phase, Phase::Full(session) if session.nexus().is_none())
    }

    /// The target at which it has a session, or is about to.
    pub fn target(&self) -> Option<&str> {
        match &self.phase {
            Phase::Login(login) => match &login.entering()?.0.kind {
                Kind::Discovery => None,
                Kind::Normal { target } => Some(target),
            },
            Phase::Full(session) => match &session.identity {
                Identity::Discovery => None,
                Identity::Normal { target, .. } => Some(target),
            },
        }
    }

    pub fn received(&mut self, env: &mut Env<'_>, bytes: &[u8]) -> Result<Flow, CloseReason> {
        self.hear(env.now);
        let mut rest = bytes;
        loop {
            match self.advance(env, &mut rest)? {
                Progress::Hungry => return Ok(Flow::Continue),
                Progress::Done(Flow::Continue) => {}
                Progress::Done(Flow::Enter) if !rest.is_empty() => {
                    return Err(self.refuse_waiting(env, LoginError::OutOfTurn));
                }
                Progress::Done(flow) => return Ok(flow),
            }
        }
    }

    /// Bytes were put where `landing` said.
    pub fn landed(&mut self, env: &mut Env<'_>, len: usize) -> Result<Flow, CloseReason> {
        self.hear(env.now);
        let (Phase::Full(session), Some(segment)) = (&mut self.phase, self.receiver.segment())
        else {
            return Ok(Flow::Continue);
        };
        assert!(len <= segment.left(), "more bytes landed than there was landing for");
        let place = session.place(&segment.body, segment.at, len);
        segment.took(place.expect("bytes land where a landing was given, just before"));
        match self.advance(env, &mut &[][..])? {
            Progress::Hungry => Ok(Flow::Continue),
            Progress::Done(flow) => Ok(flow),
        }
    }

    /// The rest of a segment under way, if it goes straight to where it stays.
    pub fn landing(&mut self) -> &mut [u8] {
        match (&mut self.phase, self.receiver.segment()) {
            (Phase::Full(session), Some(segment)) => {
                let left = segment.left();
                session.place(&segment.body, segment.at, left).unwrap_or_default()
            }
            _ => &mut [],
        }
    }

    pub fn wants_bytes(&self) -> bool {
        match &self.phase {
            Phase::Login(login) => !login.is_waiting(),
            Phase::Full(session) => !self.receiver.is_between() || session.wants_bytes(),
        }
    }

    fn hear(&mut self, now: Duration) {
        self.heard = now;
        if let Phase::Full(session) = &mut self.phase {
            session.heard();
        }
    }

    /// Takes bytes up to the end of a PDU, and serves it.
    fn advance(&mut self, env: &mut Env<'_>, rest: &mut &[u8]) -> Result<Progress, CloseReason> {
        if let Phase::Login(login) = &self.phase
            && login.is_waiting()
            && !rest.is_empty()
        {
            return Err(self.refuse_waiting(env, LoginError::OutOfTurn));
        }
        if self.receiver.segment().is_none() {
            let head = self.receiver.head(rest).map_err(|error| self.fault(env, None, error))?;
            let Some(head) = head else { return Ok(Progress::Hungry) };
            let body = self.begin(env, &head)?;
            self.receiver.begin(head.header, body);
        }
        self.fill(rest);
        match self.receiver.end() {
            None => Ok(Progress::Hungry),
            Some((segment, is_intact)) => self.end(env, segment, is_intact).map(Progress::Done),
        }
    }

    fn begin(&mut self, env: &mut Env<'_>, head: &Head) -> Result<Body, CloseReason> {
        let len = head.header.segment_len();
        match &mut self.phase {
            Phase::Login(_) => {
                let request = Request::decode(&head.header);
                let max = env.limits.text_max;
                let error = match request {
                    Request::Login(_) if len <= max => {
                        return Ok(Body::Whole { request, segment: Vec::new() });
                    }
                    Request::Login(_) => LoginError::SegmentTooLong { len, max },
                    _ => LoginError::NotALogin { opcode: head.header.opcode() },
                };
                Err(self.refuse(env, &LoginRequest::decode(&head.header), error))
            }
            Phase::Full(session) => {
                let max = env.limits.segment_max as usize;
                let body = match len > max {
                    true => Err(ProtocolError::SegmentTooLong { len, max }),
                    false => session.begin(&mut env.with(&mut self.line), head),
                };
                body.map_err(|error| self.fault(env, Some(&head.header), error))
            }
        }
    }

    /// Puts bytes of a segment where they belong.
    fn fill(&mut self, rest: &mut &[u8]) {
        let Some(segment) = self.receiver.segment() else { return };
        let (front, behind) = rest.split_at(segment.left().min(rest.len()));
        *rest = behind;
        if let Body::Whole { segment: bytes, .. } = &mut segment.body {
            bytes.extend_from_slice(front);
        } else if let Phase::Full(session) = &mut self.phase
            && let Some(place) = session.place(&segment.body, segment.at, front.len())
        {
            place.copy_from_slice(front);
        }
        segment.took(front);
        segment.take_tail(rest);
    }

    fn end(
        &mut self,
        env: &mut Env<'_>,
        segment: Segment,
        is_intact: bool,
    ) -> Result<Flow, CloseReason> {
        let header = segment.header;
        match &mut self.phase {
            Phase::Login(login) => {
                let (request, text) = match segment.body {
                    Body::Whole { request: Request::Login(request), segment } => (request, segment),
                    _ => return Ok(Flow::Continue),
                };
                let result = login.step(&mut env.with(&mut self.line), &request, &text);
                result.map_err(|error| self.refuse(env, &request, error))
            }
            Phase::Full(session) => {
                let result = session.end(&mut env.with(&mut self.line), segment, is_intact);
                result.map_err(|error| self.fault(env, Some(&header), error))
            }
        }
    }

    /// The initiator broke the protocol. It is told, if a header can be shown to it.
    fn fault(
        &mut self,
        env: &mut Env<'_>,
        header: Option<&Header>,
        error: ProtocolError,
    ) -> CloseReason {
        match &mut self.phase {
            Phase::Login(_) => LoginError::BrokenAhs.into(),
            Phase::Full(session) => {
                if let (Some(header), Some(reason)) = (header, error.reject()) {
                    session.reject(&mut env.with(&mut self.line), header, reason);
                }
                error.into()
            }
        }
    }

    pub fn refuse(
        &mut self,
        env: &mut Env<'_>,
        request: &LoginRequest,
        error: LoginError,
    ) -> CloseReason {
        login::refuse(&mut env.with(&mut self.line), request, &error);
        error.into()
    }

    /// Refuses the login whose request waits for us, if one does.
    pub fn refuse_waiting(&mut self, env: &mut Env<'_>, error: LoginError) -> CloseReason {
        let waiting = match &self.phase {
            Phase::Login(login) => login.waiting().cloned(),
            Phase::Full(_) => None,
        };
        match waiting {
            Some(request) => self.refuse(env, &request, error),
            None => error.into(),
        }
    }

    pub fn found(
        &mut self,
        env: &mut Env<'_>,
        result: Result<Found, OpenError>,
    ) -> Result<Flow, CloseReason> {
        let Phase::Login(login) = &mut self.phase else { return Ok(Flow::Continue) };
        let Some(request) = login.waiting().cloned() else { return Ok(Flow::Continue) };
        let result = login.found(&mut env.with(&mut self.line), result);
        result.map_err(|error| self.refuse(env, &request, error))
    }

    /// The session begins.
    pub fn enter(&mut self, env: &mut Env<'_>, tsih: u16) {
        let Phase::Login(login) = &mut self.phase else { return };
        let session = login.entering().and_then(|(_, session)| session);
        let entered = login.enter(&mut env.with(&mut self.line), tsih);
        let Some((who, params, cmd_sn)) = entered else { return };
        let identity = match (who.kind, session) {
            (Kind::Normal { target }, Some(session)) => {
                Identity::Normal { nexus: NexusId(session.0), port: who.port, target }
            }
            (Kind::Normal { .. }, None) | (Kind::Discovery, _) => Identity::Discovery,
        };
        // Digests begin behind the last response of the login.
        self.line.header_digest = params.header_digest;
        self.line.data_digest = params.data_digest;
        self.receiver = Receiver::new(params.header_digest, params.data_digest);
        let session = Session::new(identity, tsih, who.cid, params, cmd_sn, env.limits);
        self.phase = Phase::Full(Box::new(session));
        self.since = env.now;
    }

    /// Does something with the session, if there is one.
    pub fn with_session(
        &mut self,
        env: &mut Env<'_>,
        work: impl FnOnce(&mut Session, &mut Cx<'_>, &str) -> Flow,
    ) -> Result<Flow, CloseReason> {
        match &mut self.phase {
            Phase::Login(_) => Ok(Flow::Continue),
            Phase::Full(session) => Ok(work(session, &mut env.with(&mut self.line), &self.portal)),
        }
    }

    pub fn drain(&mut self, env: &mut Env<'_>, iqn: &str) -> Result<Flow, CloseReason> {
        match &mut self.phase {
            Phase::Login(login) if login.is_at(iqn) => {
                Err(self.refuse_waiting(env, LoginError::Draining))
            }
            Phase::Full(session) if session.is_at(iqn) => {
                session.drain(&mut env.with(&mut self.line));
                Ok(Flow::Continue)
            }
            Phase::Login(_) | Phase::Full(_) => Ok(Flow::Continue),
        }
    }

    pub fn expel(&mut self, env: &mut Env<'_>) -> CloseReason {
        match &self.phase {
            Phase::Login(_) => self.refuse_waiting(env, LoginError::Target(OpenError::Denied)),
            Phase::Full(_) => CloseReason::Expelled,
        }
    }

    pub fn tick(&mut self, env: &mut Env<'_>) -> Result<Flow, CloseReason> {
        if !self.wants_bytes() {
            // Whoever is kept waiting cannot be heard.
            self.heard = env.now;
        }
        match &mut self.phase {
            Phase::Login(login) if env.now >= login.deadline => Err(CloseReason::LoginTimeout),
            Phase::Login(_) => Ok(Flow::Continue),
            Phase::Full(session)
                if session.nexus().is_none()
                    && env.now >= self.since + env.limits.discovery_time_max =>
            {
                Err(CloseReason::DiscoveryTimeout)
            }
            Phase::Full(session) => {
                session.tick(&mut env.with(&mut self.line), self.heard)?;
                Ok(Flow::Continue)
            }
        }
    }
}
