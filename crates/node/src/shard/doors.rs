//! Where connections come in, and what is thought of those who have not said yet who they are.
//!
//! Whoever has proved nothing costs little and not for long: it has a deadline, there are only so many of
//! its kind ([`super::unproved`] has the rule), and handshakes have their share of the time. So a flood
//! of them locks nobody out; and a shortage of descriptors is no reason to stop listening.
use std::io;

use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Token};
use replication::words::{NodeId, Span};
use slab::Slab;
use tracing::{debug, warn};

use super::iscsi::Iscsi;
use super::lines::{Line, Role};
use super::peers::{Incoming, Stage};
use super::unproved::{Awaited, Crowd, Unproved};
use super::{LISTENERS_FROM, Shard};
use crate::net::socket::{Socket, Stream};

/// How long peers may take for handshake and greeting.
const GREETING: Span = Span::secs(5);

/// How long a client of NBD may take until it has chosen a volume.
const NEGOTIATION: Span = Span::secs(10);

/// Connections that wait in the kernel to be accepted: twice [`super::unproved::UNPROVED_MAX`], as many as
/// are let in within two seconds if all before them are silent. Who waits does not give up before its turn.
const BACKLOG: i32 = 1024;

/// Connections that are accepted between two ticks.
const ACCEPTS: usize = 1000;

/// Reads between two ticks that go on with a handshake of TLS, which takes two, and some 0.2 ms of the loop's
/// time. They are counted when something comes: who says nothing takes nothing from those who do.
const HANDSHAKES: usize = 128;

/// Time between two ticks for connections that have no session: a fifth of it for those that came lately,
/// who may be about to log in, and less for those who go on asking. So others are served as if they were
/// not there, however many there are and whatever they ask.
const NEW_SHARE: Span = Span::millis(20);
const OLD_SHARE: Span = Span::millis(5);

/// The same in one turn.
const TURN_SHARE: Span = Span(500);

/// Reads of a connection that came lately. A login takes three to six.
const NEW_READS: u32 = 16;

/// Bytes that are read at once from a connection that has no session.
pub const STRANGER_BYTES: usize = 1 << 10;

/// Bytes that may wait to be sent to a connection that has no session, before it is not read from any
/// more: several of the longest answers of 8 KiB.
pub const STRANGER_UNSENT_MAX: usize = 32 << 10;

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

/// Handshakes that others want to do with us.
#[derive(Debug, Default)]
pub struct Handshakes {
    /// So many may begin until the next tick.
    pub left: usize,
    /// Lines that want to begin one; those who came first are first.
    pub postponed: Vec<usize>,
}

/// Connections that have no session, and the time that is spent with them.
#[derive(Debug, Default)]
pub struct Strangers {
    new: Share,
    old: Share,
    /// Time spent in this turn.
    turn: Span,
}

#[derive(Debug, Default)]
struct Share {
    /// Time spent since the last tick.
    spent: Span,
    /// Lines that have to wait; they are marked as readable all the time.
    postponed: Vec<usize>,
}

impl Strangers {
    /// Whether a connection that was read from so often may be read from now. If not, it has its turn
    /// later.
    pub fn may_read(&mut self, at: usize, reads: u32) -> bool {
        let (share, max) = self.share(reads);
        let has_time = share.spent < max;
        if has_time && self.turn < TURN_SHARE {
            return true;
        }
        self.share(reads).0.postponed.push(at);
        false
    }

    pub fn spent(&mut self, reads: u32, time: Span) {
        self.share(reads).0.spent.0 += time.0;
        self.turn.0 += time.0;
    }

    fn share(&mut self, reads: u32) -> (&mut Share, Span) {
        match reads < NEW_READS {
            true => (&mut self.new, NEW_SHARE),
            false => (&mut self.old, OLD_SHARE),
        }
    }

    pub fn begin_turn(&mut self, readable: &mut Vec<usize>) {
        self.turn = Span::default();
        for (share, max) in [(&mut self.new, NEW_SHARE), (&mut self.old, OLD_SHARE)] {
            if share.spent < max {
                readable.append(&mut share.postponed);
            }
        }
    }

    /// Whether some wait for nothing but the next turn.
    pub fn have_work(&self) -> bool {
        let waits = |share: &Share, max| share.spent < max && !share.postponed.is_empty();
        waits(&self.new, NEW_SHARE) || waits(&self.old, OLD_SHARE)
    }

    fn tick(&mut self) {
        self.new.spent = Span::default();
        self.old.spent = Span::default();
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

impl Shard {
    /// Listens from now on; `listener` does not block.
    pub fn listen(&mut self, mut listener: Listener, service: Service) -> io::Result<()> {
        let token = Token(LISTENERS_FROM + self.doors.len());
        let registry = self.poll.registry();
        // Whoever bound it has given it a shorter queue.
        match &mut listener {
            Listener::Tcp(socket) => {
                rustix::net::listen(&*socket, BACKLOG)?;
                registry.register(socket, token, Interest::READABLE)?;
            }
            Listener::Unix(socket) => {
                rustix::net::listen(&*socket, BACKLOG)?;
                registry.register(socket, token, Interest::READABLE)?;
            }
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
                if !self.has_room(service) {
                    // They stay where they are; the next tick looks again.
                    self.doors[at].left = 0;
                    break;
                }
                let door = &mut self.doors[at];
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
                        if let Some(before) = self.complaints.due("accept", &what, self.now) {
                            warn!(?service, %error, before, "a connection cannot be accepted");
                        }
                    }
                }
            }
        }
    }

    fn accepted(&mut self, stream: Stream, service: Service) {
        if let Err(error) = stream.prepare() {
            return debug!(%error, "a connection was gone before it began");
        }
        let added = match service {
            Service::Peers => self.add_incoming(stream),
            Service::Nbd => self.add_nbd(Socket::new(stream)),
            Service::Iscsi => self.add_iscsi(Socket::new(stream)),
        };
        match added {
            Ok(at) => self.await_proof(at),
            Err(error) => warn!(?service, %error, "a connection cannot be watched"),
        }
    }

    fn add_incoming(&mut self, stream: Stream) -> io::Result<usize> {
        let socket = match &self.config.tls {
            None => Socket::new(stream),
            Some(sessions) => {
                let secured = sessions.accept().and_then(|it| Socket::secured(stream, it));
                secured.map_err(io::Error::other)?
            }
        };
        self.add_line(socket, Role::Incoming(Incoming::Greeting(Vec::new())))
    }

    fn has_room(&mut self, service: Service) -> bool {
        let (lines, iscsi) = (&self.lines, &self.iscsi);
        let crowd = match service {
            Service::Peers => &mut self.unproved.peers,
            Service::Nbd => &mut self.unproved.nbd,
            Service::Iscsi => &mut self.unproved.iscsi,
        };
        crowd.has_room(self.now, |it| is_awaited(lines, iscsi, it))
    }

    /// A connection has to prove itself from now on.
    pub(super) fn await_proof(&mut self, at: usize) {
        let Some(line) = self.lines.get(at) else { return };
        let it = Awaited { at, number: line.number, since: line.since, until: None };
        let until = |time: Span| Some(self.now + time);
        match &line.role {
            Role::Outgoing(outgoing) => {
                let it = Awaited { until: until(GREETING), ..it };
                self.unproved.called(outgoing.node, it);
            }
            Role::Incoming(_) => {
                let it = Awaited { until: until(GREETING), ..it };
                self.newcomer(|unproved| &mut unproved.peers, it);
            }
            Role::Nbd(_) => {
                let it = Awaited { until: until(NEGOTIATION), ..it };
                self.newcomer(|unproved| &mut unproved.nbd, it);
            }
            // The portal looks after the time that logins take.
            Role::Iscsi(_) => self.newcomer(|unproved| &mut unproved.iscsi, it),
            Role::Busy => {}
        }
    }

    fn newcomer(&mut self, crowd: impl Fn(&mut Unproved) -> &mut Crowd, it: Awaited) {
        let (lines, iscsi) = (&self.lines, &self.iscsi);
        let known = crowd(&mut self.unproved);
        if !known.has(&it) && !known.has_room(self.now, |it| is_awaited(lines, iscsi, it)) {
            // It came back from a login that failed. Who was let in meanwhile has its grace.
            return self.refuse_line(it.at, "too many connections wait to be greeted");
        }
        known.expect(it);
        while let Some(oldest) = crowd(&mut self.unproved).one_too_many() {
            if is_awaited(&self.lines, &self.iscsi, &oldest) {
                let reason = "too many connections wait to be greeted, and it is the oldest";
                self.refuse_line(oldest.at, reason);
            }
        }
    }

    /// Whether this node may call another once more. The target asks again soon.
    pub(super) fn may_call(&mut self, node: NodeId) -> bool {
        let (lines, iscsi) = (&self.lines, &self.iscsi);
        self.unproved.may_call(node, |it| is_awaited(lines, iscsi, it))
    }

    /// Forgets deleted volumes, unless a pool has something under way that may be for one of them.
    pub(super) fn forget_volumes(&mut self) {
        if self.pools.iter().all(|pool| pool.own.is_empty()) {
            self.volumes.forget_empty();
        }
    }

    pub(super) fn tick_doors(&mut self) {
        self.doors.iter_mut().for_each(|door| door.left = ACCEPTS);
        self.handshakes.left = HANDSHAKES;
        self.strangers.tick();
        // They are marked as readable all the time: nobody else put them there.
        self.readable.append(&mut self.handshakes.postponed);
        let (lines, iscsi) = (&self.lines, &self.iscsi);
        for late in self.unproved.late(self.now, |it| is_awaited(lines, iscsi, it)) {
            self.refuse_line(late.at, "the greeting took too long");
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
        let (kind, what) = (whom.kind(), format!("{whom:?} {host} {reason}"));
        let Some(before) = self.complaints.due(kind, &what, self.now) else { return };
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
    fn kind(self) -> &'static str {
        match self {
            Whom::Called(_) => "called",
            Whom::Caller => "caller",
            Whom::Client => "client",
            Whom::Initiator => "initiator",
        }
    }

    pub fn of(role: &Role) -> Whom {
        match role {
            Role::Outgoing(outgoing) => Whom::Called(outgoing.node),
            Role::Incoming(_) => Whom::Caller,
            Role::Iscsi(_) => Whom::Initiator,
            Role::Nbd(_) | Role::Busy => Whom::Client,
        }
    }
}

/// Whether it is still this one, and has still to prove itself.
fn is_awaited(lines: &Slab<Line>, iscsi: &Iscsi, it: &Awaited) -> bool {
    let Some(line) = lines.get(it.at).filter(|line| line.number == it.number) else { return false };
    match &line.role {
        Role::Outgoing(outgoing) => !matches!(outgoing.stage, Stage::Up(_)),
        Role::Incoming(incoming) => matches!(incoming, Incoming::Greeting(_)),
        Role::Nbd(nbd) => !nbd.is_open(),
        Role::Iscsi(conn) => iscsi.is_unproved(*conn),
        Role::Busy => false,
    }
}

#[cfg(test)]
mod tests;
