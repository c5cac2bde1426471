//! The source of a round: frozen at a position, for as long as the target wants it.
use block::{ByteLen, Position};

use crate::bounds::bounds;
use crate::message::{AskId, OpenedRound, RoundFailure, RoundPoint, ToTarget};
use crate::replica::{LinkId, Output, Replica};
use crate::state::{ReplicaState, SharedState, SnapshotEntry, SnapshotSpec};
use crate::store::{StoreError, StoreOp, StoreReply};
use crate::words::SnapshotUid;

use super::asked::Purpose;
use super::internal::Kind;
use super::outcome::round_failure;
use super::plan::{Begun, Plan, Step, Then};

/// Frozen sources that are kept, also for a later target: each holds back space.
pub const ROUNDS_MAX: usize = 4;

/// A round that was opened.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub snapshot: SnapshotUid,
    /// Whole granules.
    pub size: ByteLen,
}

impl Replica {
    pub(super) fn open_round(
        &mut self,
        link: LinkId,
        id: AskId,
        point: RoundPoint,
        out: &mut Vec<Output>,
    ) {
        let found = match point {
            RoundPoint::Now if self.is_live() => {
                let then = Then::RoundOpened { id, opened: None };
                self.plans.push_back(Plan::asked(link, [Step::Freeze], then));
                return;
            }
            RoundPoint::Now => None,
            RoundPoint::Snapshot(uid) => {
                let entry = self.snapshots.iter().find(|entry| entry.uid == uid);
                entry.map(|SnapshotEntry { uid, name, created, position }| {
                    let (uid, name, created) = (*uid, name.clone(), *created);
                    (uid, *position, Some(SnapshotSpec { uid, name, created }))
                })
            }
            RoundPoint::Kept(position) => {
                let uid = Kind::Round.uid(position);
                let kept = self.internal.iter().any(|entry| entry.uid == uid);
                kept.then_some((uid, position, None))
            }
        };
        let Some((uid, position, snapshot)) = found else {
            let opened = Err(RoundFailure::Gone);
            return self.send(link, ToTarget::RoundOpened { id, opened }, out);
        };
        let shared = SharedState::default();
        let opened = Box::new(self.opened(position, shared, snapshot));
        let op = StoreOp::SnapshotState { snapshot: uid };
        self.ask(Purpose::Reopen { link, id, opened }, op, out);
    }

    fn opened(
        &self,
        position: Position,
        shared: SharedState,
        snapshot: Option<SnapshotSpec>,
    ) -> OpenedRound {
        let size = self.whole_granules(shared.size);
        let there = self.snapshots.iter().filter(|entry| entry.position <= position);
        OpenedRound { position, shared, size, snapshot, snapshots: there.cloned().collect() }
    }

    fn whole_granules(&self, size: ByteLen) -> ByteLen {
        // A snapshot's state may say any size; what is no size is refused by the target.
        let whole = size.0.checked_next_multiple_of(self.shape.costs.granule.0.max(1));
        whole.map_or(size, ByteLen)
    }

    /// The state that was kept with the snapshot of a round. A user's snapshot has that of just
    /// before it, which is the same: a snapshot changes nothing of what is shared.
    pub(super) fn reopened(
        &mut self,
        link: LinkId,
        id: AskId,
        mut opened: Box<OpenedRound>,
        result: Result<StoreReply, StoreError>,
        out: &mut Vec<Output>,
    ) {
        if !self.is_bound(link) {
            return;
        }
        let state = match result {
            Ok(StoreReply::State(bytes)) => ReplicaState::decode(&bytes)
                .map_err(|malformed| RoundFailure::Failed { reason: malformed.to_string() }),
            Ok(_) => Err(RoundFailure::Failed { reason: "not a state".to_owned() }),
            Err(error) => Err(round_failure(error)),
        };
        let opened = state.map(|state| {
            opened.size = self.whole_granules(state.shared.size);
            opened.shared = state.shared;
            self.keep_source(&opened);
            opened
        });
        self.send(link, ToTarget::RoundOpened { id, opened }, out);
    }

    fn keep_source(&mut self, opened: &OpenedRound) {
        let own = Kind::Round.uid(opened.position);
        let snapshot = opened.snapshot.as_ref().map_or(own, |spec| spec.uid);
        self.sources.insert(opened.position, Source { snapshot, size: opened.size });
    }

    /// Entries are still: position, state and snapshots are of one moment.
    pub(super) fn begin_freeze(&mut self, then: &mut Then) -> Begun {
        let Then::RoundOpened { opened, .. } = then else {
            unreachable!("only rounds freeze");
        };
        let held = self.books.held;
        let rounds = || self.internal.iter().filter(|entry| Kind::Round.has(entry));
        let again = rounds().any(|entry| entry.position == held);
        if !again && rounds().count() >= bounds().rounds {
            let oldest = rounds().min_by_key(|entry| entry.position).map(|entry| entry.uid);
            let oldest = oldest.expect("there are several");
            return Begun::Steps(vec![Step::Delete(oldest), Step::Freeze]);
        }
        let round = self.opened(held, self.state.shared.clone(), None);
        if again {
            self.keep_source(&round);
        }
        *opened = Some(Box::new(round));
        match again {
            true => Begun::Nothing,
            false => Begun::Ops(vec![StoreOp::Snapshot {
                position: None,
                spec: Kind::Round.spec(held),
                internal: true,
            }]),
        }
    }

    pub(super) fn frozen(&mut self) {
        let round = self.running_round().expect("the plan that froze it runs").clone();
        let SnapshotSpec { uid, name, created } = Kind::Round.spec(round.position);
        self.internal.push(SnapshotEntry { uid, name, created, position: round.position });
        self.keep_source(&round);
    }

    /// The pool is short of space, and what is frozen holds some back: rounds begin anew later.
    pub(super) fn thaw(&mut self) {
        self.sources.clear();
        let frozen = self.internal.iter().filter(|entry| Kind::Round.has(entry));
        let deletes: Vec<Step> = frozen.map(|entry| Step::Delete(entry.uid)).collect();
        if !deletes.is_empty() {
            self.plans.push_back(Plan::own(deletes, Then::Nothing));
        }
    }

    /// A user's snapshot stays.
    pub(super) fn close_round(&mut self, round: Position) {
        self.sources.remove(&round);
        let uid = Kind::Round.uid(round);
        if self.internal.iter().any(|entry| entry.uid == uid) {
            self.plans.push_back(Plan::own([Step::Delete(uid)], Then::Nothing));
        }
    }
}
