//! The first part of a checkpoint: maps. Jumps are finished, layers merged, deleted volumes
//! orphaned, and a bounded part of what nobody has any more is dropped.
use block::Disk;

use crate::error::CheckpointError;
use crate::map::{Dropping, Merge, MergeContext, MergeStep, Restamp, Walk, WalkContext, WalkStep};
use crate::pool::Pool;
use crate::pool::checkpoint::{Job, Step};
use crate::snapshot::{Floor, Object, Orphan};
use crate::space::Contradiction;
use crate::units::{Birth, Granule, ObjectId, SnapshotId, VolumeId};
use crate::volume::{Durable, MapRoot};

/// One piece of work on one map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Stamps what a rollback or an import changed, and orphans what was there before.
    Jump(VolumeId),
    /// Merges one layer; those of a volume come oldest first.
    Layer {
        volume: VolumeId,
        at: usize,
    },
    /// A deleted volume leaves its map to be dropped.
    Delete(VolumeId),
    DropOrphan(ObjectId),
    /// A deleted snapshot, and the one that goes on from it.
    DropSnapshot {
        snapshot: SnapshotId,
        child: Option<ObjectId>,
    },
}

/// The piece of work that runs.
pub enum Running {
    Jump(VolumeId, Box<Restamp>),
    Layer(VolumeId, usize, Floor, Box<Merge>),
    Drop(Work, Floor, Box<Walk>),
}

impl Job {
    pub fn volume(&mut self, id: VolumeId) -> &mut Durable {
        match self.records.get_mut(&id.into()) {
            Some(Some(Object::Volume(volume))) => volume,
            other => panic!("volume {id} is in the job, but its record is {other:?}"),
        }
    }

    fn orphan(&mut self, id: ObjectId, orphan: Orphan) {
        self.records.insert(id, Some(Object::Orphan(orphan)));
    }
}

impl<D: Disk> Pool<D> {
    /// What a map that goes on from `parent` shares with it, as the running checkpoint has it.
    fn floor_in(&self, job: &Job, parent: Option<SnapshotId>) -> Floor {
        Floor::over(parent, |id| match job.records.get(&id.into()) {
            Some(Some(Object::Snapshot(cut))) => Some(cut),
            Some(_) => None,
            None => self.snapshots.get(&id).map(|snapshot| &snapshot.cut),
        })
    }

    pub(super) fn step_maps(&mut self, job: &mut Job) -> Result<Step, CheckpointError> {
        let Some(mut running) = job.running.take() else { return self.next_work(job) };
        let done = match &mut running {
            Running::Jump(volume, restamp) => self.step_jump(job, *volume, restamp)?,
            Running::Layer(volume, at, floor, merge) => {
                self.step_layer(job, *volume, *at, *floor, merge)?
            }
            Running::Drop(work, floor, walk) => self.step_drop(job, *work, *floor, walk)?,
        };
        if done {
            return Ok(Step::Again);
        }
        job.running = Some(running);
        Ok(Step::Wait)
    }

    fn next_work(&mut self, job: &mut Job) -> Result<Step, CheckpointError> {
        let Some(work) = job.work.pop_front() else {
            job.begin_directory();
            return Ok(Step::Again);
        };
        // Pages that this checkpoint wrote must have arrived before they are read.
        if job.reads_new_pages(work) {
            job.writer.send(&mut self.device, &self.space);
            if self.device.checkpoint_ios() > 0 {
                job.work.push_front(work);
                return Ok(Step::Wait);
            }
        }
        job.running = self.begin_work(job, work);
        Ok(Step::Again)
    }

    /// Begins a piece of work; some are done at once.
    fn begin_work(&mut self, job: &mut Job, work: Work) -> Option<Running> {
        match work {
            Work::Jump(id) => {
                let jump = job.jumps[&id];
                let map = job.volume(id).map;
                let floor = self.floor_in(job, jump.old_parent);
                self.orphan_map(job, id, jump.old, floor);
                let stamp = jump.stamp.filter(|_| !self.faulty_rollback());
                stamp.map(|stamp| {
                    let granules = job.volume(id).granules();
                    let restamp = Restamp::new(id, map, jump.old, stamp, jump.budget, granules);
                    Running::Jump(id, Box::new(restamp))
                })
            }
            Work::Layer { volume, at } => {
                let frozen = self.frozen.as_ref().expect("a checkpoint has frozen something");
                let (snapshot, _) = frozen.layer(volume, at).expect("a layer that was frozen");
                let parent = match snapshot.map(|id| job.records.get(&id.into())) {
                    None => job.volume(volume).parent,
                    Some(Some(Some(Object::Snapshot(cut)))) => cut.parent,
                    Some(other) => panic!("a sealed layer has a snapshot, not {other:?}"),
                };
                let kept = job.volume(volume);
                let (map, height, granules) = (kept.map, kept.needed_height(), kept.granules());
                let floor = self.merge_floor(job, parent);
                let merge = Merge::new(volume, map, height, granules);
                Some(Running::Layer(volume, at, floor, Box::new(merge)))
            }
            Work::Delete(id) => {
                let (map, parent) = (job.volume(id).map, job.volume(id).parent);
                let floor = self.floor_in(job, parent);
                self.orphan_map(job, id, map, floor);
                job.records.insert(id.into(), None);
                None
            }
            Work::DropOrphan(id) => match job.records.get(&id) {
                Some(Some(Object::Orphan(orphan))) => {
                    let walk = Walk::new(orphan.map, &[], orphan.dropped);
                    Some(Running::Drop(work, orphan.floor, Box::new(walk)))
                }
                other => panic!("an orphan is dropped, not {other:?}"),
            },
            Work::DropSnapshot { snapshot, child } => {
                let Some(Some(Object::Snapshot(cut))) = job.records.get(&snapshot.into()) else {
                    panic!("a snapshot that is dropped is in the job");
                };
                let (map, from, parent) = (cut.map, cut.dropped, cut.parent);
                let goes_on = child
                    .and_then(|id| job.records.get(&id)?.as_ref())
                    .filter(|child| child.parent() == Some(snapshot))
                    .map(Object::map);
                let others: Vec<MapRoot> = goes_on.into_iter().collect();
                let floor = self.floor_in(job, parent);
                let walk = Walk::new(map, &others, from);
                Some(Running::Drop(work, floor, Box::new(walk)))
            }
        }
    }

    /// Leaves a map to be dropped by this and later checkpoints.
    fn orphan_map(&mut self, job: &mut Job, volume: VolumeId, map: MapRoot, floor: Floor) {
        let owns = |ptr| floor.owns_page(ptr, map.end());
        if !map.root.ptr().is_some_and(owns) {
            return;
        }
        let id = ObjectId(self.next_object);
        self.next_object += 1;
        let mut header = job.volume(volume).header.clone();
        header.name.clear();
        job.orphan(id, Orphan { volume, header, map, floor, dropped: Granule(0) });
    }

    fn step_jump(
        &mut self,
        job: &mut Job,
        id: VolumeId,
        restamp: &mut Restamp,
    ) -> Result<bool, CheckpointError> {
        let floor = self.floor_in(job, job.jumps[&id].parent);
        let birth = job.first_birth;
        let mut cx = self.merge_context(job, birth, floor);
        let Some(map) = restamp.step(&mut cx)? else { return Ok(false) };
        job.volume(id).map = map;
        Ok(true)
    }

    fn step_layer(
        &mut self,
        job: &mut Job,
        id: VolumeId,
        at: usize,
        floor: Floor,
        merge: &mut Merge,
    ) -> Result<bool, CheckpointError> {
        let birth = Birth(job.first_birth.0 + at as u64);
        let frozen = self.frozen.take().expect("a checkpoint has frozen something");
        let (snapshot, layer) = frozen.layer(id, at).expect("a layer that was frozen");
        let mut cx = self.merge_context(job, birth, floor);
        let step = merge.step(layer, &mut cx);
        self.frozen = Some(frozen);
        let MergeStep::Done { map, cut } = step? else { return Ok(false) };
        job.volume(id).map = map;
        if let Some(cut) = cut {
            self.counters.cut_off += 1;
            self.orphan_map(job, id, cut, floor);
        }
        if let Some(snapshot) = snapshot {
            let record = job.records.get_mut(&snapshot.into()).expect("sealed with its record");
            let Some(Object::Snapshot(cut)) = record else {
                panic!("a sealed layer has a snapshot, not {record:?}");
            };
            (cut.map, cut.birth) = (map, birth);
        }
        Ok(true)
    }

    fn step_drop(
        &mut self,
        job: &mut Job,
        work: Work,
        floor: Floor,
        walk: &mut Walk,
    ) -> Result<bool, CheckpointError> {
        let mut guide = Dropping {
            floor,
            freed: &mut job.freed,
            page: self.space.layout.page(),
            budget: &mut job.budget,
            advanced: walk.passed > 0,
        };
        let mut cx = WalkContext { pages: &mut self.pages, device: &mut self.device };
        let step = guide.step(walk, &mut cx);
        let stopped = match step {
            WalkStep::Wait => return Ok(false),
            WalkStep::Done => None,
            WalkStep::Stopped(at) => Some(at),
            WalkStep::Bad(problem) => {
                return Err(CheckpointError::PageDamaged { what: "volume map", problem });
            }
        };
        self.counters.dropped_pages += walk.pages;
        match work {
            Work::DropOrphan(id) => match (job.records.get_mut(&id), stopped) {
                (Some(Some(Object::Orphan(orphan))), Some(at)) => orphan.dropped = at,
                (Some(record), _) => *record = None,
                (None, _) => return Err(Contradiction::Stored.into()),
            },
            Work::DropSnapshot { snapshot, child } => {
                job.dropped_snapshot(snapshot, child, stopped);
            }
            Work::Jump(_) | Work::Layer { .. } | Work::Delete(_) => {
                unreachable!("only orphans and snapshots are dropped")
            }
        }
        Ok(true)
    }

    fn merge_context<'a>(
        &'a mut self,
        job: &'a mut Job,
        birth: Birth,
        floor: Floor,
    ) -> MergeContext<'a, D> {
        MergeContext {
            birth,
            floor,
            stampless_holes: self.faulty_holes(),
            pages: &mut self.pages,
            device: &mut self.device,
            space: &mut self.space,
            writer: &mut job.writer,
            freed: &mut job.freed,
        }
    }

    fn merge_floor(&self, job: &Job, parent: Option<SnapshotId>) -> Floor {
        #[cfg(feature = "faults")]
        if self.has_fault(crate::Fault::FreeDeadEarly) {
            // The snapshot before the newest one decides, as if nothing lay in between.
            let older = parent.and_then(|id| self.snapshots.get(&id)).and_then(|s| s.cut.parent);
            return self.floor_in(job, older);
        }
        self.floor_in(job, parent)
    }

    fn faulty_rollback(&self) -> bool {
        #[cfg(feature = "faults")]
        return self.has_fault(crate::Fault::RollbackStampsOff);
        #[cfg(not(feature = "faults"))]
        false
    }

    fn faulty_holes(&self) -> bool {
        #[cfg(feature = "faults")]
        return self.has_fault(crate::Fault::HoleStampsOff);
        #[cfg(not(feature = "faults"))]
        false
    }
}

impl Job {
    /// A snapshot was dropped up to `stopped`, or wholly: then what went on from it goes on from
    /// the one before.
    fn dropped_snapshot(
        &mut self,
        snapshot: SnapshotId,
        child: Option<ObjectId>,
        stopped: Option<Granule>,
    ) {
        let record = self.records.get_mut(&snapshot.into()).expect("it is in the job");
        let Some(Object::Snapshot(cut)) = record else { panic!("a snapshot, not {record:?}") };
        let older = cut.parent;
        if let Some(at) = stopped {
            cut.dropped = at;
            return;
        }
        *record = None;
        self.gone = Some((snapshot, older));
        let Some(child) = child.and_then(|id| self.records.get_mut(&id)) else { return };
        match child {
            Some(Object::Volume(volume)) if volume.parent == Some(snapshot) => {
                volume.parent = older;
            }
            Some(Object::Snapshot(cut)) if cut.parent == Some(snapshot) => cut.parent = older,
            _ => {}
        }
    }

    /// Whether a piece of work may read pages that the same checkpoint wrote.
    fn reads_new_pages(&self, work: Work) -> bool {
        match work {
            Work::Layer { volume, at } => at > 0 || self.jumps.contains_key(&volume),
            Work::Jump(_) | Work::Delete(_) => false,
            Work::DropOrphan(_) | Work::DropSnapshot { .. } => true,
        }
    }
}
