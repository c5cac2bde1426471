//! The dirty mark (P8): durable before anything is acknowledged that is not, gone after a quiet
//! second or a clean end. Who starts with the mark of another power-up has regressed.
use block::Seq;

use crate::constants::IDLE_FLUSH;
use crate::entry::Entry;
use crate::replica::plan::{Edit, Plan, Step, Then};
use crate::replica::{Following, Output, Replica};
use crate::words::Moment;

/// The mark of this power-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Clean,
    /// On its way to the device; acks of what is not durable wait for it.
    Marking,
    Dirty,
}

impl Replica {
    /// Data is about to be held without being durable.
    pub(super) fn mark_before(&mut self, entries: &[Entry]) {
        let is_data = |entry: &Entry| !entry.change.is_flushed();
        let needed = self.mechanisms.dirty_mark() && entries.iter().any(is_data);
        if needed && self.mark == Mark::Clean {
            self.mark = Mark::Marking;
            self.plans.push_back(Plan::own([Step::Edit(Edit::Dirty), Step::Flush], Then::Marked));
        }
    }

    /// What may be said to be held.
    pub(super) fn sayable(&self) -> Seq {
        let held = self.books.held.seq;
        match self.mark == Mark::Dirty || !self.mechanisms.dirty_mark() {
            true => held,
            false => held.min(self.books.durable()),
        }
    }

    pub(super) fn clean_when_idle(&mut self, now: Moment) {
        let idle = now.since(self.books.last_entry) >= IDLE_FLUSH && self.apply.is_idle();
        let cleaning = self.plans.iter().any(|plan| matches!(plan.then, Then::Cleaned));
        if idle && self.mark == Mark::Dirty && !cleaning {
            let steps = [Step::Flush, Step::Edit(Edit::Clean)];
            self.plans.push_back(Plan::own(steps, Then::Cleaned));
        }
    }

    /// Whether nothing is held that is not durable, so that the mark may go.
    pub(super) fn is_all_durable(&self) -> bool {
        self.mark == Mark::Dirty
            && self.apply.is_idle()
            && self.books.durable() == self.books.held.seq
    }

    /// Entries that were not given to the store are forgotten; what was given is made durable.
    pub(super) fn close(&mut self, out: &mut Vec<Output>) {
        match self.following {
            Following::Greeting { link, .. } | Following::Bound { link, .. } => {
                out.push(Output::Drop { link });
            }
            Following::Nobody => {}
            Following::Closing => return,
        }
        self.following = Following::Closing;
        self.forget_what_waits();
        self.forget_link();
        let steps = [Step::Still, Step::Flush, Step::Edit(Edit::Clean), Step::Flush];
        self.plans.push_back(Plan::own(steps, Then::Closed));
    }
}
