//! What comes back to the clients.
use replication::client::{self, Answer, IoError, LoginError, RequestId};
use replication::words::{ClientId, ConnectionNumber};

use super::session::{Asked, Link, Pending, Role};
use super::violation::{Seen, Violation};
use super::volume::Extent;
use super::{Clients, group};

/// What an error says about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tells {
    /// It was not done, and will not be.
    NotDone,
    Nothing,
}

fn tells(error: &IoError) -> (Tells, &'static str) {
    match error {
        // Refused before they got a seq.
        IoError::BadRange { .. } => (Tells::NotDone, "answered BadRange"),
        IoError::NoSpace => (Tells::NotDone, "answered NoSpace"),
        IoError::Busy => (Tells::NotDone, "answered Busy"),
        // They may have had one.
        IoError::NoQuorum { .. } => (Tells::Nothing, "answered NoQuorum"),
        IoError::Damaged { .. } => (Tells::Nothing, "answered Damaged"),
        IoError::Superseded => (Tells::Nothing, "answered Superseded"),
        IoError::UnflushedWritesLost => (Tells::Nothing, "answered UnflushedWritesLost"),
        IoError::Stopped => (Tells::Nothing, "answered Stopped"),
    }
}

/// The parts that are said to have no data, if the answer is one at all.
fn holes(asked: Extent, told: &[client::Extent]) -> Option<Vec<Extent>> {
    let differ = told.windows(2).all(|pair| pair[0].has_data != pair[1].has_data);
    let (mut at, mut holes) = (asked.first, Vec::new());
    for client::Extent { len, has_data } in told {
        let count = len.0 / block::LOGICAL_SECTOR;
        if count == 0 || !len.0.is_multiple_of(block::LOGICAL_SECTOR) {
            return None;
        }
        if !has_data {
            holes.push(Extent { first: at, count });
        }
        at += count;
    }
    (differ && (asked.first + 1..=asked.end()).contains(&at)).then_some(holes)
}

impl Clients {
    fn current(&self, client: ClientId, number: ConnectionNumber) -> Option<usize> {
        let at = self.session_of(client)?;
        let session = &self.sessions[at];
        (session.number == number && session.has_link()).then_some(at)
    }

    pub fn logged_in(
        &mut self,
        now: u64,
        client: ClientId,
        number: ConnectionNumber,
        result: Result<(), LoginError>,
    ) {
        self.now = now;
        let Some(at) = self.current(client, number) else { return };
        if self.sessions[at].link == Link::Up {
            return;
        }
        if let Err(why) = result {
            self.refused(at, why);
            return;
        }
        self.count("logins");
        let session = &mut self.sessions[at];
        session.link = Link::Up;
        session.next_ask = now + session.rng.range(self.config.think_us.clone());
        session.unproven = Some(now);
    }

    /// The connection is gone.
    pub fn lost(&mut self, now: u64, client: ClientId, number: ConnectionNumber) {
        self.now = now;
        let Some(at) = self.current(client, number) else { return };
        self.count("connections lost");
        let session = &mut self.sessions[at];
        let until = now + session.rng.range(1_000..500_000);
        self.drop_link(at, Link::Down { until });
    }

    pub fn answered(
        &mut self,
        now: u64,
        client: ClientId,
        number: ConnectionNumber,
        id: RequestId,
        result: Result<Answer, IoError>,
    ) -> Result<(), Violation> {
        self.now = now;
        self.verdict()?;
        let Some(at) = self.current(client, number) else { return Ok(()) };
        let Some(pending) = self.sessions[at].outstanding.remove(&id) else { return Ok(()) };
        let judged = match result {
            Ok(answer) => self.done(at, pending, answer),
            Err(error) => self.failed(at, pending, error),
        };
        if let Err(violation) = judged {
            self.fail(violation);
        }
        self.verdict()
    }

    fn done(&mut self, at: usize, pending: Pending, answer: Answer) -> Result<(), Violation> {
        let Pending { sent, asked } = pending;
        let (now, volume, client) = (self.now, self.sessions[at].volume, self.sessions[at].id);
        self.worked(at, sent)?;
        let content = &mut self.volumes[volume].content;
        match (asked, answer) {
            (Asked::Read(extent), Answer::Read(data))
                if data.len() as u64 == extent.count * block::LOGICAL_SECTOR =>
            {
                let seen = Seen::Read { client, sent, answered: now };
                content.read(seen, extent.first, &data, sent, now)?;
                self.read_done(at, extent, &data);
            }
            (Asked::Extents(extent), Answer::Extents(told)) => {
                let seen = Seen::Extents { client, sent, answered: now };
                let holes = holes(extent, &told).ok_or(Violation::WrongAnswer { client })?;
                for hole in &holes {
                    content.hole(seen, *hole, sent, now)?;
                }
                self.count("extents done");
                holes.iter().for_each(|_| self.count("holes told"));
            }
            (Asked::Write { index, fua, .. }, Answer::Done) => {
                content.ack(now, index);
                if fua {
                    content.flushed(sent);
                }
                self.count("writes done");
                self.turn_done(at, true);
            }
            (Asked::Flush, Answer::Done) => {
                content.flushed(sent);
                self.count("flushes done");
            }
            _ => return Err(Violation::WrongAnswer { client }),
        }
        Ok(())
    }

    fn read_done(&mut self, at: usize, extent: Extent, data: &[u8]) {
        self.count("reads done");
        let is_counter = extent == Extent { first: group::COUNTER, count: 1 };
        if let (Role::Echo, Some(group), true) =
            (&self.sessions[at].role, &mut self.group, is_counter)
        {
            group.counter_read(data);
        }
        self.turn_done(at, true);
    }

    /// Tells the ordered load that its step is over.
    pub(super) fn turn_done(&mut self, at: usize, done: bool) {
        let session = &self.sessions[at];
        let Some(group) = &mut self.group else { return };
        match session.role {
            Role::Ordered => group.written(session.volume, done),
            Role::Echo => group.carried(session.volume, done),
            Role::Mixed(_) | Role::Spy(_) => {}
        }
    }

    fn failed(&mut self, at: usize, pending: Pending, error: IoError) -> Result<(), Violation> {
        let (tells, counter) = tells(&error);
        self.count(counter);
        let Pending { sent, asked } = pending;
        let volume = self.sessions[at].volume;
        let judged = match (asked, tells) {
            (Asked::Write { index, extent, .. }, Tells::NotDone) => {
                let client = self.sessions[at].id;
                let seen = Seen::Read { client, sent, answered: self.now };
                self.volumes[volume].content.refuse(index, extent, seen)
            }
            (Asked::Write { index, .. }, Tells::Nothing) => {
                let session = &mut self.sessions[at];
                session.undecided.push((session.number, index));
                Ok(())
            }
            (Asked::Read(extent), _) => {
                self.sweep_again(volume, extent);
                Ok(())
            }
            (Asked::Flush | Asked::Extents(_), _) => Ok(()),
        };
        self.turn_done(at, false);
        let session = &mut self.sessions[at];
        // After a failure a pause, lest a world without a quorum hears of nothing else.
        session.next_ask = session.next_ask.max(self.now + session.rng.range(10_000..200_000));
        let until = self.now + session.rng.range(1_000..100_000);
        let ordered = matches!(session.role, Role::Ordered | Role::Echo);
        match error {
            IoError::UnflushedWritesLost => self.told_of_loss(at),
            IoError::Superseded | IoError::Stopped => self.hang_up(at, until),
            // The ordered load needs to know what became of its write before it goes on.
            _ if tells == Tells::Nothing && ordered => self.hang_up(at, until),
            _ => {}
        }
        judged
    }
}
