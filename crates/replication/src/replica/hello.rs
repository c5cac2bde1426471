//! How a reign begins here (Q2): the promise is durable and everything of before is drained, and
//! only then is the target told what is here.
use crate::message::{ForTarget, Hello, Refusal, ToTarget, Welcome};
use crate::replica::{Following, LinkId, Output, Replica, Standing};
use crate::state::Promise;

use super::internal::Kind;
use super::plan::{Edit, Plan, Step, Then};

/// A higher term, or the same target once more.
fn is_followed(claim: Promise, promised: Promise) -> bool {
    claim.term > promised.term || claim == promised
}

impl Replica {
    pub(super) fn hello(&mut self, link: LinkId, hello: Hello, out: &mut Vec<Output>) {
        let Hello { promise, membership } = hello;
        // One that is being stored counts already: refusing too much breaks no promise.
        let promised = match self.following {
            Following::Greeting { promise, .. } => promise,
            _ => self.state.promise,
        };
        let seen = self.state.membership_seen;
        let refusal = if !is_followed(promise, promised) {
            Some(Refusal::Promised(promised))
        } else if membership.version < seen {
            Some(Refusal::OlderMembership { seen })
        } else {
            None
        };
        if let Some(refusal) = refusal {
            let message = ForTarget { term: promise.term, body: ToTarget::Refused(refusal) };
            out.push(Output::Send { link, message });
            return self.hang_up(link, out);
        }
        self.close_older_stream(link, out);
        self.greetings += 1;
        let number = self.greetings;
        self.following = Following::Greeting { link, promise, number };

        if self.state.pending.is_some() {
            self.plans.push_back(Plan::own([Step::MakePending], Then::Nothing));
        }
        let edit = Step::Edit(Edit::Promised { promise, seen: membership.version });
        let steps = match self.mechanisms.durable_promise() {
            true => vec![edit, Step::Flush],
            false => {
                self.state.promise = promise;
                self.state.membership_seen = seen.max(membership.version);
                vec![Step::Still, Step::Flush]
            }
        };
        let mut plan = Plan::asked(link, steps, Then::Welcome { number });
        plan.rushed = !self.mechanisms.drain_old_stream();
        self.plans.push_back(plan);
    }

    fn close_older_stream(&mut self, link: LinkId, out: &mut Vec<Output>) {
        let older = match self.following {
            Following::Greeting { link, promise, .. } => Some((link, promise.term)),
            Following::Bound { link, term, .. } => Some((link, term)),
            Following::Nobody | Following::Closing => None,
        };
        let older = older.filter(|(older, _)| *older != link);
        if self.mechanisms.drain_old_stream() {
            out.extend(older.map(|(link, _)| Output::Drop { link }));
            self.forget_what_waits();
        } else {
            self.apply.older = older;
        }
        self.forget_link();
    }

    /// Entries that were not given to the store.
    pub(super) fn forget_what_waits(&mut self) {
        self.apply.forget_queue();
    }

    /// What only this connection waited for.
    pub(super) fn forget_link(&mut self) {
        self.forget_plans();
        self.fetches.clear();
        self.sources.clear();
    }

    pub(super) fn link_lost(&mut self, lost: LinkId) {
        match self.following {
            Following::Greeting { link, .. } | Following::Bound { link, .. } if link == lost => {
                // Entries that arrived stay: they are the next ones, whoever asks.
                self.following = Following::Nobody;
                self.forget_link();
            }
            _ => {}
        }
        if self.apply.older.is_some_and(|(link, _)| link == lost) {
            self.apply.older = None;
        }
    }

    pub(super) fn welcome(&mut self, number: u64, out: &mut Vec<Output>) {
        let Following::Greeting { link, promise, number: newest } = self.following else { return };
        if newest != number {
            return;
        }
        let standing = Standing::Live;
        self.following = Following::Bound { link, term: promise.term, standing };
        let staged = self.staged.map(block::ByteOffset);
        let rounds = self.internal.iter().filter(|entry| Kind::Round.has(entry));
        let welcome = Welcome {
            incarnation: self.state.incarnation,
            boot: self.run.boot,
            position: self.books.held,
            shared: self.state.shared.clone(),
            dirty: self.state.dirty.is_some(),
            regressed: self.state.regressed,
            snapshots: self.snapshots.clone(),
            rounds: rounds.map(|entry| entry.position).collect(),
            import: self.state.import.zip(staged),
            headroom: self.credit.headroom(),
            block_size: self.shape.block_size,
            costs: self.shape.costs,
        };
        self.restart_acks();
        self.send(link, ToTarget::Welcome(Box::new(welcome)), out);
    }
}
