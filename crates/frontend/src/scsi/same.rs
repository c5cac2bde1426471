//! WRITE SAME: one block, again and again. Zeros are asked for as zeros.
use block::Data;

use crate::ask::{Ask, Zeroing};
use crate::scsi::disk::{Disk, SAME_BLOCKS_MAX, Span};
use crate::scsi::jobs::{self, Answered, Job, Went};
use crate::scsi::order::{Asker, Begun, Next};
use crate::scsi::sense::{Code, During, Refusal, Sense};

/// Bytes that one question fills.
const CHUNK: u64 = 1 << 20;

/// Questions under way for one command.
const WINDOW: usize = 4;

/// Fills a range with a pattern, a few chunks at a time.
pub(super) struct Fill {
    /// As long as the longest chunk; all chunks share its memory.
    pattern: Data,
    /// What is not asked for yet.
    rest: Span,
    under_way: usize,
    fua: bool,
}

pub(super) struct Same {
    pub(super) span: Span,
    pub(super) unmap: bool,
    pub(super) no_data: bool,
    pub(super) fua: bool,
}

pub(super) fn write_same(
    same: &Same,
    field: u16,
    data_out: &Data,
    disk: &Disk,
    asker: &mut Asker,
) -> Result<Begun, Refusal> {
    let Same { span, unmap, no_data, fua } = *same;
    disk.check(span)?;
    // Nothing at all would mean everything up to the end: the block limits page says that this
    // is not done here.
    if span.is_empty() || span.blocks > SAME_BLOCKS_MAX {
        return Err(Sense::cdb(field).into());
    }
    // Data of another length than the block was not meant for this command.
    if data_out.len() != if no_data { 0 } else { disk.index(1) } {
        return Err(Sense::illegal(Code::DATA_LENGTH).into());
    }
    if data_out.iter().all(|byte| *byte == 0) {
        let how = if unmap { Zeroing::Discard } else { Zeroing::Zeroes };
        let (offset, len) = (disk.offset(span.first), disk.len(span.blocks));
        asker.ask(Ask::Zero { offset, len, how, fua });
        return Ok(Begun::Runs(Job::Settle(During::Writing)));
    }
    let chunk = span.blocks.min(CHUNK / disk.block);
    let mut pattern = asker.buffers.take(disk.index(chunk));
    for block in pattern.chunks_mut(data_out.len()) {
        block.copy_from_slice(data_out);
    }
    let mut fill = Fill { pattern: pattern.into_data(), rest: span, under_way: 0, fua };
    fill.ask(disk, asker);
    Ok(Begun::Runs(Job::Fill(Box::new(fill))))
}

impl Fill {
    fn ask(&mut self, disk: &Disk, asker: &mut Asker) {
        while self.under_way < WINDOW && !self.rest.is_empty() {
            let blocks = self.rest.blocks.min(CHUNK / disk.block);
            let data = self.pattern.slice(0..disk.index(blocks));
            asker.ask(Ask::Write { offset: disk.offset(self.rest.first), data, fua: self.fua });
            self.rest = Span::new(self.rest.first.0 + blocks, self.rest.blocks - blocks);
            self.under_way += 1;
        }
    }

    pub(super) fn answered(&mut self, answer: Answered, disk: &Disk, asker: &mut Asker) -> Went {
        self.under_way -= 1;
        jobs::settled(answer, During::Writing, disk)?;
        self.ask(disk, asker);
        Ok(if self.under_way == 0 { Next::DONE } else { Next::Waits })
    }
}
