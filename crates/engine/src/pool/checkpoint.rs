//! A checkpoint: everything since the last one goes from the journal into maps and space pages.
//!
//! The order is the proof. All pages are written to fresh space; then one flush makes them, and
//! the data that they name, durable; then copy 1 of the superblock is written and flushed, then
//! copy 2. Only now the epoch counts: the journal is trimmed and freed space may be reused.
use std::collections::{BTreeMap, VecDeque};

use block::{Buf, Disk};

use crate::error::CheckpointError;
use crate::format::{SUPERBLOCK_LEN, SpaceRoot, Superblock};
use crate::map::{DirectoryContext, DirectoryEdit, DirectoryStep, PageWriter};
use crate::pool::flush::Covered;
use crate::pool::maps::{Running, Work};
use crate::pool::{Condition, Pool, Purpose};
use crate::snapshot::{Jump, Object};
use crate::space::{Layout, SpaceEdit, SpaceStep};
use crate::units::{Birth, Epoch, Extent, ObjectId, Slot, SnapshotId, VolumeId, to_usize};

enum Phase {
    Maps,
    Directory(DirectoryEdit),
    Space(SpaceEdit),
    /// Pages and data are on their way.
    Settle,
    /// The flush that makes them durable.
    Flush {
        through: Slot,
        covered: Covered,
    },
    /// Copy 0 or 1 of the superblock is being written, or flushed.
    Copy {
        copy: u64,
        flushing: bool,
    },
}

pub struct Job {
    phase: Phase,
    /// What is still to be done to maps, and what runs.
    pub(super) work: VecDeque<Work>,
    pub(super) running: Option<Running>,
    /// Objects that change, as they will be; `None` removes one.
    pub(super) records: BTreeMap<ObjectId, Option<Object>>,
    pub(super) jumps: BTreeMap<VolumeId, Jump>,
    /// The birth of the oldest layer; each above it is one younger.
    pub(super) first_birth: Birth,
    /// A snapshot that is dropped wholly, and the one before it.
    pub(super) gone: Option<(SnapshotId, Option<SnapshotId>)>,
    superblock: Superblock,
    pub(super) writer: PageWriter,
    pub(super) freed: Vec<Extent>,
    pub(super) budget: u64,
    /// Slots that must be held before the flush.
    through: Slot,
    /// The most pages that this job writes.
    pages_max: u64,
    layout: Layout,
    /// Where the pool ended before it grew.
    grown_from: Option<u64>,
}

impl Job {
    /// Maps are done; now the directory.
    pub(super) fn begin_directory(&mut self) {
        let changes = self.records.clone();
        let (root, height) = (self.superblock.directory, self.superblock.directory_height);
        self.phase = Phase::Directory(DirectoryEdit::new(changes, root, height));
    }

    /// Whether a pair of superblocks is being written.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Copy { .. })
    }

    pub fn pages_left(&self) -> u64 {
        self.pages_max.saturating_sub(self.writer.written)
    }
}

impl<D: Disk> Pool<D> {
    pub(super) fn wants_checkpoint(&self) -> bool {
        !self.holding && self.needs_checkpoint()
    }

    fn needs_checkpoint(&self) -> bool {
        self.checkpoint_wanted
            || self.ring.wants_checkpoint()
            || self.space.wants_checkpoint()
            // Half for the running checkpoint, half for what comes meanwhile.
            || self.active.entries() >= self.limits.overlay_entries / 2
    }

    pub(super) fn run_checkpoint(&mut self) {
        if self.job.is_none() {
            if !self.is_serving() || !self.wants_checkpoint() {
                return;
            }
            self.begin_checkpoint(false);
        }
        while let Some(mut job) = self.job.take() {
            let went_on = self.step_job(&mut job);
            match went_on {
                Ok(Step::Done) => return self.commit(*job),
                Ok(Step::Again) => self.job = Some(job),
                Ok(Step::Wait) => {
                    self.job = Some(job);
                    return;
                }
                Err(failure) => return self.checkpoint_failed(failure),
            }
        }
    }

    pub(super) fn checkpoint_failed(&mut self, failure: CheckpointError) {
        self.job = None;
        self.fail(format!("a checkpoint could not be made: {failure}"));
        self.failure = Some(failure);
    }

    /// Freezes everything up to the newest slot and begins to merge it.
    pub(super) fn begin_checkpoint(&mut self, closing: bool) {
        self.begin_checkpoint_with(closing, self.space.layout.sectors);
    }

    pub(super) fn begin_checkpoint_with(&mut self, closing: bool, sectors: u64) {
        assert!(self.job.is_none(), "one checkpoint at a time");
        self.checkpoint_wanted = false;
        self.zeroed = 0;
        let pages_max = self.checkpoint_need() / (2 * self.space.layout.page());
        let work = self.plan_maps();
        let records = self.freeze_records(&work);
        let frozen = std::mem::take(&mut self.active);
        let jumps = self.volumes.iter().filter_map(|(id, v)| Some((*id, v.jump?))).collect();
        let epoch = Epoch(self.superblock.epoch.0 + 1);
        let layout = Layout { sectors, ..self.space.layout.clone() };
        let grown = sectors != self.superblock.sectors;
        let first_birth = Birth(self.superblock.birth.0 + 1);
        let superblock = Superblock {
            epoch,
            birth: Birth(first_birth.0 + frozen.layers_max() as u64),
            session: self.session,
            clean: closing,
            replay_from: self.ring.next(),
            sectors,
            ..self.superblock.clone()
        };
        self.frozen = Some(frozen);
        self.job = Some(Box::new(Job {
            phase: Phase::Maps,
            work,
            running: None,
            records,
            jumps,
            first_birth,
            gone: None,
            writer: PageWriter::new(superblock.pool()),
            freed: self.space.freeze(),
            budget: self.limits.emptied_leaves,
            through: Slot(self.ring.next().0 - 1),
            pages_max,
            layout,
            grown_from: grown.then_some(self.superblock.sectors),
            superblock,
        }));
    }

    /// What has to be done to maps: jumps before the layers that lie above them, and dropping
    /// last, since it looks at what the others made.
    fn plan_maps(&self) -> VecDeque<Work> {
        let mut work = VecDeque::new();
        let jumps = self.volumes.iter().filter(|(_, v)| v.jump.is_some());
        work.extend(jumps.map(|(id, _)| Work::Jump(*id)));
        for volume in self.active.volumes() {
            let layers = (0..).take_while(|at| self.active.layer(volume, *at).is_some());
            work.extend(layers.map(|at| Work::Layer { volume, at }));
        }
        work.extend(self.deleting.iter().map(|id| Work::Delete(*id)));
        work.extend(self.orphans.keys().next().map(|id| Work::DropOrphan(*id)));
        work.extend(self.next_drop());
        work
    }

    /// The records of everything that changed, or will be changed by this checkpoint.
    fn freeze_records(&mut self, work: &VecDeque<Work>) -> BTreeMap<ObjectId, Option<Object>> {
        let mut changed = std::mem::take(&mut self.dirty);
        for work in work {
            match *work {
                Work::Jump(id) | Work::Layer { volume: id, .. } | Work::Delete(id) => {
                    changed.insert(id.into());
                }
                Work::DropOrphan(id) => {
                    changed.insert(id);
                }
                Work::DropSnapshot { snapshot, child } => {
                    changed.insert(snapshot.into());
                    changed.extend(child);
                }
            }
        }
        changed.into_iter().map(|id| (id, Some(self.object(id)))).collect()
    }

    fn step_job(&mut self, job: &mut Job) -> Result<Step, CheckpointError> {
        let settled = self.device.checkpoint_ios() == 0;
        match &mut job.phase {
            Phase::Maps => self.step_maps(job),
            Phase::Directory(_) => self.step_directory(job),
            Phase::Space(edit) => match edit.step(&mut self.pages, &mut self.device)? {
                SpaceStep::Wait => Ok(Step::Wait),
                SpaceStep::Done(roots) => {
                    job.superblock.space = roots;
                    job.phase = Phase::Settle;
                    Ok(Step::Again)
                }
            },
            Phase::Settle if settled && self.held >= job.through => {
                let (through, covered) = (self.held, self.take_held());
                self.device.flush(Purpose::Checkpoint);
                job.phase = Phase::Flush { through, covered };
                Ok(Step::Again)
            }
            Phase::Flush { through, covered } if settled => {
                let (through, covered) = (*through, std::mem::take(covered));
                self.became_durable(through, covered);
                job.superblock.durable = self.durable;
                self.write_superblock(job, 0);
                Ok(Step::Again)
            }
            Phase::Copy { copy, flushing: false } if settled => {
                let copy = *copy;
                self.device.flush(Purpose::Checkpoint);
                job.phase = Phase::Copy { copy, flushing: true };
                Ok(Step::Again)
            }
            Phase::Copy { copy: 0, flushing: true } if settled => {
                self.write_superblock(job, 1);
                Ok(Step::Again)
            }
            // From here on places may be given to others: nothing old may still be written there.
            Phase::Copy { flushing: true, .. } if settled && self.mending == 0 => Ok(Step::Done),
            Phase::Settle | Phase::Flush { .. } | Phase::Copy { .. } => Ok(Step::Wait),
        }
    }

    fn write_superblock(&mut self, job: &mut Job, copy: u64) {
        job.superblock.next_object = self.next_object;
        let mut bytes = Buf::zeroed(SUPERBLOCK_LEN);
        job.superblock.encode(&mut bytes);
        let at = Layout::superblock(job.superblock.epoch, copy);
        self.device.write(at, bytes.into_data(), Purpose::Checkpoint);
        job.phase = Phase::Copy { copy, flushing: false };
    }

    fn step_directory(&mut self, job: &mut Job) -> Result<Step, CheckpointError> {
        let Phase::Directory(edit) = &mut job.phase else { unreachable!("called in Directory") };
        let mut cx = DirectoryContext {
            birth: job.superblock.birth,
            pages: &mut self.pages,
            device: &mut self.device,
            space: &mut self.space,
            writer: &mut job.writer,
            freed: &mut job.freed,
        };
        let DirectoryStep::Done { root, height } = edit.step(&mut cx)? else {
            return Ok(Step::Wait);
        };
        job.superblock.directory = root;
        job.superblock.directory_height = height;
        job.writer.send(&mut self.device, &self.space);
        let taken = self.space.frozen.clone();
        let mut roots = self.space.roots.clone();
        roots.resize(to_usize(job.layout.roots()), SpaceRoot::default());
        job.phase = Phase::Space(SpaceEdit::new(
            job.layout.clone(),
            job.superblock.pool(),
            job.superblock.epoch,
            taken,
            job.freed.clone(),
            job.grown_from,
            roots,
        )?);
        Ok(Step::Again)
    }

    /// Both copies are flushed: from here on the epoch counts.
    fn commit(&mut self, job: Job) {
        let Job { records, superblock, freed, writer, grown_from, jumps, gone, .. } = job;
        for id in jumps.keys() {
            if let Some(volume) = self.volumes.get_mut(id) {
                volume.jump = None;
            }
        }
        for (id, record) in records {
            self.settle_object(id, record);
        }
        if let Some((snapshot, older)) = gone {
            self.counters.dropped_snapshots += 1;
            self.goes_on_from(snapshot, older);
        }
        if grown_from.is_some() {
            self.space.grown(superblock.sectors);
        }
        let roots = superblock.space.clone();
        if let Err(found) = self.space.commit(roots, &freed, grown_from.is_some()) {
            return self.checkpoint_failed(found.into());
        }
        self.ring.trim(superblock.replay_from);
        self.durable_told = self.durable_told.max(superblock.durable);
        self.superblock = superblock;
        self.frozen = None;
        self.pages.drop_delivered();
        self.counters.checkpoints += 1;
        self.counters.map_pages_written += writer.written;
        // Unfinished work goes on in the next checkpoint, unless this was the last.
        self.superblocks_due = self.superblocks_due.saturating_sub(1);
        let unfinished = self.has_unfinished() || self.superblocks_due > 0;
        let closing = matches!(self.condition, Condition::Closing);
        self.checkpoint_wanted = !closing && (self.checkpoint_wanted || unfinished);
    }
}

pub(super) enum Step {
    Again,
    Wait,
    Done,
}
