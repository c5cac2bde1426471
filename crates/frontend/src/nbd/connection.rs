//! One connection, from greeting to close.
use block::{Buf, ByteLen};

use super::errors::ProtocolError;
use super::hello::{Introduction, Mac, Nonce};
use super::limits::UNWANTED_MAX;
use super::negotiation::Negotiation;
use super::session::Session;
use super::transmission::Transmission;
use crate::ask::{Answer, Ask, AskError, AskId, Buffers};
use crate::export::{Export, OpenError};
use crate::piece::Piece;

/// What the owner of a connection has to do, in this order.
#[derive(Clone, Debug)]
pub enum Output {
    Send(Piece),
    /// Which volumes are there? Asked for [`LIST_PAGE`](super::LIST_PAGE) names at a time; `from` is where the last
    /// answer ended, and 0 for the first. Answered by [`Connection::listed`].
    List {
        from: usize,
    },
    /// The client wants this volume: its name as it was sent, perhaps with a stage behind it.
    /// Answered by [`Connection::opened`].
    Open {
        name: String,
        /// Otherwise the client only wants to know about it, and nothing is logged in.
        for_use: bool,
        /// What the client said of itself. Nothing of it was compared with anything.
        by: Option<Box<Introduction>>,
    },
    /// Answered by [`Connection::answered`].
    Ask {
        id: AskId,
        ask: Ask,
    },
    /// The socket is closed when everything before this is sent.
    Close {
        /// For the log; `None` is a normal end.
        reason: Option<ProtocolError>,
    },
}

/// A volume that a client may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub export: Export,
    /// By which the owner shows the client that it knows the mutual secret.
    pub target_mac: Option<Mac>,
}

impl From<Export> for Opened {
    fn from(export: Export) -> Opened {
        Opened { export, target_mac: None }
    }
}

/// A client's connection.
///
/// After [`Output::Close`], and after the client went away, the owner drops it. What the volume has
/// under way then is carried out and its answers have nobody to go to; an answer that still reaches
/// a closed connection is ignored.
///
/// Memory is bounded: what is under way, one payload that has not come whole, what the owner
/// brought with its last bytes, and what was read or answered in a negotiation and is not sent
/// ([`Connection::unsent`]). Other replies are not: an owner stops receiving while too much of what it
/// was given is not sent.
#[derive(Debug)]
pub struct Connection {
    phase: Phase,
    stopping: bool,
    /// Bytes that came after the owner was told that none are wanted.
    unwanted: usize,
    /// Bytes that came before their turn.
    inbox: Inbox,
}

#[derive(Debug)]
enum Phase {
    Negotiation(Negotiation),
    Transmission(Transmission),
    Closed,
}

/// Where a phase leads.
#[derive(Debug)]
pub enum Step {
    Continue,
    Serve(Session),
    Close(Option<ProtocolError>),
}

impl Connection {
    /// Greets the client. The challenge is for this connection alone, and beyond guessing.
    pub fn new(challenge: Nonce, out: &mut Vec<Output>) -> Connection {
        let phase = Phase::Negotiation(Negotiation::new(challenge, out));
        Connection { phase, stopping: false, unwanted: 0, inbox: Inbox::default() }
    }

    /// Takes bytes that arrived, all of them; they may be any cut of the stream.
    pub fn receive(&mut self, bytes: &[u8], buffers: &mut dyn Buffers, out: &mut Vec<Output>) {
        self.unwanted = if self.wants_bytes() { 0 } else { self.unwanted + bytes.len() };
        if self.unwanted > UNWANTED_MAX {
            return self.close(Some(ProtocolError::Flooded { max: UNWANTED_MAX }), out);
        }
        if let Phase::Negotiation(phase) = &mut self.phase {
            phase.begin_turn();
        }
        if !self.inbox.is_empty() {
            self.inbox.add(bytes);
            return self.take_inbox(buffers, out);
        }
        let mut rest = bytes;
        self.take_in(&mut rest, buffers, out);
        self.inbox.add(rest);
    }

    /// Takes bytes until there are no more, or until the client has to wait for something.
    fn take_in(&mut self, rest: &mut &[u8], buffers: &mut dyn Buffers, out: &mut Vec<Output>) {
        while !rest.is_empty() {
            let step = match &mut self.phase {
                Phase::Negotiation(phase) if !phase.may_go_on() => return,
                Phase::Negotiation(phase) => phase.receive(rest, self.stopping, out),
                Phase::Transmission(phase) => phase.receive(rest, self.stopping, buffers, out),
                Phase::Closed => {
                    *rest = &[];
                    return;
                }
            };
            self.follow(step, out);
        }
    }

    fn take_inbox(&mut self, buffers: &mut dyn Buffers, out: &mut Vec<Output>) {
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut rest = inbox.rest();
        let before = rest.len();
        self.take_in(&mut rest, buffers, out);
        let used = before - rest.len();
        inbox.used(used);
        self.inbox = inbox;
    }

    /// So many bytes of what came out wait to be sent. An owner tells it before it brings bytes, and
    /// when it has sent some.
    pub fn unsent(&mut self, bytes: usize) {
        match &mut self.phase {
            Phase::Negotiation(phase) => phase.unsent(bytes),
            Phase::Transmission(phase) => phase.unsent(bytes),
            Phase::Closed => {}
        }
    }

    /// Whether [`Connection::go_on`] has something to do.
    pub fn can_go_on(&self) -> bool {
        match &self.phase {
            Phase::Negotiation(phase) => {
                phase.has_room() && (phase.owes_names() || !self.inbox.is_empty())
            }
            Phase::Transmission(phase) => phase.can_go_on(),
            Phase::Closed => false,
        }
    }

    /// Bytes that came and wait for their turn.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> &[u8] {
        self.inbox.rest()
    }

    /// Goes on with what came before and had to wait for its turn.
    pub fn go_on(&mut self, buffers: &mut dyn Buffers, out: &mut Vec<Output>) {
        match &mut self.phase {
            Phase::Negotiation(phase) => {
                phase.begin_turn();
                phase.list_on(out);
            }
            Phase::Transmission(phase) => return phase.go_on(out),
            Phase::Closed => return,
        }
        self.take_inbox(buffers, out);
    }

    /// The rest of a write's payload that is under way: a socket may write straight into it. Empty
    /// if none is.
    pub fn landing(&mut self) -> &mut [u8] {
        match &mut self.phase {
            Phase::Transmission(phase) => phase.landing(),
            Phase::Negotiation(_) | Phase::Closed => &mut [],
        }
    }

    /// So many bytes were put into [`Connection::landing`].
    pub fn landed(&mut self, len: usize, _buffers: &mut dyn Buffers, out: &mut Vec<Output>) {
        match &mut self.phase {
            Phase::Transmission(phase) => phase.landed(len, out),
            Phase::Negotiation(_) | Phase::Closed => {
                assert_eq!(len, 0, "nothing lands where there is no landing");
            }
        }
    }

    /// Whether the owner should bring more. If not, something later changes it: an answer to a
    /// question, replies that are sent, a turn to go on, or the connection is about to be closed.
    pub fn wants_bytes(&self) -> bool {
        match &self.phase {
            Phase::Negotiation(phase) => {
                phase.has_room() && !phase.owes_names() && self.inbox.is_empty()
            }
            Phase::Transmission(phase) => phase.wants_bytes(),
            Phase::Closed => false,
        }
    }

    /// Names of volumes, and where to go on if there may be more.
    pub fn listed(&mut self, names: &[String], next: Option<usize>, out: &mut Vec<Output>) {
        match &mut self.phase {
            Phase::Negotiation(phase) => phase.listed(names, next, out),
            Phase::Transmission(_) => unreachable!("nobody asked for a list"),
            Phase::Closed => return,
        };
        self.take_inbox(&mut OwnMemory, out);
    }

    pub fn opened(&mut self, result: Result<Opened, OpenError>, out: &mut Vec<Output>) {
        let step = match &mut self.phase {
            Phase::Negotiation(phase) => phase.opened(result, self.stopping, out),
            Phase::Transmission(_) => unreachable!("nobody asked for a volume"),
            Phase::Closed => return,
        };
        self.follow(step, out);
        self.take_inbox(&mut OwnMemory, out);
    }

    pub fn answered(&mut self, id: AskId, result: Result<Answer, AskError>, out: &mut Vec<Output>) {
        let step = match &mut self.phase {
            Phase::Transmission(phase) => phase.answered(id, result, out),
            Phase::Negotiation(_) => unreachable!("nothing was asked of a volume"),
            Phase::Closed => return,
        };
        self.follow(step, out);
    }

    /// The volume has another size. Clients cannot be told, but may use what they learn elsewhere.
    pub fn resized(&mut self, size: ByteLen) {
        if let Phase::Transmission(phase) = &mut self.phase {
            phase.resized(size);
        }
    }

    /// Requests and options that come from now on are refused, in a way that tells the client to
    /// disconnect; those that came before are carried out.
    pub fn shut_down(&mut self) {
        self.stopping = true;
    }

    /// Questions to the volume that are not answered: what an owner waits for that shuts down.
    pub fn under_way(&self) -> usize {
        match &self.phase {
            Phase::Transmission(phase) => phase.under_way(),
            Phase::Negotiation(_) | Phase::Closed => 0,
        }
    }

    fn follow(&mut self, step: Step, out: &mut Vec<Output>) {
        match step {
            Step::Continue => {}
            Step::Serve(session) => {
                self.phase = Phase::Transmission(Transmission::new(session));
            }
            Step::Close(reason) => self.close(reason, out),
        }
    }

    fn close(&mut self, reason: Option<ProtocolError>, out: &mut Vec<Output>) {
        if let Phase::Closed = self.phase {
            return;
        }
        self.phase = Phase::Closed;
        self.inbox = Inbox::default();
        out.push(Output::Close { reason });
    }
}

/// Bytes that wait for their turn. They are read where they lie: none is moved more than once on
/// average, however small the steps are.
#[derive(Debug, Default)]
struct Inbox {
    bytes: Vec<u8>,
    /// So many in front are used.
    at: usize,
}

impl Inbox {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.at > self.bytes.len() / 2 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn used(&mut self, len: usize) {
        self.at += len;
        if self.is_empty() {
            // A connection that serves has no use for the memory.
            *self = Inbox::default();
        }
    }
}

/// For payloads that a client sent before it was told that it may: they waited among the kept bytes,
/// and whoever answers brings no buffers. No client that keeps to the protocol gets here.
struct OwnMemory;

impl Buffers for OwnMemory {
    fn take(&mut self, len: usize) -> Buf {
        Buf::zeroed(len)
    }
}
