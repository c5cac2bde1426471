//! Where connections come in, and what is thought of those who have not said yet who they are.
//!
//! Whoever has proved nothing costs little and not for long: it has a deadline, there are only so many of
//! its kind, the oldest goes when one more comes, and handshakes have their share of the time. So a
//! flood of them is no reason for others to wait; and a shortage of descriptors is none to stop listening.
use std::collections::VecDeque;
use std::io;

use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Token};
use replication::words::{Moment, NodeId, Span};
use tracing::{debug, warn};

use super::lines::{Line, Role};
use super::peers::{Incoming, Stage};
use super::{LISTENERS_FROM, Shard};
use crate::net::socket::{Socket, Stream};

/// How long peers may take for handshake and greeting.
const GREETING: Span = Span::secs(5);

/// How long a client of NBD may take until it has chosen a volume.
const NEGOTIATION: Span = Span::secs(10);

/// Connections of a kind that have proved nothing.
const UNPROVED_MAX: usize = 256;

/// Connections that are accepted between two ticks: those with a handshake of TLS, which takes some 0.2
/// ms of the loop's time, and others.
const HANDSHAKES: usize = 50;
const ACCEPTS: usize = 1000;

/// Connections that are accepted before others get their turn.
const AT_ONCE: usize = 32;

/// What is offered on a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Peers,
    Nbd,
    Iscsi,
}

#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => listener.accept().map(|(it, _)| Stream::Tcp(it)),
            Listener::Unix(listener) => listener.accept().map(|(it, _)| Stream::Unix(it)),
        }
    }
}

#[derive(Debug)]
pub struct Door {
    listener: Listener,
    service: Service,
    /// Somebody may wait to be let in.
    knocked: bool,
    /// So many may come in until the next tick.
    left: usize,
}

/// A connection that has until then to say who it is.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    at: usize,
    number: u64,
    until: Moment,
}

/// Connections that had proved nothing when they were last looked at; of each kind the oldest first.
#[derive(Debug, Default)]
pub struct Unproved {
    incoming: VecDeque<Awaited>,
    outgoing: VecDeque<Awaited>,
    nbd: VecDeque<Awaited>,
}

impl Unproved {
    fn kinds(&mut self) -> [&mut VecDeque<Awaited>; 3] {
        [&mut self.incoming, &mut self.outgoing, &mut self.nbd]
    }
}

impl Shard {
    /// Listens from now on; `listener` does not block.
    pub fn listen(&mut self, mut listener: Listener, service: Service) -> io::Result<()> {
        let token = Token(LISTENERS_FROM + self.doors.len());
        let registry = self.poll.registry();
        match &mut listener {
            Listener::Tcp(socket) => registry.register(socket, token, Interest::READABLE)?,
            Listener::Unix(socket) => registry.register(socket, token, Interest::READABLE)?,
        }
        self.doors.push(Door { listener, service, knocked: false, left: 0 });
        Ok(())
    }

    pub(super) fn knocked(&mut self, at: usize) {
        // A node that ends has closed its doors.
        if let Some(door) = self.doors.get_mut(at) {
            door.knocked = true;
        }
    }

    pub(super) fn somebody_waits(&self) -> bool {
        self.doors.iter().any(|door| door.knocked && door.left > 0)
    }

    /// Lets those in who knocked, a fair share of each door.
    pub(super) fn open_doors(&mut self) {
        for at in 0..self.doors.len() {
            for _ in 0..AT_ONCE {
                let door = &mut self.doors[at];
                if !door.knocked || door.left == 0 {
                    break;
                }
                let service = door.service;
                match door.listener.accept() {
                    Ok(stream) => {
                        door.left -= 1;
                        self.accepted(stream, service);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => door.knocked = false,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        // Descriptors come back, or nothing helps: the next tick tries again.
                        door.left = 0;
                        let what = format!("{service:?}: {error}");
                        if let Some(before) = self.complaints.due(&what, self.now) {
                            warn!(?service, %error, before, "a connection cannot be accepted");
                        }
                    }
                }
            }
        }
    }

    fn accepted(&mut self, stream: Stream, service: Service) {
        if let Stream::Tcp(tcp) = &stream
            && let Err(error) = tcp.set_nodelay(true)
        {
            return debug!(%error, "a connection was gone before it began");
        }
        let added = match service {
            Service::Peers => self.add_incoming(stream),
            Service::Nbd => self.add_nbd(Socket::new(stream)).map(Some),
            Service::Iscsi => self.add_iscsi(Socket::new(stream)).map(|()| None),
        };
        match added {
            Ok(Some(at)) => self.await_proof(at),
            // The portal looks after its own.
            Ok(None) => {}
            Err(error) => warn!(?service, %error, "a connection cannot be watched"),
        }
    }

    fn add_incoming(&mut self, stream: Stream) -> io::Result<Option<usize>> {
        let socket = match &self.config.tls {
            None => Socket::new(stream),
            Some(sessions) => {
                let secured = sessions.accept().and_then(|it| Socket::secured(stream, it));
                secured.map_err(io::Error::other)?
            }
        };
        self.add_line(socket, Role::Incoming(Incoming::Greeting(Vec::new()))).map(Some)
    }

    /// A connection has to prove itself from now on.
    pub(super) fn await_proof(&mut self, at: usize) {
        let Some(line) = self.lines.get(at) else { return };
        let (number, now) = (line.number, self.now);
        let (kind, time) = match &line.role {
            Role::Incoming(_) => (&mut self.unproved.incoming, GREETING),
            Role::Outgoing(_) => (&mut self.unproved.outgoing, GREETING),
            Role::Nbd(_) => (&mut self.unproved.nbd, NEGOTIATION),
            Role::Iscsi(_) | Role::Busy => return,
        };
        kind.push_back(Awaited { at, number, until: now + time });
        if kind.len() > UNPROVED_MAX {
            self.make_room();
        }
    }

    /// The oldest of too many go: who means well has proved itself long before.
    fn make_room(&mut self) {
        let mut too_many = Vec::new();
        let lines = &self.lines;
        for kind in self.unproved.kinds() {
            kind.retain(|it| lines.get(it.at).is_some_and(|line| line.is_awaited(it.number)));
            let over = kind.len().saturating_sub(UNPROVED_MAX);
            too_many.extend(kind.drain(..over));
        }
        for it in too_many {
            self.refuse_line(
                it.at,
                "too many connections wait to be greeted, and it is the oldest",
            );
        }
    }

    pub(super) fn tick_doors(&mut self) {
        for door in &mut self.doors {
            let handshakes = door.service == Service::Peers && self.config.tls.is_some();
            door.left = if handshakes { HANDSHAKES } else { ACCEPTS };
        }
        let (now, lines) = (self.now, &self.lines);
        let mut late = Vec::new();
        for kind in self.unproved.kinds() {
            while let Some(first) = kind.front().copied() {
                let awaited = lines.get(first.at).is_some_and(|line| line.is_awaited(first.number));
                if awaited && now < first.until {
                    break;
                }
                kind.pop_front();
                late.extend(awaited.then_some(first.at));
            }
        }
        for at in late {
            self.refuse_line(at, "the greeting took too long");
        }
    }

    /// Closes a connection and says so.
    pub(super) fn refuse_line(&mut self, at: usize, reason: &str) {
        let Some(line) = self.lines.get(at) else { return };
        self.complain(at, Whom::of(&line.role), reason);
        self.close_line(at, reason);
    }

    /// Tells the log what is wrong with a connection, unless it was told just so a moment ago.
    pub(super) fn complain(&mut self, at: usize, whom: Whom, reason: &str) {
        let mut address = self.address_of(at);
        if let Whom::Called(node) = whom
            && address.is_empty()
        {
            // It was never connected.
            address = self.nodes.get(&node).map(ToString::to_string).unwrap_or_default();
        }
        let host = address.rsplit_once(':').map_or(&address[..], |(host, _)| host);
        let Some(before) = self.complaints.due(&format!("{whom:?} {host} {reason}"), self.now)
        else {
            return;
        };
        match whom {
            Whom::Called(node) => {
                warn!(%node, address, reason, before, "a peer cannot be spoken with");
            }
            Whom::Caller => warn!(address, reason, before, "a peer is refused"),
            Whom::Client => warn!(address, reason, before, "an NBD client is refused"),
            Whom::Initiator => warn!(address, reason, before, "an iSCSI connection is closed"),
        }
    }
}

/// Who is at the other end, for the log.
#[derive(Clone, Copy, Debug)]
pub enum Whom {
    Called(NodeId),
    Caller,
    /// Of NBD.
    Client,
    Initiator,
}

impl Whom {
    pub fn of(role: &Role) -> Whom {
        match role {
            Role::Outgoing(outgoing) => Whom::Called(outgoing.node),
            Role::Incoming(_) => Whom::Caller,
            Role::Iscsi(_) => Whom::Initiator,
            Role::Nbd(_) | Role::Busy => Whom::Client,
        }
    }
}

impl Line {
    /// Whether it is this one, and has still to prove itself.
    fn is_awaited(&self, number: u64) -> bool {
        self.number == number
            && match &self.role {
                Role::Outgoing(outgoing) => !matches!(outgoing.stage, Stage::Up(_)),
                Role::Incoming(incoming) => matches!(incoming, Incoming::Greeting(_)),
                Role::Nbd(nbd) => !nbd.is_open(),
                Role::Iscsi(_) | Role::Busy => false,
            }
    }
}
