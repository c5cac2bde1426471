//! READ and WRITE.
use block::Data;

use crate::ask::Ask;
use crate::scsi::disk::{Disk, Span};
use crate::scsi::jobs::Job;
use crate::scsi::order::{Asker, Begun};
use crate::scsi::sense::{Code, During, Refusal, Sense};

pub(super) fn read(
    span: Span,
    field: u16,
    disk: &Disk,
    asker: &mut Asker,
) -> Result<Begun, Refusal> {
    disk.check_transfer(span, field)?;
    if span.is_empty() {
        return Ok(Begun::DONE);
    }
    asker.ask(Ask::Read { offset: disk.offset(span.first), len: disk.len(span.blocks) });
    Ok(Begun::Runs(Job::Read { len: disk.index(span.blocks) }))
}

pub(super) fn write(
    span: Span,
    fua: bool,
    field: u16,
    data_out: &Data,
    disk: &Disk,
    asker: &mut Asker,
) -> Result<Begun, Refusal> {
    disk.check_transfer(span, field)?;
    let (span, data) = arrived(span, data_out, disk)?;
    if span.is_empty() {
        return Ok(Begun::DONE);
    }
    asker.ask(Ask::Write { offset: disk.offset(span.first), data, fua });
    Ok(Begun::Runs(Job::Settle(During::Writing)))
}

/// The blocks of a write that came with it. An initiator that announced less than its CDB asks
/// for is served as far as whole blocks go and told of the rest by the transport; a torn block
/// is never written.
pub(super) fn arrived(span: Span, data_out: &Data, disk: &Disk) -> Result<(Span, Data), Sense> {
    let need = disk.index(span.blocks);
    if data_out.len() >= need {
        return Ok((span, data_out.slice(0..need)));
    }
    let block = disk.index(1);
    if !data_out.len().is_multiple_of(block) {
        return Err(Sense::illegal(Code::DATA_LENGTH));
    }
    let blocks = (data_out.len() / block) as u64;
    Ok((Span { blocks, ..span }, data_out.clone()))
}

/// Exactly the bytes that a command needs, which it cannot do with less.
pub(super) fn complete(need: usize, data_out: &Data) -> Result<Data, Sense> {
    if data_out.len() < need {
        return Err(Sense::illegal(Code::DATA_LENGTH));
    }
    Ok(data_out.slice(0..need))
}
