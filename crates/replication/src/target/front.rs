//! Those who use the volume: logins, requests that wait for their seq, answers.
use std::collections::{BTreeMap, VecDeque};

use block::{ByteLen, ByteOffset, LOGICAL_SECTOR, Seq};

use crate::client::{Answer, ConnectionId, IoError, Login, LoginError, Request, RequestId};
use crate::constants::{EXTENTS_MAX, REQUEST_MAX, REQUESTS_MAX};
use crate::cost::Costs;
use crate::entry::{Change, Zeroing};
use crate::residue::Residue;
use crate::state::RESERVATIONS_MAX;
use crate::target::reads::What;
use crate::target::{Cx, Output, Target, off};
use crate::words::{ClientId, ConnectionNumber, Moment, Span};

/// How long a request waits for credit before the pools are said to be full: credit is topped up
/// while entries are applied.
const CREDIT_PATIENCE: Span = Span::secs(2);

/// Clients whose newest connection number is remembered although they are not connected. A front end has
/// some hundred sessions of a volume at most: a client is forgotten only when so many others have logged in
/// since its last login.
pub(super) const REMEMBERED_MAX: usize = 4096;

/// The newest connection of a client.
#[derive(Clone, Copy, Debug)]
struct Newest {
    number: ConnectionNumber,
    connection: ConnectionId,
    /// Its place among all logins.
    login: u64,
}

#[derive(Debug)]
struct Connection {
    login: Login,
    state: LoginState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginState {
    /// Older work of the same client, up to here, has to be done first.
    Waiting {
        through: Option<Seq>,
    },
    In,
}

#[derive(Debug)]
struct Queued {
    connection: ConnectionId,
    client: ClientId,
    id: RequestId,
    request: Request,
    deadline: Moment,
}

/// Whoever waits for a seq to be held or durable.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    connection: ConnectionId,
    id: RequestId,
    deadline: Moment,
}

#[derive(Debug, Default)]
pub struct Front {
    connections: BTreeMap<ConnectionId, Connection>,
    /// Those whose login is not answered, in the order in which they came.
    logging_in: Vec<ConnectionId>,
    /// Of every client that is connected, and of those that were last ([`REMEMBERED_MAX`]).
    newest: BTreeMap<ClientId, Newest>,
    /// Logins so far.
    logins: u64,
    queue: VecDeque<Queued>,
    // In the order of their seqs, which is that of their coming, and so of their deadlines.
    for_commit: VecDeque<(Seq, Waiter)>,
    for_settle: VecDeque<(Seq, Waiter)>,
    /// The newest flush that nobody asked for.
    own_flush: Seq,
    /// Since when too few replicas have space for the request in front.
    short_since: Option<Moment>,
}

/// What becomes of the request in front.
enum Admission {
    /// With what it may cost in a pool.
    Taken {
        cost: u64,
    },
    Wait,
    Refused(IoError),
}

impl Front {
    pub fn gone(&mut self, connection: ConnectionId) {
        // Its queued requests are dropped: nobody knows that they were ever here.
        self.connections.remove(&connection);
        self.queue.retain(|queued| queued.connection != connection);
        self.logging_in.retain(|it| *it != connection);
    }

    /// Notes the newest connection of a client, and forgets the client whose last login is longest ago if
    /// there are too many that are not connected.
    ///
    /// That is safe (P9): what matters of an earlier connection of a forgotten client is gone from the
    /// queue with that connection, and what it has in the sequence is waited for at its next login
    /// whether it is remembered or not. What is lost is that a login with an older number is refused; it
    /// would have to have been on its way while all these others logged in, and a login waits for no more
    /// than seconds.
    fn remember(&mut self, login: Login, connection: ConnectionId) {
        self.logins += 1;
        let newest = Newest { number: login.number, connection, login: self.logins };
        self.newest.insert(login.client, newest);
        if self.newest.len() > REMEMBERED_MAX + self.connections.len() + 1 {
            let is_gone = |it: &Newest| !self.connections.contains_key(&it.connection);
            let gone = self.newest.iter().filter(|(_, it)| is_gone(it));
            let oldest = gone.min_by_key(|(_, it)| it.login).map(|(client, _)| *client);
            if let Some(oldest) = oldest {
                self.newest.remove(&oldest);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.newest.len()
    }

    /// Who is logged in over a connection.
    pub fn client(&self, connection: ConnectionId) -> Option<ClientId> {
        let found = self.connections.get(&connection)?;
        (found.state == LoginState::In).then_some(found.login.client)
    }

    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    pub fn residue(&self) -> [Residue; 5] {
        [
            Residue::none("logins", self.logging_in.len()),
            Residue::none("requests without a seq", self.queue.len()),
            Residue::none("requests to be held", self.for_commit.len()),
            Residue::none("requests to be durable", self.for_settle.len()),
            Residue::up_to(self.newest.len(), "connections", self.connections.len()),
        ]
    }
}

impl Target {
    pub(super) fn login(&mut self, connection: ConnectionId, login: Login, cx: &mut Cx<'_>) {
        let numbers = !off!(self, ConnectionNumbers);
        let newest = self.front.newest.get(&login.client).copied();
        if let Some(Newest { number, connection: older, .. }) = newest.filter(|_| numbers) {
            if login.number <= number {
                let result = Err(LoginError::OlderConnection);
                return cx.out.push(Output::LoggedIn { connection, result });
            }
            self.front.gone(older);
            self.reads.drop_of(older);
        }
        let through = self.sequence.newest_of(login.client).filter(|_| numbers);
        self.front.remember(login, connection);
        let state = LoginState::Waiting { through };
        self.front.connections.insert(connection, Connection { login, state });
        self.front.logging_in.push(connection);
    }

    pub(super) fn answer_logins(&mut self, cx: &mut Cx<'_>) {
        if self.front.logging_in.is_empty() || !self.is_serving() {
            return;
        }
        let (committed, stages) = (self.sequence.committed, self.shared.stages);
        for connection in std::mem::take(&mut self.front.logging_in) {
            let Some(found) = self.front.connections.get_mut(&connection) else { continue };
            let LoginState::Waiting { through } = found.state else { continue };
            if through.is_some_and(|through| through > committed) {
                self.front.logging_in.push(connection);
                continue;
            }
            let known = match found.login.stage {
                Some(stage) => stage >= stages.lowest,
                None => !stages.plain_refused,
            };
            let result = match known {
                true => Ok(()),
                false => Err(LoginError::UnflushedWritesLost),
            };
            found.state = LoginState::In;
            if result.is_err() {
                self.front.connections.remove(&connection);
            }
            cx.out.push(Output::LoggedIn { connection, result });
        }
    }

    pub(super) fn request(
        &mut self,
        connection: ConnectionId,
        id: RequestId,
        request: Request,
        cx: &mut Cx<'_>,
    ) {
        let client = match self.front.client(connection) {
            None => Err(IoError::Superseded),
            Some(_) if self.front.queue.len() + self.reads.len() >= REQUESTS_MAX => {
                Err(IoError::Busy)
            }
            Some(client) => self.out_of_range(&request).map_or(Ok(client), Err),
        };
        let client = match client {
            Ok(client) => client,
            Err(error) => {
                return cx.out.push(Output::Reply { connection, id, result: Err(error) });
            }
        };
        let deadline = cx.now + self.config.hold_deadline;
        match request {
            Request::Read { offset, len } => {
                self.reads.add(connection, id, What::Bytes, (offset, len), deadline);
            }
            Request::Extents { offset, len } => {
                let range = (offset, len.min(EXTENTS_MAX));
                self.reads.add(connection, id, What::Extents, range, deadline);
            }
            request => {
                let queued = Queued { connection, client, id, request, deadline };
                self.front.queue.push_back(queued);
            }
        }
    }

    fn out_of_range(&self, request: &Request) -> Option<IoError> {
        let (offset, len) = match request {
            Request::Read { offset, len }
            | Request::Extents { offset, len }
            | Request::Zero { offset, len, .. } => (*offset, *len),
            Request::Write { offset, data, .. } => (*offset, ByteLen(data.len() as u64)),
            Request::Reservations(bytes) => {
                let fits = bytes.len() <= RESERVATIONS_MAX;
                return (!fits).then_some(IoError::BadRange {
                    offset: ByteOffset(0),
                    len: ByteLen(bytes.len() as u64),
                });
            }
            Request::Flush => return None,
        };
        let any = matches!(request, Request::Zero { .. } | Request::Extents { .. });
        let fits = any || len.0 <= REQUEST_MAX;
        let aligned =
            fits && offset.0.is_multiple_of(LOGICAL_SECTOR) && len.0.is_multiple_of(LOGICAL_SECTOR);
        let within = offset.end(len).is_some_and(|end| end.0 <= self.shared.size.0);
        (len.0 == 0 || !aligned || !within).then_some(IoError::BadRange { offset, len })
    }

    /// Gives seqs to what waits in front, as far as that is allowed now.
    pub(super) fn sequence_requests(&mut self, cx: &mut Cx<'_>) {
        while let Some(queued) = self.front.queue.pop_front() {
            match self.admission(&queued.request, cx.now) {
                Admission::Taken { cost } => self.sequence_request(queued, cost, cx),
                Admission::Wait => {
                    self.front.queue.push_front(queued);
                    break;
                }
                Admission::Refused(error) => {
                    let (connection, id) = (queued.connection, queued.id);
                    cx.out.push(Output::Reply { connection, id, result: Err(error) });
                }
            }
        }
        self.flush_by_itself();
    }

    fn admission(&mut self, request: &Request, now: Moment) -> Admission {
        let held = self.holds.is_in_force() && !off!(self, NoSeqInHold);
        if !self.is_serving() || held || self.sequence.kept() >= self.config.backlog {
            return Admission::Wait;
        }
        match request {
            Request::Write { offset, data, .. } => {
                let len = data.len() as u64;
                if self.laggard(now).is_some() {
                    return Admission::Wait;
                }
                let cost = self.costs().of_write(*offset, ByteLen(len));
                match self.spend_credit(cost, now) {
                    Admission::Taken { .. } if !self.rounds.allows(len) => Admission::Wait,
                    admission => admission,
                }
            }
            Request::Zero { offset, len, how, .. } => {
                self.spend_credit(self.cost_of(&self.zeroing(*offset, *len, *how)), now)
            }
            Request::Flush | Request::Reservations(_) => Admission::Taken { cost: 0 },
            Request::Read { .. } | Request::Extents { .. } => {
                unreachable!("what reads does not queue for a seq")
            }
        }
    }

    fn sequence_request(&mut self, queued: Queued, cost: u64, cx: &mut Cx<'_>) {
        let Queued { connection, client, id, request, deadline } = queued;
        let (waiter, by) = (Waiter { connection, id, deadline }, Some(client));
        match request {
            Request::Write { offset, data, fua } => {
                let granule = self.costs().granule;
                let seq = self.append(Change::write(granule, offset, data), by, cost);
                self.await_write(seq, fua, client, waiter);
            }
            Request::Zero { offset, len, how, fua } => {
                let seq = self.append(self.zeroing(offset, len, how), by, cost);
                self.await_write(seq, fua, client, waiter);
            }
            Request::Flush => self.await_flush(client, waiter, cx),
            Request::Reservations(bytes) => {
                let seq = self.append(Change::Reservations(bytes), by, 0);
                self.front.for_settle.push_back((seq, waiter));
            }
            Request::Read { .. } | Request::Extents { .. } => {
                unreachable!("what reads does not queue for a seq")
            }
        }
    }

    fn await_write(&mut self, seq: Seq, fua: bool, client: ClientId, waiter: Waiter) {
        if fua {
            let flush = self.append(Change::Flush, Some(client), 0);
            self.front.for_settle.push_back((flush, waiter));
        } else {
            self.front.for_commit.push_back((seq, waiter));
        }
    }

    fn await_flush(&mut self, client: ClientId, waiter: Waiter, cx: &mut Cx<'_>) {
        let last = self.sequence.last();
        if self.sequence.settled == last && self.has_lease(cx.now) {
            let Waiter { connection, id, .. } = waiter;
            return cx.out.push(Output::Reply { connection, id, result: Ok(Answer::Done) });
        }
        let seq = match self.sequence.is_flush(last) {
            true => last,
            false => self.append(Change::Flush, Some(client), 0),
        };
        self.front.for_settle.push_back((seq, waiter));
    }

    /// How stores count. All of them alike, since it goes with the block size of the volume; only a
    /// copy that was filled anew is no clone any more.
    fn costs(&self) -> Costs {
        let mut known = self.peers.values().filter_map(|peer| peer.facts.as_ref());
        let first = known.next().map(|facts| facts.costs);
        let costs = first.unwrap_or(Costs { granule: ByteLen(4096), ..Costs::default() });
        let is_clone = costs.is_clone || known.any(|facts| facts.costs.is_clone);
        Costs { is_clone, ..costs }
    }

    /// The most that a change takes in a pool (Q7).
    pub(super) fn cost_of(&self, change: &Change) -> u64 {
        let costs = self.costs();
        let frees = matches!(
            change,
            Change::DeleteSnapshot(_) | Change::Zero { how: Zeroing::Release, .. }
        );
        match frees && off!(self, FreeWithoutCredit) {
            true => costs.of_zero(),
            false => costs.of(change),
        }
    }

    fn zeroing(&self, offset: ByteOffset, len: ByteLen, how: Zeroing) -> Change {
        let how = self.costs().judge(offset, len, how, !self.snapshots.is_empty());
        Change::Zero { offset, len, how }
    }

    /// Whether a quorum of replicas has set space aside for an entry. Credit is topped up while
    /// entries are applied, so it is waited for; but once the pools are known to be full, writes
    /// are refused at once, and whatever gives space back does not wait behind them.
    fn spend_credit(&mut self, cost: u64, now: Moment) -> Admission {
        // What costs nothing frees space: it says nothing of the credit that is left.
        if cost == 0 || off!(self, Headroom) {
            return Admission::Taken { cost };
        }
        let (has, in_stream) = self.credit_for(cost);
        if has {
            self.front.short_since = None;
            return Admission::Taken { cost };
        }
        if !in_stream {
            return Admission::Wait;
        }
        let since = *self.front.short_since.get_or_insert(now);
        match now >= since + CREDIT_PATIENCE {
            true => Admission::Refused(IoError::NoSpace),
            false => Admission::Wait,
        }
    }

    /// Whether a quorum has credit, and whether a quorum is in the stream at all.
    pub(super) fn credit_for(&self, cost: u64) -> (bool, bool) {
        let quorum = self.quorum();
        let in_stream = |member| self.voter(member).is_some_and(|peer| peer.is_in_stream());
        let has = |member| {
            self.voter(member).is_some_and(|peer| {
                let spent = self.sequence.cost_above(peer.held);
                peer.is_in_stream() && peer.headroom.0.saturating_sub(spent) >= cost
            })
        };
        let has = quorum.is_quorum(has);
        (has, has || quorum.is_quorum(in_stream))
    }

    /// A replay window that fills up is made durable (Q5).
    fn flush_by_itself(&mut self) {
        let unflushed = self.sequence.bytes_above(self.sequence.settled);
        let under_way = self.front.own_flush > self.sequence.settled;
        if self.is_serving()
            && unflushed > self.config.backlog / 4
            && !under_way
            && !self.holds.is_in_force()
        {
            self.front.own_flush = self.append(Change::Flush, None, 0);
        }
    }

    /// Answers what a quorum holds, and what it has durably; nothing during a hold (Q10).
    pub(super) fn answer_settled(&mut self, cx: &mut Cx<'_>) {
        let held = self.holds.is_in_force() && !off!(self, NoSeqInHold);
        if !self.is_active() || held {
            return;
        }
        let done = [
            (&mut self.front.for_commit, self.sequence.acked),
            (&mut self.front.for_settle, self.sequence.settled),
        ];
        for (waiting, through) in done {
            while let Some((_, waiter)) = waiting.pop_front_if(|(seq, _)| *seq <= through) {
                let Waiter { connection, id, .. } = waiter;
                cx.out.push(Output::Reply { connection, id, result: Ok(Answer::Done) });
            }
        }
        self.answer_commands(cx);
    }

    /// What waited longer than the class allows fails; the reason is told (P6).
    pub(super) fn expire_requests(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let mut late: Vec<(ConnectionId, RequestId)> = Vec::new();
        while let Some(queued) = self.front.queue.pop_front_if(|queued| now >= queued.deadline) {
            late.push((queued.connection, queued.id));
        }
        for waiting in [&mut self.front.for_commit, &mut self.front.for_settle] {
            while let Some((_, waiter)) = waiting.pop_front_if(|(_, it)| now >= it.deadline) {
                late.push((waiter.connection, waiter.id));
            }
        }
        late.extend(self.reads.expire(now));
        if late.is_empty() {
            return;
        }
        let reason = self.why_held(now);
        for (connection, id) in late {
            let result = Err(IoError::NoQuorum { reason: reason.clone() });
            cx.out.push(Output::Reply { connection, id, result });
        }
    }

    /// The reign is over: whoever waits is told.
    pub(super) fn refuse_everything(&mut self, cx: &mut Cx<'_>) {
        let queued = self.front.queue.drain(..).map(|queued| (queued.connection, queued.id));
        let mut waiting: Vec<(ConnectionId, RequestId)> = queued.collect();
        let sequenced = self.front.for_commit.drain(..).chain(self.front.for_settle.drain(..));
        waiting.extend(sequenced.map(|(_, waiter)| (waiter.connection, waiter.id)));
        waiting.extend(self.reads.drain());
        for (connection, id) in waiting {
            cx.out.push(Output::Reply { connection, id, result: Err(IoError::Stopped) });
        }
        for (connection, found) in std::mem::take(&mut self.front.connections) {
            if found.state != LoginState::In {
                let result = Err(LoginError::Stopped);
                cx.out.push(Output::LoggedIn { connection, result });
            }
        }
        self.refuse_commands(cx);
    }
}
