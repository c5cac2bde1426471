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
    /// Which volumes are there? Answered by [`Connection::listed`].
    List,
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
/// Memory is bounded: what is under way, one payload that has not come whole, and what the owner
/// brought with its last bytes. Replies are not: an owner stops receiving while too much of what it
/// was given is not sent.
#[derive(Debug)]
pub struct Connection {
    phase: Phase,
    stopping: bool,
    /// Bytes that came after the owner was told that none are wanted.
    unwanted: usize,
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
        Connection { phase, stopping: false, unwanted: 0 }
    }

    /// Takes bytes that arrived, all of them; they may be any cut of the stream.
    pub fn receive(&mut self, bytes: &[u8], buffers: &mut dyn Buffers, out: &mut Vec<Output>) {
        self.unwanted = if self.wants_bytes() { 0 } else { self.unwanted + bytes.len() };
        if self.unwanted > UNWANTED_MAX {
            return self.close(Some(ProtocolError::Flooded { max: UNWANTED_MAX }), out);
        }
        self.take_in(bytes, buffers, out);
    }

    fn take_in(&mut self, mut bytes: &[u8], buffers: &mut dyn Buffers, out: &mut Vec<Output>) {
        while !bytes.is_empty() {
            let step = match &mut self.phase {
                Phase::Negotiation(phase) => phase.receive(&mut bytes, self.stopping, out),
                Phase::Transmission(phase) => {
                    phase.receive(&mut bytes, self.stopping, buffers, out)
                }
                Phase::Closed => return,
            };
            self.follow(step, out);
        }
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

    /// Whether the owner should bring more. If not, a later answer changes it: there is an
    /// unanswered question, or the connection is about to be closed.
    pub fn wants_bytes(&self) -> bool {
        match &self.phase {
            Phase::Negotiation(phase) => phase.wants_bytes(),
            Phase::Transmission(phase) => phase.wants_bytes(),
            Phase::Closed => false,
        }
    }

    pub fn listed(&mut self, names: &[String], out: &mut Vec<Output>) {
        let kept = match &mut self.phase {
            Phase::Negotiation(phase) => phase.listed(names, out),
            Phase::Transmission(_) => unreachable!("nobody asked for a list"),
            Phase::Closed => return,
        };
        self.take_in(&kept, &mut OwnMemory, out);
    }

    pub fn opened(&mut self, result: Result<Opened, OpenError>, out: &mut Vec<Output>) {
        let (step, kept) = match &mut self.phase {
            Phase::Negotiation(phase) => phase.opened(result, self.stopping, out),
            Phase::Transmission(_) => unreachable!("nobody asked for a volume"),
            Phase::Closed => return,
        };
        self.follow(step, out);
        self.take_in(&kept, &mut OwnMemory, out);
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
        out.push(Output::Close { reason });
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
