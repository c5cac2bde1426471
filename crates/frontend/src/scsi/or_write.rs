//! ORWRITE: bits are added to those of the blocks.
use block::Data;

use crate::ask::Ask;
use crate::scsi::disk::{Disk, Span};
use crate::scsi::jobs::{self, Answered, Job, Went};
use crate::scsi::order::{Asker, Begun, Next};
use crate::scsi::rw;
use crate::scsi::sense::{During, Refusal};

pub(super) enum Or {
    Reading { span: Span, bits: Data, fua: bool },
    Writing,
}

pub(super) fn or_write(
    span: Span,
    fua: bool,
    field: u16,
    data_out: &Data,
    disk: &Disk,
    asker: &mut Asker,
) -> Result<Begun, Refusal> {
    disk.check_transfer(span, field)?;
    if span.is_empty() {
        return Ok(Begun::DONE);
    }
    let bits = rw::complete(disk.index(span.blocks), data_out)?;
    asker.ask(Ask::Read { offset: disk.offset(span.first), len: disk.len(span.blocks) });
    Ok(Begun::Runs(Job::Or(Box::new(Or::Reading { span, bits, fua }))))
}

impl Or {
    pub(super) fn answered(&mut self, answer: Answered, disk: &Disk, asker: &mut Asker) -> Went {
        match self {
            Or::Reading { span, bits, fua } => {
                let found = jobs::data(answer, bits.len(), disk)?;
                let mut both = asker.buffers.take(bits.len());
                for ((to, a), b) in both.iter_mut().zip(found.iter()).zip(bits.iter()) {
                    *to = a | b;
                }
                let (offset, data) = (disk.offset(span.first), both.into_data());
                asker.ask(Ask::Write { offset, data, fua: *fua });
                *self = Or::Writing;
                Ok(Next::Waits)
            }
            Or::Writing => jobs::done(answer, During::Writing, disk),
        }
    }
}
