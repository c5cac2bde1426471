//! VERIFY, and WRITE AND VERIFY.
use block::Data;

use crate::ask::Ask;
use crate::scsi::cdb::Check;
use crate::scsi::disk::{Disk, Span};
use crate::scsi::jobs::{self, Answered, Job, Went};
use crate::scsi::order::{Asker, Begun, Next};
use crate::scsi::rw;
use crate::scsi::sense::{During, Refusal, Sense};

/// Reads blocks and compares them with what the initiator has.
pub(super) struct Verify {
    len: usize,
    /// Empty: that they can be read is all.
    expected: Data,
}

/// Where two runs of bytes differ first.
pub(super) fn first_difference(found: &[u8], expected: &[u8]) -> Option<u64> {
    if found == expected {
        return None;
    }
    let differ = found.iter().zip(expected).position(|(a, b)| a != b);
    differ.and_then(|at| u64::try_from(at).ok())
}

impl Verify {
    fn ask(span: Span, expected: Data, disk: &Disk, asker: &mut Asker) -> Verify {
        asker.ask(Ask::Read { offset: disk.offset(span.first), len: disk.len(span.blocks) });
        Verify { len: disk.index(span.blocks), expected }
    }

    pub(super) fn answered(&mut self, answer: Answered, disk: &Disk) -> Went {
        let data = jobs::data(answer, self.len, disk)?;
        if self.expected.is_empty() {
            return Ok(Next::DONE);
        }
        // An expectation shorter than the data is one block, the same everywhere.
        let mut start = 0;
        for part in data.chunks(self.expected.len()) {
            if let Some(at) = first_difference(part, &self.expected) {
                return Err(Sense::miscompare(start + at).into());
            }
            start += part.len() as u64;
        }
        Ok(Next::DONE)
    }
}

pub(super) fn verify(
    span: Span,
    check: Check,
    field: u16,
    data_out: &Data,
    disk: &Disk,
    asker: &mut Asker,
) -> Result<Begun, Refusal> {
    disk.check_transfer(span, field)?;
    if span.is_empty() {
        return Ok(Begun::DONE);
    }
    let need = match check {
        Check::Medium => 0,
        Check::Blocks => disk.index(span.blocks),
        Check::OneBlock => disk.index(1),
    };
    let expected = rw::complete(need, data_out)?;
    Ok(Begun::Runs(Job::Verify(Verify::ask(span, expected, disk, asker))))
}

/// Writes blocks through to the medium and reads them again.
pub(super) enum WriteVerify {
    Writing { span: Span, expected: Data },
    Verifying(Verify),
}

pub(super) fn write_verify(
    span: Span,
    check: Check,
    field: u16,
    data_out: &Data,
    disk: &Disk,
    asker: &mut Asker,
) -> Result<Begun, Refusal> {
    disk.check_transfer(span, field)?;
    let (span, data) = rw::arrived(span, data_out, disk)?;
    if span.is_empty() {
        return Ok(Begun::DONE);
    }
    let expected = match check {
        Check::Medium => data.slice(0..0),
        Check::Blocks | Check::OneBlock => data.clone(),
    };
    asker.ask(Ask::Write { offset: disk.offset(span.first), data, fua: true });
    Ok(Begun::Runs(Job::WriteVerify(Box::new(WriteVerify::Writing { span, expected }))))
}

impl WriteVerify {
    pub(super) fn answered(&mut self, answer: Answered, disk: &Disk, asker: &mut Asker) -> Went {
        match self {
            WriteVerify::Writing { span, expected } => {
                jobs::settled(answer, During::Writing, disk)?;
                let verify = Verify::ask(*span, expected.clone(), disk, asker);
                *self = WriteVerify::Verifying(verify);
                Ok(Next::Waits)
            }
            WriteVerify::Verifying(verify) => verify.answered(answer, disk),
        }
    }
}
