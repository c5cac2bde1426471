//! A replica, its store and a target's side of the connection.
use std::collections::VecDeque;

use block::{ByteLen, ByteOffset, Data, Seq, Term};

use crate::entry::{Change, Entry};
use crate::membership::Membership;
use crate::message::{ForReplica, Hello, ToReplica, ToTarget, Welcome};
use crate::replica::{Event, LinkId, Output, Replica, Run};
use crate::state::{Promise, ReplicaState, SnapshotSpec, Stages};
use crate::store::{StoreError, StoreOp, StoreReply, StoreTag};
use crate::words::{Boot, Incarnation, Moment, Powered, SnapshotUid, Span};

use super::store::{GRANULE, GRANULE_LEN, Store};

pub const SIZE: u64 = 64 * GRANULE;

type Answer = (StoreTag, Result<StoreReply, StoreError>);

pub struct Rig {
    pub replica: Replica,
    pub store: Store,
    pub now: Moment,
    /// Took effect, and not answered yet.
    pub answers: VecDeque<Answer>,
    pub sent: Vec<(LinkId, ToTarget)>,
    pub dropped: Vec<LinkId>,
    pub closed: bool,
    boots: u64,
}

pub fn powered(kernel: u128) -> Powered {
    Powered { kernel, device: 7 }
}

fn run(boot: u64, kernel: u128) -> Run {
    Run { boot: Boot(boot), powered: powered(kernel), credit: ByteLen(1 << 20) }
}

impl Rig {
    pub fn new() -> Rig {
        let state = ReplicaState::fresh(Incarnation(3), ByteLen(SIZE));
        Rig::with(&state)
    }

    pub fn with(state: &ReplicaState) -> Rig {
        Rig::on(Store::new(state.encode(), SIZE), 1, 1)
    }

    fn on(store: Store, boot: u64, kernel: u128) -> Rig {
        let mut out = Vec::new();
        let now = Moment(1_000_000);
        let replica = Replica::open(store.facts(), run(boot, kernel), now, &mut out).unwrap();
        let (answers, sent, dropped) = (VecDeque::new(), Vec::new(), Vec::new());
        let mut rig =
            Rig { replica, store, now, answers, sent, dropped, closed: false, boots: boot };
        rig.take(out);
        rig
    }

    /// The process ends and another begins; with another kernel the power was cut too.
    pub fn restart(mut self, kernel: u128) -> Rig {
        if self.replica.run.powered != powered(kernel) {
            self.store.cut_power();
        }
        (self.store.refuse, self.store.refuse_op) = (None, None);
        let mut rig = Rig::on(self.store, self.boots + 1, kernel);
        rig.answer();
        rig
    }

    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Store { tag, op } => {
                    let result = self.store.apply(&op);
                    self.answers.push_back((tag, result));
                }
                Output::Send { link, message } => self.sent.push((link, message.body)),
                Output::Drop { link } => self.dropped.push(link),
                Output::Closed => self.closed = true,
            }
        }
    }

    pub fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.replica.step(self.now, event, &mut out);
        self.take(out);
    }

    /// Everything that is there is answered at once, in any order.
    pub fn answer_together(&mut self) {
        let answers = self.answers.drain(..).rev();
        let mut events = answers.map(|(tag, result)| Event::Stored { tag, result }).collect();
        let mut out = Vec::new();
        self.replica.step_all(self.now, &mut events, &mut out);
        self.take(out);
    }

    pub fn tick_after(&mut self, span: Span) {
        self.now = self.now + span;
        self.step(Event::Tick);
    }

    /// Answers what is there, oldest first, and whatever follows from it.
    pub fn answer(&mut self) {
        while let Some((tag, result)) = self.answers.pop_front() {
            self.step(Event::Stored { tag, result });
        }
    }

    pub fn answer_last(&mut self) {
        let (tag, result) = self.answers.pop_back().unwrap();
        self.step(Event::Stored { tag, result });
    }

    pub fn answer_first(&mut self) {
        let (tag, result) = self.answers.pop_front().unwrap();
        self.step(Event::Stored { tag, result });
    }

    pub fn say(&mut self, link: u64, term: u64, body: ToReplica) {
        let message = ForReplica { term: Term(term), body };
        self.step(Event::Message { link: LinkId(link), message });
    }

    pub fn hello(&mut self, link: u64, term: u64) {
        self.hello_of(link, term, 9, 0);
    }

    pub fn hello_of(&mut self, link: u64, term: u64, run: u64, version: u64) {
        let promise = Promise { term: Term(term), run: Boot(run) };
        let membership = Membership { version, ..Membership::default() };
        self.say(link, term, ToReplica::Hello(Hello { promise, membership }));
    }

    /// Says hello and takes the barrier, at `seq`.
    pub fn reign(&mut self, link: u64, term: u64, seq: u64) {
        self.hello(link, term);
        self.answer();
        self.entries(link, term, seq, vec![Change::Barrier { stages: Stages::default() }]);
        self.answer();
        self.sent.clear();
    }

    pub fn entries(&mut self, link: u64, term: u64, first: u64, changes: Vec<Change>) {
        let numbered = changes.into_iter().zip(first..);
        let entries = numbered.map(|(change, seq)| Entry { seq: Seq(seq), change }).collect();
        self.say(link, term, ToReplica::Entries(entries));
    }

    pub fn welcome(&self) -> &Welcome {
        let found = self.sent.iter().rev().find_map(|(_, body)| match body {
            ToTarget::Welcome(welcome) => Some(&**welcome),
            _ => None,
        });
        found.unwrap()
    }

    pub fn is_welcome(&self) -> bool {
        self.sent.iter().any(|(_, body)| matches!(body, ToTarget::Welcome(_)))
    }

    /// Held and durable of the last ack.
    pub fn acked(&self) -> Option<(u64, u64)> {
        self.sent.iter().rev().find_map(|(_, body)| match body {
            ToTarget::Ack { held, durable, .. } => Some((held.0, durable.0)),
            _ => None,
        })
    }

    pub fn state(&self) -> ReplicaState {
        ReplicaState::decode(self.store.state()).unwrap()
    }

    pub fn durable_state(&self) -> ReplicaState {
        ReplicaState::decode(self.store.durable_state()).unwrap()
    }

    pub fn log_has(&self, which: impl Fn(&StoreOp) -> bool) -> bool {
        self.store.log.iter().any(which)
    }
}

pub fn write(granule: u64, byte: u8) -> Change {
    let data = Data::copy_of(&vec![byte; GRANULE_LEN]);
    Change::write(ByteLen(GRANULE), ByteOffset(granule * GRANULE), data)
}

pub fn spec(n: u8) -> SnapshotSpec {
    SnapshotSpec { uid: SnapshotUid([n; 16]), name: format!("s{n}"), created: 5 }
}
