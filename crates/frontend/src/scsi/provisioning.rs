//! GET LBA STATUS: which blocks have space of their own.
use crate::ask::{Answer, Ask, Extent};
use crate::scsi::bytes::long;
use crate::scsi::disk::{Disk, Lba, Span};
use crate::scsi::jobs::{Answered, Job, Went};
use crate::scsi::order::{Asker, Begun, Next, Outcome};
use crate::scsi::sense::{self, Code, During, Refusal, Sense};

const HEADER: usize = 8;
const DESCRIPTOR: usize = 16;

/// Descriptors in one answer, however much the initiator would take.
const DESCRIPTORS_MAX: usize = 1024;

pub(super) struct Provisioning {
    first: Lba,
    allocation: usize,
}

pub(super) fn get_lba_status(
    first: Lba,
    allocation: usize,
    disk: &Disk,
    asker: &mut Asker,
) -> Result<Begun, Refusal> {
    let Some(blocks) = disk.blocks.checked_sub(first.0).filter(|blocks| *blocks > 0) else {
        return Err(Sense::illegal(Code::OUT_OF_RANGE).into());
    };
    asker.ask(Ask::Extents { offset: disk.offset(first), len: disk.len(blocks) });
    Ok(Begun::Runs(Job::Provisioning(Provisioning { first, allocation })))
}

impl Provisioning {
    pub(super) fn answered(&mut self, answer: Answered, disk: &Disk) -> Went {
        let extents = match answer {
            Ok(Answer::Extents(extents)) => extents,
            Ok(_) => return Err(Sense::internal().into()),
            Err(error) => return Err(sense::of_ask(&error, During::Reading, disk.block)),
        };
        let room = self.allocation.saturating_sub(HEADER) / DESCRIPTOR;
        let runs = runs(self.first, &extents, disk);
        let told = room.clamp(1, DESCRIPTORS_MAX);
        let mut bytes = vec![0; HEADER];
        for (span, mapped) in runs.iter().take(told) {
            let blocks = u32::try_from(span.blocks);
            bytes.extend(span.first.0.to_be_bytes());
            bytes.extend(blocks.unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend([u8::from(!mapped), 0, 0, 0]);
            if blocks.is_err() {
                // What follows would not join.
                break;
            }
        }
        let len = bytes.len() - 4;
        bytes[..4].copy_from_slice(&long(len));
        bytes.truncate(self.allocation);
        Ok(Next::Ends(Outcome::bytes(bytes)))
    }
}

/// Extents in blocks. A block of which a part has data counts as having it.
fn runs(first: Lba, extents: &[Extent], disk: &Disk) -> Vec<(Span, bool)> {
    let mut runs = Vec::new();
    let mut add = |from: u64, to: u64, mapped| {
        if from < to {
            runs.push((Span::new(first.0 + from, to - from), mapped));
        }
    };
    let (mut told, mut at) = (0, 0);
    for extent in extents {
        let end = u64::saturating_add(at, extent.len.0);
        let (from, to) = (at.div_ceil(disk.block), end / disk.block);
        if !extent.has_data && from < to {
            add(told, from, true);
            add(from, to, false);
            told = to;
        }
        at = end;
    }
    add(told, at.div_ceil(disk.block), true);
    runs
}

#[cfg(test)]
mod tests {
    use block::ByteLen;

    use super::*;

    #[test]
    fn extents_become_runs_of_blocks() {
        let disk = Disk { block: 4096, blocks: 100, granule: 1, read_only: false };
        let extent = |len, has_data| Extent { len: ByteLen(len), has_data };
        let runs = |extents: &[Extent]| {
            let runs = runs(Lba(10), extents, &disk).into_iter();
            runs.map(|(span, mapped)| (span.first.0, span.blocks, mapped)).collect::<Vec<_>>()
        };
        assert_eq!(runs(&[extent(8192, true)]), [(10, 2, true)]);
        assert_eq!(
            runs(&[extent(8192, false), extent(4096, true)]),
            [(10, 2, false), (12, 1, true)]
        );
        assert_eq!(
            runs(&[extent(512, true), extent(8192 - 512, false), extent(4096, true)]),
            [(10, 1, true), (11, 1, false), (12, 1, true)]
        );
        assert_eq!(runs(&[extent(512, false), extent(3584, true)]), [(10, 1, true)]);
        assert_eq!(runs(&[]), []);
    }
}
