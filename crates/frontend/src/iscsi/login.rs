//! A connection until it is logged in: who the initiator is, whether it may, and how both talk.
//!
//! Requests and responses take turns. The first request names initiator and target; the owner is
//! asked for the target, and then the stages follow. The last response waits until the owner has
//! logged the session in at the volume.
use std::time::Duration;

use crate::export::OpenError;
use crate::scsi::words::InitiatorPort;

use super::chap::{Auth, is_security};
use super::errors::LoginError;
use super::events::{Access, Found, Output, SessionNo};
use super::line::Span;
use super::negotiate::{Negotiation, Params, is_operational};
use super::pdu::{LoginReply, LoginRequest, Stage};
use super::session::{Cx, Flow, is_named};
use super::text::{self, NOT_UNDERSTOOD, Pair, Text};

/// From the standard: the longest name.
const NAME_MAX: usize = 223;

/// From the standard: what an initiator takes in one response before it has said otherwise. No
/// login that means well needs more.
const REPLY_MAX: usize = 8192;

/// Keys of the first request that say who is there.
const NAMING: [&str; 4] = ["InitiatorName", "InitiatorAlias", "SessionType", "TargetName"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Discovery,
    Normal { target: String },
}

/// Who logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    pub port: InitiatorPort,
    pub kind: Kind,
    pub tsih: u16,
    pub cid: u16,
}

#[derive(Debug)]
enum State {
    /// Nobody has said who is there.
    Silent,
    /// The owner looks for the target. The request waits.
    Finding {
        who: Who,
        request: LoginRequest,
        text: Vec<u8>,
    },
    Talking(Talking),
    /// The session waits to begin; then this is sent.
    Entering {
        who: Who,
        params: Params,
        request: LoginRequest,
        answers: Text,
        session: Option<SessionNo>,
    },
}

#[derive(Debug)]
pub struct Login {
    pub deadline: Duration,
    /// Text of a request that comes in parts.
    text: Vec<u8>,
    state: State,
}

#[derive(Debug)]
struct Talking {
    who: Who,
    access: Access,
    stage: Stage,
    auth: Auth,
    negotiation: Negotiation,
    told_group: bool,
}

impl Login {
    pub fn new(deadline: Duration) -> Login {
        Login { deadline, text: Vec::new(), state: State::Silent }
    }

    /// Whether the initiator has to wait for us.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Finding { .. } | State::Entering { .. })
    }

    /// Takes a request, of which this is the text.
    pub fn step(
        &mut self,
        cx: &mut Cx<'_>,
        request: &LoginRequest,
        segment: &[u8],
    ) -> Result<Flow, LoginError> {
        self.check(request)?;
        if self.text.len() + segment.len() > cx.limits.text_max {
            return Err(LoginError::TooMuchText);
        }
        self.text.extend_from_slice(segment);
        if request.more {
            reply(cx, request, None, request.tsih, &[]);
            return Ok(Flow::Continue);
        }
        let text = std::mem::take(&mut self.text);
        match &mut self.state {
            State::Silent => self.open(cx, request, text),
            State::Talking(talking) => {
                let answers = talking.step(cx, request, &text)?;
                self.answer(cx, request, answers)
            }
            State::Finding { .. } | State::Entering { .. } => Err(LoginError::OutOfTurn),
        }
    }

    /// What holds for every request, and what must not change from one to the next.
    fn check(&self, request: &LoginRequest) -> Result<(), LoginError> {
        if request.version_min > 0 {
            return Err(LoginError::Version { min: request.version_min });
        }
        let current = request.current.filter(|stage| *stage != Stage::FullFeature);
        let current = current.ok_or(LoginError::BadStages)?;
        if request.transit && (request.more || request.next.is_none_or(|next| next <= current)) {
            return Err(LoginError::BadStages);
        }
        let State::Talking(talking) = &self.state else { return Ok(()) };
        let who = &talking.who;
        match () {
            _ if talking.stage != current => Err(LoginError::BadStages),
            _ if who.port.isid != request.isid => Err(LoginError::Changed { key: "ISID" }),
            _ if who.cid != request.cid => Err(LoginError::Changed { key: "CID" }),
            _ if who.tsih != request.tsih => Err(LoginError::Changed { key: "TSIH" }),
            _ => Ok(()),
        }
    }

    /// The first request: finds out who is there.
    fn open(
        &mut self,
        cx: &mut Cx<'_>,
        request: &LoginRequest,
        text: Vec<u8>,
    ) -> Result<Flow, LoginError> {
        let who = introduce(&text::parse(&text)?, request)?;
        match &who.kind {
            Kind::Discovery => {
                let access = cx.limits.discovery.clone();
                self.talk(cx, who, access, request, &text)
            }
            Kind::Normal { target } => {
                let (name, initiator) = (target.clone(), who.port.name.clone());
                cx.out.push(Output::Find { conn: cx.line.conn, name, initiator });
                self.state = State::Finding { who, request: request.clone(), text };
                Ok(Flow::Continue)
            }
        }
    }

    /// The owner has looked for the target.
    pub fn found(
        &mut self,
        cx: &mut Cx<'_>,
        result: Result<Found, OpenError>,
    ) -> Result<Flow, LoginError> {
        let State::Finding { .. } = self.state else { return Ok(Flow::Continue) };
        let found = result.map_err(LoginError::Target)?;
        let State::Finding { who, request, text } =
            std::mem::replace(&mut self.state, State::Silent)
        else {
            return Ok(Flow::Continue);
        };
        self.talk(cx, who, found.access, &request, &text)
    }

    fn talk(
        &mut self,
        cx: &mut Cx<'_>,
        who: Who,
        access: Access,
        request: &LoginRequest,
        text: &[u8],
    ) -> Result<Flow, LoginError> {
        let stage = request.current.unwrap_or(Stage::Operational);
        let mut talking = Talking {
            who,
            access,
            stage,
            auth: Auth::Open,
            negotiation: Negotiation::default(),
            told_group: false,
        };
        let answers = talking.step(cx, request, text);
        self.state = State::Talking(talking);
        self.answer(cx, request, answers?)
    }

    /// Sends the answers, and goes on to the next stage if both want to.
    fn answer(
        &mut self,
        cx: &mut Cx<'_>,
        request: &LoginRequest,
        answers: Text,
    ) -> Result<Flow, LoginError> {
        if answers.bytes().len() > REPLY_MAX {
            return Err(LoginError::TooMuchText);
        }
        let State::Talking(talking) = &mut self.state else { return Ok(Flow::Continue) };
        let next = request.next.filter(|_| request.transit && talking.may_go_on());
        if let Some(Stage::FullFeature) = next {
            let (who, params) = (talking.who.clone(), talking.negotiation.settled());
            let request = request.clone();
            self.state = State::Entering { who, params, request, answers, session: None };
            return Ok(Flow::Enter);
        }
        talking.stage = next.unwrap_or(talking.stage);
        reply(cx, request, next, request.tsih, answers.bytes());
        Ok(Flow::Continue)
    }

    /// Who waits for its session to begin.
    pub fn entering(&self) -> Option<(&Who, Option<SessionNo>)> {
        match &self.state {
            State::Entering { who, session, .. } => Some((who, *session)),
            State::Silent | State::Finding { .. } | State::Talking(_) => None,
        }
    }

    /// The session has a number now.
    pub fn numbered(&mut self, number: SessionNo) {
        if let State::Entering { session, .. } = &mut self.state {
            *session = Some(number);
        }
    }

    /// The session begins: sends the last response. Gives who it is, what holds, and the number of
    /// the first command.
    pub fn enter(&mut self, cx: &mut Cx<'_>, tsih: u16) -> Option<(Who, Params, u32)> {
        let State::Entering { who, params, request, answers, .. } = &self.state else {
            return None;
        };
        reply(cx, request, Some(Stage::FullFeature), tsih, answers.bytes());
        Some((who.clone(), params.clone(), request.cmd_sn))
    }

    /// The request that waits for an answer.
    pub fn waiting(&self) -> Option<&LoginRequest> {
        match &self.state {
            State::Finding { request, .. } | State::Entering { request, .. } => Some(request),
            State::Silent | State::Talking(_) => None,
        }
    }

    /// Whether it is for the target of this name, with or without a stage.
    pub fn is_at(&self, iqn: &str) -> bool {
        let who = match &self.state {
            State::Silent => return false,
            State::Finding { who, .. } | State::Entering { who, .. } => who,
            State::Talking(talking) => &talking.who,
        };
        match &who.kind {
            Kind::Discovery => false,
            Kind::Normal { target } => is_named(target, iqn),
        }
    }
}

impl Talking {
    fn step(
        &mut self,
        cx: &mut Cx<'_>,
        request: &LoginRequest,
        text: &[u8],
    ) -> Result<Text, LoginError> {
        let pairs = text::parse(text)?;
        self.check_names(&pairs)?;
        let mut answers = Text::default();
        let is_discovery = self.who.kind == Kind::Discovery;
        if !is_discovery && !self.told_group {
            self.told_group = true;
            answers.say("TargetPortalGroupTag", &cx.limits.portal_group.to_string());
        }
        match self.stage {
            Stage::Security => self.secure(cx, request, &pairs, &mut answers)?,
            Stage::Operational | Stage::FullFeature => {
                if !self.auth.is_enough(&self.access) {
                    return Err(LoginError::NotAuthenticated);
                }
                for pair in pairs.iter().filter(|pair| !NAMING.contains(&pair.0)) {
                    self.negotiation.offer(*pair, is_discovery, cx.limits, &mut answers)?;
                }
                self.negotiation.declare(cx.limits, &mut answers);
            }
        }
        Ok(answers)
    }

    fn secure(
        &mut self,
        cx: &mut Cx<'_>,
        request: &LoginRequest,
        pairs: &[Pair<'_>],
        answers: &mut Text,
    ) -> Result<(), LoginError> {
        let others = pairs.iter().map(|pair| pair.0).filter(|key| !NAMING.contains(key));
        for key in others.filter(|key| !is_security(key)) {
            if is_operational(key) {
                return Err(LoginError::OutOfPlace { key: key.into() });
            }
            answers.say(key, NOT_UNDERSTOOD);
        }
        self.auth.step(&self.access, pairs, cx.random, answers)?;
        let is_evading = self.auth == Auth::Open && self.access.chap.is_some();
        match request.transit && is_evading {
            true => Err(LoginError::NotAuthenticated),
            false => Ok(()),
        }
    }

    /// Names may be said again, but not others.
    fn check_names(&self, pairs: &[Pair<'_>]) -> Result<(), LoginError> {
        let differs = |key: &str, value: &str| pairs.iter().any(|(k, v)| *k == key && *v != value);
        if differs("InitiatorName", &self.who.port.name) {
            return Err(LoginError::Changed { key: "InitiatorName" });
        }
        let session_type = match &self.who.kind {
            Kind::Discovery => "Discovery",
            Kind::Normal { target } if differs("TargetName", target) => {
                return Err(LoginError::Changed { key: "TargetName" });
            }
            Kind::Normal { .. } => "Normal",
        };
        match differs("SessionType", session_type) {
            true => Err(LoginError::Changed { key: "SessionType" }),
            false => Ok(()),
        }
    }

    fn may_go_on(&self) -> bool {
        self.auth.is_enough(&self.access)
    }
}

fn introduce(pairs: &[Pair<'_>], request: &LoginRequest) -> Result<Who, LoginError> {
    let find = |key: &str| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
    let name = |key: &'static str| {
        let name = find(key).ok_or(LoginError::Missing { key })?;
        let is_name = !name.is_empty() && name.len() <= NAME_MAX;
        match is_name && !name.contains(|c: char| c.is_control() || c.is_whitespace()) {
            true => Ok(name.to_owned()),
            false => Err(LoginError::BadValue { key }),
        }
    };
    let port = InitiatorPort { name: name("InitiatorName")?, isid: request.isid };
    let kind = match find("SessionType") {
        Some("Discovery") => Kind::Discovery,
        Some("Normal") | None => Kind::Normal { target: name("TargetName")? },
        Some(_) => return Err(LoginError::BadValue { key: "SessionType" }),
    };
    let LoginRequest { tsih, cid, .. } = *request;
    Ok(Who { port, kind, tsih, cid })
}

fn reply(cx: &mut Cx<'_>, request: &LoginRequest, transit: Option<Stage>, tsih: u16, text: &[u8]) {
    let current = request.current.unwrap_or(Stage::Security);
    let (isid, itt) = (request.isid, request.itt);
    let reply = LoginReply { transit, current, isid, tsih, itt, status: [0, 0] };
    let numbers = cx.line.status(span(request.cmd_sn, cx.limits.window));
    cx.line.send(cx.out, reply.encode(numbers), text);
}

/// Tells an initiator that it stays out.
pub fn refuse(cx: &mut Cx<'_>, request: &LoginRequest, error: &LoginError) {
    let current = request.current.unwrap_or(Stage::Security);
    let LoginRequest { isid, tsih, itt, .. } = *request;
    let reply = LoginReply { transit: None, current, isid, tsih, itt, status: error.status() };
    let numbers = cx.line.status(span(request.cmd_sn, cx.limits.window));
    cx.line.send(cx.out, reply.encode(numbers), &[]);
}

/// What an initiator may send once it is logged in. A login takes no number itself.
fn span(cmd_sn: u32, window: u32) -> Span {
    Span { exp_cmd_sn: cmd_sn, max_cmd_sn: cmd_sn.wrapping_add(window).wrapping_sub(1) }
}
