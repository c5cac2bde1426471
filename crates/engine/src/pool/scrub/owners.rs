//! Who has a damaged block: the map that owns it, and those that go on from there and still have
//! it at the same address.
use std::collections::VecDeque;

use block::{ByteOffset, Disk};

use super::{Damage, Part, Scrub};
use crate::format::{Block, Child, Entry, PagePtr};
use crate::map::{Enter, Guide, Seen, Walk, WalkContext, WalkStep};
use crate::pool::Pool;
use crate::pool::scrub::collect::subject;
use crate::units::{Granule, ObjectId, SnapshotId};

/// One damaged block whose owners are looked for.
struct Trace {
    granule: Granule,
    place: ByteOffset,
    damage: Damage,
    /// Maps that may have it.
    candidates: VecDeque<ObjectId>,
    walk: Option<(ObjectId, Walk, Point)>,
}

#[derive(Default)]
pub struct Tracing {
    traces: VecDeque<Trace>,
}

/// The entry of a single granule.
#[derive(Default)]
struct Point {
    granule: u64,
    block: Option<Block>,
}

impl Guide for Point {
    fn enter(&mut self, _: PagePtr, seen: &Seen<'_, Child>) -> Enter {
        if seen.span.contains(&self.granule) { Enter::Yes } else { Enter::No }
    }

    fn entry(&mut self, entry: Entry, seen: &Seen<'_, Entry>) -> bool {
        if seen.span.start == self.granule
            && let Entry::Block(block) = entry
        {
            self.block = Some(block);
        }
        seen.span.start <= self.granule
    }
}

impl Tracing {
    pub fn new(owner: ObjectId, granule: Granule, place: ByteOffset, damage: Damage) -> Tracing {
        let candidates = VecDeque::from([owner]);
        let trace = Trace { granule, place, damage, candidates, walk: None };
        Tracing { traces: VecDeque::from([trace]) }
    }

    pub fn add(&mut self, other: Tracing) {
        self.traces.extend(other.traces);
    }
}

impl<D: Disk> Pool<D> {
    /// Looks for the owners of damaged blocks. `false`: a page is being read.
    pub(super) fn trace_owners(&mut self, scrub: &mut Scrub) -> bool {
        let Some(tracing) = scrub.tracing.as_mut() else { return true };
        let Some(trace) = tracing.traces.front_mut() else {
            scrub.tracing = None;
            return true;
        };
        if trace.walk.is_none() {
            let Some(id) = trace.candidates.pop_front() else {
                let done = tracing.traces.pop_front().expect("looked at above");
                scrub.status.add(done.damage);
                return true;
            };
            if !self.is_known(id) {
                return true;
            }
            let walk = Walk::new(self.map_of(id), &[], trace.granule);
            trace.walk = Some((id, walk, Point { granule: trace.granule.0, block: None }));
        }
        let (id, walk, point) = trace.walk.as_mut().expect("set above");
        let mut cx = WalkContext { pages: &mut self.pages, device: &mut self.device };
        if matches!(walk.step(point, &mut cx), WalkStep::Wait) {
            return false;
        }
        let id = *id;
        let place = point.block.map(|block| self.space.layout.offset(block.place));
        trace.walk = None;
        // It may be gone since the walk began.
        if place == Some(trace.place) && self.is_known(id) {
            let Part::Data { owners, .. } = &mut trace.damage.part else {
                unreachable!("only blocks are traced")
            };
            owners.extend(subject(id, &self.object(id)));
            // Those that go on from here may have it too; if this one has not, none of them has.
            let children = self.children(SnapshotId(id.0));
            trace.candidates.extend(children);
        }
        true
    }

    fn is_known(&self, id: ObjectId) -> bool {
        self.volumes.contains_key(&crate::units::VolumeId(id.0))
            || self.snapshots.get(&SnapshotId(id.0)).is_some_and(|s| s.settled)
            || self.orphans.contains_key(&id)
    }
}
