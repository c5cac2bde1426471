//! A target, its catalog and three to five replicas. The first says what it likes; the others
//! follow the protocol, and may lose their connections and their content.
use std::collections::{BTreeMap, VecDeque};

use block::{ByteLen, ByteOffset, Data, Position, Seq};
use replication::catalog::{CatalogAnswer, CatalogAsk, VolumeObject};
use replication::cost::Costs;
use replication::entry::Entry;
use replication::history::{Reign, Reigns};
use replication::membership::{Member, Membership, Voters};
use replication::message::{
    AskId, Fetched, ForTarget, OpenedRound, Piece, ToReplica, ToTarget, Welcome, decode_to_replica,
    encode_to_replica,
};
use replication::replica::LinkId;
use replication::state::{ImportMark, Promise, SharedState};
use replication::store::Content;
use replication::target::{Begin, Config, Event, Output, Stopped, Target};
use replication::words::{
    Boot, CatalogVersion, Grant, Incarnation, Moment, NodeId, ReplicaId, Start,
};

use crate::random::Rng;

pub const SIZE: u64 = 1 << 20;

/// The replica that says what it likes.
pub const HOSTILE: ReplicaId = ReplicaId(1);

/// Far more events than replicas that answer at once can cause within one moment.
const BUSY_MAX: usize = 10_000;

pub fn member(id: u64) -> Member {
    Member { replica: ReplicaId(id), incarnation: Incarnation(1) }
}

/// A welcome that a target believes.
pub fn plausible(rng: &mut Rng) -> Box<Welcome> {
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

/// What a replica that follows the protocol has.
#[derive(Clone)]
struct Sound {
    position: Position,
    shared: SharedState,
    import: Option<ImportMark>,
}

impl Sound {
    fn empty() -> Sound {
        let shared = SharedState { size: ByteLen(SIZE), ..SharedState::default() };
        Sound { position: Position::default(), shared, import: None }
    }

    /// Up to the first entry that its own state has no room for: the hostile one may have made the
    /// target believe in another.
    fn follow(&mut self, term: block::Term, entries: &[Entry]) {
        for entry in entries {
            let position = entry.position(term);
            let is_next = entry.seq.0 == self.position.seq.0 + 1;
            if !is_next || self.shared.follow(position, &entry.change).is_err() {
                return;
            }
            self.position = position;
        }
    }

    fn opened(&self) -> Box<OpenedRound> {
        let (position, shared) = (self.position, self.shared.clone());
        let size = shared.size;
        Box::new(OpenedRound { position, shared, size, snapshot: None, snapshots: Vec::new() })
    }

    fn answer(&mut self, term: block::Term, body: ToReplica) -> Option<ToTarget> {
        let boot = Boot(1);
        Some(match body {
            ToReplica::Hello(_) => {
                let Sound { position, shared, .. } = self.clone();
                let costs = Costs { is_clone: false, ..plausible(&mut Rng(1)).costs };
                let (rounds, snapshots, import) = (Vec::new(), Vec::new(), None);
                let incarnation = Incarnation(1);
                let headroom = ByteLen(1 << 30);
                ToTarget::Welcome(Box::new(Welcome {
                    incarnation,
                    boot,
                    position,
                    shared,
                    dirty: false,
                    regressed: false,
                    snapshots,
                    rounds,
                    import,
                    headroom,
                    block_size: ByteLen(4096),
                    costs,
                }))
            }
            ToReplica::Entries(entries) => {
                self.follow(term, &entries);
                let held = self.position.seq;
                ToTarget::Ack { boot, held, durable: held, headroom: ByteLen(1 << 30) }
            }
            ToReplica::Renew { sent, .. } => ToTarget::Renewed { sent },
            ToReplica::Read { id, len, .. } => {
                let len = usize::try_from(len.0).expect("a short read");
                ToTarget::ReadDone { id, result: Ok(Data::copy_of(&vec![0; len])) }
            }
            ToReplica::OpenRound { id, .. } => {
                ToTarget::RoundOpened { id, opened: Ok(self.opened()) }
            }
            ToReplica::Fetch { id, from, to, .. } => {
                // A few parts, however large the volume has become.
                let part = (256 << 10).max((to.0 - from.0) / 2);
                let through = ByteOffset(to.0.min(from.0.saturating_add(part)));
                let content = Content::Bytes(Data::copy_of(&[1; 4096]));
                let pieces = vec![Piece { offset: from, changed: Seq(1), content }];
                ToTarget::Fetched { id, result: Ok(Fetched { pieces, through }) }
            }
            ToReplica::BeginImport { mark, .. } => {
                self.import = Some(mark);
                ToTarget::ImportBegun { kept: None }
            }
            ToReplica::OwnChanges { id, .. } => {
                ToTarget::OwnChanged { id, ranges: Vec::new(), next: None }
            }
            ToReplica::Import { progress, .. } => ToTarget::Imported { progress },
            ToReplica::CommitImport { shared, .. } => {
                self.position = self.import.take()?.source;
                self.shared = *shared;
                ToTarget::Committed { position: self.position }
            }
            _ => return None,
        })
    }
}

/// How far an input came: what never came so far was not tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    pub served: bool,
    pub aside: bool,
    pub changed: bool,
    /// A part of a round was sent to the hostile replica, one was fetched from it, and one of its
    /// rounds was committed.
    pub copied_to: bool,
    pub copied_from: bool,
    pub committed: bool,
}

impl Reached {
    pub fn and(self, other: Reached) -> Reached {
        Reached {
            served: self.served || other.served,
            aside: self.aside || other.aside,
            changed: self.changed || other.changed,
            copied_to: self.copied_to || other.copied_to,
            copied_from: self.copied_from || other.copied_from,
            committed: self.committed || other.committed,
        }
    }

    pub fn is_all(self) -> bool {
        let Reached { served, aside, changed, copied_to, copied_from, committed } = self;
        served && aside && changed && copied_to && copied_from && committed
    }
}

pub struct Reigning {
    pub target: Target,
    pub now: Moment,
    pub object: VolumeObject,
    links: BTreeMap<ReplicaId, LinkId>,
    next_link: u64,
    sound: BTreeMap<ReplicaId, Sound>,
    /// The last that the hostile one was asked, and told of a round.
    pub asked: VecDeque<AskId>,
    pub progress: VecDeque<ByteOffset>,
    pub mark: Option<ImportMark>,
    pub reached: Reached,
    /// Bytes were sent over a damaged copy.
    pub repaired: bool,
    /// The hostile one follows the protocol as well, but for the reads that it is asked for.
    pub is_tame: bool,
}

impl Reigning {
    pub fn new(is_tame: bool) -> Reigning {
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
        let now = Moment(1_000_000);
        let mut reigning = Reigning {
            target: Target::begin(config(Start(0)), Begin::Granted, now, &mut Vec::new()),
            now,
            object,
            links: BTreeMap::new(),
            next_link: 0,
            sound: BTreeMap::new(),
            asked: VecDeque::new(),
            progress: VecDeque::new(),
            mark: None,
            reached: Reached::default(),
            repaired: false,
            is_tame,
        };
        reigning.catalog_says();
        reigning
    }

    pub fn catalog_says(&mut self) {
        let object = Box::new(self.object.clone());
        self.step(Event::Catalog(CatalogAnswer::Object(object)));
    }

    /// The catalog has something else.
    pub fn change_catalog(&mut self, change: impl FnOnce(&mut VolumeObject)) {
        self.object.version.0 += 1;
        change(&mut self.object);
        self.catalog_says();
    }

    /// Another run of the target, as its owner starts it. How it ended, if it did at once.
    pub fn begin_above(&mut self, promised: Promise) -> Option<Stopped> {
        let config = config(Start::of(promised.term));
        self.target = Target::begin(config, Begin::Granted, self.now, &mut Vec::new());
        let (object, mut out) = (Box::new(self.object.clone()), Vec::new());
        let event = Event::Catalog(CatalogAnswer::Object(object));
        self.target.step(self.now, event, &mut out);
        out.into_iter().find_map(|output| match output {
            Output::Stopped { reason } => Some(reason),
            _ => None,
        })
    }

    pub fn lose(&mut self, replica: ReplicaId, with_content: bool) {
        if let Some(link) = self.links.remove(&replica) {
            self.step(Event::LinkLost { replica, link });
        }
        if with_content {
            self.sound.remove(&replica);
        }
    }

    pub fn step(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        let mut handled = 0;
        while let Some(event) = events.pop_front() {
            handled += 1;
            assert!(
                handled < BUSY_MAX,
                "no time passes, and the target does the same again: {event:?}"
            );
            let mut out = Vec::new();
            self.target.step(self.now, event, &mut out);
            for output in out {
                self.carry(output, &mut events);
            }
        }
        let status = self.target.status(self.now);
        self.reached.served |= status.serving;
    }

    fn carry(&mut self, output: Output, events: &mut VecDeque<Event>) {
        match output {
            Output::Catalog(CatalogAsk::Get) => {
                let object = Box::new(self.object.clone());
                events.push_back(Event::Catalog(CatalogAnswer::Object(object)));
            }
            Output::Catalog(CatalogAsk::Swap { expected, grant, object }) => {
                events.push_back(Event::Catalog(self.swap(expected, grant, *object)));
            }
            Output::Connect { replica } => {
                self.next_link += 1;
                let link = LinkId(self.next_link);
                self.links.insert(replica, link);
                events.push_back(Event::LinkUp { replica, link });
            }
            Output::Disconnect { replica, link } if self.links.get(&replica) == Some(&link) => {
                self.links.remove(&replica);
            }
            Output::Send { replica, link, message } => {
                // Whatever is sent has to fit a frame, and to be understood.
                let frame = encode_to_replica(&message).to_bytes();
                decode_to_replica(&frame).expect("what a target says can be decoded");
                self.repaired |= matches!(message.body, ToReplica::Repair { .. });
                if replica == HOSTILE {
                    let is_read = matches!(message.body, ToReplica::Read { .. });
                    self.note(&message.body);
                    if !self.is_tame || is_read {
                        return;
                    }
                }
                let sound = self.sound.entry(replica).or_insert_with(Sound::empty);
                if let Some(body) = sound.answer(message.term, message.body) {
                    let message = ForTarget { term: message.term, body };
                    events.push_back(Event::Message { replica, link, message });
                }
            }
            // The owner of a target starts it again above what was promised.
            Output::Stopped { reason: Stopped::Outnumbered { promised } } => {
                let config = config(Start::of(promised.term));
                let mut out = Vec::new();
                self.target = Target::begin(config, Begin::Granted, self.now, &mut out);
                self.links.clear();
                events.clear();
                for output in out {
                    self.carry(output, events);
                }
            }
            _ => {}
        }
    }

    /// As the catalog does it: versions and grants grow, and have their bounds.
    fn swap(
        &mut self,
        expected: CatalogVersion,
        grant: Grant,
        wanted: VolumeObject,
    ) -> CatalogAnswer {
        let has = &self.object;
        let same = wanted.membership == has.membership;
        let grows = same || wanted.membership.version > has.membership.version;
        let fits = wanted.grant <= Grant::MAX && wanted.grant >= has.grant;
        if expected != has.version || grant != has.grant || !grows || !fits {
            return CatalogAnswer::Object(Box::new(has.clone()));
        }
        self.reached.changed |= !same;
        self.object = VolumeObject { version: CatalogVersion(expected.0 + 1), ..wanted };
        CatalogAnswer::Swapped(Box::new(self.object.clone()))
    }

    /// What the hostile one was told, so that some of its answers fit.
    fn note(&mut self, body: &ToReplica) {
        match *body {
            ToReplica::Read { id, .. }
            | ToReplica::Extents { id, .. }
            | ToReplica::Repair { id, .. }
            | ToReplica::OpenRound { id, .. }
            | ToReplica::OwnChanges { id, .. } => keep(&mut self.asked, id),
            ToReplica::Fetch { id, .. } => {
                self.reached.copied_from = true;
                keep(&mut self.asked, id);
            }
            ToReplica::BeginImport { mark, .. } => self.mark = Some(mark),
            ToReplica::Import { progress, .. } => {
                self.reached.copied_to = true;
                keep(&mut self.progress, progress);
            }
            ToReplica::CommitImport { .. } => self.reached.committed = true,
            _ => {}
        }
    }

    pub fn hear(&mut self, replica: ReplicaId, body: ToTarget) {
        let Some(link) = self.links.get(&replica).copied() else { return };
        let message = ForTarget { term: self.target.term(), body };
        self.step(Event::Message { replica, link, message });
    }
}

fn config(above: Start) -> Config {
    Config { start_above: above, ..Config::new(NodeId(1), Boot(9)) }
}

fn keep<T>(list: &mut VecDeque<T>, one: T) {
    list.push_back(one);
    if list.len() > 4 {
        list.pop_front();
    }
}
