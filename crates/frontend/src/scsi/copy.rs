//! EXTENDED COPY: the disk copies blocks of its own, so that they need not travel.
//!
//! Only within this disk: other disks are targets that cannot be reached from here.
mod list;
mod results;

use crate::ask::Ask;
use crate::scsi::disk::{Disk, Lba, Span};
use crate::scsi::jobs::{self, Answered, Job, Went};
use crate::scsi::order::{Asker, Begun, Next};
use crate::scsi::sense::{During, Refusal};

pub(super) use list::hull;
pub(super) use results::{Copied, Progress, operating_parameters, third_party};

/// Bytes that are in memory for one copy.
const CHUNK: u64 = 1 << 20;

/// Targets that one list may name, segments that it may have, and bytes that both may take.
const TARGETS_MAX: usize = 4;
const SEGMENTS_MAX: usize = 16;
const DESCRIPTORS_MAX: usize = 1024;

/// Bytes that one segment may copy.
const SEGMENT_MAX: u64 = 16 << 20;

/// Blocks that go from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    from: Lba,
    to: Lba,
    blocks: u64,
}

impl Segment {
    fn source(self) -> Span {
        Span { first: self.from, blocks: self.blocks }
    }

    fn destination(self) -> Span {
        Span { first: self.to, blocks: self.blocks }
    }
}

pub(super) struct Copy {
    /// What is left; the segment that is under way is the last.
    left: Vec<Segment>,
    step: Step,
    fua: bool,
    progress: Progress,
    /// What to keep the outcome under, if it is to be kept.
    pub(super) id: Option<u8>,
}

/// What one chunk waits for.
enum Step {
    Reading { blocks: u64 },
    Writing { blocks: u64 },
}

pub(super) fn copy(
    bytes: &[u8],
    uid: &[u8; 16],
    fua: bool,
    disk: &Disk,
    asker: &mut Asker,
) -> Result<Begun, Refusal> {
    let (id, mut left) = list::parse(bytes, uid, disk)?;
    left.retain(|segment| segment.blocks > 0);
    left.reverse();
    let (step, progress) = (Step::Reading { blocks: 0 }, Progress::default());
    let mut copy = Copy { left, step, fua, progress, id };
    if !copy.read(disk, asker) {
        return Ok(Begun::DONE);
    }
    Ok(Begun::Runs(Job::Copy(Box::new(copy))))
}

impl Copy {
    /// Asks for the next chunk. Whether there is one.
    fn read(&mut self, disk: &Disk, asker: &mut Asker) -> bool {
        let Some(segment) = self.left.last() else { return false };
        let blocks = segment.blocks.min(CHUNK / disk.block);
        asker.ask(Ask::Read { offset: disk.offset(segment.from), len: disk.len(blocks) });
        self.step = Step::Reading { blocks };
        true
    }

    /// Goes past a chunk that is copied.
    fn advance(&mut self, blocks: u64, disk: &Disk) {
        self.progress.bytes += disk.len(blocks).0;
        let Some(segment) = self.left.last_mut() else { return };
        segment.from.0 += blocks;
        segment.to.0 += blocks;
        segment.blocks -= blocks;
        if segment.blocks == 0 {
            self.left.pop();
            self.progress.segments += 1;
        }
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    pub(super) fn answered(&mut self, answer: Answered, disk: &Disk, asker: &mut Asker) -> Went {
        match self.step {
            Step::Reading { blocks } => {
                let data = jobs::data(answer, disk.index(blocks), disk)?;
                if let Some(segment) = self.left.last() {
                    let offset = disk.offset(segment.to);
                    asker.ask(Ask::Write { offset, data, fua: self.fua });
                }
                self.step = Step::Writing { blocks };
                Ok(Next::Waits)
            }
            Step::Writing { blocks } => {
                jobs::settled(answer, During::Writing, disk)?;
                self.advance(blocks, disk);
                Ok(if self.read(disk, asker) { Next::Waits } else { Next::DONE })
            }
        }
    }
}

#[cfg(test)]
mod tests;
