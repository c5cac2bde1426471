//! Connections: reading, sending and closing, whatever is spoken on them.
use std::io;

use block::Buf;
use frontend::iscsi::{ConnNo, Event};
use frontend::piece::Piece;
use mio::Token;
use mio::event::Event as PollEvent;
use replication::words::Moment;
use tracing::debug;

use super::doors::{STRANGER_BYTES, STRANGER_UNSENT_MAX, Whom};
use super::iscsi::Iscsi;
use super::nbd::NbdLine;
use super::peers::{Incoming, Outgoing, Stage};
use super::pools::Payloads;
use super::volumes::VolumeNo;
use super::{POOLS_FROM, Shard};
use crate::clock;
use crate::net::frames::Frame;
use crate::net::socket::{Got, Socket};

/// Bytes of one read: as many requests as a busy client has in its socket.
pub const SCRATCH: usize = 256 << 10;

/// Reads of one line before others get their turn.
const READS: usize = 4;

/// Bytes that may wait to be sent to somebody who asks and does not read: beyond this it is not read from
/// either.
const UNSENT_MAX: usize = 64 << 20;

pub enum Role {
    Outgoing(Outgoing),
    Incoming(Incoming),
    Nbd(Box<NbdLine>),
    Iscsi(ConnNo),
    /// Taken out, while what arrived is worked at.
    Busy,
}

pub struct Line {
    pub socket: Socket,
    pub role: Role,
    /// Places are given anew; this number is not.
    pub number: u64,
    pub since: Moment,
    /// How often it was read from while it had no session.
    stranger_reads: u32,
    /// It is among those that may have more to read.
    readable: bool,
    /// The other side sends no more: there is an end to be read behind what is there.
    ending: bool,
    /// It has bytes that nobody wants now.
    paused: bool,
    unsent: bool,
    /// To be closed as soon as what arrived was worked at.
    closing: Option<String>,
}

impl Shard {
    pub(super) fn add_line(&mut self, mut socket: Socket, role: Role) -> io::Result<usize> {
        let number = self.numbers.next();
        let entry = self.lines.vacant_entry();
        let at = entry.key();
        if at >= POOLS_FROM {
            return Err(io::Error::other("too many connections"));
        }
        socket.register(self.poll.registry(), Token(at))?;
        entry.insert(Line {
            socket,
            role,
            number,
            since: self.now,
            stranger_reads: 0,
            readable: false,
            ending: false,
            paused: false,
            unsent: false,
            closing: None,
        });
        Ok(at)
    }

    pub(super) fn line_event(&mut self, at: usize, event: &PollEvent) {
        if event.is_writable() || event.is_error() || event.is_write_closed() {
            self.dialled(at);
            self.mark_unsent(at);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            if let Some(line) = self.lines.get_mut(at) {
                line.ending |= event.is_read_closed();
            }
            self.mark_readable(at);
        }
    }

    pub(super) fn mark_readable(&mut self, at: usize) {
        if let Some(line) = self.lines.get_mut(at)
            && !std::mem::replace(&mut line.readable, true)
        {
            self.readable.push(at);
        }
    }

    fn mark_unsent(&mut self, at: usize) {
        if let Some(line) = self.lines.get_mut(at)
            && line.socket.queued() > 0
            && !std::mem::replace(&mut line.unsent, true)
        {
            self.unsent.push(at);
        }
    }

    /// Takes what arrived, a fair share of each line.
    pub(super) fn read_lines(&mut self) {
        let spare = std::mem::take(&mut self.spare);
        self.strangers.begin_turn(&mut self.readable);
        let mut readable = std::mem::replace(&mut self.readable, spare);
        for at in readable.drain(..) {
            let Some(line) = self.lines.get_mut(at) else { continue };
            line.readable = false;
            let mut more = true;
            for _ in 0..READS {
                more = self.read_line(at);
                if !more {
                    break;
                }
            }
            if more {
                self.mark_readable(at);
            }
        }
        self.spare = readable;
    }

    /// Whether there may be more.
    fn read_line(&mut self, at: usize) -> bool {
        let Some(line) = self.lines.get_mut(at) else { return false };
        if !line.is_stranger(&self.iscsi) {
            return self.read_from(at, false);
        }
        let reads = line.stranger_reads;
        if !self.strangers.may_read(at, reads) {
            line.readable = true;
            return false;
        }
        line.stranger_reads = reads.saturating_add(1);
        let begun = clock::now();
        let more = self.read_from(at, true);
        self.strangers.spent(reads, clock::now().since(begun));
        more
    }

    fn read_from(&mut self, at: usize, is_stranger: bool) -> bool {
        let Some(line) = self.lines.get_mut(at) else { return false };
        if line.can_go_on() {
            self.with_nbd(at, |shard, nbd| shard.nbd_goes_on(nbd));
            return true;
        }
        if !line.wants_bytes(&self.iscsi) {
            line.paused = true;
            return false;
        }
        let proves = matches!(line.role, Role::Incoming(_)) && !line.socket.is_ready();
        if proves && self.handshakes.left == 0 {
            line.readable = true;
            self.handshakes.postponed.push(at);
            return false;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut role = std::mem::replace(&mut line.role, Role::Busy);
        let landing = match &mut role {
            Role::Iscsi(conn) => self.iscsi.landing(*conn),
            other => other.landing(),
        };
        let room = if is_stranger { STRANGER_BYTES } else { scratch.len() };
        let read = line.socket.read(landing, &mut scratch[..room]);
        if proves && line.socket.is_begun() {
            self.handshakes.left -= 1;
        }
        let more = match read {
            Ok(Got::Bytes { landed, scratch: len, more }) => {
                let more = more || line.ending;
                self.received(at, &mut role, landed, &scratch[..len]);
                more
            }
            Ok(Got::Nothing) => false,
            Ok(Got::End) => {
                line.closing = Some("the other side has closed".into());
                false
            }
            Err(error) => {
                line.closing = Some(error.to_string());
                if error.kind() == io::ErrorKind::InvalidData {
                    self.complain(at, Whom::of(&role), &error.to_string());
                }
                false
            }
        };
        self.scratch = scratch;
        self.put_back(at, role);
        // It may have more to do with what came than it may do at once.
        let more = more || self.lines.get_mut(at).is_some_and(Line::can_go_on);
        // A handshake answers without its owner.
        self.mark_unsent(at);
        more
    }

    fn received(&mut self, at: usize, role: &mut Role, landed: usize, bytes: &[u8]) {
        match role {
            Role::Outgoing(outgoing) => {
                let mut frames = Vec::new();
                if let Stage::Up(stream) = &mut outgoing.stage {
                    stream.landed(landed, &mut frames);
                }
                self.outgoing_frames(at, outgoing, frames);
                self.outgoing_received(at, outgoing, bytes);
            }
            Role::Incoming(incoming) => {
                let mut frames: Vec<Frame> = Vec::new();
                if let Incoming::Up { frames: stream, .. } = incoming {
                    stream.landed(landed, &mut frames);
                }
                self.incoming_frames(at, incoming, frames);
                self.incoming_received(at, incoming, bytes);
            }
            Role::Nbd(nbd) => self.nbd_received(at, nbd, landed, bytes),
            Role::Iscsi(conn) => {
                let conn = *conn;
                if landed > 0 {
                    self.step_portal(Event::Landed { conn, len: landed });
                }
                if !bytes.is_empty() {
                    self.step_portal(Event::Received { conn, bytes });
                }
            }
            Role::Busy => unreachable!("a role is taken out once"),
        }
    }

    pub(super) fn put_back(&mut self, at: usize, role: Role) {
        let Some(line) = self.lines.get_mut(at) else { return };
        line.role = role;
        if let Some(reason) = line.closing.take() {
            self.close_line(at, &reason);
        }
        if self.reads.take_missed_turn() {
            self.unblock_reads();
        }
    }

    /// Memory for what arrives for a volume.
    pub(super) fn memory(&mut self, volume: Option<VolumeNo>) -> impl FnMut(usize) -> Buf + '_ {
        let pool = self.payload_pool(volume);
        let mut payloads = Payloads(pool.map(|pool| &mut self.pools[pool].host));
        move |len| frontend::ask::Buffers::take(&mut payloads, len)
    }

    pub(super) fn send_piece(&mut self, at: usize, piece: Piece) {
        if let Some(line) = self.lines.get_mut(at) {
            line.socket.push(piece);
            self.mark_unsent(at);
        }
    }

    pub(super) fn send_lines(&mut self) {
        let spare = std::mem::take(&mut self.spare);
        let mut unsent = std::mem::replace(&mut self.unsent, spare);
        for at in unsent.drain(..) {
            self.flush_line(at);
        }
        self.spare = unsent;
    }

    /// What goes to other nodes goes on its way before our own pools are asked, so that all copies
    /// are written at the same time. Answers wait for the end of the turn, when there are more.
    pub(super) fn send_ahead(&mut self) {
        let mut at = 0;
        while let Some(&line) = self.unsent.get(at) {
            let goes_out = |line: &Line| matches!(line.role, Role::Outgoing(_));
            if self.lines.get(line).is_some_and(goes_out) {
                self.unsent.swap_remove(at);
                self.flush_line(line);
            } else {
                at += 1;
            }
        }
    }

    pub(super) fn flush_line(&mut self, at: usize) {
        let Some(line) = self.lines.get_mut(at) else { return };
        line.unsent = false;
        // Nothing can be sent before the connection is there; it will be writable then.
        if let Role::Outgoing(Outgoing { stage: Stage::Connecting, .. }) = line.role {
            return;
        }
        if let Err(error) = line.socket.flush(&mut self.scratch) {
            return self.close_line(at, &error.to_string());
        }
        if let Role::Iscsi(conn) = line.role
            && self.iscsi.watches_unsent(conn)
        {
            let bytes = line.socket.queued();
            self.step_portal(Event::Unsent { conn, bytes });
        }
        self.go_on_reading(at);
    }

    /// Reads on where that was paused, if there is room again.
    pub(super) fn go_on_reading(&mut self, at: usize) {
        let Some(line) = self.lines.get_mut(at) else { return };
        if line.can_go_on() || line.paused && line.wants_bytes(&self.iscsi) {
            line.paused = false;
            self.mark_readable(at);
        }
    }

    /// Where the other side is, for people.
    pub(super) fn address_of(&self, at: usize) -> String {
        let tcp = self.lines.get(at).and_then(|line| line.socket.tcp());
        match tcp.map(|tcp| tcp.peer_addr()) {
            Some(Ok(address)) => address.to_string(),
            Some(Err(_)) => String::new(),
            None => "unix".into(),
        }
    }

    pub(super) fn close_line(&mut self, at: usize, reason: &str) {
        let Some(line) = self.lines.get_mut(at) else { return };
        if matches!(line.role, Role::Busy) {
            line.closing.get_or_insert_with(|| reason.into());
            return;
        }
        // Peers are told why. What waits for clients is for their owner to send or not: a client that is
        // turned away tries elsewhere, and must not see its last requests fail.
        if matches!(line.role, Role::Outgoing(_) | Role::Incoming(_))
            && let Err(error) = line.socket.flush(&mut self.scratch)
        {
            debug!(%error, line = at, "nothing more can be said");
        }
        let line = self.lines.remove(at);
        debug!(reason, line = at, "connection closed");
        match line.role {
            Role::Outgoing(outgoing) => self.outgoing_lost(&outgoing),
            Role::Incoming(incoming) => self.incoming_lost(&incoming),
            Role::Nbd(nbd) => self.nbd_lost(at, *nbd),
            Role::Iscsi(conn) => self.iscsi_lost(conn),
            Role::Busy => {}
        }
    }
}

impl Line {
    /// Whether it is a client that has no session: nobody knows who it is, or nobody has to.
    fn is_stranger(&self, iscsi: &Iscsi) -> bool {
        match &self.role {
            Role::Nbd(nbd) => !nbd.is_open(),
            Role::Iscsi(conn) => iscsi.has_no_session(*conn),
            Role::Incoming(_) | Role::Outgoing(_) | Role::Busy => false,
        }
    }

    /// Whether there is something to be done for it with what came before.
    fn can_go_on(&mut self) -> bool {
        let Role::Nbd(nbd) = &mut self.role else { return false };
        nbd.machine.unsent(self.socket.queued());
        nbd.machine.can_go_on()
    }

    fn wants_bytes(&self, iscsi: &Iscsi) -> bool {
        let is_stranger = self.is_stranger(iscsi);
        let unsent_max = if is_stranger { STRANGER_UNSENT_MAX } else { UNSENT_MAX };
        let room = self.socket.queued() < unsent_max;
        match &self.role {
            Role::Nbd(nbd) => room && nbd.machine.wants_bytes(),
            Role::Iscsi(conn) => room && iscsi.wants_bytes(*conn),
            // A target asks for content, and may be slow to take it.
            Role::Incoming(_) => room,
            // What comes from a replica is what was asked of it, and acknowledgements, which make what
            // waits for it less; how much may wait is bounded by the target's window. If both ends waited
            // for the other to read first, neither would until the link is given up.
            Role::Outgoing(_) | Role::Busy => true,
        }
    }
}

impl Role {
    fn landing(&mut self) -> &mut [u8] {
        match self {
            Role::Outgoing(Outgoing { stage: Stage::Up(frames), .. }) => frames.landing(),
            Role::Incoming(Incoming::Up { frames, .. }) => frames.landing(),
            Role::Nbd(nbd) => nbd.machine.landing(),
            Role::Outgoing(_) | Role::Incoming(_) | Role::Iscsi(_) | Role::Busy => &mut [],
        }
    }
}

#[cfg(test)]
mod tests;
