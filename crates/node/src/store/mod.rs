//! One pool with the replicas of several volumes: carries what replicas ask of their stores to the
//! engine, and answers back.
//!
//! It promises that operations of one volume take effect in the order in which they were asked.
//! Where the engine needs a name that only an earlier answer tells (of a snapshot, of a staging
//! volume), the operation waits here, and everything of its volume behind it. A read of a volume
//! sees at least what was answered before it was asked; beside writes under way it may see either.
//! Nothing is kept here that the pool does not have: after a crash, opening the pool is all there is
//! to do.
mod compare;
mod errors;
mod facts;
mod origin;
mod place;
mod step;

use std::collections::BTreeMap;

use block::{ByteOffset, Disk};
use engine::{
    Op, OpError, Pool, Reply, RequestId, SnapshotsOfDeleted, VolumeId, VolumeInfo, VolumeSpec,
};
use replication::constants::ENTRIES_MAX;
use replication::state::Origin;
use replication::store::{StoreError, StoreFacts, StoreOp, StoreReply, StoreTag};
use replication::words::{Incarnation, VolumeUid};

use origin::{Begins, First, Found, Left};
use place::{Phase, Place, Staging, Wanted};
use step::Step;

pub use compare::{Compared, Missing, Point};
pub use origin::Cut;

/// Operations of one volume that may wait here: as many as may be under way to a replica.
const WAITING_MAX: usize = ENTRIES_MAX;

/// What became of an operation.
pub type Answer = (VolumeUid, StoreTag, Result<StoreReply, StoreError>);

/// An operation that the engine has.
struct Asked {
    volume: VolumeUid,
    tag: StoreTag,
    step: Step,
    /// Where damage is looked for if the engine does not say.
    at: ByteOffset,
}

/// The operations that the engine has, by small numbers that are used again and again. Whoever else
/// asks the pool has to use high ones.
#[derive(Default)]
struct UnderWay {
    asked: Vec<Option<Asked>>,
    spare: Vec<usize>,
}

impl UnderWay {
    fn put(&mut self, asked: Asked) -> RequestId {
        let at = self.spare.pop().unwrap_or_else(|| {
            self.asked.push(None);
            self.asked.len() - 1
        });
        self.asked[at] = Some(asked);
        RequestId(at as u64)
    }

    fn take(&mut self, id: RequestId) -> Option<Asked> {
        let at = usize::try_from(id.0).ok()?;
        let asked = self.asked.get_mut(at)?.take()?;
        self.spare.push(at);
        Some(asked)
    }
}

/// The second half of a creation.
struct FirstState {
    volume: VolumeUid,
    tag: StoreTag,
    id: VolumeId,
    first: First,
}

/// The last step of a deletion.
struct Settling {
    volume: VolumeUid,
    tag: StoreTag,
    was: Phase,
}

/// What the engine had no room for when it was asked.
enum Later {
    FirstState(FirstState),
    Settle(Settling),
}

pub struct Host<D: Disk> {
    pool: Pool<D>,
    places: BTreeMap<VolumeUid, Place>,
    asked: UnderWay,
    /// Operations that the engine was given and has not looked at.
    given: bool,
    /// At most one for each place.
    later: Vec<Later>,
    left: Left,
    answers: Vec<Answer>,
}

impl<D: Disk> Host<D> {
    /// Finds the replicas of a pool. Volumes that have no replica's state are somebody else's.
    pub fn new(mut pool: Pool<D>) -> Host<D> {
        let mut places = BTreeMap::new();
        let volumes = pool.volumes();
        for volume in volumes.iter().filter(|volume| facts::is_replica(volume)) {
            let mut place = Place::ready(volume.id, volume.size);
            let snapshots = pool.snapshots();
            let own = snapshots.iter().filter(|found| facts::is_of(found, volume.id));
            place.snapshots.extend(own.map(|found| (facts::uid_of(found), found.id)));
            if let Some(staging) = facts::staging_of(&volumes, volume.id) {
                place.staging = Staging::Open(staging.id);
            }
            pool.keep_order(volume.id, true).expect("it was listed");
            places.insert(VolumeUid(volume.uid), place);
        }
        let (asked, later, answers) = (UnderWay::default(), Vec::new(), Vec::new());
        let mut left = Left::default();
        left.note(&pool);
        Host { pool, places, asked, given: false, later, left, answers }
    }

    pub fn pool(&self) -> &Pool<D> {
        &self.pool
    }

    pub fn pool_mut(&mut self) -> &mut Pool<D> {
        &mut self.pool
    }

    pub fn into_pool(self) -> Pool<D> {
        self.pool
    }

    /// The volumes that have a replica here.
    pub fn volumes(&self) -> Vec<VolumeUid> {
        let there = self.places.iter().filter(|(_, place)| place.volume().is_some());
        there.map(|(volume, _)| *volume).collect()
    }

    /// What the engine says of a replica's volume.
    pub fn info(&self, volume: VolumeUid) -> Option<VolumeInfo> {
        self.pool.volume(self.places.get(&volume)?.volume()?)
    }

    /// What a replica's store has; whole when nothing of it is under way.
    pub fn facts(&self, volume: VolumeUid) -> Option<StoreFacts> {
        facts::of(&self.pool, self.places.get(&volume)?.volume()?)
    }

    /// Makes an empty replica. Answered like an operation: when it is held, with its state.
    pub fn create(
        &mut self,
        volume: VolumeUid,
        tag: StoreTag,
        spec: VolumeSpec,
        incarnation: Incarnation,
    ) {
        self.create_from(volume, tag, spec, incarnation, None);
    }

    /// Makes a replica that begins as a snapshot of another one in this pool, if there is an origin.
    /// [`StoreError::UnknownSnapshot`]: that one has it not, or not yet.
    pub fn create_from(
        &mut self,
        volume: VolumeUid,
        tag: StoreTag,
        spec: VolumeSpec,
        incarnation: Incarnation,
        origin: Option<Origin>,
    ) {
        let begins = Begins { incarnation, origin };
        let spec = VolumeSpec { uid: volume.0, ..spec };
        self.places.entry(volume).or_default();
        self.want(volume, tag, Wanted::Create { spec, begins });
    }

    /// Deletes a replica with all its snapshots, and an import that is under way. Also what a crash
    /// left of one that was to be made. Answered when a crash does not bring it back.
    pub fn delete(&mut self, volume: VolumeUid, tag: StoreTag) {
        self.places.entry(volume).or_default();
        self.want(volume, tag, Wanted::Delete);
    }

    /// Whether it has a place here, even one whose state nobody can read.
    pub fn has(&self, volume: VolumeUid) -> bool {
        self.places.get(&volume).is_some_and(|place| place.volume().is_some())
    }

    /// Whether a crash left a volume of this uid that is no replica, and nobody makes it one now.
    pub fn has_half_made(&self, volume: VolumeUid) -> bool {
        !self.places.contains_key(&volume) && self.half_made(volume).is_some()
    }

    /// Answered by [`Host::poll`], in any order; takes effect in the order of submission.
    pub fn submit(&mut self, volume: VolumeUid, tag: StoreTag, op: StoreOp) {
        self.want(volume, tag, Wanted::Op(op));
    }

    /// Whether polling brings something even if the pool does nothing.
    pub fn has_more(&self) -> bool {
        !self.later.is_empty() || !self.answers.is_empty()
    }

    /// Takes what the engine finished. Never blocks.
    pub fn poll(&mut self) -> Vec<Answer> {
        if !self.later.is_empty() {
            self.pool.poll();
            for later in std::mem::take(&mut self.later) {
                match later {
                    Later::FirstState(first) => self.give_state(first),
                    Later::Settle(settling) => self.settle(settling),
                }
            }
        }
        loop {
            self.given = false;
            self.pool.poll();
            while let Some((id, result)) = self.pool.reply() {
                // Others may ask the pool as well, by its own door.
                if let Some(asked) = self.asked.take(id) {
                    self.answered(asked, result);
                }
            }
            if !self.given {
                return std::mem::take(&mut self.answers);
            }
        }
    }

    fn want(&mut self, volume: VolumeUid, tag: StoreTag, wanted: Wanted) {
        let Some(place) = self.places.get_mut(&volume) else {
            return self.refuse(volume, tag, "the volume has no replica here");
        };
        // Nearly all operations: nothing is waited for, so nothing has to be looked up again.
        if let (Phase::Ready(id), Wanted::Op(op)) = (place.phase, &wanted)
            && place.waiting.is_empty()
            && !place.must_wait(&wanted)
            && !matches!(op, StoreOp::SnapshotState { .. })
        {
            let Wanted::Op(op) = wanted else { unreachable!("looked at above") };
            return match step::of(place, id, op) {
                Ok((op, step, at)) => {
                    place.under_way += 1;
                    self.given = true;
                    self.pool.submit(self.asked.put(Asked { volume, tag, step, at }), op);
                }
                Err(error) => self.answers.push((volume, tag, Err(error))),
            };
        }
        // A deletion is asked once, and must find nothing under way even when it is refused.
        if place.waiting.len() >= WAITING_MAX && !matches!(wanted, Wanted::Delete) {
            return self.answers.push((volume, tag, Err(StoreError::Busy)));
        }
        place.waiting.push_back((tag, wanted));
        self.advance(volume);
    }

    /// Begins whatever of a volume need not wait any more.
    fn advance(&mut self, volume: VolumeUid) {
        while let Some(place) = self.places.get_mut(&volume) {
            let Some((tag, wanted)) = place.next() else { break };
            match (place.phase, wanted) {
                (Phase::Absent, Wanted::Create { spec, begins }) => {
                    self.begin_create(volume, tag, spec, begins);
                }
                (Phase::Absent, Wanted::Delete) if let Some(id) = self.half_made(volume) => {
                    self.begin_delete(volume, tag, id);
                }
                (Phase::Absent, _) => self.refuse(volume, tag, "the volume has no replica here"),
                (_, Wanted::Create { .. }) => self.refuse(volume, tag, "the replica exists"),
                (Phase::Ready(id), Wanted::Delete) => self.begin_delete(volume, tag, id),
                (Phase::Ready(id), Wanted::Op(op)) => self.begin(volume, tag, id, op),
                (Phase::Making | Phase::Going, _) => unreachable!("nothing begins before it ends"),
            }
        }
        if self.places.get(&volume).is_some_and(Place::is_gone) {
            self.places.remove(&volume);
        }
    }

    fn refuse(&mut self, volume: VolumeUid, tag: StoreTag, reason: &str) {
        let error = StoreError::Refused { reason: reason.into() };
        self.answers.push((volume, tag, Err(error)));
    }

    fn place(&mut self, volume: VolumeUid) -> &mut Place {
        self.places.get_mut(&volume).expect("a place stays while something of it is under way")
    }

    fn ask(&mut self, asked: Asked, op: Op) {
        self.place(asked.volume).under_way += 1;
        self.given = true;
        self.pool.submit(self.asked.put(asked), op);
    }

    fn begin(&mut self, volume: VolumeUid, tag: StoreTag, id: VolumeId, op: StoreOp) {
        if let StoreOp::SnapshotState { snapshot } = op {
            let found = self.place(volume).snapshots.get(&snapshot).copied();
            let state = found.and_then(|found| facts::state_of(&self.pool, found));
            let result = state.map(StoreReply::State).ok_or(StoreError::UnknownSnapshot);
            return self.answers.push((volume, tag, result));
        }
        match step::of(self.place(volume), id, op) {
            Ok((op, step, at)) => self.ask(Asked { volume, tag, step, at }, op),
            Err(error) => self.answers.push((volume, tag, Err(error))),
        }
    }

    /// Two steps: a volume, and its state. A volume that was made, but did not get its state before
    /// a crash, is no replica yet; it is taken as it is, if nothing ever happened to it.
    fn begin_create(&mut self, volume: VolumeUid, tag: StoreTag, spec: VolumeSpec, begins: Begins) {
        match self.wanted(volume, spec, begins) {
            Ok((Found::Nothing, op, first)) => {
                self.place(volume).phase = Phase::Making;
                let step = Step::Create(first);
                self.ask(Asked { volume, tag, step, at: ByteOffset(0) }, op);
            }
            Ok((Found::Untouched(id), _, first)) => {
                self.place(volume).phase = Phase::Making;
                self.give_state(FirstState { volume, tag, id, first });
            }
            Ok((Found::Used, ..)) => {
                self.refuse(volume, tag, "a volume with this uid exists already");
            }
            Err(error) => self.answers.push((volume, tag, Err(error))),
        }
    }

    fn give_state(&mut self, made: FirstState) {
        let FirstState { volume, tag, id, first } = made;
        let op = Op::SetState { volume: id, position: None, state: first.state.clone() };
        let step = Step::FirstState { id, first };
        self.ask(Asked { volume, tag, step, at: ByteOffset(0) }, op);
    }

    fn begin_delete(&mut self, volume: VolumeUid, tag: StoreTag, id: VolumeId) {
        let place = self.place(volume);
        let was = std::mem::replace(&mut place.phase, Phase::Going);
        let Staging::Open(staging) = place.staging else {
            return self.delete_volume(volume, tag, id, was);
        };
        let op = Op::Delete { volume: staging, snapshots: SnapshotsOfDeleted::Refuse };
        let step = Step::DropImport { id, was };
        self.ask(Asked { volume, tag, step, at: ByteOffset(0) }, op);
    }

    fn delete_volume(&mut self, volume: VolumeUid, tag: StoreTag, id: VolumeId, was: Phase) {
        let op = Op::Delete { volume: id, snapshots: SnapshotsOfDeleted::Delete };
        self.ask(Asked { volume, tag, step: Step::Delete { was }, at: ByteOffset(0) }, op);
    }

    fn settle(&mut self, settling: Settling) {
        let Settling { volume, tag, was } = settling;
        self.ask(Asked { volume, tag, step: Step::Settle { was }, at: ByteOffset(0) }, Op::Flush);
    }

    fn answered(&mut self, asked: Asked, result: Result<Reply, OpError>) {
        let Asked { volume, tag, step, at } = asked;
        let place = self.place(volume);
        place.under_way -= 1;
        let next = step::answered(place, step, &result);
        let idle = place.waiting.is_empty() && !place.is_gone();
        match next {
            step::Next::Answer => {
                let result = match result {
                    Ok(reply) => Ok(step::reply(reply)),
                    Err(error) => Err(errors::store_error(error, at)),
                };
                self.answers.push((volume, tag, result));
            }
            step::Next::GiveState { id, first } => {
                self.left.note(&self.pool);
                self.give_state(FirstState { volume, tag, id, first });
            }
            step::Next::GiveStateLater { id, first } => {
                self.later.push(Later::FirstState(FirstState { volume, tag, id, first }));
            }
            step::Next::Delete { id, was } => self.delete_volume(volume, tag, id, was),
            step::Next::Settle { was } => self.settle(Settling { volume, tag, was }),
            step::Next::SettleLater { was } => {
                self.later.push(Later::Settle(Settling { volume, tag, was }));
            }
            step::Next::Ready { id } => {
                // The copy of a clone may be larger than its volume, as that of its origin was.
                if let Some(copy) = self.pool.volume(id) {
                    self.place(volume).size = copy.size;
                }
                let kept = self.pool.keep_order(id, true);
                let result = kept.map(|()| StoreReply::Done);
                let result = result.map_err(|error| errors::store_error(error, at));
                self.answers.push((volume, tag, result));
            }
        }
        if !idle {
            self.advance(volume);
        }
    }
}
