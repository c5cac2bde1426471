//! Entries on their way into the store: waiting, given, held. Given in order and counted in order,
//! whatever the order of the answers.
use std::collections::VecDeque;

use block::{Position, Seq, Term};

use crate::entry::{Change, Entry};
use crate::message::{ForTarget, Leaving, ToTarget};
use crate::replica::{Following, LinkId, Output, Replica, Standing};
use crate::state::{SNAPSHOTS_FIT, SharedState};
use crate::store::{StoreError, StoreOp, StoreTag};
use crate::words::Moment;

use super::asked::Purpose;
use super::plan::Then;

/// Entries that the store has at once. A store that has its hands full with more of them is busy.
pub const GIVEN_MAX: usize = 64;

/// Why a snapshot is refused: no target that keeps the bounds makes so many.
pub const TOO_MANY_SNAPSHOTS: &str = "more snapshots than a replica can tell its target";

#[derive(Debug)]
enum Outcome {
    Waiting,
    Held,
    Refused(StoreError),
}

/// An entry that the store has.
#[derive(Debug)]
struct Given {
    tag: StoreTag,
    term: Term,
    entry: Entry,
    /// The state before it, if it changed that: what is left if it fails.
    before: Option<Box<SharedState>>,
    outcome: Outcome,
}

#[derive(Debug)]
pub struct Applying {
    /// Not given yet.
    queue: VecDeque<(Term, Entry)>,
    /// In the order of their tags.
    given: VecDeque<Given>,
    /// How many of them are not answered, and how many were refused.
    unanswered: usize,
    refused: usize,
    /// The last that was given.
    pub front: Position,
    /// The copy grows, for the resize at the head of the queue.
    growing: bool,
    flushes: usize,
    /// The store was busy: not before the next tick.
    paused: bool,
    /// Only with the draining turned off: a stream that is not closed yet.
    pub older: Option<(LinkId, Term)>,
}

impl Applying {
    /// Entries that were not given to the store, and those that it has not answered.
    pub fn len(&self) -> usize {
        self.queue.len() + self.given.len()
    }

    pub fn new(front: Position) -> Applying {
        Applying {
            queue: VecDeque::new(),
            given: VecDeque::new(),
            unanswered: 0,
            refused: 0,
            front,
            growing: false,
            flushes: 0,
            paused: false,
            older: None,
        }
    }

    /// Everything that was given is answered.
    pub fn is_still(&self) -> bool {
        self.given.is_empty() && !self.growing
    }

    pub fn is_idle(&self) -> bool {
        self.is_still() && self.queue.is_empty()
    }

    fn next(&self) -> Seq {
        let last = self.queue.back().map_or(self.front.seq, |(_, entry)| entry.seq);
        Seq(last.0 + 1)
    }

    fn is_answered(&self) -> bool {
        self.unanswered == 0 && self.flushes == 0
    }

    /// Which of those that were given a tag is for.
    pub fn index_of(&self, tag: StoreTag) -> Option<usize> {
        self.given.binary_search_by_key(&tag, |given| given.tag).ok()
    }

    pub fn forget_queue(&mut self) {
        // The growing was given to the store; it does no harm, but its entry is gone.
        self.queue.clear();
    }

    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// An import was adopted.
    pub fn jump(&mut self, to: Position) {
        assert!(self.is_still(), "no entry is given to the store while an import is staged");
        self.queue.clear();
        self.front = to;
    }
}

impl Replica {
    pub(super) fn entries(
        &mut self,
        now: Moment,
        link: LinkId,
        entries: Vec<Entry>,
        out: &mut Vec<Output>,
    ) {
        let Following::Bound { term, standing, .. } = &self.following else { return };
        let term = *term;
        match standing {
            Standing::Live => {}
            // Sent before the target heard of it.
            Standing::Left => return,
            Standing::Importing(_) => return self.hang_up(link, out),
        }
        let Some(first) = entries.first() else { return };
        let dense = entries.iter().zip(self.apply.next().0..).all(|(entry, n)| entry.seq == Seq(n));
        let of_reign =
            self.state.shared.reigns.list().last().is_some_and(|reign| reign.term == term)
                || self.apply.queue.back().is_some_and(|(queued, _)| *queued == term)
                || matches!(first.change, Change::Barrier { .. });
        let unfinished = self.state.pending.is_some();
        if !dense || !of_reign || unfinished || !entries.iter().all(is_whole) {
            return self.hang_up(link, out);
        }
        let dropping = self.plans.iter().any(|plan| matches!(plan.then, Then::Dropped));
        if (self.state.import.is_some() || self.staged.is_some()) && !dropping {
            // What is staged stands on the content of before; it is not what a round needs later.
            self.drop_import();
        }
        self.mark_before(&entries);
        self.books.last_entry = now;
        self.apply.queue.extend(entries.into_iter().map(|entry| (term, entry)));
    }

    /// Gives to the store what may be given.
    pub(super) fn pump(&mut self, out: &mut Vec<Output>) {
        let mut flush = false;
        while self.may_give() {
            let Some((term, entry)) = self.apply.queue.pop_front() else { break };
            if let Change::Resize { size } = entry.change
                && size > self.shape.size
            {
                // The position must not say that it is larger while the copy is not.
                self.apply.growing = true;
                self.apply.queue.push_front((term, entry));
                self.ask(Purpose::Grow, StoreOp::Grow { size }, out);
                break;
            }
            flush |= entry.change.is_flushed();
            self.give(term, entry, out);
        }
        if flush {
            self.apply.flushes += 1;
            let through = self.apply.front.seq;
            self.ask(Purpose::Flush { through }, StoreOp::Flush, out);
        }
        self.settle_refused(out);
    }

    fn may_give(&self) -> bool {
        let apply = &self.apply;
        apply.given.len() < GIVEN_MAX
            && !apply.growing
            && !apply.paused
            && apply.refused == 0
            // Nothing changes beside what is staged: that stands on the content of before.
            && self.staged.is_none()
            && !self.is_stillness_wanted()
    }

    fn give(&mut self, term: Term, entry: Entry, out: &mut Vec<Output>) {
        let position = entry.position(term);
        let before = entry.change.is_state().then(|| Box::new(self.state.shared.clone()));
        let followed = match self.has_room_for(&entry.change) {
            true => self.state.shared.follow(position, &entry.change),
            false => Err(TOO_MANY_SNAPSHOTS),
        };
        if let Err(reason) = followed {
            let outcome = Outcome::Refused(StoreError::Refused { reason: reason.to_owned() });
            let tag = self.tag();
            self.apply.refused += 1;
            self.apply.given.push_back(Given { tag, term, entry, before, outcome });
            return;
        }
        if let Change::Membership(membership) = &entry.change {
            let seen = &mut self.state.membership_seen;
            *seen = membership.version.max(*seen);
        }
        let op = match &entry.change {
            Change::Write { offset, data, sums } => {
                let (offset, data, sums) = (*offset, data.clone(), sums.clone());
                StoreOp::Write { position, offset, data, sums }
            }
            Change::Zero { offset, len, how } => {
                StoreOp::Zero { position, offset: *offset, len: *len, how: *how }
            }
            Change::Flush => StoreOp::Mark { position },
            Change::Snapshot(spec) => {
                let spec = spec.clone();
                StoreOp::Snapshot { position: Some(position), spec, internal: false }
            }
            Change::Rollback { to } => StoreOp::Rollback { position, to: *to },
            change => {
                assert!(change.is_state(), "whatever is not data is in the state");
                StoreOp::SetState { position: Some(position), state: self.state.encode() }
            }
        };
        let tag = self.tag();
        self.apply.front = position;
        self.apply.unanswered += 1;
        self.apply.given.push_back(Given { tag, term, entry, before, outcome: Outcome::Waiting });
        out.push(Output::Store { tag, op });
    }

    /// All snapshots are told in one message, those that are being made as well.
    fn has_room_for(&self, change: &Change) -> bool {
        let is_snapshot = |change: &Change| matches!(change, Change::Snapshot(_));
        let making = || self.apply.given.iter().filter(|it| is_snapshot(&it.entry.change));
        !is_snapshot(change) || self.snapshots.len() + making().count() < SNAPSHOTS_FIT
    }

    /// The store has answered the entry that was given as this one.
    pub(super) fn entry_answered(&mut self, index: usize, result: Result<(), StoreError>) {
        self.apply.unanswered -= 1;
        self.apply.refused += usize::from(result.is_err());
        self.apply.given[index].outcome = match result {
            Ok(()) => Outcome::Held,
            Err(error) => Outcome::Refused(error),
        };
        let is_held = |given: &mut Given| matches!(given.outcome, Outcome::Held);
        while let Some(given) = self.apply.given.pop_front_if(is_held) {
            self.held(given);
        }
    }

    fn held(&mut self, given: Given) {
        let position = given.entry.position(given.term);
        self.books.held = position;
        self.spend_on(position.seq, &given.entry.change);
        match given.entry.change {
            Change::Snapshot(spec) => self.snapshots.push(spec.at(position)),
            Change::DeleteSnapshot(_) if !self.mechanisms.deferred_deletes() => {
                self.delete_doomed(position.seq);
            }
            _ => {}
        }
    }

    pub(super) fn flush_answered(
        &mut self,
        through: Seq,
        result: Result<(), StoreError>,
        out: &mut Vec<Output>,
    ) {
        self.apply.flushes -= 1;
        match result {
            Ok(()) => self.books.flush_done(through),
            // Nothing is retried over it.
            Err(error) => {
                self.apply.queue.clear();
                let at = Seq(self.books.durable().0 + 1);
                self.leave(at, error, out);
            }
        }
    }

    pub(super) fn grown(&mut self, result: Result<(), StoreError>, out: &mut Vec<Output>) {
        self.apply.growing = false;
        let Some((_, Entry { seq, change: Change::Resize { size } })) = self.apply.queue.front()
        else {
            return;
        };
        let (seq, size) = (*seq, *size);
        match result {
            Ok(()) => self.shape.size = self.shape.size.max(size),
            Err(error) => {
                self.apply.queue.clear();
                self.leave(seq, error, out);
            }
        }
    }

    /// When all answers are in, what failed is given again or given up, with all behind it.
    fn settle_refused(&mut self, out: &mut Vec<Output>) {
        if self.apply.refused == 0 || !self.apply.is_answered() {
            return;
        }
        let failed = std::mem::take(&mut self.apply.given);
        self.apply.refused = 0;
        let held = failed.iter().find(|given| matches!(given.outcome, Outcome::Held));
        assert!(held.is_none(), "{held:?} is above a gap");
        let Some(Given { entry: Entry { seq, .. }, outcome: Outcome::Refused(error), .. }) =
            failed.front()
        else {
            unreachable!("whatever is held below the first refused one was taken out");
        };
        let (seq, error) = (*seq, error.clone());
        if let Some(before) = failed.iter().find_map(|given| given.before.as_ref()) {
            self.state.shared = (**before).clone();
        }
        self.apply.front = self.books.held;
        self.books.cut();
        if error == StoreError::Busy {
            self.apply.paused = true;
            // Of a stream that was closed meanwhile, or that an import replaces: never again.
            if !self.is_live() && self.mechanisms.drain_old_stream() {
                self.apply.queue.clear();
                return;
            }
            for given in failed.into_iter().rev() {
                self.apply.queue.push_front((given.term, given.entry));
            }
        } else {
            self.apply.queue.clear();
            self.leave(seq, error, out);
        }
    }

    pub(super) fn leave(&mut self, at: Seq, error: StoreError, out: &mut Vec<Output>) {
        // What it has below is said first.
        self.acknowledge(out);
        let Following::Bound { standing, .. } = &mut self.following else { return };
        if !matches!(standing, Standing::Live) {
            return;
        }
        *standing = Standing::Left;
        if error == StoreError::NoSpace {
            // What is frozen for rounds may be what holds the space back.
            self.thaw();
        }
        let Following::Bound { link, term, .. } = &self.following else { return };
        let reason = match error {
            StoreError::NoSpace => Leaving::NoSpace,
            StoreError::Damaged { offset } => Leaving::Damaged { offset },
            StoreError::Failed { reason } | StoreError::Refused { reason } => {
                Leaving::Failed { reason }
            }
            other => Leaving::Failed { reason: other.to_string() },
        };
        let body = ToTarget::Left { at, reason };
        out.push(Output::Send { link: *link, message: ForTarget { term: *term, body } });
    }
}

/// What was sent is what arrived.
fn is_whole(entry: &Entry) -> bool {
    match &entry.change {
        Change::Write { offset, data, sums } => sums.are_of(*offset, data),
        _ => true,
    }
}
