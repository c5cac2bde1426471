//! Each event to whom it concerns.
use block::{ByteOffset, Seq};

use crate::message::{ForReplica, ReadFailure, RoundPoint, ToReplica, ToTarget};
use crate::replica::{Following, LinkId, Output, Replica};
use crate::store::{StoreError, StoreOp, StoreReply, StoreTag};
use crate::words::{Moment, SnapshotUid};

use super::asked::{Asked, Purpose};
use super::internal::Kind;
use super::plan::{Edit, PLANS_MAX, Plan, Step, Then};

impl Replica {
    pub(super) fn message(
        &mut self,
        now: Moment,
        link: LinkId,
        message: ForReplica,
        out: &mut Vec<Output>,
    ) {
        let ForReplica { term, body } = message;
        match (&self.following, body) {
            (Following::Closing, _) => out.push(Output::Drop { link }),
            (_, ToReplica::Hello(hello)) => self.hello(link, hello, out),
            (Following::Bound { link: bound, term: reign, .. }, body) if *bound == link => {
                if *reign == term {
                    self.bound_message(now, link, body, out);
                }
            }
            // Nothing is to be said before the welcome.
            (Following::Greeting { link: greeting, .. }, _) if *greeting == link => {}
            _ => out.push(Output::Drop { link }),
        }
    }

    fn bound_message(&mut self, now: Moment, link: LinkId, body: ToReplica, out: &mut Vec<Output>) {
        if self.plans.len() >= PLANS_MAX {
            return self.hang_up(link, out);
        }
        match body {
            ToReplica::Hello(_) => {}
            ToReplica::Entries(entries) => self.entries(now, link, entries, out),
            ToReplica::Renew { sent, settled } => {
                self.send(link, ToTarget::Renewed { sent }, out);
                self.delete_doomed(settled);
            }
            // Whom to ask is the target's to know; also what is behind may help to repair others.
            ToReplica::Read { id, of, offset, len } => {
                let op = match frozen(&of) {
                    None => StoreOp::Read { offset, len },
                    Some(snapshot) => StoreOp::ReadSnapshot { snapshot, offset, len },
                };
                self.ask(Purpose::Read { link, id }, op, out);
            }
            ToReplica::Extents { id, offset, len } => {
                self.ask(Purpose::Extents { link, id }, StoreOp::Extents { offset, len }, out);
            }
            ToReplica::Repair { id, of, offset, data } => match self.is_live() {
                true => {
                    let op = StoreOp::Repair { snapshot: frozen(&of), offset, data };
                    self.ask(Purpose::Repair { link, id }, op, out);
                }
                false => self.send(link, ToTarget::Repaired { id, ok: false }, out),
            },
            ToReplica::Recovered => {
                if self.state.regressed {
                    let steps = [Step::Edit(Edit::Recovered)];
                    self.plans.push_back(Plan::own(steps, Then::Nothing));
                }
            }
            ToReplica::OpenRound { id, point } => self.open_round(link, id, point, out),
            ToReplica::Fetch { id, round, wanted, from, to } => {
                self.fetch(link, id, round, wanted, from..to, out);
            }
            ToReplica::CloseRound { round } => self.close_round(round),
            ToReplica::BeginImport { mark, size } => self.import_asked(link, mark, size),
            ToReplica::OwnChanges { id, since, from } => {
                self.own_changes(link, id, since, from, out);
            }
            ToReplica::Import { pieces, progress } => self.parts_arrived(link, pieces, progress),
            ToReplica::CommitImport { shared, snapshot, snapshots } => {
                self.commit_asked(link, shared, snapshot, snapshots, out);
            }
            ToReplica::AbandonImport => self.abandon_asked(),
        }
    }

    /// What a quorum has deleted durably is deleted here. First the snapshot, then its mark: a crash
    /// between the two leaves a mark without a snapshot, which does no harm.
    pub(super) fn delete_doomed(&mut self, settled: Seq) {
        if self.plans.iter().any(|plan| matches!(plan.then, Then::Undoomed)) {
            return;
        }
        let through = settled.min(self.books.held.seq);
        let doomed = self.state.shared.doomed.iter().filter(|doomed| doomed.at <= through);
        let gone: Vec<_> = doomed.map(|doomed| doomed.snapshot).collect();
        if !gone.is_empty() {
            let deletes: Vec<Step> = gone.iter().map(|uid| Step::Delete(*uid)).collect();
            let edit = Step::Edit(Edit::Undoomed(gone));
            self.plans.push_back(Plan::own(deletes.into_iter().chain([edit]), Then::Undoomed));
        }
    }

    pub(super) fn stored(
        &mut self,
        now: Moment,
        tag: StoreTag,
        result: Result<StoreReply, StoreError>,
        out: &mut Vec<Output>,
    ) {
        if let Some(index) = self.apply.index_of(tag) {
            return self.entry_answered(index, result.map(drop));
        }
        let Some(asked) = self.asked.get(&tag) else { return };
        if result.as_ref().is_err_and(|error| *error == StoreError::Busy) && asked.op.is_some() {
            return self.again.push(tag);
        }
        let Some(Asked { purpose, .. }) = self.asked.remove(&tag) else { return };
        match purpose {
            Purpose::Grow => self.grown(result.map(drop), out),
            Purpose::Flush { through } => self.flush_answered(through, result.map(drop), out),
            Purpose::Step => self.step_answered(result),
            Purpose::Read { link, id } => {
                let result = match result {
                    Ok(StoreReply::Read(data)) => Ok(data),
                    Ok(_) => Err(ReadFailure::Failed),
                    Err(error) => Err(read_failure(&error)),
                };
                self.send(link, ToTarget::ReadDone { id, result }, out);
            }
            Purpose::Extents { link, id } => {
                let result = match result {
                    Ok(StoreReply::Extents(extents)) => Ok(extents),
                    Ok(_) => Err(ReadFailure::Failed),
                    Err(error) => Err(read_failure(&error)),
                };
                self.send(link, ToTarget::ExtentsDone { id, result }, out);
            }
            Purpose::Repair { link, id } => {
                self.send(link, ToTarget::Repaired { id, ok: result.is_ok() }, out);
            }
            Purpose::Reopen { link, id, opened } => self.reopened(link, id, opened, result, out),
            Purpose::Ranges { fetch } => self.ranges_known(fetch, result, out),
            Purpose::Part { fetch, index } => self.part_read(fetch, index, result, out),
            Purpose::OwnChanges { link, id } => {
                let (ranges, next): (_, Option<ByteOffset>) = match result {
                    Ok(StoreReply::Changed { ranges, next }) => (ranges, next),
                    Ok(_) => return,
                    Err(error) => return self.import_failed(link, error, out),
                };
                self.send(link, ToTarget::OwnChanged { id, ranges, next }, out);
            }
            Purpose::Credit => self.credit_answered(now, result.map(drop), out),
        }
    }

    pub(super) fn tick(&mut self, now: Moment, out: &mut Vec<Output>) {
        self.ask_again(out);
        self.apply.resume();
        self.clean_when_idle(now);
    }

    /// After every event: whatever may go on now.
    pub(super) fn advance(&mut self, now: Moment, out: &mut Vec<Output>) {
        // Twice: entries that were given up leave a plan its stillness, and a plan that has its place
        // lets entries go on.
        for _ in 0..2 {
            self.run_plans(out);
            self.pump(out);
        }
        self.top_up(now, out);
        self.acknowledge(out);
    }
}

fn read_failure(error: &StoreError) -> ReadFailure {
    match error {
        StoreError::Damaged { offset } => ReadFailure::Damaged { offset: *offset },
        StoreError::Busy => ReadFailure::Busy,
        _ => ReadFailure::Failed,
    }
}

/// The snapshot that has the content which is meant.
fn frozen(of: &RoundPoint) -> Option<SnapshotUid> {
    match of {
        RoundPoint::Now => None,
        RoundPoint::Snapshot(uid) => Some(*uid),
        RoundPoint::Kept(position) => Some(Kind::Round.uid(*position)),
    }
}
