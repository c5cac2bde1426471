//! One replica: follows the target of the highest term, keeps a prefix of the sequence.
//!
//! What it must never do: follow two targets, answer a hello before its promise is durable, apply
//! an entry that is not the very next one, or say that it holds what it does not. Entries go through
//! `apply.rs`; everything that is done between two entries, in several steps or with the own part of
//! the state, is a plan (`plan.rs`), one after another. `hello.rs` is how a reign begins, `acks.rs`
//! what is said of it, `rounds.rs` and `fetch.rs` the source of a round, `import.rs` its destination.
mod acks;
mod apply;
mod asked;
mod credit;
mod fetch;
mod hello;
mod import;
mod internal;
mod marks;
mod mechanisms;
mod open;
mod outcome;
mod plan;
mod residue;
mod rounds;
#[cfg(test)]
mod tests;
mod turn;
mod wipe;

use std::collections::{BTreeMap, HashMap, VecDeque};

use block::{ByteLen, Position, Seq, Term};

use crate::cost::Costs;
use crate::message::{ForReplica, ForTarget, ToReplica, ToTarget};
use crate::state::{Promise, ReplicaState, SnapshotEntry};
use crate::store::{StoreError, StoreFacts, StoreOp, StoreReply, StoreTag};
use crate::words::{Boot, Incarnation, Moment, Powered};

use acks::Books;
use apply::Applying;
use asked::{Asked, Purpose};
use credit::Credit;
use fetch::{Fetch, FetchNo};
use import::Import;
use marks::Mark;
use mechanisms::Mechanisms;
use plan::Plan;
use rounds::Source;

pub use credit::CREDIT;
pub use rounds::ROUNDS_MAX;
pub use wipe::WipeRefusal;

/// One connection with a target. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

#[derive(Debug)]
pub enum Event {
    Message {
        link: LinkId,
        message: ForReplica,
    },
    LinkLost {
        link: LinkId,
    },
    /// Answers come in any order; effects were in the order of asking.
    Stored {
        tag: StoreTag,
        result: Result<StoreReply, StoreError>,
    },
    Tick,
    /// A clean end of the process: everything is made durable and the replica marked clean.
    Close,
}

#[derive(Debug)]
pub enum Output {
    Store {
        tag: StoreTag,
        op: StoreOp,
    },
    Send {
        link: LinkId,
        message: ForTarget,
    },
    /// This connection is of no use any more.
    Drop {
        link: LinkId,
    },
    /// [`Event::Close`] is done.
    Closed,
}

/// Who runs it, and on what.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub boot: Boot,
    pub powered: Powered,
    /// What the store is to set aside for writes of this volume alone.
    pub credit: ByteLen,
}

/// Whom it follows.
#[derive(Debug)]
enum Following {
    Nobody,
    /// A hello was taken; the welcome waits for its plan. `number` tells it from later ones.
    Greeting {
        link: LinkId,
        promise: Promise,
        number: u64,
    },
    Bound {
        link: LinkId,
        term: Term,
        standing: Standing,
    },
    /// It was closed, or is about to be: nobody any more.
    Closing,
}

/// What the target that it follows may ask for.
#[derive(Debug)]
enum Standing {
    /// Entries and reads.
    Live,
    /// An entry could not be applied: nothing more until a round is committed, or a new hello.
    Left,
    Importing(Import),
}

/// What the store's copy is like.
#[derive(Clone, Copy, Debug)]
struct Shape {
    size: ByteLen,
    block_size: ByteLen,
    costs: Costs,
}

pub struct Replica {
    run: Run,
    shape: Shape,
    /// Behind the last entry that was given to the store.
    state: ReplicaState,
    /// Users' snapshots that it holds.
    snapshots: Vec<SnapshotEntry>,
    /// Snapshots of rounds, and the base of an import.
    internal: Vec<SnapshotEntry>,
    /// The progress that the store has of an import.
    staged: Option<u64>,
    following: Following,
    greetings: u64,
    apply: Applying,
    books: Books,
    mark: Mark,
    credit: Credit,
    plans: VecDeque<Plan>,
    asked: HashMap<StoreTag, Asked>,
    /// Operations that the store was too busy for; they are asked again with the next tick.
    again: Vec<StoreTag>,
    tags: u64,
    /// Rounds that were opened over this connection.
    sources: BTreeMap<Position, Source>,
    fetches: BTreeMap<FetchNo, Fetch>,
    fetched: u64,
    mechanisms: Mechanisms,
}

impl Replica {
    /// Opens a replica on what its store has. `out` may already have operations for the store.
    pub fn open(
        facts: StoreFacts,
        run: Run,
        now: Moment,
        out: &mut Vec<Output>,
    ) -> Result<Replica, crate::message::Malformed> {
        let mut replica = Replica::from_facts(facts, run, now)?;
        replica.finish_what_was_left();
        replica.advance(now, out);
        Ok(replica)
    }

    /// A batch of one.
    pub fn step(&mut self, now: Moment, event: Event, out: &mut Vec<Output>) {
        self.step_all(now, &mut vec![event], out);
    }

    /// Takes what came, in order; everything that follows is in `out` when it returns. What many of
    /// them have in common is done once: answers that came together are one ack.
    ///
    /// As for a target, events that stand alone find done what follows from those before them, and
    /// the next finds done what follows from them. Between the others nothing needs it:
    ///
    /// - Entries are compared with what is queued, given or not, and wait in the queue.
    /// - A read, or a question for extents, is given to the store at once: before entries that came
    ///   before it in the batch. Whoever asks needs no more than what this replica acknowledged,
    ///   and of these entries it has acknowledged none.
    /// - A renewal is answered; what it lets go is a plan, which waits for its turn.
    /// - The answer to an entry or a flush changes the books; whether entries can be given, or have
    ///   to be given up, is looked at when all answers are in. An entry is given up only when
    ///   everything that was given is answered. No flush counts for more than what is held then.
    pub fn step_all(&mut self, now: Moment, events: &mut Vec<Event>, out: &mut Vec<Output>) {
        let mut put_off = false;
        for event in events.drain(..) {
            let alone = self.stands_alone(&event);
            if alone && std::mem::take(&mut put_off) {
                self.advance(now, out);
            }
            self.take(now, event, out);
            match alone {
                true => self.advance(now, out),
                false => put_off = true,
            }
        }
        if put_off {
            self.advance(now, out);
        }
    }

    /// Whether nothing may be put off around an event. What is not rare need not.
    fn stands_alone(&self, event: &Event) -> bool {
        match event {
            Event::Message { message, .. } => !matches!(
                message.body,
                ToReplica::Entries(_)
                    | ToReplica::Read { .. }
                    | ToReplica::Extents { .. }
                    | ToReplica::Renew { .. }
            ),
            Event::Stored { tag, .. } => {
                let is_common = |asked: &Asked| {
                    matches!(
                        asked.purpose,
                        Purpose::Flush { .. } | Purpose::Read { .. } | Purpose::Extents { .. }
                    )
                };
                self.apply.index_of(*tag).is_none() && !self.asked.get(tag).is_some_and(is_common)
            }
            Event::LinkLost { .. } | Event::Tick | Event::Close => true,
        }
    }

    fn take(&mut self, now: Moment, event: Event, out: &mut Vec<Output>) {
        match event {
            Event::Message { link, message } => self.message(now, link, message, out),
            Event::LinkLost { link } => self.link_lost(link),
            Event::Stored { tag, result } => self.stored(now, tag, result, out),
            Event::Tick => self.tick(now, out),
            Event::Close => self.close(out),
        }
    }

    #[cfg(feature = "faults")]
    pub fn turn_off(&mut self, switch: crate::Switch) {
        self.mechanisms.turn_off(switch);
    }

    /// The last entry that it holds.
    pub fn position(&self) -> Position {
        self.books.held
    }

    pub fn durable(&self) -> Seq {
        self.books.durable()
    }

    pub fn promise(&self) -> Promise {
        self.state.promise
    }

    pub fn incarnation(&self) -> Incarnation {
        self.state.incarnation
    }

    pub fn is_dirty(&self) -> bool {
        self.state.dirty.is_some()
    }

    pub fn is_regressed(&self) -> bool {
        self.state.regressed
    }

    /// The small state, behind the last entry that was given to the store.
    pub fn state(&self) -> &ReplicaState {
        &self.state
    }

    /// Users' snapshots that it holds.
    pub fn snapshots(&self) -> &[SnapshotEntry] {
        &self.snapshots
    }

    /// Whether this is the connection that counts, after its welcome.
    fn is_bound(&self, to: LinkId) -> bool {
        matches!(self.following, Following::Bound { link, .. } if link == to)
    }

    fn is_live(&self) -> bool {
        matches!(self.following, Following::Bound { standing: Standing::Live, .. })
    }

    fn import(&mut self) -> Option<&mut Import> {
        match &mut self.following {
            Following::Bound { standing: Standing::Importing(import), .. } => Some(import),
            _ => None,
        }
    }

    /// To the target, if it still is the one that is followed.
    fn send(&self, to: LinkId, body: ToTarget, out: &mut Vec<Output>) {
        if let Following::Bound { link, term, .. } = self.following
            && link == to
        {
            out.push(Output::Send { link, message: ForTarget { term, body } });
        }
    }

    /// The target's books and ours differ, or it broke the rules: a new hello sets that right.
    fn hang_up(&mut self, link: LinkId, out: &mut Vec<Output>) {
        out.push(Output::Drop { link });
        self.link_lost(link);
    }
}
