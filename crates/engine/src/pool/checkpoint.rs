//! A checkpoint: everything since the last one goes from the journal into maps and space pages.
//!
//! The order is the proof. All pages are written to fresh space; then one flush makes them, and
//! the data that they name, durable; then copy 1 of the superblock is written and flushed, then
//! copy 2. Only now the epoch counts: the journal is trimmed and freed space may be reused.
use std::collections::BTreeMap;

use block::{Buf, Disk, Position};

use crate::error::CheckpointError;
use crate::format::{Child, Record, SUPERBLOCK_LEN, Superblock};
use crate::map::{
    Carried, DirectoryContext, DirectoryEdit, DirectoryStep, Merge, MergeContext, MergeStep,
    PageWriter, Source,
};
use crate::pool::{Condition, Pool, Purpose};
use crate::space::{Layout, SpaceEdit, SpaceStep};
use crate::units::{Epoch, Extent, Slot, VolumeId};
use crate::volume::Durable;

enum Phase {
    /// Volumes still to be merged, and the merge that runs.
    Maps { left: Vec<VolumeId>, merge: Option<(VolumeId, Merge)> },
    Directory(DirectoryEdit),
    Space(SpaceEdit),
    /// Pages and data are on their way.
    Settle,
    /// The flush that makes them durable.
    Flush { through: Slot, covered: BTreeMap<VolumeId, Position> },
    /// Copy 0 or 1 of the superblock is being written, or flushed.
    Copy { copy: u64, flushing: bool },
}

pub struct Job {
    phase: Phase,
    records: BTreeMap<VolumeId, Option<Durable>>,
    superblock: Superblock,
    writer: PageWriter,
    freed: Vec<Extent>,
    carried: Vec<Carried>,
    budget: u64,
    /// Slots that must be held before the flush.
    through: Slot,
    /// The most pages that this job writes.
    pages_max: u64,
    layout: Layout,
    /// Where the pool ended before it grew.
    grown_from: Option<u64>,
}

impl Job {
    pub fn pages_left(&self) -> u64 {
        self.pages_max.saturating_sub(self.writer.written)
    }
}

impl<D: Disk> Pool<D> {
    fn wants_checkpoint(&self) -> bool {
        self.checkpoint_wanted
            || self.ring.wants_checkpoint()
            || self.active.entries() >= self.overlay_max()
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
        let pages_max = self.checkpoint_need() / (2 * self.space.layout.page());
        let frozen = std::mem::take(&mut self.active);
        let mut records = BTreeMap::new();
        for volume in self.volumes.values_mut() {
            if std::mem::take(&mut volume.dirty) || volume.kept.deleting {
                records.insert(volume.id, Some(volume.kept.clone()));
            }
        }
        let mut left: Vec<VolumeId> = frozen.volumes().collect();
        let deleting = records.iter().filter(|(_, kept)| kept.as_ref().is_some_and(|k| k.deleting));
        left.extend(deleting.map(|(id, _)| *id));
        left.sort_unstable();
        left.dedup();
        left.reverse();
        let epoch = Epoch(self.superblock.epoch.0 + 1);
        let layout = Layout { sectors, ..self.space.layout.clone() };
        let grown = sectors != self.superblock.sectors;
        let superblock = Superblock {
            epoch,
            session: self.session,
            clean: closing,
            replay_from: self.ring.next(),
            next_volume: self.next_volume,
            sectors,
            ..self.superblock.clone()
        };
        self.frozen = Some(frozen);
        self.job = Some(Box::new(Job {
            phase: Phase::Maps { left, merge: None },
            records,
            writer: PageWriter::new(superblock.pool(), epoch),
            freed: self.space.freeze(),
            carried: Vec::new(),
            budget: self.limits.emptied_leaves,
            through: Slot(self.ring.next().0 - 1),
            pages_max,
            layout,
            grown_from: grown.then_some(self.superblock.sectors),
            superblock,
        }));
    }

    fn step_job(&mut self, job: &mut Job) -> Result<Step, CheckpointError> {
        let settled = self.device.checkpoint_ios() == 0;
        match &mut job.phase {
            Phase::Maps { .. } => self.step_maps(job),
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
            Phase::Copy { flushing: true, .. } if settled => Ok(Step::Done),
            Phase::Settle | Phase::Flush { .. } | Phase::Copy { .. } => Ok(Step::Wait),
        }
    }

    fn write_superblock(&mut self, job: &mut Job, copy: u64) {
        let mut bytes = Buf::zeroed(SUPERBLOCK_LEN);
        job.superblock.encode(&mut bytes);
        let at = Layout::superblock(job.superblock.epoch, copy);
        self.device.write(at, bytes.into_data(), Purpose::Checkpoint);
        job.phase = Phase::Copy { copy, flushing: false };
    }

    fn step_maps(&mut self, job: &mut Job) -> Result<Step, CheckpointError> {
        let Phase::Maps { left, merge } = &mut job.phase else { unreachable!("called in Maps") };
        if merge.is_none() {
            let Some(id) = left.pop() else {
                let changes = job.records.clone();
                let (root, height) = (job.superblock.directory, job.superblock.directory_height);
                job.phase = Phase::Directory(DirectoryEdit::new(changes, root, height));
                return Ok(Step::Again);
            };
            let kept = job.records[&id].as_ref().expect("not merged yet");
            *merge = Some((id, Merge::new(id, kept.root, kept.height, kept.needed_height())));
        }
        let (id, running) = merge.as_mut().expect("set above");
        let id = *id;
        let kept = job.records.get_mut(&id).expect("every merged volume has a record");
        let deleting = kept.as_ref().is_some_and(|kept| kept.deleting);
        let overlay = self.frozen.as_ref().and_then(|frozen| frozen.volume(id));
        let source = match overlay {
            Some(overlay) if !deleting => Source::Overlay(overlay),
            _ => Source::Delete,
        };
        let mut cx = MergeContext {
            epoch: job.superblock.epoch,
            pages: &mut self.pages,
            device: &mut self.device,
            space: &mut self.space,
            writer: &mut job.writer,
            freed: &mut job.freed,
            budget: &mut job.budget,
            carried: &mut job.carried,
        };
        match running.step(source, &mut cx)? {
            MergeStep::Wait => return Ok(Step::Wait),
            MergeStep::Done { root, height, stored } => {
                let gone = deleting && matches!(root, Child::Hole { .. });
                let volume = kept.as_mut().expect("not merged yet");
                (volume.root, volume.height) = (root, height);
                volume.stored = volume.stored.checked_add_signed(stored).expect("counted exactly");
                if gone {
                    assert_eq!(volume.stored, 0, "a volume without a map stores nothing");
                    *kept = None;
                }
                *merge = None;
            }
        }
        Ok(Step::Again)
    }

    fn step_directory(&mut self, job: &mut Job) -> Result<Step, CheckpointError> {
        let Phase::Directory(edit) = &mut job.phase else { unreachable!("called in Directory") };
        let mut cx = DirectoryContext {
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
        self.carry_over(job);
        let taken = self.space.frozen.clone();
        let mut roots = self.space.roots.clone();
        roots.resize(job.layout.roots() as usize, crate::format::SpaceRoot::default());
        job.phase = Phase::Space(SpaceEdit::new(
            job.layout.clone(),
            job.superblock.pool(),
            job.superblock.epoch,
            taken,
            job.freed.clone(),
            job.grown_from,
            roots,
        ));
        Ok(Step::Again)
    }

    /// What is left of large holes goes into the journal again, below all that came since.
    fn carry_over(&mut self, job: &mut Job) {
        let mut records = Vec::new();
        for carried in std::mem::take(&mut job.carried) {
            let Carried { volume: id, first, count, changed } = carried;
            let Some(volume) = self.volumes.get(&id).filter(|v| !v.kept.deleting) else { continue };
            let (height, slot) = (volume.height(), self.ring.next());
            self.active.insert_hole_below(id, height, first, count, changed, slot);
            self.volumes.get_mut(&id).expect("found above").dirty = true;
            records.push(Record::Carry { volume: id, first, count, changed });
            self.counters.carried_holes += 1;
        }
        if !records.is_empty() {
            self.seal_records(records);
            self.checkpoint_wanted = true;
        }
        job.through = Slot(self.ring.next().0 - 1);
    }

    /// Both copies are flushed: from here on the epoch counts.
    fn commit(&mut self, job: Job) {
        let Job { records, superblock, freed, writer, grown_from, .. } = job;
        for (id, record) in records {
            match record {
                None => {
                    self.volumes.remove(&id);
                }
                Some(record) => {
                    let volume = self.volumes.get_mut(&id).expect("only a checkpoint removes one");
                    volume.kept.root = record.root;
                    volume.kept.height = record.height;
                    volume.kept.stored = record.stored;
                    self.checkpoint_wanted |= volume.kept.deleting;
                }
            }
        }
        if grown_from.is_some() {
            self.space.grown(superblock.sectors);
        }
        self.space.commit(superblock.space.clone(), &freed, grown_from.is_some());
        self.ring.trim(superblock.replay_from);
        self.durable_told = self.durable_told.max(superblock.durable);
        self.superblock = superblock;
        self.frozen = None;
        self.pages.drop_delivered();
        self.counters.checkpoints += 1;
        self.counters.map_pages_written += writer.written;
        if matches!(self.condition, Condition::Closing) {
            self.checkpoint_wanted = false;
        }
    }
}

enum Step {
    Again,
    Wait,
    Done,
}
