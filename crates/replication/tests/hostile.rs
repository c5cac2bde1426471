//! Peers that say anything that can be decoded, in any order: a target or a replica loses that peer
//! at the most. `POLLUX_FUZZ_SECONDS` and `POLLUX_FUZZ_SEED` are as for the engine's decoders.
#![forbid(unsafe_code)]
#[allow(dead_code, reason = "each test takes what it needs of it")]
mod random;
#[path = "hostile/reigning.rs"]
mod reigning;
#[path = "../../engine/tests/fuzz_decoders/running.rs"]
#[allow(dead_code, reason = "the engine's decoders need more of it")]
mod running;
#[path = "hostile/store.rs"]
mod store;

use block::{ByteLen, ByteOffset, Data, Position, Seq, Term};
use random::Rng;
use random::messages::{TO_REPLICA, TO_TARGET};
use reigning::{HOSTILE, Reached, Reigning, SIZE, member, plausible};
use replication::catalog::VolumeObject;
use replication::client::{Command, ConnectionId, Login, Request, RequestId};
use replication::cost::Costs;
use replication::encoding::SEQ_END;
use replication::entry::{Change, Entry, Zeroing};
use replication::history::{Reign, Reigns};
use replication::membership::Membership;
use replication::message::{
    AskId, FRAME_MAX, ForReplica, ForTarget, Hello, Piece, ReadFailure, Refusal, RoundPoint,
    ToReplica, ToTarget, Wanted, decode_to_replica, decode_to_target, encode_to_replica,
    encode_to_target,
};
use replication::replica::{self, LinkId, Replica, Run};
use replication::state::{
    ImportMark, NAME_MAX, Promise, ReplicaState, SNAPSHOTS_FIT, SharedState, SnapshotEntry,
    SnapshotSpec,
};
use replication::store::{ChangedRange, Content, StoreFacts};
use replication::target::{self, Standing, Stopped};
use replication::words::{
    Boot, ClientId, ConnectionNumber, Grant, Incarnation, Moment, Powered, ReplicaId, SnapshotUid,
    Span, StageNumber, Start, Token, VolumeUid,
};
use running::{fuzz, note};
use store::Store;

const STEPS: usize = 400;

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
    match rng.below(6) {
        0 => Request::Read { offset, len },
        1 => Request::Zero { offset, len, how: Zeroing::Discard, fua: rng.chance() },
        2 => Request::Flush,
        3 => Request::Extents { offset, len },
        4 => Request::Zero {
            offset: ByteOffset(rng.any()),
            len: ByteLen(rng.any()),
            how: Zeroing::Zeroes,
            fua: false,
        },
        _ => Request::Write { offset, data: Data::copy_of(&[1; 4096]), fua: rng.chance() },
    }
}

fn command(rng: &mut Rng) -> Command {
    let (token, lasts) = (Token(rng.below(3)), Span(rng.any()));
    let (snapshot, clone) = (SnapshotUid([1; 16]), VolumeUid(rng.uid()));
    match rng.below(14) {
        0 => Command::Hold { token, lasts },
        1 => Command::Cut { token, spec: rng.spec() },
        2 => Command::Release { token },
        3 => Command::Choose { replica: ReplicaId(1 + rng.below(5)) },
        4 => Command::ConfirmCatalog,
        5 => Command::Resize { size: ByteLen(rng.any()) },
        6 => Command::NewStage,
        7 => Command::TakeNote,
        8 => Command::MarkClone { snapshot, clone },
        9 => Command::UnmarkClone { clone },
        10 => Command::Rollback { to: snapshot },
        11 => Command::DeleteSnapshot(snapshot),
        12 => {
            let mut spec = rng.spec();
            spec.uid = snapshot;
            Command::Snapshot(spec)
        }
        _ => Command::Snapshot(rng.spec()),
    }
}

/// Another wish of who is to vote.
fn wish(rng: &mut Rng, object: &mut VolumeObject) {
    object.desired = (1..=5).filter(|_| rng.below(3) > 0).map(member).collect();
    if object.desired.is_empty() {
        object.desired.push(member(2));
    }
}

/// What brings a round on, from a destination that does not keep to what it was asked.
fn about_round(rng: &mut Rng, reigning: &Reigning) -> ToTarget {
    let id = reigning.asked.back().copied().unwrap_or(AskId(0));
    let kept = reigning.mark.map(|mark| (mark, ByteOffset(rng.any())));
    match rng.below(6) {
        0 => ToTarget::ImportBegun { kept: None },
        1 => ToTarget::ImportBegun { kept: kept.filter(|_| rng.chance()) },
        2 => {
            let ranges = rng.list(9, |rng| ChangedRange {
                offset: ByteOffset(rng.any()),
                len: ByteLen(rng.any()),
                is_data: true,
                changed: Seq(rng.any()),
            });
            let next = rng.option(|rng| ByteOffset(rng.any()));
            ToTarget::OwnChanged { id, ranges, next }
        }
        3 => {
            let offset = ByteOffset(rng.below(64) * 4096);
            let range = |len| ChangedRange { offset, len, is_data: true, changed: Seq(2) };
            ToTarget::OwnChanged { id, ranges: vec![range(ByteLen(8192))], next: None }
        }
        4 => {
            let progress = reigning.progress.back().copied();
            ToTarget::Imported { progress: progress.unwrap_or(ByteOffset(0)) }
        }
        _ => {
            let position = reigning.mark.map_or(Position::default(), |mark| mark.source);
            ToTarget::Committed { position }
        }
    }
}

/// One thing that happens to a target.
fn disturb(rng: &mut Rng, reigning: &mut Reigning, step: u64) {
    let login = Login { client: ClientId(1), number: ConnectionNumber(1), stage: None };
    // The others follow the protocol, mostly.
    let replica = if rng.below(40) == 0 { ReplicaId(1 + rng.below(3)) } else { HOSTILE };
    // It may keep to the protocol for a while, and then no longer.
    reigning.is_tame ^= rng.below(40) == 0;
    match rng.below(16) {
        0 => {
            reigning.now = reigning.now + Span::millis(rng.below(400));
            reigning.step(target::Event::Tick);
        }
        1 => reigning.hear(replica, ToTarget::Welcome(plausible(rng))),
        2 => {
            let stage = rng.option(|rng| StageNumber(rng.any()));
            let login = Login { stage, ..login };
            reigning.step(target::Event::Login { connection: ConnectionId(1), login });
        }
        3 => {
            let (connection, id) = (ConnectionId(1), RequestId(step));
            let request = request(rng);
            reigning.step(target::Event::Request { connection, id, request });
        }
        4 => {
            let (id, command) = (RequestId(step), command(rng));
            reigning.step(target::Event::Command { id, command });
        }
        5 => {
            let held = Seq(rng.below(60));
            let (boot, headroom) = (Boot(rng.any()), ByteLen(1 << 30));
            reigning.hear(replica, ToTarget::Ack { boot, held, durable: held, headroom });
        }
        6 if rng.below(4) == 0 => reigning.change_catalog(|object| wish(rng, object)),
        6 => {
            // What it reached before is forgotten with its pool, now and then.
            let gone = ReplicaId(1 + rng.below(5));
            let with_content = rng.below(3) == 0;
            reigning.lose(gone, with_content);
        }
        7..=10 => {
            let body = about_round(rng, reigning);
            reigning.hear(replica, body);
        }
        _ => {
            let kind = rng.below(TO_TARGET);
            let frame = encode_to_target(&rng.for_target(kind)).to_bytes();
            let Ok(ForTarget { mut body, .. }) = decode_to_target(&frame) else { return };
            if let Some(at) = reigning.asked.back().copied().filter(|_| rng.chance()) {
                aim(&mut body, at);
            }
            reigning.hear(replica, body);
        }
    }
}

/// Protects from a replica that stops its target's node by what it says.
#[test]
fn no_message_of_a_replica_stops_a_target() {
    let mut all = Reached::default();
    fuzz("hostile replicas", |seed| {
        let rng = &mut Rng(seed.next());
        note(format!("seed {}", rng.0));
        let mut reigning = Reigning::new(rng.chance());
        if rng.below(8) == 0 {
            // Numbers that have nearly run out, as a catalog or a replica may say them.
            reigning.change_catalog(|object| {
                object.grant = Grant(Grant::MAX.0 - rng.below(2));
                object.membership.version = u64::MAX - rng.below(3);
            });
        }
        for step in 0..STEPS {
            disturb(rng, &mut reigning, step as u64);
        }
        let status = reigning.target.status(reigning.now);
        let apart = |standing| !matches!(standing, Standing::Healthy | Standing::Offline);
        reigning.reached.aside = status.peers.iter().any(|peer| apart(peer.standing));
        all = all.and(reigning.reached);
    });
    println!("{all:?}");
    assert!(all.is_all(), "what never came so far was not tried: {all:?}");
}

/// Protects from a node that ends because the starts under its grant have run out: how many there
/// were is what replicas say.
#[test]
fn the_last_start_under_a_grant_is_not_followed_by_another() {
    let mut reigning = Reigning::new(false);
    let term = Grant(1).term(Start(Start::MAX.0 - 1));
    let refusal = Refusal::Promised(Promise { term, run: Boot(5) });
    reigning.hear(HOSTILE, ToTarget::Refused(refusal));
    assert_eq!(Start::of(reigning.target.term()), Start::MAX, "the last one is claimed");
    // Whoever was started above that has to end; it gives up its choice for instance.
    let promised = Promise { term: Grant(1).term(Start::MAX), run: Boot(9) };
    let stopped = reigning.begin_above(promised);
    assert_eq!(stopped, Some(Stopped::Superseded));
}

/// Protects from a copy that is longer than what was asked for, and then does not fit the message
/// that carries it to the damaged one.
#[test]
fn a_copy_of_another_length_does_not_repair_anything() {
    let mut reigning = Reigning::new(true);
    for _ in 0..20 {
        reigning.now = reigning.now + Span::millis(100);
        reigning.step(target::Event::Tick);
    }
    let (connection, damaged) = (ConnectionId(1), ReplicaId(2));
    let login = Login { client: ClientId(1), number: ConnectionNumber(1), stage: None };
    reigning.step(target::Event::Login { connection, login });
    let request = Request::Read { offset: ByteOffset(0), len: ByteLen(4096) };
    reigning.step(target::Event::Request { connection, id: RequestId(1), request });
    let id = reigning.asked.pop_back().expect("it is the first that has everything");
    reigning.lose(ReplicaId(3), false);
    let result = Err(ReadFailure::Damaged { offset: ByteOffset(0) });
    reigning.hear(damaged, ToTarget::ReadDone { id, result });
    let asked = std::mem::take(&mut reigning.asked);
    assert!(asked.len() >= 2, "for a good copy, and for the read once more: {asked:?}");
    // As much as one frame takes: a head of 32 bytes, and 21 for the number, result and sum.
    let data = Data::copy_of(&vec![7; FRAME_MAX - 32 - 21]);
    for id in asked {
        let body = ToTarget::ReadDone { id, result: Ok(data.clone()) };
        let frame = encode_to_target(&ForTarget { term: reigning.target.term(), body });
        let message = decode_to_target(&frame.to_bytes()).expect("it fits");
        reigning.hear(HOSTILE, message.body);
    }
    assert!(!reigning.repaired, "4 MiB are no granule");
}

/// Protects from a target that has a replica make more snapshots than its welcome can tell.
#[test]
fn no_more_snapshots_are_made_than_a_welcome_can_tell() {
    let rng = &mut Rng(1);
    let snapshots = (0..SNAPSHOTS_FIT).map(|_| {
        let SnapshotSpec { uid, created, .. } = rng.spec();
        SnapshotEntry { uid, created, name: "n".repeat(NAME_MAX), position: Position::default() }
    });
    let facts = StoreFacts { snapshots: snapshots.collect(), ..fresh() };
    let mut following = Following::on(rng, facts, 0);
    following.hello(rng);
    let barrier = Change::Barrier { stages: rng.stages() };
    let changes = [barrier, Change::Snapshot(rng.spec())];
    let entries = changes.into_iter().zip(1..).map(|(change, seq)| Entry { seq: Seq(seq), change });
    following.say(rng, ToReplica::Entries(entries.collect()));
    following.settle(rng);
    assert_eq!(following.replica.position().seq, Seq(1), "the barrier, and no snapshot");
    assert_eq!(following.replica.snapshots().len(), SNAPSHOTS_FIT);
    following.hello(rng);
}

const NOW: Moment = Moment(1_000_000);
const RUN: Run =
    Run { boot: Boot(1), powered: Powered { kernel: 1, device: 1 }, credit: ByteLen(1 << 20) };

/// A replica between a hostile target and a store.
struct Following {
    replica: Replica,
    store: Store,
    now: Moment,
    term: Term,
    link: LinkId,
    /// What was opened, begun and cut.
    opened: Vec<Position>,
    mark: ImportMark,
}

fn fresh() -> StoreFacts {
    StoreFacts {
        state: ReplicaState::fresh(Incarnation(1), ByteLen(SIZE)).encode(),
        size: ByteLen(SIZE),
        block_size: ByteLen(4096),
        costs: Costs { granule: ByteLen(4096), ..Costs::default() },
        ..StoreFacts::default()
    }
}

impl Following {
    fn new(rng: &mut Rng) -> Following {
        // What a pool says is no invariant, as far as its engine lets it pass.
        let odd = StoreFacts {
            state: rng.state().encode(),
            position: Position { seq: Seq(rng.seq().0.min(SEQ_END - 2)), ..rng.position() },
            snapshots: rng.list(3, Rng::snapshot),
            internal: rng.list(3, Rng::snapshot),
            staged: rng.option(Rng::any),
            ..fresh()
        };
        let refuses = [0, 5, 40][rng.index(3)];
        let opens = Replica::open(odd.clone(), RUN, NOW, &mut Vec::new()).is_ok();
        let facts = if opens && rng.below(3) == 0 { odd } else { fresh() };
        Following::on(rng, facts, refuses)
    }

    fn on(rng: &mut Rng, facts: StoreFacts, refuses: u64) -> Following {
        let mut out = Vec::new();
        let store = Store::new(&facts, refuses);
        let replica = Replica::open(facts, RUN, NOW, &mut out).expect("a store that opens");
        let term = Term(replica.promise().term.0.saturating_add(1));
        let (now, link, opened, mark) = (NOW, LinkId(1), Vec::new(), rng.mark());
        let mut following = Following { replica, store, now, term, link, opened, mark };
        following.carry(rng, out);
        following
    }

    fn say(&mut self, rng: &mut Rng, body: ToReplica) {
        let (link, message) = (self.link, ForReplica { term: self.term, body });
        self.step(rng, vec![replica::Event::Message { link, message }]);
    }

    /// Greets it anew, until it has answered.
    fn hello(&mut self, rng: &mut Rng) {
        self.link = LinkId(self.link.0 + 1);
        let promise = Promise { term: self.term, run: Boot(0) };
        let version = self.replica.state().membership_seen;
        let membership = Membership { version, ..Membership::default() };
        self.say(rng, ToReplica::Hello(Hello { promise, membership }));
        self.settle(rng);
    }

    fn settle(&mut self, rng: &mut Rng) {
        while !self.store.is_idle() {
            let events = self.store.some(rng);
            self.step(rng, events);
        }
    }

    fn carry(&mut self, rng: &mut Rng, out: Vec<replica::Output>) {
        for output in out {
            match output {
                replica::Output::Store { tag, op } => self.store.take(rng, tag, &op),
                replica::Output::Send { message, .. } => {
                    // Whatever is sent has to fit a frame, and to be understood.
                    let frame = encode_to_target(&message).to_bytes();
                    decode_to_target(&frame).expect("what a replica says can be decoded");
                    if let ToTarget::RoundOpened { opened: Ok(opened), .. } = message.body {
                        self.opened.push(opened.position);
                    }
                }
                replica::Output::Drop { .. } | replica::Output::Closed => {}
            }
        }
    }

    fn step(&mut self, rng: &mut Rng, mut events: Vec<replica::Event>) {
        while !events.is_empty() {
            let mut out = Vec::new();
            self.replica.step_all(self.now, &mut events, &mut out);
            self.carry(rng, out);
            events = self.store.some(rng);
        }
    }

    fn entries(&self, rng: &mut Rng) -> ToReplica {
        let first = self.replica.position().seq.0 + 1;
        let entries = (first..first.saturating_add(rng.below(5))).map(|seq| Entry {
            seq: Seq(seq),
            change: match rng.below(4) {
                0 => Change::Flush,
                1 => Change::Barrier { stages: rng.stages() },
                2 => Change::Close,
                _ => rng.entry().change,
            },
        });
        ToReplica::Entries(entries.collect())
    }

    /// What brings a round on that this replica is the source or the destination of.
    fn about_round(&mut self, rng: &mut Rng, kind: u64) -> ToReplica {
        let round = self.opened.last().copied().unwrap_or_default();
        let (from, to) = (ByteOffset(rng.any() % SIZE), ByteOffset(rng.any()));
        match kind {
            0 => ToReplica::OpenRound { id: AskId(1), point: RoundPoint::Now },
            1 => ToReplica::OpenRound { id: AskId(2), point: RoundPoint::Kept(round) },
            2 => {
                let wanted = [Wanted::Everything, Wanted::Changed(Seq(rng.any()))][rng.index(2)];
                ToReplica::Fetch { id: AskId(3), round, wanted, from, to }
            }
            3 => ToReplica::CloseRound { round },
            4 => {
                let since = Seq(rng.below(self.replica.position().seq.0.saturating_add(1)));
                let seq = if rng.chance() { rng.seq() } else { Seq(1 + rng.below(1 << 40)) };
                let source = Position { term: self.term, seq };
                self.mark = ImportMark { source, since };
                ToReplica::BeginImport { mark: self.mark, size: ByteLen(SIZE << rng.below(3)) }
            }
            5 | 6 => {
                let len = [512, 4096, (1 << 20) + 4096][rng.index(3)];
                let content = Content::Bytes(Data::copy_of(&vec![1; len]));
                let offset = ByteOffset([from.0, u64::MAX - rng.below(2 << 20)][rng.index(2)]);
                let pieces = vec![Piece { offset, changed: Seq(rng.any()), content }];
                ToReplica::Import { pieces, progress: to }
            }
            7 => {
                let ImportMark { source, .. } = self.mark;
                let reign = Reign { term: source.term, first: Seq(source.seq.0.min(1)) };
                let reigns = Reigns::new(vec![reign]).expect("one reign");
                let (size, closed) = (ByteLen(SIZE), Seq(0));
                let stages = replication::state::Stages::default();
                let shared = SharedState { reigns, size, closed, stages, ..rng.shared() };
                let (snapshot, snapshots) = (rng.option(Rng::spec), rng.list(3, Rng::snapshot));
                ToReplica::CommitImport { shared: Box::new(shared), snapshot, snapshots }
            }
            _ => ToReplica::OwnChanges { id: AskId(4), since: Seq(rng.any()), from },
        }
    }

    /// An import from its beginning to its end, if nothing is refused.
    fn import(&mut self, rng: &mut Rng) {
        self.hello(rng);
        for kind in [4, 5, 7] {
            let body = self.about_round(rng, kind);
            self.say(rng, body);
            self.settle(rng);
        }
    }

    fn disturb(&mut self, rng: &mut Rng) {
        let body = match rng.below(8) {
            0 => {
                self.now = self.now + Span::millis(rng.below(400));
                return self.step(rng, vec![replica::Event::Tick]);
            }
            1 => {
                let events = self.store.some(rng);
                return self.step(rng, events);
            }
            2 => {
                self.term = Term(self.term.0.saturating_add(rng.below(3)));
                self.link = LinkId(self.link.0 + 1);
                let promise = Promise { term: self.term, run: Boot(rng.below(2)) };
                let version = self.replica.state().membership_seen;
                let membership = Membership { version, ..Membership::default() };
                ToReplica::Hello(Hello { promise, membership })
            }
            3 => self.entries(rng),
            4 if rng.below(9) == 0 => return self.import(rng),
            4 | 5 => {
                let kind = rng.below(9);
                self.about_round(rng, kind)
            }
            _ => {
                let kind = rng.below(TO_REPLICA);
                let frame = encode_to_replica(&rng.for_replica(kind)).to_bytes();
                let Ok(ForReplica { body, .. }) = decode_to_replica(&frame) else { return };
                body
            }
        };
        self.say(rng, body);
    }
}

/// Protects from a target that stops the nodes of its replicas by what it says, and from a pool
/// that does so by what it has.
#[test]
fn no_message_of_a_target_stops_a_replica() {
    let (mut adopted, mut sources) = (0, 0);
    fuzz("hostile targets", |seed| {
        let rng = &mut Rng(seed.next());
        note(format!("seed {}", rng.0));
        let mut following = Following::new(rng);
        for _ in 0..STEPS {
            following.disturb(rng);
            adopted += u64::from(following.replica.position() == following.mark.source);
        }
        sources += following.opened.len();
    });
    println!("{adopted} steps behind an import, {sources} rounds opened");
    assert!(adopted > 0 && sources > 0, "neither imports nor rounds: {adopted}, {sources}");
}
