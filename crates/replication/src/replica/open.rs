//! Opening: what the store has, and what a crash left unfinished.
use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::bounds::bounds;
use crate::constants::VOLUME_MAX;
use crate::message::Malformed;
use crate::message::plausible::SEQ_MAX;
use crate::replica::{Following, Replica, Run, Shape};
use crate::state::{ReplicaState, SNAPSHOTS_FIT};
use crate::store::StoreFacts;
use crate::words::Moment;

use super::acks::Books;
use super::apply::Applying;
use super::credit::Credit;
use super::internal::Kind;
use super::marks::Mark;
use super::mechanisms::Mechanisms;
use super::plan::{Edit, Plan, Step, Then};

impl Replica {
    pub(super) fn from_facts(
        facts: StoreFacts,
        run: Run,
        now: Moment,
    ) -> Result<Replica, Malformed> {
        let state = ReplicaState::decode(&facts.state)?;
        let field = |what| Err(Malformed::Field { what });
        if facts.snapshots.len().max(facts.internal.len()) > SNAPSHOTS_FIT {
            return field(
                "the copy has more snapshots than a replica can tell its target; delete some offline",
            );
        }
        // The engine keeps seqs up to its own bound, and the next entries need room above them.
        if facts.position.seq.0 >= SEQ_MAX {
            return field("the copy's position is higher than any that can be reached");
        }
        if state.shared.size.0 > VOLUME_MAX {
            return field("the copy's state has a size that no volume can have");
        }
        let mark = match state.dirty == Some(run.powered) {
            true => Mark::Dirty,
            false => Mark::Clean,
        };
        Ok(Replica {
            run,
            shape: Shape { size: facts.size, block_size: facts.block_size, costs: facts.costs },
            state,
            snapshots: facts.snapshots,
            internal: facts.internal,
            staged: facts.staged,
            following: Following::Nobody,
            greetings: 0,
            apply: Applying::new(facts.position),
            books: Books::new(facts.position, now),
            mark,
            credit: Credit::new(run.credit),
            plans: VecDeque::new(),
            asked: HashMap::new(),
            again: Vec::new(),
            tags: 0,
            sources: BTreeMap::new(),
            fetches: BTreeMap::new(),
            fetched: 0,
            mechanisms: Mechanisms::default(),
        })
    }

    /// Plans of their own: one that fails, for want of space for instance, does not keep the others
    /// from their turn.
    pub(super) fn finish_what_was_left(&mut self) {
        if self.state.dirty.is_some_and(|marked| marked != self.run.powered) {
            // Known from now on, durable with the next state; until then the old mark says it.
            self.state.regressed = true;
            self.own([Step::Edit(Edit::Regressed)]);
        }
        if self.state.pending.is_some() {
            self.own([Step::MakePending]);
        }
        if self.state.import.is_some() != self.staged.is_some() {
            self.drop_import();
        }
        for uid in self.tail_snapshots().into_iter().chain(self.strays()) {
            self.own([Step::Delete(uid)]);
        }
    }

    fn own(&mut self, steps: impl IntoIterator<Item = Step>) {
        self.plans.push_back(Plan::own(steps, Then::Nothing));
    }

    /// Internal snapshots that nobody will ask for.
    fn strays(&self) -> Vec<crate::words::SnapshotUid> {
        let importing = self.state.import.is_some() && self.staged.is_some();
        let mut rounds: Vec<_> =
            self.internal.iter().filter(|entry| Kind::Round.has(entry)).collect();
        rounds.sort_by_key(|entry| std::cmp::Reverse(entry.position));
        let kept = &rounds[..rounds.len().min(bounds().rounds)];
        let is_stray = |entry: &&crate::state::SnapshotEntry| {
            !(kept.contains(entry) || importing && Kind::Base.has(entry))
        };
        self.internal.iter().filter(is_stray).map(|entry| entry.uid).collect()
    }
}
