//! What clients do of themselves: connect, ask, lose patience.
use block::{ByteLen, ByteOffset, Data, LOGICAL_SECTOR};
use replication::client::{Request, RequestId};
use replication::entry::Zeroing;
use replication::words::ConnectionNumber;

use super::session::{Asked, Link, Pending, Role};
use super::staging::Phase;
use super::stamp::{self, Place, Value};
use super::volume::Extent;
use super::workload::{Fua, Wish};
use super::{ClientAction, Clients, group};

/// How long a login may take before it is tried anew, in microseconds.
const LOGIN_PATIENCE: std::ops::Range<u64> = 1_000_000..5_000_000;

/// Between two looks of a spy, in microseconds.
const SPY_THINK_US: std::ops::Range<u64> = 50_000..200_000;

impl Clients {
    pub fn wake(&mut self, now: u64, out: &mut Vec<ClientAction>) {
        self.now = now;
        for volume in 0..self.volumes.len() {
            self.stage_anew(volume);
        }
        for at in 0..self.sessions.len() {
            self.wake_session(at);
        }
        out.append(&mut self.queued);
    }

    /// When it wants to be woken next; `None` if only an answer changes anything.
    pub fn next_wake(&self) -> Option<u64> {
        if !self.queued.is_empty() {
            return Some(self.now);
        }
        let sessions = (0..self.sessions.len()).filter_map(|at| self.session_wakes(at));
        let volumes = self.volumes.iter().filter_map(|view| view.attachment.wakes());
        sessions.chain(volumes).min()
    }

    fn session_wakes(&self, at: usize) -> Option<u64> {
        let session = &self.sessions[at];
        match session.link {
            Link::Told => None,
            Link::Down { until } => {
                self.volumes[session.volume].attachment.may_connect().then_some(until)
            }
            Link::LoggingIn { until, .. } => Some(until),
            Link::Up => {
                let asks = self.may_ask(at).then_some(session.next_ask);
                asks.into_iter().chain(self.patience_ends(at)).min()
            }
        }
    }

    /// When it gives its connection up. A spy stays while there is something to see.
    fn patience_ends(&self, at: usize) -> Option<u64> {
        let session = &self.sessions[at];
        let open = self.volumes[session.volume].attachment.phase == Phase::Open;
        let stays = matches!(session.role, Role::Spy(_)) && open && self.finished.is_none();
        session.patience_ends().filter(|_| !stays)
    }

    /// Whether it has something to ask, when it is time.
    fn may_ask(&self, at: usize) -> bool {
        let session = &self.sessions[at];
        let view = &self.volumes[session.volume];
        if view.attachment.phase == Phase::Joining {
            return !session.joined && session.outstanding.is_empty();
        }
        let left = match self.finished {
            Some(_) => !view.sweep.is_empty(),
            None => self.requests < self.config.requests_max,
        };
        left && view.attachment.may_ask() && session.outstanding.len() < session.depth
    }

    fn wake_session(&mut self, at: usize) {
        if self.session_wakes(at).is_none_or(|wakes| wakes > self.now) {
            return;
        }
        let now = self.now;
        let impatient = self.patience_ends(at);
        let session = &mut self.sessions[at];
        let spies = matches!(session.role, Role::Spy(_));
        match session.link {
            Link::Told => {}
            Link::Down { .. } => self.connect(at),
            Link::LoggingIn { .. } => {
                self.count("logins given up");
                let until = now + self.sessions[at].rng.below(200_000);
                self.hang_up(at, until);
            }
            Link::Up if impatient.is_some_and(|ends| ends <= now) => {
                self.count("patience lost");
                let until = now + self.sessions[at].rng.below(200_000);
                self.hang_up(at, until);
            }
            Link::Up if spies && self.finished.is_none() => {
                session.next_ask = now + session.rng.range(SPY_THINK_US);
                self.ask(at);
            }
            Link::Up => {
                session.next_ask = now + session.rng.range(self.config.think_us.clone()).max(1);
                if self.finished.is_none() && session.rng.chance(1, 150) {
                    self.reconnect(at);
                } else {
                    self.ask(at);
                }
            }
        }
    }

    fn connect(&mut self, at: usize) {
        let session = &mut self.sessions[at];
        session.number = ConnectionNumber(session.number.0 + 1);
        let until = self.now + session.rng.range(LOGIN_PATIENCE);
        session.link = Link::LoggingIn { sent: self.now, until };
        self.queued.push(ClientAction::Connect {
            client: session.id,
            volume: session.volume,
            number: session.number,
            stage: session.stage,
        });
    }

    /// A new connection out of the blue, at times while requests of the older one are under way.
    fn reconnect(&mut self, at: usize) {
        self.count("reconnects");
        let now = self.now;
        if !self.config.leaves_open || self.sessions[at].rng.chance(1, 2) {
            self.close(at);
        }
        self.drop_link(at, Link::Down { until: now });
        self.connect(at);
    }

    pub(super) fn close(&mut self, at: usize) {
        let session = &self.sessions[at];
        if session.has_link() {
            let (client, number, volume) = (session.id, session.number, session.volume);
            self.queued.push(ClientAction::Disconnect { client, number, volume });
        }
    }

    pub(super) fn hang_up(&mut self, at: usize, until: u64) {
        self.close(at);
        self.drop_link(at, Link::Down { until });
    }

    pub(super) fn drop_link(&mut self, at: usize, link: Link) {
        let volume = self.sessions[at].volume;
        let pending: Vec<Asked> =
            self.sessions[at].outstanding.values().map(|pending| pending.asked).collect();
        for asked in pending {
            if let Asked::Read(extent) = asked {
                self.sweep_again(volume, extent);
            }
            self.turn_done(at, false);
        }
        self.sessions[at].drop_link(link);
    }

    pub(super) fn sweep_again(&mut self, volume: usize, extent: Extent) {
        if self.finished.is_some() {
            self.volumes[volume].sweep.push_back(extent);
        }
    }

    fn ask(&mut self, at: usize) {
        let volume = self.sessions[at].volume;
        if self.volumes[volume].attachment.phase == Phase::Joining {
            // The first sector is nobody's: it tells no more than that the volume serves.
            self.send(at, Wish::Read(Extent { first: 0, count: 1 }));
            return;
        }
        if self.finished.is_some() {
            if let Some(extent) = self.volumes[volume].sweep.pop_front() {
                self.send(at, Wish::Read(extent));
            }
            return;
        }
        let sectors = self.volumes[volume].sectors;
        let value = Value(self.next_value);
        let session = &mut self.sessions[at];
        let fua = if session.rng.chance(1, 3) { Fua::Yes } else { Fua::No };
        let sector = |first| Extent { first, count: 1 };
        let wish = match (&session.role, &mut self.group) {
            (Role::Mixed(mix), _) => {
                let wish = mix.wish(&mut session.rng, sectors);
                Some(sometimes_extents(self.requests, wish, sectors))
            }
            (Role::Ordered, Some(group)) => {
                group.write(volume, value).then_some(Wish::Write(sector(group::COUNTER), fua))
            }
            (Role::Echo, Some(group)) => group.carry(volume, value).then_some(match volume {
                0 => Wish::Read(sector(group::COUNTER)),
                _ => Wish::Write(sector(group::ECHO), fua),
            }),
            (Role::Spy(mix), _) => Some(mix.look(&mut session.rng)),
            (_, None) => None,
        };
        let spies = matches!(session.role, Role::Spy(_));
        if let Some(wish) = wish {
            self.requests += u64::from(!spies);
            self.send(at, wish);
        }
    }

    fn send(&mut self, at: usize, wish: Wish) {
        let (now, volume) = (self.now, self.sessions[at].volume);
        let (asked, request) = match wish {
            Wish::Read(extent) => {
                let (offset, len) = bytes(extent);
                (Asked::Read(extent), Request::Read { offset, len })
            }
            Wish::Extents(extent) => {
                let (offset, len) = bytes(extent);
                (Asked::Extents(extent), Request::Extents { offset, len })
            }
            Wish::Flush => (Asked::Flush, Request::Flush),
            Wish::Write(extent, fua) => self.write(volume, extent, fua.is_yes()),
            Wish::Zero(extent, how, fua) => self.zero(volume, extent, how, fua.is_yes()),
        };
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let session = &mut self.sessions[at];
        session.outstanding.insert(id, Pending { sent: now, asked });
        let (client, number) = (session.id, session.number);
        self.queued.push(ClientAction::Send { client, number, volume, id, request });
    }

    fn write(&mut self, volume: usize, extent: Extent, fua: bool) -> (Asked, Request) {
        let value = Value(self.next_value);
        self.next_value += 1;
        let index = self.volumes[volume].content.begin(self.now, extent, value, fua);
        let place = Place { volume, sector: extent.first };
        let data = Data::copy_of(&stamp::content(value, place, extent.count));
        let (offset, _) = bytes(extent);
        (Asked::Write { extent, index, fua }, Request::Write { offset, data, fua })
    }

    fn zero(&mut self, volume: usize, extent: Extent, how: Zeroing, fua: bool) -> (Asked, Request) {
        let index = self.volumes[volume].content.begin(self.now, extent, Value::ZEROS, fua);
        let (offset, len) = bytes(extent);
        (Asked::Write { extent, index, fua }, Request::Zero { offset, len, how, fua })
    }
}

/// Some reads only ask what is allocated, there and behind. Not drawn, so that everything else
/// that a client wishes stays the same.
fn sometimes_extents(number: u64, wish: Wish, sectors: u64) -> Wish {
    match wish {
        Wish::Read(Extent { first, count }) if number.is_multiple_of(6) => {
            let count = (count * 8).min(sectors - first);
            Wish::Extents(Extent { first, count })
        }
        wish => wish,
    }
}

fn bytes(extent: Extent) -> (ByteOffset, ByteLen) {
    (ByteOffset(extent.first * LOGICAL_SECTOR), ByteLen(extent.count * LOGICAL_SECTOR))
}
