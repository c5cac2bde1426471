//! What initiators may switch, for all of them together, and MODE SENSE that tells it.
mod select;

use crate::scsi::bytes::short;
use crate::scsi::cdb::{ModeSense, Values};
use crate::scsi::disk::Disk;
use crate::scsi::sense::{Code, Sense};

pub(super) use select::parse;

/// The switches. A reset brings the first values back: nothing is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    /// WCE: writes are answered before they are durable, until a flush.
    pub(super) write_cache: bool,
    /// D_SENSE: sense data are made of descriptors.
    pub(super) descriptor_sense: bool,
    /// SWP: nothing may be written.
    pub(super) write_protected: bool,
    /// TAS: who loses a command by another's doing is told so.
    pub(super) tells_aborted: bool,
}

impl Default for Mode {
    fn default() -> Mode {
        Mode {
            write_cache: true,
            descriptor_sense: false,
            write_protected: false,
            tells_aborted: false,
        }
    }
}

const ERROR_RECOVERY: u8 = 0x01;
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0A;
const EXCEPTIONS: u8 = 0x1C;
const ALL: u8 = 0x3F;
const ALL_SUBPAGES: u8 = 0xFF;

const PAGES: [u8; 4] = [ERROR_RECOVERY, CACHING, CONTROL, EXCEPTIONS];

/// Where the switches are in their pages.
const WCE: (usize, u8) = (2, 0x04);
const D_SENSE: (usize, u8) = (2, 0x04);
const SWP: (usize, u8) = (4, 0x08);
const TAS: (usize, u8) = (5, 0x40);

fn set(page: &mut [u8], (byte, bit): (usize, u8), on: bool) {
    if on {
        page[byte] |= bit;
    }
}

fn get(page: &[u8], (byte, bit): (usize, u8)) -> bool {
    page[byte] & bit != 0
}

/// A page with everything that is the same in all its values.
fn empty(code: u8) -> Vec<u8> {
    let len = if code == CACHING { 0x12 } else { 0x0A };
    let mut page = vec![0; 2 + usize::from(len)];
    (page[0], page[1]) = (code, len);
    page
}

impl Mode {
    fn page(&self, code: u8) -> Vec<u8> {
        let mut page = empty(code);
        match code {
            CACHING => set(&mut page, WCE, self.write_cache),
            CONTROL => {
                // GLTSD: no log parameters are saved. Commands may be reordered freely. There is no
                // limit for how long a unit is busy.
                page[2] = 0x02;
                page[3] = 0x10;
                page[8..10].copy_from_slice(&[0xFF, 0xFF]);
                set(&mut page, D_SENSE, self.descriptor_sense);
                set(&mut page, SWP, self.write_protected);
                set(&mut page, TAS, self.tells_aborted);
            }
            // DEXCPT: no exceptions are reported.
            EXCEPTIONS => page[2] = 0x08,
            _ => {}
        }
        page
    }

    fn with(mut self, page: &[u8]) -> Mode {
        match page[0] {
            CACHING => self.write_cache = get(page, WCE),
            CONTROL => {
                self.descriptor_sense = get(page, D_SENSE);
                self.write_protected = get(page, SWP);
                self.tells_aborted = get(page, TAS);
            }
            _ => {}
        }
        self
    }
}

fn changeable(code: u8) -> Vec<u8> {
    let mut page = empty(code);
    match code {
        CACHING => set(&mut page, WCE, true),
        CONTROL => [D_SENSE, SWP, TAS].into_iter().for_each(|bit| set(&mut page, bit, true)),
        _ => {}
    }
    page
}

fn pages(mode: &Mode, query: &ModeSense) -> Result<Vec<u8>, Sense> {
    if query.values == Values::Saved {
        return Err(Sense::illegal(Code::SAVING_NOT_SUPPORTED));
    }
    if ![0, ALL_SUBPAGES].contains(&query.subpage) {
        return Err(Sense::cdb(3));
    }
    let wanted = |code: &&u8| query.page == ALL || query.page == **code;
    let pages: Vec<u8> = PAGES
        .iter()
        .filter(wanted)
        .flat_map(|code| match query.values {
            Values::Changeable => changeable(*code),
            Values::Default => Mode::default().page(*code),
            Values::Current | Values::Saved => mode.page(*code),
        })
        .collect();
    if pages.is_empty() { Err(Sense::cdb_bit(2, 5)) } else { Ok(pages) }
}

fn blocks(disk: &Disk, long: bool) -> Vec<u8> {
    let block = u32::try_from(disk.block).unwrap_or(u32::MAX).to_be_bytes();
    if long {
        let mut bytes = disk.blocks.to_be_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(block);
        return bytes;
    }
    let mut bytes = u32::try_from(disk.blocks).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    bytes.push(0);
    bytes.extend(&block[1..]);
    bytes
}

/// MODE SENSE.
pub(super) fn sense(mode: &Mode, disk: &Disk, query: &ModeSense) -> Result<Vec<u8>, Sense> {
    const WRITE_PROTECTED: u8 = 0x80;
    const DPO_AND_FUA: u8 = 0x10;
    let pages = pages(mode, query)?;
    let long_blocks = query.long && query.long_blocks;
    let blocks = if query.without_blocks { Vec::new() } else { blocks(disk, long_blocks) };
    let mut about = DPO_AND_FUA;
    if disk.read_only || mode.write_protected {
        about |= WRITE_PROTECTED;
    }
    let mut bytes = if query.long {
        let [high, low] = short(6 + blocks.len() + pages.len());
        let [blocks_high, blocks_low] = short(blocks.len());
        vec![high, low, 0, about, u8::from(long_blocks), 0, blocks_high, blocks_low]
    } else {
        let [_, len] = short(3 + blocks.len() + pages.len());
        let [_, blocks] = short(blocks.len());
        vec![len, 0, about, blocks]
    };
    bytes.extend(blocks);
    bytes.extend(pages);
    Ok(bytes)
}

#[cfg(test)]
mod tests;
