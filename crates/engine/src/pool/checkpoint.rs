//! A checkpoint: everything since the last one goes from the journal into maps and space pages.
//!
//! The order is the proof. All pages are written to fresh space; then one flush makes them, and
//! the data that they name, durable; then copy 1 of the superblock is written and flushed, then
//! copy 2. Only now the epoch counts: the journal is trimmed and freed space may be reused.
use std::collections::BTreeMap;

use block::{Buf, Disk, Position, Seq};

use crate::error::CheckpointError;
use crate::format::{Child, Record, SUPERBLOCK_LEN, Superblock};
use crate::map::{
    CARRIED_STEPS, Carried, DirectoryContext, DirectoryEdit, DirectoryStep, Hole, Merge,
    MergeContext, MergeStep, PageWriter, Source,
};
use crate::pool::{Condition, Pool, Purpose};
use crate::space::{Contradiction, Layout, SpaceEdit, SpaceStep};
use crate::units::{Epoch, Extent, Slot, VolumeId, to_usize};
use crate::volume::Durable;

/// One merge into the map of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Updates(VolumeId),
    /// A hole that an earlier checkpoint, or the updates of this one, left unfinished.
    Hole {
        volume: VolumeId,
        changed: Seq,
    },
    Delete(VolumeId),
}

impl Work {
    fn volume(self) -> VolumeId {
        match self {
            Work::Updates(volume) | Work::Hole { volume, .. } | Work::Delete(volume) => volume,
        }
    }
}

enum Phase {
    /// What is still to be merged, and the merge that runs.
    Maps {
        left: Vec<Work>,
        merge: Option<(Work, Merge)>,
    },
    Directory(DirectoryEdit),
    Space(SpaceEdit),
    /// Pages and data are on their way.
    Settle,
    /// The flush that makes them durable.
    Flush {
        through: Slot,
        covered: BTreeMap<VolumeId, Position>,
    },
    /// Copy 0 or 1 of the superblock is being written, or flushed.
    Copy {
        copy: u64,
        flushing: bool,
    },
}

pub struct Job {
    phase: Phase,
    records: BTreeMap<VolumeId, Option<Durable>>,
    superblock: Superblock,
    writer: PageWriter,
    freed: Vec<Extent>,
    carried: Carried,
    /// Deletions and unfinished holes that this checkpoint goes on with, behind the updates.
    later: Vec<Work>,
    /// Large holes among the frozen updates.
    pub large_holes: usize,
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
    /// Updates are merged; now the unfinished holes, and then the directory.
    fn next_holes(&mut self) -> Step {
        let left = std::mem::take(&mut self.later);
        if left.is_empty() {
            let changes = self.records.clone();
            let (root, height) = (self.superblock.directory, self.superblock.directory_height);
            self.phase = Phase::Directory(DirectoryEdit::new(changes, root, height));
        } else {
            self.phase = Phase::Maps { left, merge: None };
        }
        Step::Again
    }

    pub fn pages_left(&self) -> u64 {
        self.pages_max.saturating_sub(self.writer.written)
    }
}

impl<D: Disk> Pool<D> {
    pub(super) fn wants_checkpoint(&self) -> bool {
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
        let pages_max = self.checkpoint_need() / (2 * self.space.layout.page());
        let frozen = std::mem::take(&mut self.active);
        let deletions = self.deleting.iter().map(|id| Work::Delete(*id));
        let holes = self.carried.iter().map(|(volume, changed, _)| Work::Hole { volume, changed });
        let later: Vec<Work> = deletions.chain(holes).take(CARRIED_STEPS).collect();
        let mut changed = std::mem::take(&mut self.dirty);
        changed.extend(later.iter().map(|work| work.volume()));
        let records: BTreeMap<_, _> =
            changed.into_iter().map(|id| (id, Some(self.volumes[&id].kept.clone()))).collect();
        let left = frozen.volumes().map(Work::Updates).collect();
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
            carried: self.carried.clone(),
            later,
            large_holes: std::mem::take(&mut self.large_holes),
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
            let Some(work) = left.pop() else { return Ok(job.next_holes()) };
            if !matches!(work, Work::Updates(_)) {
                // A hole is emptied in a map that this checkpoint may have written: its pages
                // must have arrived before they are read.
                job.writer.send(&mut self.device, &self.space);
                if self.device.checkpoint_ios() > 0 {
                    left.push(work);
                    return Ok(Step::Wait);
                }
            }
            let kept = job.records[&work.volume()].as_ref().expect("not gone yet");
            let (root, height) = (kept.root, kept.height);
            *merge = Some((work, Merge::new(work.volume(), root, height, kept.needed_height())));
        }
        let (work, running) = merge.as_mut().expect("set above");
        let work = *work;
        let kept = job.records.get_mut(&work.volume()).expect("every merged volume has a record");
        let volume = kept.as_mut().expect("not gone yet");
        let overlay = self.frozen.as_ref().and_then(|frozen| frozen.volume(work.volume()));
        let source = match (work, overlay) {
            (Work::Updates(_), Some(overlay)) => Source::Overlay(overlay),
            (Work::Updates(_), None) => unreachable!("only volumes with updates are merged"),
            (Work::Delete(_), _) => Source::delete(volume.needed_height()),
            (Work::Hole { volume, changed }, _) => {
                let (_, hole) = job
                    .carried
                    .of(volume)
                    .find(|(seq, _)| *seq == changed)
                    .expect("a hole that is known");
                Source::Hole { hole, changed }
            }
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
        let MergeStep::Done { root, height, stored, left } = running.step(source, &mut cx)? else {
            return Ok(Step::Wait);
        };
        (volume.root, volume.height) = (root, height);
        volume.stored = volume.stored.checked_add_signed(stored).ok_or(Contradiction::Stored)?;
        match work {
            Work::Updates(_) => {}
            Work::Hole { volume, changed } => job.carried.advance(volume, changed, left),
            Work::Delete(_) if matches!(root, Child::Page { .. }) => {}
            Work::Delete(_) if volume.stored > 0 => return Err(Contradiction::Stored.into()),
            Work::Delete(_) => *kept = None,
        }
        *merge = None;
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
        roots.resize(to_usize(job.layout.roots()), crate::format::SpaceRoot::default());
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

    /// What is left of large holes goes into the journal again, since its start moves on.
    fn carry_over(&mut self, job: &mut Job) {
        // A volume that was deleted meanwhile has no use for them.
        for id in &self.deleting {
            job.carried.remove(*id);
        }
        let records: Vec<Record> = job
            .carried
            .iter()
            .map(|(volume, changed, Hole { first, end })| Record::Carry {
                volume,
                first,
                count: end.0 - first.0,
                changed,
            })
            .collect();
        if !records.is_empty() {
            self.counters.carried_holes += records.len() as u64;
            self.seal_records(records);
        }
        job.through = Slot(self.ring.next().0 - 1);
    }

    /// Both copies are flushed: from here on the epoch counts.
    fn commit(&mut self, job: Job) {
        let Job { records, superblock, freed, writer, grown_from, carried, .. } = job;
        self.carried = carried;
        for (id, record) in records {
            match record {
                None => {
                    self.volumes.remove(&id);
                    self.deleting.remove(&id);
                }
                Some(record) => {
                    let volume = self.volumes.get_mut(&id).expect("only a checkpoint removes one");
                    volume.kept.root = record.root;
                    volume.kept.height = record.height;
                    volume.kept.stored = record.stored;
                }
            }
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
        let unfinished = !self.carried.is_empty() || !self.deleting.is_empty();
        let closing = matches!(self.condition, Condition::Closing);
        self.checkpoint_wanted = !closing && (self.checkpoint_wanted || unfinished);
    }
}

enum Step {
    Again,
    Wait,
    Done,
}
