//! All connections and sessions of a node's shard.
use std::collections::BTreeMap;
use std::time::Duration;

use crate::ask::Buffers;
use crate::export::{OpenError, split_stage};
use crate::scsi::words::NexusId;

use super::chap::Random;
use super::conn::{Conn, Env, Phase};
use super::errors::{CloseReason, LoginError};
use super::events::{ConnNo, Event, Output, SessionNo};
use super::limits::Limits;
use super::login::{Kind, Who};
use super::session::{Flow, Identity, Session};

/// The target side of iSCSI, without sockets.
///
/// How many connections there may be that have not logged in is for the owner to decide, who has doors for
/// other protocols as well: it drops those that are [`Portal::is_unproved`] with `Event::Lost`. Each
/// has its time (`Limits::login_time_max`), and costs no more than the text of a request.
pub struct Portal {
    limits: Limits,
    random: Random,
    conns: BTreeMap<ConnNo, Conn>,
    /// Sessions that the owner knows of, also while it logs them in.
    nexuses: BTreeMap<NexusId, ConnNo>,
    nexus_next: u64,
    tsih: u16,
}

/// What the owner lends for a step.
struct Lent<'a> {
    now: Duration,
    buffers: &'a mut dyn Buffers,
    out: &'a mut Vec<Output>,
}

impl Portal {
    /// `random` fills bytes for challenges: they have to be beyond guessing.
    pub fn new(limits: Limits, mut random: Random) -> Portal {
        limits.check();
        let mut first = [0; 2];
        random(&mut first);
        Portal {
            nexus_next: limits.nexus_first,
            limits,
            random,
            conns: BTreeMap::new(),
            nexuses: BTreeMap::new(),
            tsih: u16::from_be_bytes(first),
        }
    }

    /// `now` is the time since some start; it never goes back.
    pub fn step(
        &mut self,
        now: Duration,
        event: Event<'_>,
        buffers: &mut dyn Buffers,
        out: &mut Vec<Output>,
    ) {
        let lent = &mut Lent { now, buffers, out };
        match event {
            Event::Accepted { conn, portal, peer } => self.accept(lent, conn, portal, peer),
            Event::Received { conn, bytes } => {
                self.on(lent, conn, |conn, env| conn.received(env, bytes));
            }
            Event::Landed { conn, len } => {
                self.on(lent, conn, |conn, env| conn.landed(env, len));
            }
            Event::Lost { conn } => self.forget(lent, conn),
            Event::Listed { conn, targets } => self.on(lent, conn, |conn, env| {
                conn.with_session(env, |session, cx, portal| {
                    session.listed(cx, portal, &targets);
                    Flow::Continue
                })
            }),
            Event::Found { conn, result } => {
                self.on(lent, conn, |conn, env| conn.found(env, result));
            }
            Event::LoggedIn { session, result } => self.logged_in(lent, session, result),
            Event::Response { nexus, task, response } => self.on_nexus(lent, nexus, |conn, env| {
                conn.with_session(env, |session, cx, _| {
                    session.respond(cx, task, response);
                    Flow::Continue
                })
            }),
            Event::Managed { nexus, id, result } => self.on_nexus(lent, nexus, |conn, env| {
                conn.with_session(env, |session, cx, _| session.managed(cx, id, result))
            }),
            Event::Drain { iqn } => self.on_all(lent, |conn, env| conn.drain(env, &iqn)),
            Event::Expel { nexus } => self.on_nexus(lent, nexus, |conn, env| Err(conn.expel(env))),
            Event::Unsent { conn, bytes } => self.on(lent, conn, |conn, env| {
                conn.with_session(env, |session, cx, _| {
                    session.unsent(cx, bytes);
                    Flow::Continue
                })
            }),
            Event::Tick => self.on_all(lent, Conn::tick),
        }
    }

    /// The rest of a data segment that is under way and may be received in place; empty if there
    /// is none. What is put there is told with `Event::Landed` before anything else.
    pub fn landing(&mut self, conn: ConnNo) -> &mut [u8] {
        self.conns.get_mut(&conn).map(Conn::landing).unwrap_or_default()
    }

    /// Whether it has still to say who it is, and to prove it where that is asked for. One whose login
    /// waits for its target has done so.
    pub fn is_unproved(&self, conn: ConnNo) -> bool {
        let login = |conn: &Conn| matches!(conn.phase, Phase::Login(_)) && conn.nexus().is_none();
        self.conns.get(&conn).is_some_and(login)
    }

    /// The nexus of a connection that is logged in at a target, or about to be. Discovery sessions have
    /// none.
    pub fn nexus(&self, conn: ConnNo) -> Option<NexusId> {
        self.conns.get(&conn).and_then(Conn::nexus)
    }

    /// Whether it has much to send, and its owner tells it when some of that is sent.
    pub fn watches_unsent(&self, conn: ConnNo) -> bool {
        match self.conns.get(&conn).map(|conn| &conn.phase) {
            Some(Phase::Full(session)) => session.reads.watches_unsent(),
            Some(Phase::Login(_)) | None => false,
        }
    }

    /// Whether to receive more. What was received already may be given nevertheless. Ask after
    /// every step: it changes with answers too.
    pub fn wants_bytes(&self, conn: ConnNo) -> bool {
        self.conns.get(&conn).is_some_and(Conn::wants_bytes)
    }

    fn accept(&mut self, lent: &mut Lent<'_>, conn: ConnNo, portal: String, peer: String) {
        self.conns.insert(conn, Conn::new(conn, portal, peer, lent.now, &self.limits));
    }

    /// Does something on a connection, and what follows from it.
    fn on(
        &mut self,
        lent: &mut Lent<'_>,
        no: ConnNo,
        work: impl FnOnce(&mut Conn, &mut Env<'_>) -> Result<Flow, CloseReason>,
    ) {
        let Some(conn) = self.conns.get_mut(&no) else { return };
        let Lent { now, buffers, out } = lent;
        let Portal { limits, random, .. } = self;
        let env = &mut Env { now: *now, limits, random, buffers: *buffers, out };
        match work(conn, env) {
            Ok(Flow::Continue) => {}
            Ok(Flow::Enter) => self.enter(lent, no),
            Ok(Flow::LoggedOut) => self.close(lent, no, None),
            Ok(Flow::ColdReset) => self.cold_reset(lent, no),
            Err(reason) => self.close(lent, no, Some(reason)),
        }
    }

    fn on_nexus(
        &mut self,
        lent: &mut Lent<'_>,
        nexus: NexusId,
        work: impl FnOnce(&mut Conn, &mut Env<'_>) -> Result<Flow, CloseReason>,
    ) {
        if let Some(no) = self.nexuses.get(&nexus).copied() {
            self.on(lent, no, work);
        }
    }

    fn on_all(
        &mut self,
        lent: &mut Lent<'_>,
        work: impl Fn(&mut Conn, &mut Env<'_>) -> Result<Flow, CloseReason>,
    ) {
        let all: Vec<ConnNo> = self.conns.keys().copied().collect();
        for no in all {
            self.on(lent, no, &work);
        }
    }

    /// A login is negotiated: its session begins, or the owner is asked.
    fn enter(&mut self, lent: &mut Lent<'_>, no: ConnNo) {
        let Some(Phase::Login(login)) = self.conns.get(&no).map(|conn| &conn.phase) else { return };
        let Some((who, _)) = login.entering() else { return };
        let who = who.clone();
        let Kind::Normal { target } = &who.kind else {
            return match self.admit(no, &who, None) {
                Ok(()) => {
                    self.begin(lent, no);
                    self.thin_discovery(lent, no);
                }
                Err(error) => self.on(lent, no, |conn, env| Err(conn.refuse_waiting(env, error))),
            };
        };
        let old = self.same_port(no, &who, target);
        if let Err(error) = self.admit(no, &who, old) {
            return self.on(lent, no, |conn, env| Err(conn.refuse_waiting(env, error)));
        }
        let replaces = old.and_then(|old| self.conns.remove(&old).map(|conn| (old, conn)));
        let replaces = replaces.and_then(|(old, conn)| {
            let reason = Some(CloseReason::Replaced);
            lent.out.push(Output::Close { conn: old, reason });
            conn.nexus()
        });
        if let Some(nexus) = replaces {
            self.nexuses.remove(&nexus);
        }
        let (nexus, session) = (NexusId(self.nexus_next), SessionNo(self.nexus_next));
        self.nexus_next += 1;
        self.nexuses.insert(nexus, no);
        if let Some(Phase::Login(login)) = self.conns.get_mut(&no).map(|conn| &mut conn.phase) {
            login.numbered(session);
        }
        let (target, port) = (target.clone(), who.port);
        lent.out.push(Output::Login { session, nexus, target, port, replaces });
    }

    /// Whether another session may begin, beside one that it replaces.
    fn admit(&self, no: ConnNo, who: &Who, old: Option<ConnNo>) -> Result<(), LoginError> {
        if who.tsih != 0 {
            let same = self.sessions().find(|session| {
                let port = match &session.identity {
                    Identity::Discovery => None,
                    Identity::Normal { port, .. } => Some(port),
                };
                session.tsih == who.tsih && port == Some(&who.port)
            });
            return Err(match same {
                None => LoginError::NoSuchSession { tsih: who.tsih },
                Some(session) if session.cid == who.cid => LoginError::NoReinstatement,
                Some(_) => LoginError::SecondConnection,
            });
        }
        let (Kind::Normal { target }, Some(own)) = (&who.kind, self.conns.get(&no)) else {
            return Ok(());
        };
        let is_session = |(other, conn): &(&ConnNo, &Conn)| {
            Some(**other) != old && **other != no && conn.nexus().is_some()
        };
        let (mut all, mut at_target, mut from_address) = (0, 0, 0);
        for (_, conn) in self.conns.iter().filter(is_session) {
            all += 1;
            let other = conn.target().unwrap_or_default();
            at_target += usize::from(split_stage(other).0 == split_stage(target).0);
            from_address += usize::from(conn.peer == own.peer);
        }
        let Limits { sessions_max, target_sessions_max, address_sessions_max, .. } = self.limits;
        match () {
            () if all >= sessions_max => Err(LoginError::TooManySessions),
            () if at_target >= target_sessions_max => {
                Err(LoginError::TooManyAtTarget { max: target_sessions_max })
            }
            () if from_address >= address_sessions_max => {
                Err(LoginError::TooManyFromAddress { max: address_sessions_max })
            }
            () => Ok(()),
        }
    }

    /// Another discovery session has begun. If there are too many, that one ends which is the oldest of
    /// those from one address: of the newcomer's, or of another that has more of them. So who asks
    /// for many sessions loses its own.
    fn thin_discovery(&mut self, lent: &mut Lent<'_>, newest: ConnNo) {
        let open = || self.conns.iter().filter(|(_, conn)| conn.is_discovery());
        if open().count() <= self.limits.discovery_max {
            return;
        }
        let mut of_address = BTreeMap::<&str, (usize, ConnNo)>::new();
        for (no, conn) in open() {
            let (count, oldest) = of_address.entry(&conn.peer).or_insert((0, *no));
            *count += 1;
            *oldest = *no.min(oldest);
        }
        let own = self.conns.get(&newest).map_or("", |conn| &conn.peer[..]);
        let most = of_address.iter().max_by_key(|(peer, (count, _))| (*count, **peer == own));
        if let Some((_, (_, oldest))) = most {
            let oldest = *oldest;
            self.close(lent, oldest, Some(CloseReason::DiscoveryCrowded));
        }
    }

    fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.conns.values().filter_map(|conn| match &conn.phase {
            Phase::Login(_) => None,
            Phase::Full(session) => Some(&**session),
        })
    }

    /// Another connection of the same initiator port to the same target, logged in or about to be.
    fn same_port(&self, no: ConnNo, who: &Who, at: &str) -> Option<ConnNo> {
        let mut others = self.conns.iter().filter(|(other, _)| **other != no);
        let found = others.find(|(_, conn)| match &conn.phase {
            Phase::Login(login) => login
                .entering()
                .is_some_and(|(other, _)| other.port == who.port && other.kind == who.kind),
            Phase::Full(session) => match &session.identity {
                Identity::Discovery => false,
                Identity::Normal { port, target, .. } => *port == who.port && target == at,
            },
        });
        found.map(|(other, _)| *other)
    }

    fn logged_in(
        &mut self,
        lent: &mut Lent<'_>,
        session: SessionNo,
        result: Result<(), OpenError>,
    ) {
        let nexus = NexusId(session.0);
        let Some(no) = self.nexuses.get(&nexus).copied() else { return };
        let Some(Phase::Login(_)) = self.conns.get(&no).map(|conn| &conn.phase) else { return };
        let Err(error) = result else { return self.begin(lent, no) };
        // The owner knows that this session is none.
        self.nexuses.remove(&nexus);
        self.on(lent, no, |conn, env| Err(conn.refuse_waiting(env, LoginError::Target(error))));
    }

    fn begin(&mut self, lent: &mut Lent<'_>, no: ConnNo) {
        loop {
            self.tsih = self.tsih.wrapping_add(1);
            let is_used = self.sessions().any(|session| session.tsih == self.tsih);
            if self.tsih != 0 && !is_used {
                break;
            }
        }
        let tsih = self.tsih;
        self.on(lent, no, |conn, env| {
            conn.enter(env, tsih);
            Ok(Flow::Continue)
        });
    }

    /// Ends every session of the target at which this one is.
    fn cold_reset(&mut self, lent: &mut Lent<'_>, no: ConnNo) {
        let Some(Phase::Full(session)) = self.conns.get(&no).map(|conn| &conn.phase) else {
            return;
        };
        let Identity::Normal { target, .. } = &session.identity else { return };
        let iqn = split_stage(target).0.to_owned();
        self.on_all(lent, |conn, _| match &conn.phase {
            Phase::Full(session) if session.is_at(&iqn) => Err(CloseReason::ColdReset),
            Phase::Full(_) | Phase::Login(_) => Ok(Flow::Continue),
        });
    }

    fn close(&mut self, lent: &mut Lent<'_>, conn: ConnNo, reason: Option<CloseReason>) {
        lent.out.push(Output::Close { conn, reason });
        self.forget(lent, conn);
    }

    fn forget(&mut self, lent: &mut Lent<'_>, no: ConnNo) {
        let Some(conn) = self.conns.remove(&no) else { return };
        // A login that the owner refused has no nexus any more.
        if let Some(nexus) = conn.nexus().filter(|nexus| self.nexuses.remove(nexus).is_some()) {
            lent.out.push(Output::Ended { nexus });
        }
    }
}
