//! Plans: what takes several operations, or has its place between two entries. One runs at a time.
//!
//! A step that changes the volume or its state beside the sequence waits until every entry that was
//! given to the store is answered, and entries wait until it was given: so a state never says more
//! than the position that it is written at. The state is encoded when its step is given to the
//! store, never earlier.
use std::collections::VecDeque;

use block::{ByteLen, Position};

use crate::history::History;
use crate::message::{AskId, OpenedRound, Piece};
use crate::replica::{LinkId, Output, Replica};
use crate::state::{ImportMark, Promise, ReplicaState, SharedState, SnapshotEntry, SnapshotSpec};
use crate::store::{StoreError, StoreOp, StoreReply};
use crate::words::SnapshotUid;

use super::asked::Purpose;
use super::marks::Mark;

/// Plans that one connection may have waiting: several times what a target has under way.
pub const PLANS_MAX: usize = 256;

/// A change of the state between two positions.
#[derive(Debug)]
pub enum Edit {
    Promised {
        promise: Promise,
        seen: u64,
    },
    Dirty,
    /// Only if everything is durable by then.
    Clean,
    /// It started with the dirty mark of another power-up.
    Regressed,
    Recovered,
    Import(Option<ImportMark>),
    PendingMade,
    Undoomed(Vec<SnapshotUid>),
}

#[derive(Debug)]
pub enum Step {
    /// Every entry that was given is answered.
    Still,
    Flush,
    Edit(Edit),
    /// Freezes the volume where it is, for a round.
    Freeze,
    Snapshot {
        spec: SnapshotSpec,
        internal: bool,
    },
    Delete(SnapshotUid),
    Grow(ByteLen),
    Stage(SnapshotUid),
    /// The store's progress is `progress` when all of them are held.
    Data {
        ops: Vec<StoreOp>,
        progress: u64,
    },
    Adopt {
        at: Position,
        shared: Box<SharedState>,
        pending: Option<SnapshotSpec>,
    },
    Abandon,
    /// The connection's books are of no use any more.
    HangUp,

    // These become others when their turn comes, by what is there then.
    MakePending,
    BeginImport {
        mark: ImportMark,
        size: ByteLen,
    },
    Parts {
        pieces: Vec<Piece>,
        progress: u64,
        mark: Option<ImportMark>,
    },
    /// Before a round is adopted: what the source deleted goes.
    Forget {
        history: History,
        listed: Vec<SnapshotEntry>,
    },
    /// Snapshots of a tail that was undone go.
    DropTail,
    DropImport,
}

impl Step {
    fn needs_still(&self) -> bool {
        !matches!(self, Step::Flush | Step::Delete(_) | Step::Data { .. } | Step::HangUp)
    }
}

/// What follows when all steps are done, or one failed.
#[derive(Debug)]
pub enum Then {
    Nothing,
    Marked,
    Cleaned,
    Undoomed,
    /// What was staged is gone.
    Dropped,
    Closed,
    Welcome {
        number: u64,
    },
    RoundOpened {
        id: AskId,
        opened: Option<Box<OpenedRound>>,
    },
    ImportBegun,
    Imported {
        progress: u64,
        mark: Option<ImportMark>,
    },
    Committed,
}

#[derive(Debug)]
enum At {
    Waiting,
    Between,
    Running {
        step: Step,
        left: usize,
        failed: Option<StoreError>,
        before: Option<Box<ReplicaState>>,
    },
    Failed(StoreError),
}

#[derive(Debug)]
pub struct Plan {
    steps: VecDeque<Step>,
    pub then: Then,
    /// Whom the answer is for. Without: the replica's own.
    pub link: Option<LinkId>,
    at: At,
    /// It does not wait for entries; only with a mechanism turned off.
    pub rushed: bool,
}

/// What a step is, when its turn has come.
pub enum Begun {
    Ops(Vec<StoreOp>),
    Steps(Vec<Step>),
    Nothing,
    HangUp,
    Refused(StoreError),
}

impl Plan {
    pub fn own(steps: impl IntoIterator<Item = Step>, then: Then) -> Plan {
        let steps = steps.into_iter().collect();
        Plan { steps, then, link: None, at: At::Waiting, rushed: false }
    }

    pub fn asked(link: LinkId, steps: impl IntoIterator<Item = Step>, then: Then) -> Plan {
        Plan { link: Some(link), ..Plan::own(steps, then) }
    }

    pub fn is_started(&self) -> bool {
        !matches!(self.at, At::Waiting)
    }

    fn waits_for_stillness(&self) -> bool {
        matches!(self.at, At::Waiting | At::Between)
            && !self.rushed
            && self.steps.front().is_some_and(Step::needs_still)
    }
}

impl Replica {
    /// Entries wait until the next step of the running plan has its place.
    pub(super) fn is_stillness_wanted(&self) -> bool {
        self.plans.front().is_some_and(Plan::waits_for_stillness)
    }

    pub(super) fn run_plans(&mut self, out: &mut Vec<Output>) {
        while let Some(mut plan) = self.plans.pop_front() {
            match &plan.at {
                At::Running { .. } => return self.plans.push_front(plan),
                At::Failed(error) => {
                    let error = error.clone();
                    self.plan_failed(plan, error, out);
                    continue;
                }
                At::Waiting | At::Between => {}
            }
            if plan.waits_for_stillness() && !self.apply.is_still() {
                return self.plans.push_front(plan);
            }
            let Some(step) = plan.steps.pop_front() else {
                self.plan_done(plan, out);
                continue;
            };
            let before = match &step {
                Step::Edit(_) => Some(Box::new(self.state.clone())),
                _ => None,
            };
            plan.at = At::Between;
            match self.begin_step(&mut plan, &step) {
                Begun::Ops(ops) => {
                    plan.at = At::Running { step, left: ops.len(), failed: None, before };
                    self.plans.push_front(plan);
                    ops.into_iter().for_each(|op| self.ask(Purpose::Step, op, out));
                    return;
                }
                Begun::Steps(steps) => {
                    for step in steps.into_iter().rev() {
                        plan.steps.push_front(step);
                    }
                }
                Begun::Nothing => {}
                Begun::HangUp => {
                    if let Some(link) = plan.link.filter(|link| self.is_bound(*link)) {
                        self.hang_up(link, out);
                    }
                    continue;
                }
                Begun::Refused(error) => plan.at = At::Failed(error),
            }
            self.plans.push_front(plan);
        }
    }

    fn begin_step(&mut self, plan: &mut Plan, step: &Step) -> Begun {
        let op = match step {
            Step::Still => return Begun::Nothing,
            Step::HangUp => return Begun::HangUp,
            Step::Flush => {
                self.books.flush_given(self.apply.front.seq);
                StoreOp::Flush
            }
            Step::Edit(edit) => {
                if !self.edit(edit) {
                    return Begun::Nothing;
                }
                StoreOp::SetState { position: None, state: self.state.encode() }
            }
            Step::Freeze => return self.begin_freeze(&mut plan.then),
            Step::Snapshot { spec, internal } => {
                StoreOp::Snapshot { position: None, spec: spec.clone(), internal: *internal }
            }
            Step::Delete(snapshot) => StoreOp::DeleteSnapshot { snapshot: *snapshot },
            Step::Grow(size) => StoreOp::Grow { size: *size },
            Step::Stage(base) => StoreOp::Stage { base: *base },
            Step::Data { ops, .. } => return Begun::Ops(ops.clone()),
            Step::Adopt { at, shared, pending } => {
                return self.begin_adopt(*at, shared, pending.as_ref());
            }
            Step::Abandon => StoreOp::Abandon,
            Step::MakePending => return self.begin_pending(),
            Step::BeginImport { mark, size } => return self.begin_import(*mark, *size),
            Step::Parts { pieces, progress, mark } => {
                return self.begin_parts(pieces, *progress, *mark);
            }
            Step::Forget { history, listed } => return self.begin_forget(history, listed),
            Step::DropTail => return Begun::Steps(self.dropping_tail()),
            Step::DropImport => return self.begin_drop(),
        };
        Begun::Ops(vec![op])
    }

    /// Whether there is something to be written.
    fn edit(&mut self, edit: &Edit) -> bool {
        let state = &mut self.state;
        match edit {
            Edit::Promised { promise, seen } => {
                state.promise = *promise;
                state.membership_seen = state.membership_seen.max(*seen);
            }
            Edit::Dirty => state.dirty = Some(self.run.powered),
            Edit::Clean => {
                if !self.is_all_durable() {
                    return false;
                }
                self.mark = Mark::Clean;
                self.state.dirty = None;
            }
            Edit::Regressed => (state.regressed, state.dirty) = (true, None),
            Edit::Recovered => state.regressed = false,
            Edit::Import(mark) => state.import = *mark,
            Edit::PendingMade => state.pending = None,
            Edit::Undoomed(gone) => {
                state.shared.doomed.retain(|doomed| !gone.contains(&doomed.snapshot));
            }
        }
        true
    }

    pub(super) fn step_answered(&mut self, result: Result<StoreReply, StoreError>) {
        let plan = self.plans.front_mut().expect("the answer is for the plan that runs");
        let At::Running { step, left, failed, .. } = &mut plan.at else {
            unreachable!("an answer is awaited only by a step that runs");
        };
        *left -= 1;
        match result {
            Ok(_) => {}
            // Whoever deletes wants it gone.
            Err(StoreError::UnknownSnapshot) if matches!(step, Step::Delete(_)) => {}
            Err(error) => *failed = failed.take().or(Some(error)),
        }
        if *left > 0 {
            return;
        }
        let At::Running { step, failed, before, .. } = std::mem::replace(&mut plan.at, At::Between)
        else {
            unreachable!("looked at above");
        };
        let flushed = matches!(step, Step::Flush);
        match failed {
            Some(error) => {
                plan.at = At::Failed(error);
                // The own part is as the store has it; the shared one may have gone on.
                if let Some(before) = before {
                    let shared = std::mem::take(&mut self.state.shared);
                    self.state = ReplicaState { shared, ..*before };
                }
            }
            None if flushed => self.books.plan_flushed(),
            None => self.step_done(step),
        }
    }

    /// What the store has by now.
    fn step_done(&mut self, step: Step) {
        match step {
            Step::Snapshot { spec, internal } => {
                let SnapshotSpec { uid, name, created } = spec;
                let entry = SnapshotEntry { uid, name, created, position: self.books.held };
                match internal {
                    true => self.internal.push(entry),
                    false => self.snapshots.push(entry),
                }
            }
            Step::Freeze => self.frozen(),
            Step::Delete(uid) => self.snapshot_gone(uid),
            Step::Grow(size) => self.shape.size = self.shape.size.max(size),
            Step::Stage(_) => self.staged = Some(0),
            Step::Data { progress, .. } => self.staged = Some(progress),
            Step::Adopt { at, shared, pending } => self.adopted(at, &shared, pending.as_ref()),
            Step::Abandon => self.staged = None,
            _ => {}
        }
    }

    pub(super) fn snapshot_gone(&mut self, uid: SnapshotUid) {
        self.snapshots.retain(|entry| entry.uid != uid);
        self.internal.retain(|entry| entry.uid != uid);
    }

    /// What a frozen round is, for the plan that froze it.
    pub(super) fn running_round(&self) -> Option<&OpenedRound> {
        match &self.plans.front()?.then {
            Then::RoundOpened { opened, .. } => opened.as_deref(),
            _ => None,
        }
    }

    /// Plans of a connection that is gone are forgotten, unless they have begun: these end.
    pub(super) fn forget_plans(&mut self) {
        self.plans.retain(|plan| plan.link.is_none() || plan.is_started());
    }
}
