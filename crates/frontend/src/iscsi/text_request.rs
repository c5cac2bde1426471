//! Text requests within a session: which targets there are.
//!
//! What a session asks for may come in parts, and so may the answer. There is one such talk at a
//! time; a request without a transfer tag begins a new one.
use super::errors::RejectReason;
use super::events::{Output, TargetRecord};
use super::pdu::{Header, NO_TAG, TextReply, TextRequest};
use super::session::{Cx, Identity, Session, is_named};
use super::text::{self, IRRELEVANT, NOT_UNDERSTOOD, REJECT, Text};

/// Text of one response: what initiators take unless they say otherwise. The rest is sent when it is
/// asked for, so that no more waits to be sent than the initiator reads.
const TEXT_MAX: usize = 8192;

#[derive(Debug)]
pub enum Talk {
    Idle,
    /// The initiator has more to say.
    Asking {
        ttt: u32,
        text: Vec<u8>,
    },
    /// The owner looks for targets.
    Listing {
        request: TextRequest,
        wanted: Wanted,
        answers: Text,
    },
    /// We have more to say.
    Telling {
        ttt: u32,
        text: Vec<u8>,
        at: usize,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    All,
    One(String),
}

/// What came of the keys of a request.
struct Keys {
    wanted: Option<Wanted>,
    answers: Text,
}

impl Session {
    pub(super) fn text(
        &mut self,
        cx: &mut Cx<'_>,
        header: &Header,
        request: TextRequest,
        segment: Vec<u8>,
    ) {
        if let Talk::Listing { .. } = self.talk {
            return self.reject(cx, header, RejectReason::TaskInProgress);
        }
        let before = match std::mem::replace(&mut self.talk, Talk::Idle) {
            Talk::Telling { ttt, text, at } if ttt == request.ttt && segment.is_empty() => {
                return self.tell(cx, &request, text, at);
            }
            Talk::Asking { ttt, text } if ttt == request.ttt => text,
            _ if request.ttt == NO_TAG => Vec::new(),
            _ => return self.reject(cx, header, RejectReason::ProtocolError),
        };
        let is_too_long = before.len() + segment.len() > cx.limits.text_max;
        if is_too_long || request.last && request.more {
            return self.reject(cx, header, RejectReason::ProtocolError);
        }
        let text = if before.is_empty() { segment } else { [before, segment].concat() };
        if request.more {
            let ttt = self.tags.next();
            self.say(cx, &request, Some((ttt, false)), &[]);
            self.talk = Talk::Asking { ttt, text };
            return;
        }
        match self.understand(&text) {
            None => self.reject(cx, header, RejectReason::ProtocolError),
            Some(Keys { wanted: None, answers }) => {
                self.tell(cx, &request, answers.into_bytes(), 0);
            }
            Some(Keys { wanted: Some(_), .. })
                if self.nexus().is_none() && self.lists >= cx.limits.discovery_lists_max =>
            {
                self.reject(cx, header, RejectReason::ProtocolError);
            }
            Some(Keys { wanted: Some(wanted), answers }) => {
                self.lists = self.lists.saturating_add(1);
                let name = match &wanted {
                    Wanted::All => None,
                    Wanted::One(name) => Some(name.clone()),
                };
                self.talk = Talk::Listing { request, wanted, answers };
                cx.out.push(Output::List { conn: cx.line.conn, name });
            }
        }
    }

    /// Takes the keys of a request. None is a request that makes no sense: with nothing in it
    /// that we know, or with a key that has another place or value. Clients take a reject for
    /// that; not all of them can read that a key was not understood.
    fn understand(&mut self, text: &[u8]) -> Option<Keys> {
        let pairs = text::parse(text).ok()?;
        let mut keys = Keys { wanted: None, answers: Text::default() };
        let mut unknown = 0;
        for (key, value) in &pairs {
            match *key {
                _ if [REJECT, IRRELEVANT, NOT_UNDERSTOOD].contains(value) => {}
                "SendTargets" if keys.wanted.is_some() => return None,
                "SendTargets" => keys.wanted = Some(self.wanted(value)?),
                "MaxRecvDataSegmentLength" => {
                    if !self.params.declared_segment(value) {
                        keys.answers.say(key, REJECT);
                    }
                }
                "InitiatorAlias" => {}
                _ => {
                    unknown += 1;
                    keys.answers.say(key, NOT_UNDERSTOOD);
                }
            }
        }
        (unknown == 0 || unknown < pairs.len()).then_some(keys)
    }

    fn wanted(&self, value: &str) -> Option<Wanted> {
        let is_name = ["iqn.", "eui.", "naa."].iter().any(|kind| value.starts_with(kind));
        match (&self.identity, value) {
            (Identity::Discovery, "All") => Some(Wanted::All),
            // Whoever is logged in at a target is told of that one only.
            (Identity::Normal { target, .. }, "All" | "") => Some(Wanted::One(target.clone())),
            _ => is_name.then(|| Wanted::One(value.into())),
        }
    }

    /// The owner has found targets.
    pub fn listed(&mut self, cx: &mut Cx<'_>, portal: &str, targets: &[TargetRecord]) {
        let Talk::Listing { .. } = self.talk else { return };
        let Talk::Listing { request, wanted, mut answers } =
            std::mem::replace(&mut self.talk, Talk::Idle)
        else {
            return;
        };
        for target in targets {
            let is_wanted = match &wanted {
                Wanted::All => true,
                Wanted::One(name) => is_named(name, &target.iqn),
            };
            let is_known = self.nexus().is_none() || self.is_at(&target.iqn);
            if is_wanted && is_known {
                put_target(&mut answers, target, portal, cx.limits.portal_group);
            }
        }
        self.tell(cx, &request, answers.into_bytes(), 0);
    }

    /// Says as much as the initiator takes at once.
    fn tell(&mut self, cx: &mut Cx<'_>, request: &TextRequest, text: Vec<u8>, at: usize) {
        let rest = &text[at..];
        let max = TEXT_MAX.min(self.params.segment_max as usize);
        if rest.len() > max {
            let ttt = self.tags.next();
            self.say(cx, request, Some((ttt, true)), &rest[..max]);
            self.talk = Talk::Telling { ttt, text, at: at + max };
        } else if request.last {
            self.say(cx, request, None, rest);
        } else {
            let ttt = self.tags.next();
            self.say(cx, request, Some((ttt, false)), rest);
            self.talk = Talk::Asking { ttt, text: Vec::new() };
        }
    }

    /// `open` is the tag under which the talk goes on, and whether it is us who has more to say.
    fn say(
        &mut self,
        cx: &mut Cx<'_>,
        request: &TextRequest,
        open: Option<(u32, bool)>,
        text: &[u8],
    ) {
        let reply = TextReply {
            last: open.is_none(),
            more: open.is_some_and(|(_, more)| more),
            lun: request.lun,
            itt: request.itt,
            ttt: open.map_or(NO_TAG, |(ttt, _)| ttt),
        };
        let numbers = cx.line.status(self.window.span());
        cx.line.send(cx.out, reply.encode(numbers), text);
    }
}

fn put_target(answers: &mut Text, target: &TargetRecord, portal: &str, group: u16) {
    answers.say("TargetName", &target.iqn);
    let own = [portal.to_owned()];
    let portals = if target.portals.is_empty() { &own[..] } else { &target.portals };
    for portal in portals {
        answers.say("TargetAddress", &format!("{portal},{group}"));
    }
}
