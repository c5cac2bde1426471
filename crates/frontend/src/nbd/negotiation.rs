//! The first phase: the client learns what there is, and chooses a volume and how to speak.
mod options;
mod replies;
mod stranger;

use self::options::{ContextQuestion, Question, Wanted, export_name};
use self::stranger::Stranger;
use super::connection::{Opened, Output, Step};
use super::errors::{OptionRefusal, ProtocolError};
use super::hello::Nonce;
use super::limits::{OPTION_MAX, OPTIONS_AT_ONCE, REPLIES_UNSENT_MAX};
use super::session::{Heads, Session, Style};
use super::stream::{Head, split_off};
use super::wire::{
    ALLOCATION_ID, CLIENT_FLAGS_LEN, OPTION_HEAD_LEN, OPTION_MAGIC, handshake_flag, option,
    option_reply, u32_at, u64_at,
};
use crate::export::{Export, OpenError};
use crate::piece::Piece;

#[derive(Debug)]
pub struct Negotiation {
    incoming: Incoming,
    /// Whether 124 zeros follow the answer to `EXPORT_NAME`.
    pads: bool,
    style: Style,
    /// The export that the client chose `base:allocation` for.
    allocation_of: Option<String>,
    client: Stranger,
    /// Bytes of replies that wait to be sent, as far as is known.
    unsent: usize,
    /// Options and pages of a list that may still be answered in this turn.
    turn_left: usize,
}

/// What the next bytes are.
#[derive(Debug)]
enum Incoming {
    ClientFlags(Head),
    Option(Head),
    /// Of an option; it is handled when all of it has come.
    Text {
        option: u32,
        len: usize,
        text: Vec<u8>,
    },
    /// Of an option that is too long to be kept.
    Oversized {
        option: u32,
        left: usize,
    },
    /// Nothing: clients should wait for the answer to an option, and what comes earlier has to.
    Asked(Asked),
    /// Nothing: the rest of a list is to be asked for first, from there on.
    Listing {
        from: usize,
    },
}

/// What the owner was asked.
#[derive(Debug)]
enum Asked {
    List,
    Open { name: String, how: Opening },
}

#[derive(Clone, Copy, Debug)]
enum Opening {
    ExportName,
    Info(Wanted),
    Go(Wanted),
}

impl Negotiation {
    pub fn new(challenge: Nonce, out: &mut Vec<Output>) -> Negotiation {
        out.push(Output::Send(Piece::Bytes(replies::greeting())));
        Negotiation {
            incoming: Incoming::ClientFlags(Head::default()),
            pads: true,
            style: Style::Simple,
            allocation_of: None,
            client: Stranger::new(challenge),
            unsent: 0,
            turn_left: OPTIONS_AT_ONCE,
        }
    }

    /// The owner has time for so many options.
    pub fn begin_turn(&mut self) {
        self.turn_left = OPTIONS_AT_ONCE;
    }

    pub fn unsent(&mut self, bytes: usize) {
        self.unsent = bytes;
    }

    /// Whether nothing but the owner's time keeps the next option from being answered.
    pub fn has_room(&self) -> bool {
        !matches!(self.incoming, Incoming::Asked(_)) && self.unsent <= REPLIES_UNSENT_MAX
    }

    /// Whether the next bytes may be looked at.
    pub fn may_go_on(&self) -> bool {
        self.has_room() && !self.owes_names() && self.turn_left > 0
    }

    /// Whether the rest of a list has to be asked for.
    pub fn owes_names(&self) -> bool {
        matches!(self.incoming, Incoming::Listing { .. })
    }

    /// Asks for more of a list, if that is next and may be.
    pub fn list_on(&mut self, out: &mut Vec<Output>) {
        if let Incoming::Listing { from } = self.incoming
            && self.has_room()
            && self.turn_left > 0
        {
            self.turn_left -= 1;
            out.push(Output::List { from });
            self.await_answer(Asked::List);
        }
    }

    /// Uses all of the input, unless it ends the connection or the client has to wait.
    pub fn receive(&mut self, input: &mut &[u8], stopping: bool, out: &mut Vec<Output>) -> Step {
        while !input.is_empty() && self.may_go_on() {
            let step = match &mut self.incoming {
                Incoming::ClientFlags(head) => {
                    let flags = head.take(CLIENT_FLAGS_LEN, input, |head| u32_at(head, 0));
                    flags.map_or(Step::Continue, |flags| self.client_flags(flags))
                }
                Incoming::Option(head) => {
                    let read = |head: &[u8]| (u64_at(head, 0), u32_at(head, 8), u32_at(head, 12));
                    let head = head.take(OPTION_HEAD_LEN, input, read);
                    head.map_or(Step::Continue, |head| self.begin(head, stopping, out))
                }
                Incoming::Text { option, len, text } => {
                    text.extend(split_off(input, *len - text.len()));
                    if text.len() < *len {
                        return Step::Continue;
                    }
                    let (option, text) = (*option, std::mem::take(text));
                    self.handle(option, &text, stopping, out)
                }
                Incoming::Oversized { option, left } => {
                    *left -= split_off(input, *left).len();
                    if *left > 0 {
                        return Step::Continue;
                    }
                    let option = *option;
                    self.refuse(option, &OptionRefusal::too_long(), out)
                }
                Incoming::Asked(_) | Incoming::Listing { .. } => {
                    unreachable!("an option that waits keeps its client from going on")
                }
            };
            if !matches!(step, Step::Continue) {
                return step;
            }
        }
        Step::Continue
    }

    fn client_flags(&mut self, flags: u32) -> Step {
        let fixed_newstyle = u32::from(handshake_flag::FIXED_NEWSTYLE);
        let no_zeroes = u32::from(handshake_flag::NO_ZEROES);
        if flags & !(fixed_newstyle | no_zeroes) != 0 {
            return Step::Close(Some(ProtocolError::ClientFlags { flags }));
        }
        // A client without fixed newstyle only sends EXPORT_NAME, which is answered all the same.
        self.pads = flags & no_zeroes == 0;
        self.next_option()
    }

    fn begin(
        &mut self,
        (magic, option, len): (u64, u32, u32),
        stopping: bool,
        out: &mut Vec<Output>,
    ) -> Step {
        if magic != OPTION_MAGIC {
            return Step::Close(Some(ProtocolError::OptionMagic { found: magic }));
        }
        let room = usize::try_from(len).unwrap_or(usize::MAX);
        if len == 0 {
            return self.handle(option, &[], stopping, out);
        } else if len <= OPTION_MAX {
            self.incoming = Incoming::Text { option, len: room, text: Vec::new() };
        } else if option == option::EXPORT_NAME {
            return Step::Close(Some(ProtocolError::ExportNameTooLong { len }));
        } else {
            self.incoming = Incoming::Oversized { option, left: room };
        }
        Step::Continue
    }

    /// An option with all of its text.
    fn handle(&mut self, option: u32, text: &[u8], stopping: bool, out: &mut Vec<Output>) -> Step {
        self.turn_left -= 1;
        match option {
            option::ABORT => {
                self.send(replies::ack(option), out);
                Step::Close(None)
            }
            option::EXPORT_NAME => self.export_name(text, stopping, out),
            _ if stopping => self.refuse(option, &OptionRefusal::shutting_down(), out),
            _ => match self.negotiate(option, text, out) {
                Ok(step) => step,
                Err(refusal) => self.refuse(option, &refusal, out),
            },
        }
    }

    fn negotiate(
        &mut self,
        option: u32,
        text: &[u8],
        out: &mut Vec<Output>,
    ) -> Result<Step, OptionRefusal> {
        match option {
            option::LIST => {
                without_text(text)?;
                out.push(Output::List { from: 0 });
                Ok(self.await_answer(Asked::List))
            }
            option::INFO | option::GO => {
                let Question { name, wanted } = Question::parse(text)?;
                let how = match option {
                    option::GO => Opening::Go(wanted),
                    _ => Opening::Info(wanted),
                };
                self.ask_to_open(name, how, out)
            }
            option::HELLO => {
                let challenge = self.client.hello(text)?;
                self.send(replies::challenge(&challenge), out);
                Ok(self.next_option())
            }
            option::PROVE => {
                self.client.prove(text)?;
                self.send(replies::ack(option), out);
                Ok(self.next_option())
            }
            option::STRUCTURED_REPLY => {
                without_text(text)?;
                if self.style.is_extended() {
                    let message = "extended headers were agreed on, and include structured replies";
                    return Err(OptionRefusal::new(option_reply::ERR_EXT_HEADER_REQD, message));
                }
                Ok(self.speak(option, Heads::Structured, out))
            }
            option::EXTENDED_HEADERS => {
                without_text(text)?;
                Ok(self.speak(option, Heads::Extended, out))
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(option, text, out)
            }
            option::STARTTLS => {
                Err(OptionRefusal::new(option_reply::ERR_UNSUP, "TLS is not offered here"))
            }
            unknown => Err(OptionRefusal::new(
                option_reply::ERR_UNSUP,
                format!("option {unknown} is not known"),
            )),
        }
    }

    fn speak(&mut self, option: u32, heads: Heads, out: &mut Vec<Output>) -> Step {
        self.style = Style::Chunked(heads);
        self.send(replies::ack(option), out);
        self.next_option()
    }

    /// Contexts are the same for every export. Whether this one exists turns out when it is opened.
    fn contexts(
        &mut self,
        option: u32,
        text: &[u8],
        out: &mut Vec<Output>,
    ) -> Result<Step, OptionRefusal> {
        let sets = option == option::SET_META_CONTEXT;
        if sets {
            // Replaced whatever comes of it, by the protocol.
            self.allocation_of = None;
        }
        if self.style == Style::Simple {
            return Err(OptionRefusal::invalid("contexts need structured replies"));
        }
        let question = ContextQuestion::parse(text)?;
        let (found, id) = match sets {
            true => (question.selects_allocation(), ALLOCATION_ID),
            // The number means nothing in a list.
            false => (question.lists_allocation(), 0),
        };
        if sets && found {
            self.allocation_of = Some(question.name);
        }
        self.send(replies::contexts(option, found.then_some(id)), out);
        Ok(self.next_option())
    }

    fn export_name(&mut self, text: &[u8], stopping: bool, out: &mut Vec<Output>) -> Step {
        let error = match export_name(text) {
            _ if stopping => ProtocolError::ShuttingDown,
            _ if self.style.is_extended() => ProtocolError::ExportNameWithExtendedHeaders,
            Err(refusal) => ProtocolError::ExportName { reason: refusal.message },
            Ok(name) => match self.ask_to_open(name.clone(), Opening::ExportName, out) {
                Ok(step) => return step,
                Err(_) => ProtocolError::ProvedOther { name },
            },
        };
        Step::Close(Some(error))
    }

    fn ask_to_open(
        &mut self,
        name: String,
        how: Opening,
        out: &mut Vec<Output>,
    ) -> Result<Step, OptionRefusal> {
        let by = self.client.asks_for(&name)?;
        let for_use = !matches!(how, Opening::Info(_));
        out.push(Output::Open { name: name.clone(), for_use, by });
        Ok(self.await_answer(Asked::Open { name, how }))
    }

    fn await_answer(&mut self, question: Asked) -> Step {
        self.incoming = Incoming::Asked(question);
        Step::Continue
    }

    fn refuse(&mut self, option: u32, refusal: &OptionRefusal, out: &mut Vec<Output>) -> Step {
        self.send(replies::refusal(option, refusal), out);
        self.next_option()
    }

    fn next_option(&mut self) -> Step {
        self.incoming = Incoming::Option(Head::default());
        Step::Continue
    }

    pub fn listed(&mut self, names: &[String], next: Option<usize>, out: &mut Vec<Output>) {
        let question = self.asked();
        assert!(matches!(question, Asked::List), "a list answers {question:?}");
        self.send(replies::list(names, next.is_none()), out);
        if let Some(from) = next {
            self.incoming = Incoming::Listing { from };
            self.list_on(out);
        }
    }

    pub fn opened(
        &mut self,
        result: Result<Opened, OpenError>,
        stopping: bool,
        out: &mut Vec<Output>,
    ) -> Step {
        let question = self.asked();
        let Asked::Open { name, how } = question else {
            unreachable!("a volume answers {question:?}");
        };
        self.open(name, how, result, stopping, out)
    }

    fn open(
        &mut self,
        name: String,
        how: Opening,
        result: Result<Opened, OpenError>,
        stopping: bool,
        out: &mut Vec<Output>,
    ) -> Step {
        let (option, wanted) = match how {
            Opening::ExportName => return self.open_by_name(name, result, stopping, out),
            Opening::Info(wanted) => (option::INFO, wanted),
            Opening::Go(wanted) => (option::GO, wanted),
        };
        let opened = match result {
            Ok(_) if stopping => {
                return self.refuse(option, &OptionRefusal::shutting_down(), out);
            }
            Ok(opened) => opened,
            Err(error) => {
                let refusal = OptionRefusal::of_open(&error, self.client.has_said_hello());
                return self.refuse(option, &refusal, out);
            }
        };
        let session = self.session(&name, &opened.export);
        self.send(replies::export(option, wanted, &opened, &session), out);
        match how {
            Opening::Go(_) => Step::Serve(session),
            Opening::Info(_) | Opening::ExportName => Step::Continue,
        }
    }

    fn open_by_name(
        &mut self,
        name: String,
        result: Result<Opened, OpenError>,
        stopping: bool,
        out: &mut Vec<Output>,
    ) -> Step {
        match result {
            Ok(_) if stopping => Step::Close(Some(ProtocolError::ShuttingDown)),
            Ok(opened) => {
                let session = self.session(&name, &opened.export);
                self.send(replies::named_export(&session, self.pads), out);
                Step::Serve(session)
            }
            Err(reason) => Step::Close(Some(ProtocolError::Refused { name, reason })),
        }
    }

    fn session(&self, name: &str, export: &Export) -> Session {
        Session {
            style: self.style,
            size: export.size,
            read_only: export.read_only,
            allocation: self.allocation_of.as_deref() == Some(name),
        }
    }

    fn asked(&mut self) -> Asked {
        match std::mem::replace(&mut self.incoming, Incoming::Option(Head::default())) {
            Incoming::Asked(question) => question,
            other => unreachable!("nothing was asked: {other:?}"),
        }
    }

    fn send(&mut self, reply: Vec<u8>, out: &mut Vec<Output>) {
        if !reply.is_empty() {
            self.unsent += reply.len();
            out.push(Output::Send(Piece::Bytes(reply)));
        }
    }
}

fn without_text(text: &[u8]) -> Result<(), OptionRefusal> {
    match text {
        [] => Ok(()),
        _ => Err(OptionRefusal::invalid("this option takes no data")),
    }
}
