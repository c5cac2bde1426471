//! Peers that say anything that can be decoded, in any order: a target or a replica loses that peer
//! at the most. `POLLUX_FUZZ_SECONDS` and `POLLUX_FUZZ_SEED` are as for the engine's decoders.
#![forbid(unsafe_code)]
#[allow(dead_code, reason = "each test takes what it needs of it")]
mod random;
#[path = "../../engine/tests/fuzz_decoders/running.rs"]
#[allow(dead_code, reason = "the engine's decoders need more of it")]
mod running;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use block::{ByteLen, ByteOffset, Data, Position, Seq};
use random::Rng;
use random::messages::{TO_REPLICA, TO_TARGET};
use replication::catalog::{CatalogAnswer, VolumeObject};
use replication::client::{Command, ConnectionId, Login, Request, RequestId};
use replication::cost::Costs;
use replication::entry::{Change, Entry, Zeroing};
use replication::history::{Reign, Reigns};
use replication::membership::{Member, Membership, Voters};
use replication::message::{
    AskId, ForReplica, ForTarget, Hello, ToReplica, ToTarget, Welcome, decode_to_replica,
    decode_to_target, encode_to_replica, encode_to_target,
};
use replication::replica::{self, LinkId, Replica, Run};
use replication::state::{Promise, ReplicaState, SharedState};
use replication::store::{StoreFacts, StoreOp, StoreReply};
use replication::target::{self, Begin, Config, Standing, Target};
use replication::words::{
    Boot, CatalogVersion, ClientId, ConnectionNumber, Grant, Incarnation, Moment, NodeId, Powered,
    ReplicaId, Span,
};
use running::{fuzz, note};

const SIZE: u64 = 1 << 20;
const STEPS: usize = 400;

/// Inputs in which a target served at all, and in which replicas were left out or caught up.
static SERVED: AtomicUsize = AtomicUsize::new(0);
static ASIDE: AtomicUsize = AtomicUsize::new(0);

fn member(id: u64) -> Member {
    Member { replica: ReplicaId(id), incarnation: Incarnation(1) }
}

/// A welcome that a target believes.
fn plausible(rng: &mut Rng) -> Box<Welcome> {
    let seq = rng.below(50);
    let reigns = match seq {
        0 => Reigns::default(),
        _ => Reigns::new(vec![Reign { term: block::Term(1), first: Seq(1) }]).expect("one reign"),
    };
    let shared = SharedState { size: ByteLen(SIZE), reigns, ..SharedState::default() };
    Box::new(Welcome {
        incarnation: Incarnation(1),
        position: Position::new(u64::from(seq > 0), seq),
        shared,
        block_size: ByteLen(4096),
        costs: Costs {
            granule: ByteLen(4096),
            per_write: ByteLen(4096),
            per_granule: ByteLen(4096),
            is_clone: rng.chance(),
        },
        ..rng.welcome()
    })
}

/// A target with three replicas, of which the first says what it likes.
struct Reigning {
    target: Target,
    now: Moment,
    object: VolumeObject,
    links: BTreeMap<ReplicaId, LinkId>,
    next_link: u64,
    asked: Vec<AskId>,
    served: bool,
    out: Vec<target::Output>,
}

impl Reigning {
    fn new() -> Reigning {
        let members = [member(1), member(2), member(3)];
        let voters = Voters::of(&members);
        let object = VolumeObject {
            version: CatalogVersion(3),
            grant: Grant(1),
            holder: NodeId(1),
            membership: Membership { version: 1, voters, next: None },
            desired: members.to_vec(),
            ..VolumeObject::default()
        };
        let (now, mut out) = (Moment(1_000_000), Vec::new());
        let target = Target::begin(Config::new(NodeId(1), Boot(9)), Begin::Granted, now, &mut out);
        let (links, asked) = (BTreeMap::new(), Vec::new());
        Reigning { target, now, object, links, next_link: 0, asked, served: false, out }
    }

    fn step(&mut self, event: target::Event) {
        self.target.step(self.now, event, &mut self.out);
        let mut events = Vec::new();
        for output in std::mem::take(&mut self.out) {
            match output {
                target::Output::Catalog(_) => {
                    let object = Box::new(self.object.clone());
                    events.push(target::Event::Catalog(CatalogAnswer::Object(object)));
                }
                target::Output::Connect { replica } => {
                    self.next_link += 1;
                    let link = LinkId(self.next_link);
                    self.links.insert(replica, link);
                    events.push(target::Event::LinkUp { replica, link });
                }
                target::Output::Send { replica, link, message } => {
                    self.asked.extend(ask_of(&message.body));
                    let answer = sound_answer(message.body).filter(|_| replica != ReplicaId(1));
                    if let Some(body) = answer {
                        let message = ForTarget { term: message.term, body };
                        events.push(target::Event::Message { replica, link, message });
                    }
                }
                _ => {}
            }
        }
        for event in events {
            self.step(event);
        }
        self.served |= self.target.status(self.now).serving;
    }

    fn hear(&mut self, replica: ReplicaId, body: ToTarget) {
        let Some(link) = self.links.get(&replica).copied() else { return };
        let message = ForTarget { term: self.target.term(), body };
        self.step(target::Event::Message { replica, link, message });
    }
}

/// What a replica says that follows the protocol, and was empty at the beginning.
fn sound_answer(body: ToReplica) -> Option<ToTarget> {
    let boot = Boot(1);
    Some(match body {
        ToReplica::Hello(_) => {
            let shared = SharedState { size: ByteLen(SIZE), ..SharedState::default() };
            let position = Position::default();
            let sound = Welcome { boot, position, shared, ..*plausible(&mut Rng(1)) };
            ToTarget::Welcome(Box::new(sound))
        }
        ToReplica::Entries(entries) => {
            let held = entries.last()?.seq;
            ToTarget::Ack { boot, held, durable: held, headroom: ByteLen(1 << 30) }
        }
        ToReplica::Renew { sent, .. } => ToTarget::Renewed { sent },
        ToReplica::Read { id, len, .. } => {
            let len = usize::try_from(len.0).expect("a short read");
            ToTarget::ReadDone { id, result: Ok(Data::copy_of(&vec![0; len])) }
        }
        _ => return None,
    })
}

fn ask_of(body: &ToReplica) -> Option<AskId> {
    match body {
        ToReplica::Read { id, .. }
        | ToReplica::Extents { id, .. }
        | ToReplica::Repair { id, .. }
        | ToReplica::OpenRound { id, .. }
        | ToReplica::Fetch { id, .. }
        | ToReplica::OwnChanges { id, .. } => Some(*id),
        _ => None,
    }
}

/// The answer to a question that was really asked.
fn aim(body: &mut ToTarget, at: AskId) {
    match body {
        ToTarget::ReadDone { id, .. }
        | ToTarget::Repaired { id, .. }
        | ToTarget::ExtentsDone { id, .. }
        | ToTarget::RoundOpened { id, .. }
        | ToTarget::Fetched { id, .. }
        | ToTarget::OwnChanged { id, .. } => *id = at,
        _ => {}
    }
}

fn request(rng: &mut Rng) -> Request {
    let (offset, len) = (ByteOffset(rng.below(256) * 4096), ByteLen(4096));
    match rng.below(5) {
        0 => Request::Read { offset, len },
        1 => Request::Zero { offset, len, how: Zeroing::Discard, fua: rng.chance() },
        2 => Request::Flush,
        3 => Request::Extents { offset, len },
        _ => Request::Write { offset, data: Data::copy_of(&[1; 4096]), fua: rng.chance() },
    }
}

/// Protects from a replica that stops its target's node by what it says.
#[test]
fn no_message_of_a_replica_stops_a_target() {
    fuzz("hostile replicas", |seed| {
        let rng = &mut Rng(seed.next());
        note(format!("seed {}", rng.0));
        let mut reigning = Reigning::new();
        let login = Login { client: ClientId(1), number: ConnectionNumber(1), stage: None };
        for step in 0..STEPS {
            // The others follow the protocol, mostly.
            let replica = ReplicaId(if rng.below(40) == 0 { 1 + rng.below(3) } else { 1 });
            match rng.below(12) {
                0 => {
                    reigning.now = reigning.now + Span::millis(rng.below(400));
                    reigning.step(target::Event::Tick);
                }
                1 => reigning.hear(replica, ToTarget::Welcome(plausible(rng))),
                2 => {
                    let connection = ConnectionId(1);
                    reigning.step(target::Event::Login { connection, login });
                }
                3 => {
                    let (connection, id) = (ConnectionId(1), RequestId(step as u64));
                    let request = request(rng);
                    reigning.step(target::Event::Request { connection, id, request });
                }
                4 => {
                    let (id, command) = (RequestId(step as u64), Command::Snapshot(rng.spec()));
                    reigning.step(target::Event::Command { id, command });
                }
                5 => {
                    let held = Seq(rng.below(60));
                    let (boot, headroom) = (Boot(rng.any()), ByteLen(1 << 30));
                    reigning.hear(replica, ToTarget::Ack { boot, held, durable: held, headroom });
                }
                _ => {
                    let kind = rng.below(TO_TARGET);
                    let frame = encode_to_target(&rng.for_target(kind)).to_bytes();
                    let Ok(ForTarget { mut body, .. }) = decode_to_target(&frame) else { continue };
                    if let Some(at) = reigning.asked.last().copied().filter(|_| rng.chance()) {
                        aim(&mut body, at);
                    }
                    reigning.hear(replica, body);
                }
            }
        }
        let status = reigning.target.status(reigning.now);
        SERVED.fetch_add(usize::from(reigning.served), Ordering::Relaxed);
        let apart = |standing| !matches!(standing, Standing::Healthy | Standing::Offline);
        let aside = status.peers.iter().any(|peer| apart(peer.standing));
        ASIDE.fetch_add(usize::from(aside), Ordering::Relaxed);
    });
    // What never came so far was not tried.
    let reached = (SERVED.load(Ordering::Relaxed), ASIDE.load(Ordering::Relaxed));
    println!("{reached:?} inputs served, and had replicas aside");
    assert!(reached.0 > 0 && reached.1 > 0, "served, with replicas aside: {reached:?}");
}

/// A store that does whatever it is asked.
fn answer(op: &StoreOp) -> StoreReply {
    match op {
        StoreOp::Read { len, .. } | StoreOp::ReadSnapshot { len, .. } => {
            let len = usize::try_from(len.0.min(1 << 20)).expect("a short read");
            StoreReply::Read(Data::copy_of(&vec![0; len]))
        }
        StoreOp::Extents { .. } => StoreReply::Extents(Vec::new()),
        StoreOp::Flush => StoreReply::Flushed,
        StoreOp::SnapshotState { .. } => {
            StoreReply::State(ReplicaState::fresh(Incarnation(1), ByteLen(SIZE)).encode())
        }
        StoreOp::Changed { .. } => StoreReply::Changed { ranges: Vec::new(), next: None },
        _ => StoreReply::Done,
    }
}

fn step_replica(replica: &mut Replica, now: Moment, event: replica::Event) {
    let mut events = vec![event];
    while !events.is_empty() {
        let mut out = Vec::new();
        replica.step_all(now, &mut events, &mut out);
        for output in out {
            if let replica::Output::Store { tag, op } = output {
                events.push(replica::Event::Stored { tag, result: Ok(answer(&op)) });
            }
        }
    }
}

/// Protects from a target that stops the nodes of its replicas by what it says.
#[test]
fn no_message_of_a_target_stops_a_replica() {
    fuzz("hostile targets", |seed| {
        let rng = &mut Rng(seed.next());
        note(format!("seed {}", rng.0));
        let facts = StoreFacts {
            state: ReplicaState::fresh(Incarnation(1), ByteLen(SIZE)).encode(),
            size: ByteLen(SIZE),
            block_size: ByteLen(4096),
            costs: Costs { granule: ByteLen(4096), ..Costs::default() },
            ..StoreFacts::default()
        };
        let powered = Powered { kernel: 1, device: 1 };
        let run = Run { boot: Boot(1), powered, credit: ByteLen(1 << 20) };
        let (mut now, mut out) = (Moment(1_000_000), Vec::new());
        let mut replica = Replica::open(facts, run, now, &mut out).expect("a fresh store");
        for output in out {
            if let replica::Output::Store { tag, op } = output {
                let event = replica::Event::Stored { tag, result: Ok(answer(&op)) };
                step_replica(&mut replica, now, event);
            }
        }
        let (mut term, mut link) = (block::Term(1), LinkId(1));
        for _ in 0..STEPS {
            let body = match rng.below(6) {
                0 => {
                    now = now + Span::millis(rng.below(400));
                    step_replica(&mut replica, now, replica::Event::Tick);
                    continue;
                }
                1 => {
                    (term, link) = (block::Term(term.0 + rng.below(3)), LinkId(link.0 + 1));
                    let promise = Promise { term, run: Boot(rng.below(2)) };
                    ToReplica::Hello(Hello { promise, membership: Membership::default() })
                }
                2 => {
                    let first = replica.position().seq.0 + 1;
                    let entries = (first..first + rng.below(5)).map(|seq| Entry {
                        seq: Seq(seq),
                        change: match rng.below(3) {
                            0 => Change::Flush,
                            1 => Change::Barrier { stages: rng.stages() },
                            _ => rng.entry().change,
                        },
                    });
                    ToReplica::Entries(entries.collect())
                }
                _ => {
                    let kind = rng.below(TO_REPLICA);
                    let frame = encode_to_replica(&rng.for_replica(kind)).to_bytes();
                    let Ok(ForReplica { body, .. }) = decode_to_replica(&frame) else { continue };
                    body
                }
            };
            let message = ForReplica { term, body };
            step_replica(&mut replica, now, replica::Event::Message { link, message });
        }
    });
}
