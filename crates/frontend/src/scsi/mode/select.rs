//! MODE SELECT: the parameter list, and what of it may change.
use super::{Mode, PAGES, blocks, changeable};
use crate::scsi::bytes::u16_at;
use crate::scsi::disk::Disk;
use crate::scsi::sense::{Code, Sense};

const TOO_SHORT: Sense = Sense::illegal(Code::LIST_LENGTH);

/// The switches after a parameter list.
pub(crate) fn parse(mode: Mode, disk: &Disk, long: bool, list: &[u8]) -> Result<Mode, Sense> {
    if list.is_empty() {
        return Ok(mode);
    }
    let header = if long { 8 } else { 4 };
    if list.len() < header {
        return Err(TOO_SHORT);
    }
    let (len, long_blocks, len_at) = match long {
        true => (usize::from(u16_at(list, 6)), list[4] & 1 != 0, 6),
        false => (usize::from(list[3]), false, 3),
    };
    let described = list[header..].get(..len).ok_or(TOO_SHORT)?;
    check_blocks(disk, described, long_blocks, header, len_at)?;
    let mut mode = mode;
    let mut at = header + len;
    while at < list.len() {
        let page = page(list, at)?;
        check_page(&mode, page, at)?;
        mode = mode.with(page);
        at += page.len();
    }
    Ok(mode)
}

/// Blocks stay as long as they are, and their number as well: as it is, or unsaid.
fn check_blocks(
    disk: &Disk,
    described: &[u8],
    long: bool,
    at: usize,
    len_at: usize,
) -> Result<(), Sense> {
    if described.is_empty() {
        return Ok(());
    }
    let ours = blocks(disk, long);
    if described.len() != ours.len() {
        return Err(Sense::list(len_at));
    }
    let number = if long { 8 } else { 4 };
    let unsaid = |byte: u8| described[..number].iter().all(|given| *given == byte);
    if described[..number] != ours[..number] && !unsaid(0) && !unsaid(0xFF) {
        return Err(Sense::list(at));
    }
    let size = ours.len() - 3;
    if described[size..] != ours[size..] {
        return Err(Sense::list(at + size));
    }
    Ok(())
}

fn page(list: &[u8], at: usize) -> Result<&[u8], Sense> {
    let rest = &list[at..];
    let [code, len, ..] = *rest else { return Err(TOO_SHORT) };
    // The upper bits are for saved pages and subpages, of which there are none.
    if !PAGES.contains(&code) {
        return Err(Sense::list(at));
    }
    let page = rest.get(..2 + usize::from(len)).ok_or(TOO_SHORT)?;
    if page.len() != changeable(code).len() {
        return Err(Sense::list(at + 1));
    }
    Ok(page)
}

/// Whether a page is as it was but for what may change.
fn check_page(mode: &Mode, page: &[u8], at: usize) -> Result<(), Sense> {
    let (current, changeable) = (mode.page(page[0]), changeable(page[0]));
    let bytes = page.iter().zip(&current).zip(&changeable).skip(2);
    let fixed = |((new, old), free): ((&u8, &u8), &u8)| (new ^ old) & !free != 0;
    match bytes.map(fixed).position(|wrong| wrong) {
        Some(wrong) => Err(Sense::list(at + 2 + wrong)),
        None => Ok(()),
    }
}
