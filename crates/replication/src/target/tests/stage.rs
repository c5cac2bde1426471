//! A stage for a target: replicas that do as they are told, a catalog, a clock.
use std::collections::{BTreeMap, BTreeSet};

use block::{ByteLen, ByteOffset, Data, Position, Seq};

use crate::catalog::{CatalogAnswer, CatalogAsk, VolumeObject};
use crate::client::{Command, CommandError, ConnectionId, Extent, Login, Request, RequestId};
use crate::cost::Costs;
use crate::entry::Entry;
use crate::membership::{Member, Membership, Voters};
use crate::message::{
    Fetched, ForTarget, OpenedRound, ReadFailure, Refusal, RoundFailure, RoundPoint, ToReplica,
    ToTarget, Welcome,
};
use crate::replica::LinkId;
use crate::state::{ImportMark, Promise, SharedState};
use crate::target::{Begin, Config, Event, Output, Stopped, Target};
use crate::words::{
    Boot, CatalogVersion, ClientId, ConnectionNumber, Grant, Incarnation, Moment, NodeId,
    ReplicaId, Span, StageNumber,
};

/// A replica that follows the protocol in memory.
pub struct Fake {
    pub position: Position,
    pub durable: Seq,
    pub shared: SharedState,
    pub promise: Promise,
    pub incarnation: Incarnation,
    pub regressed: bool,
    pub boot: Boot,
    /// The highest version of a membership that it has seen.
    pub seen: u64,
    /// It takes nothing in and says nothing.
    pub silent: bool,
    /// Entries are taken in but not acknowledged.
    pub mute: bool,
    /// It confirms the lease.
    pub renews: bool,
    /// Space that it has set aside for the stream.
    pub headroom: u64,
    pub is_clone: bool,
    /// What it says to questions for extents; `None`: that there is nothing.
    pub extents: Option<Result<Vec<Extent>, ReadFailure>>,
    /// Its copy is damaged, and bytes for a repair are the right ones only from now on.
    pub damaged: Option<bool>,
    pub reads: usize,
    /// Messages with entries that it got.
    pub batches: usize,
    pub entries: Vec<Entry>,
    /// Where it is frozen for rounds.
    pub frozen: BTreeSet<Position>,
    /// What it catches up with; it is begun when it is told to begin, or when the test says so.
    pub import: Option<ImportMark>,
    pub begins_imports: bool,
    link: Option<LinkId>,
}

impl Fake {
    pub fn new() -> Fake {
        Fake {
            position: Position::default(),
            durable: Seq(0),
            shared: SharedState { size: ByteLen(1 << 20), ..SharedState::default() },
            promise: Promise::default(),
            incarnation: Incarnation(1),
            regressed: false,
            boot: Boot(1),
            seen: 0,
            silent: false,
            mute: false,
            renews: true,
            headroom: 1 << 30,
            is_clone: false,
            extents: None,
            damaged: None,
            reads: 0,
            batches: 0,
            entries: Vec::new(),
            frozen: BTreeSet::new(),
            import: None,
            begins_imports: true,
            link: None,
        }
    }

    fn welcome(&self) -> Box<Welcome> {
        Box::new(Welcome {
            incarnation: self.incarnation,
            boot: self.boot,
            position: self.position,
            shared: self.shared.clone(),
            dirty: false,
            regressed: self.regressed,
            snapshots: Vec::new(),
            rounds: Vec::new(),
            import: self.import.map(|mark| (mark, ByteOffset(0))),
            headroom: ByteLen(self.headroom),
            block_size: ByteLen(4096),
            costs: Costs {
                granule: ByteLen(4096),
                per_write: ByteLen(4096),
                per_granule: ByteLen(4096),
                is_clone: self.is_clone,
            },
        })
    }

    fn ack(&self) -> ToTarget {
        let (held, durable) = (self.position.seq, self.durable);
        ToTarget::Ack { boot: self.boot, held, durable, headroom: ByteLen(self.headroom) }
    }

    fn hear(&mut self, body: ToReplica) -> Vec<ToTarget> {
        match body {
            ToReplica::Hello(hello) => {
                let again = hello.promise == self.promise;
                if hello.promise.term <= self.promise.term && !again {
                    return vec![ToTarget::Refused(Refusal::Promised(self.promise))];
                }
                if hello.membership.version < self.seen {
                    let refusal = Refusal::OlderMembership { seen: self.seen };
                    return vec![ToTarget::Refused(refusal)];
                }
                self.promise = hello.promise;
                self.durable = self.position.seq;
                vec![ToTarget::Welcome(self.welcome())]
            }
            ToReplica::Entries(entries) => {
                self.batches += 1;
                for entry in entries {
                    assert_eq!(entry.seq.0, self.position.seq.0 + 1, "entries come in order");
                    self.position = entry.position(self.promise.term);
                    self.shared.follow(self.position, &entry.change).expect("a legal entry");
                    if entry.change.is_flushed() {
                        self.durable = entry.seq;
                    }
                    self.entries.push(entry);
                }
                if self.mute { Vec::new() } else { vec![self.ack()] }
            }
            ToReplica::Renew { sent, .. } if self.renews => vec![ToTarget::Renewed { sent }],
            ToReplica::Read { id, offset, .. } if self.damaged.is_some() => {
                vec![ToTarget::ReadDone { id, result: Err(ReadFailure::Damaged { offset }) }]
            }
            ToReplica::Repair { id, .. } => {
                let ok = self.damaged == Some(true);
                // The next bytes are the right ones.
                self.damaged = self.damaged.map(|_| true).filter(|_| !ok);
                vec![ToTarget::Repaired { id, ok }]
            }
            ToReplica::Read { id, len, .. } => {
                self.reads += 1;
                let data = Data::copy_of(&vec![7; usize::try_from(len.0).expect("a short read")]);
                vec![ToTarget::ReadDone { id, result: Ok(data) }]
            }
            ToReplica::Extents { id, len, .. } => {
                let nothing = || Ok(vec![Extent { len, has_data: false }]);
                let result = self.extents.clone().unwrap_or_else(nothing);
                vec![ToTarget::ExtentsDone { id, result }]
            }
            round => self.take_part(round),
        }
    }

    /// In a round, as its source or as its destination. Nothing is ever changed but the position.
    fn take_part(&mut self, body: ToReplica) -> Vec<ToTarget> {
        match body {
            ToReplica::OpenRound { id, point: RoundPoint::Now } => {
                self.frozen.insert(self.position);
                let (position, shared) = (self.position, self.shared.clone());
                let (size, snapshots) = (shared.size, Vec::new());
                let opened = OpenedRound { position, shared, size, snapshot: None, snapshots };
                vec![ToTarget::RoundOpened { id, opened: Ok(Box::new(opened)) }]
            }
            // It has no snapshots of users.
            ToReplica::OpenRound { id, point: RoundPoint::Snapshot(_) } => {
                vec![ToTarget::RoundOpened { id, opened: Err(RoundFailure::Gone) }]
            }
            ToReplica::CloseRound { round } => {
                self.frozen.remove(&round);
                Vec::new()
            }
            ToReplica::Fetch { id, round, to, .. } => {
                let there = self.frozen.contains(&round);
                let fetched = Fetched { pieces: Vec::new(), through: to };
                let result = if there { Ok(fetched) } else { Err(RoundFailure::Gone) };
                vec![ToTarget::Fetched { id, result }]
            }
            ToReplica::BeginImport { mark, .. } => {
                self.import = Some(mark);
                let begun = self.begins_imports.then_some(ToTarget::ImportBegun { kept: None });
                begun.into_iter().collect()
            }
            ToReplica::CommitImport { shared, .. } => {
                self.position = self.import.take().expect("it was begun").source;
                (self.durable, self.shared) = (self.position.seq, *shared);
                vec![ToTarget::Committed { position: self.position }]
            }
            _ => Vec::new(),
        }
    }
}

pub struct Stage {
    pub target: Target,
    pub now: Moment,
    pub replicas: BTreeMap<ReplicaId, Fake>,
    pub catalog: VolumeObject,
    pub catalog_is_away: bool,
    /// How often the catalog was asked.
    pub asked: usize,
    always: Option<CatalogAnswer>,
    /// What went to clients, operators and the owner.
    pub heard: Vec<Output>,
    next_link: u64,
    cut: BTreeSet<ReplicaId>,
}

pub fn member(replica: u64) -> Member {
    Member { replica: ReplicaId(replica), incarnation: Incarnation(1) }
}

pub fn members(count: u64) -> Vec<Member> {
    (1..=count).map(member).collect()
}

impl Stage {
    /// A volume with so many replicas, and a target that takes it over.
    pub fn new(rf: u64) -> Stage {
        let voters = Voters::of(&members(rf));
        let catalog = VolumeObject {
            version: CatalogVersion(1),
            grant: Grant(0),
            holder: NodeId(0),
            membership: Membership { version: 1, voters, next: None },
            desired: members(rf),
            ..VolumeObject::default()
        };
        let replicas = (1..=rf).map(|id| (ReplicaId(id), Fake::new())).collect();
        let (now, mut out) = (Moment(1_000_000), Vec::new());
        let target = Target::begin(config(1), Begin::TakeOver, now, &mut out);
        let mut stage = Stage {
            target,
            now,
            replicas,
            catalog,
            catalog_is_away: false,
            asked: 0,
            always: None,
            heard: Vec::new(),
            next_link: 1,
            cut: BTreeSet::new(),
        };
        stage.carry(out);
        stage
    }

    /// Another target on another node takes the volume over; the one before it is gone.
    pub fn take_over(&mut self, node: u64) {
        let mut out = Vec::new();
        self.target = Target::begin(config(node), Begin::TakeOver, self.now, &mut out);
        self.carry(out);
    }

    /// The process is started again on the same node, without the catalog's help.
    pub fn start_again(&mut self, run: u64) {
        self.begin_on(self.catalog.holder, Begin::Granted, run);
    }

    /// The process is started again on some node, with what it remembers.
    pub fn begin_on(&mut self, node: NodeId, begin: Begin, run: u64) {
        let config = Config { run: Boot(run), node, ..config(1) };
        let mut out = Vec::new();
        self.target = Target::begin(config, begin, self.now, &mut out);
        self.carry(out);
    }

    pub fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.target.step(self.now, event, &mut out);
        self.carry(out);
    }

    pub fn step_all(&mut self, mut events: Vec<Event>) {
        let mut out = Vec::new();
        self.target.step_all(self.now, &mut events, &mut out);
        self.carry(out);
    }

    pub fn pass(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + Span::millis(50);
            self.step(Event::Tick);
        }
    }

    /// The connection with a replica breaks, and no other is to be had.
    pub fn cut_off(&mut self, replica: u64) {
        let replica = ReplicaId(replica);
        self.cut.insert(replica);
        if let Some(link) = self.replicas.get_mut(&replica).and_then(|fake| fake.link.take()) {
            self.step(Event::LinkLost { replica, link });
        }
    }

    pub fn reconnect(&mut self, replica: u64) {
        self.cut.remove(&ReplicaId(replica));
    }

    fn carry(&mut self, mut out: Vec<Output>) {
        while !out.is_empty() {
            let mut events = Vec::new();
            for output in std::mem::take(&mut out) {
                self.deliver(output, &mut events);
            }
            self.target.step_all(self.now, &mut events, &mut out);
        }
    }

    fn deliver(&mut self, output: Output, events: &mut Vec<Event>) {
        match output {
            Output::Catalog(ask) if !self.catalog_is_away => {
                events.push(Event::Catalog(self.ask_catalog(ask)));
            }
            Output::Catalog(_) | Output::Disconnect { .. } => {}
            Output::Connect { replica } if self.cut.contains(&replica) => {}
            Output::Connect { replica } => {
                let Some(fake) = self.replicas.get_mut(&replica) else { return };
                let link = LinkId(self.next_link);
                self.next_link += 1;
                fake.link = Some(link);
                events.push(Event::LinkUp { replica, link });
            }
            Output::Send { replica, link, message } => {
                let fake = self.replicas.get_mut(&replica).expect("only replicas are sent to");
                if fake.silent || self.cut.contains(&replica) {
                    return;
                }
                for body in fake.hear(message.body) {
                    let message = ForTarget { term: message.term, body };
                    events.push(Event::Message { replica, link, message });
                }
            }
            other => self.heard.push(other),
        }
    }

    fn ask_catalog(&mut self, ask: CatalogAsk) -> CatalogAnswer {
        self.asked += 1;
        if let Some(answer) = &self.always {
            return answer.clone();
        }
        match ask {
            CatalogAsk::Swap { expected, grant, object }
                if expected == self.catalog.version && grant == self.catalog.grant =>
            {
                self.catalog = *object;
                self.catalog.version = CatalogVersion(expected.0 + 1);
                CatalogAnswer::Swapped(Box::new(self.catalog.clone()))
            }
            _ => CatalogAnswer::Object(Box::new(self.catalog.clone())),
        }
    }

    /// What the catalog answers, whatever it is asked, as long as it is set.
    pub fn answer_always(&mut self, answer: Option<CatalogAnswer>) {
        self.always = answer;
    }

    /// The catalog tells what changed.
    pub fn change_desired(&mut self, desired: Vec<Member>) {
        // New ones have caught up already.
        let first = &self.replicas[&ReplicaId(1)];
        let (position, shared) = (first.position, first.shared.clone());
        for member in &desired {
            let there = Fake { position, shared: shared.clone(), ..Fake::new() };
            self.replicas.entry(member.replica).or_insert(there);
        }
        self.catalog.desired = desired;
        self.catalog.version = CatalogVersion(self.catalog.version.0 + 1);
        let object = Box::new(self.catalog.clone());
        self.step(Event::Catalog(CatalogAnswer::Object(object)));
    }

    pub fn log_in(&mut self, connection: u64, client: u64, number: u64, stage: Option<u64>) {
        let login = Login {
            client: ClientId(client),
            number: ConnectionNumber(number),
            stage: stage.map(StageNumber),
        };
        self.step(Event::Login { connection: ConnectionId(connection), login });
    }

    pub fn ask(&mut self, connection: u64, id: u64, request: Request) {
        let (connection, id) = (ConnectionId(connection), RequestId(id));
        self.step(Event::Request { connection, id, request });
    }

    /// What a replica would say of its books.
    pub fn ack_of(&self, replica: u64) -> Event {
        let replica = ReplicaId(replica);
        let fake = &self.replicas[&replica];
        let message = ForTarget { term: fake.promise.term, body: fake.ack() };
        Event::Message { replica, link: fake.link.expect("it is connected"), message }
    }

    /// A replica says something of itself.
    pub fn say(&mut self, replica: u64, body: ToTarget) {
        let replica = ReplicaId(replica);
        let fake = &self.replicas[&replica];
        let link = fake.link.expect("it is connected");
        let message = ForTarget { term: fake.promise.term, body };
        self.step(Event::Message { replica, link, message });
    }

    /// The same, to be taken together with others.
    pub fn request(connection: u64, id: u64, request: Request) -> Event {
        Event::Request { connection: ConnectionId(connection), id: RequestId(id), request }
    }

    pub fn is_serving(&self) -> bool {
        self.target.status(self.now).serving
    }

    /// The answer to a request, if it came.
    pub fn answer(&self, id: u64) -> Option<String> {
        self.heard.iter().find_map(|output| match output {
            Output::Reply { id: it, result, .. } if *it == RequestId(id) => Some(match result {
                Ok(_) => "ok".to_string(),
                Err(error) => error.to_string(),
            }),
            _ => None,
        })
    }

    pub fn command(&mut self, id: u64, command: Command) {
        self.step(Event::Command { id: RequestId(id), command });
    }

    /// The first answer to a command, if it came.
    pub fn command_answer(&self, id: u64) -> Option<Result<(), CommandError>> {
        self.heard.iter().find_map(|output| match output {
            Output::Answer { id: it, result } if *it == RequestId(id) => {
                Some(result.clone().map(|_| ()))
            }
            _ => None,
        })
    }

    pub fn login_answer(&self, connection: u64) -> Option<bool> {
        self.heard.iter().find_map(|output| match output {
            Output::LoggedIn { connection: it, result } if *it == ConnectionId(connection) => {
                Some(result.is_ok())
            }
            _ => None,
        })
    }

    pub fn stopped(&self) -> Option<Stopped> {
        self.heard.iter().find_map(|output| match output {
            Output::Stopped { reason } => Some(reason.clone()),
            _ => None,
        })
    }

    pub fn held(&self, replica: u64) -> Seq {
        self.replicas[&ReplicaId(replica)].position.seq
    }

    pub fn fake(&mut self, replica: u64) -> &mut Fake {
        self.replicas.get_mut(&ReplicaId(replica)).expect("it is on the stage")
    }
}

pub fn write(block: u64) -> Request {
    let data = Data::copy_of(&[9; 4096]);
    Request::Write { offset: ByteOffset(block * 4096), data, fua: false }
}

pub fn read(block: u64) -> Request {
    Request::Read { offset: ByteOffset(block * 4096), len: ByteLen(4096) }
}

fn config(node: u64) -> Config {
    Config { backlog: 1 << 20, ..Config::new(NodeId(node), Boot(node * 100)) }
}
