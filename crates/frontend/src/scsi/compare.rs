//! COMPARE AND WRITE: blocks are written if they are what the initiator thinks they are. The
//! claim on them keeps everything else away between the look and the write.
use block::Data;

use crate::ask::Ask;
use crate::scsi::disk::{COMPARE_BLOCKS_MAX, Disk, Span};
use crate::scsi::jobs::{self, Answered, Job, Went};
use crate::scsi::order::{Asker, Begun, Next};
use crate::scsi::sense::{During, Refusal, Sense};
use crate::scsi::verify::first_difference;

pub(super) enum Compare {
    Comparing { span: Span, expected: Data, new: Data, fua: bool },
    Writing,
}

pub(super) fn compare_and_write(
    span: Span,
    fua: bool,
    data_out: &Data,
    disk: &Disk,
    asker: &mut Asker,
) -> Result<Begun, Refusal> {
    disk.check(span)?;
    if span.blocks > COMPARE_BLOCKS_MAX.into() {
        return Err(Sense::cdb(13).into());
    }
    let half = disk.index(span.blocks);
    // Neither less nor more: whoever sends something else means something else, and what it would
    // overwrite is precious enough to be compared first.
    if data_out.len() != 2 * half {
        return Err(Sense::cdb(13).into());
    }
    if span.is_empty() {
        return Ok(Begun::DONE);
    }
    let data = data_out.clone();
    asker.ask(Ask::Read { offset: disk.offset(span.first), len: disk.len(span.blocks) });
    let (expected, new) = (data.slice(0..half), data.slice(half..2 * half));
    Ok(Begun::Runs(Job::Compare(Box::new(Compare::Comparing { span, expected, new, fua }))))
}

impl Compare {
    pub(super) fn answered(&mut self, answer: Answered, disk: &Disk, asker: &mut Asker) -> Went {
        match self {
            Compare::Comparing { span, expected, new, fua } => {
                let found = jobs::data(answer, expected.len(), disk)?;
                if let Some(at) = first_difference(&found, expected) {
                    return Err(Sense::miscompare(at).into());
                }
                let (offset, data) = (disk.offset(span.first), new.clone());
                asker.ask(Ask::Write { offset, data, fua: *fua });
                *self = Compare::Writing;
                Ok(Next::Waits)
            }
            Compare::Writing => jobs::done(answer, During::Writing, disk),
        }
    }
}
