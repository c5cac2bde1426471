//! UNMAP: ranges whose space goes back to the pool.
use crate::ask::{Ask, Zeroing};
use crate::scsi::bytes::{u16_at, u32_at, u64_at};
use crate::scsi::disk::{Disk, Span, UNMAP_RANGES_MAX};
use crate::scsi::jobs::{self, Answered, Job, Went};
use crate::scsi::order::{Asker, Begun, Next};
use crate::scsi::sense::{Code, During, Refusal, Sense};

const HEADER: usize = 8;
const DESCRIPTOR: usize = 16;

/// Questions under way for one command.
const WINDOW: usize = 8;

pub(super) struct Unmap {
    /// The ranges that are not asked for yet, the next one last.
    rest: Vec<Span>,
    under_way: usize,
    fua: bool,
}

/// The ranges of a parameter list, neighbours joined.
fn ranges(list: &[u8]) -> Result<Vec<Span>, Sense> {
    let mut ranges: Vec<Span> = Vec::new();
    for descriptor in descriptors(list)?.chunks_exact(DESCRIPTOR) {
        let span = Span::new(u64_at(descriptor, 0), u32_at(descriptor, 8));
        match ranges.last_mut() {
            Some(last) if last.first.0.checked_add(last.blocks) == Some(span.first.0) => {
                last.blocks = last.blocks.saturating_add(span.blocks);
            }
            _ => ranges.push(span),
        }
    }
    Ok(ranges)
}

fn descriptors(list: &[u8]) -> Result<&[u8], Sense> {
    if list.is_empty() {
        return Ok(list);
    }
    if list.len() < HEADER {
        return Err(Sense::illegal(Code::LIST_LENGTH));
    }
    let len = usize::from(u16_at(list, 2));
    let descriptors = list[HEADER..].get(..len).ok_or(Sense::illegal(Code::LIST_LENGTH))?;
    if len / DESCRIPTOR > UNMAP_RANGES_MAX {
        return Err(Sense::list(2));
    }
    Ok(descriptors)
}

/// The blocks from the first to the last of all ranges.
pub(super) fn hull(list: &[u8]) -> Option<Span> {
    let ranges = ranges(list).ok()?;
    ranges.into_iter().filter(|span| !span.is_empty()).reduce(Span::hull)
}

pub(super) fn unmap(
    list: &[u8],
    fua: bool,
    disk: &Disk,
    asker: &mut Asker,
) -> Result<Begun, Refusal> {
    let mut rest = ranges(list)?;
    for span in &rest {
        disk.check(*span)?;
    }
    rest.retain(|span| !span.is_empty());
    let blocks = rest.iter().fold(0, |sum: u64, span| sum.saturating_add(span.blocks));
    if blocks > disk.unmap_max() {
        return Err(Sense::list(HEADER + 8).into());
    }
    if rest.is_empty() {
        return Ok(Begun::DONE);
    }
    rest.reverse();
    let mut unmap = Unmap { rest, under_way: 0, fua };
    unmap.ask(disk, asker);
    Ok(Begun::Runs(Job::Unmap(Box::new(unmap))))
}

impl Unmap {
    fn ask(&mut self, disk: &Disk, asker: &mut Asker) {
        while self.under_way < WINDOW
            && let Some(span) = self.rest.pop()
        {
            let (offset, len) = (disk.offset(span.first), disk.len(span.blocks));
            asker.ask(Ask::Zero { offset, len, how: Zeroing::Discard, fua: self.fua });
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
