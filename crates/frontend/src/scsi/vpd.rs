//! The pages of vital product data.
use crate::scsi::bytes::{short, text};
use crate::scsi::copy;
use crate::scsi::disk::{COMPARE_BLOCKS_MAX, Disk, SAME_BLOCKS_MAX, UNMAP_RANGES_MAX};
use crate::scsi::inquiry::{Identity, TARGET_PORT, TARGET_PORT_GROUP};
use crate::scsi::sense::Sense;

const PAGES: [u8; 8] = [0x00, 0x80, 0x83, 0x86, 0x8F, 0xB0, 0xB1, 0xB2];

/// An iSCSI name is at most this long.
const NAME_MAX: usize = 223;

pub(super) fn page(
    page: u8,
    identity: &Identity,
    uid: &[u8; 16],
    disk: &Disk,
) -> Result<Vec<u8>, Sense> {
    let body = match page {
        0x00 => PAGES.to_vec(),
        0x80 => serial(uid).into_bytes(),
        0x83 => designators(identity, uid),
        0x86 => extended(),
        0x8F => copy::third_party(disk),
        0xB0 => block_limits(disk),
        0xB1 => characteristics(),
        0xB2 => provisioning(),
        _ => return Err(Sense::cdb(2)),
    };
    let mut bytes = vec![0, page];
    bytes.extend(short(body.len()));
    bytes.extend(body);
    Ok(bytes)
}

fn serial(uid: &[u8; 16]) -> String {
    uid.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whom a designator names.
#[derive(Clone, Copy)]
enum Of {
    Unit = 0x00,
    Port = 0x10,
    Target = 0x20,
}

fn designator(of: Of, kind: u8, code_set: u8, value: &[u8]) -> Vec<u8> {
    const ISCSI: u8 = 0x50;
    const PROTOCOL_IS_VALID: u8 = 0x80;
    let (protocol, valid) = match of {
        Of::Unit => (0, 0),
        Of::Port | Of::Target => (ISCSI, PROTOCOL_IS_VALID),
    };
    let [_, len] = short(value.len());
    let mut bytes = vec![protocol | code_set, valid | of as u8 | kind, 0, len];
    bytes.extend(value);
    bytes
}

/// A name as these are written: ended by a zero, and padded to a multiple of four.
fn name_string(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((name.len() + 1).next_multiple_of(4), 0);
    bytes
}

fn designators(identity: &Identity, uid: &[u8; 16]) -> Vec<u8> {
    const BINARY: u8 = 1;
    const ASCII: u8 = 2;
    const UTF8: u8 = 3;
    const T10: u8 = 1;
    const NAA: u8 = 3;
    const RELATIVE_PORT: u8 = 4;
    const PORT_GROUP: u8 = 5;
    const NAME: u8 = 8;
    let iqn: String = identity.iqn.chars().filter(char::is_ascii).take(NAME_MAX).collect();
    let port = format!("{iqn},t,0x{:04x}", identity.portal_group);
    let mut t10 = text::<8>(&identity.vendor).to_vec();
    t10.extend(serial(uid).into_bytes());
    let number = |number: u16| [[0; 2], number.to_be_bytes()].concat();
    [
        designator(Of::Unit, NAA, BINARY, &locally_assigned(uid)),
        designator(Of::Unit, T10, ASCII, &t10),
        designator(Of::Port, RELATIVE_PORT, BINARY, &number(TARGET_PORT)),
        designator(Of::Port, PORT_GROUP, BINARY, &number(TARGET_PORT_GROUP)),
        designator(Of::Port, NAME, UTF8, &name_string(&port)),
        designator(Of::Target, NAME, UTF8, &name_string(&iqn)),
    ]
    .concat()
}

/// A name of the kind that needs no registered number: all of the volume's own, folded into the
/// sixty bits that there are.
pub(super) fn locally_assigned(uid: &[u8; 16]) -> [u8; 8] {
    const LOCALLY_ASSIGNED: u8 = 0x30;
    let mut name: [u8; 8] = std::array::from_fn(|at| uid[at] ^ uid[at + 8]);
    name[0] = LOCALLY_ASSIGNED | (name[0] & 0x0F);
    name
}

/// Pages of fixed length begin with zeros.
fn zeros() -> Vec<u8> {
    vec![0; 0x3C]
}

fn extended() -> Vec<u8> {
    let mut body = zeros();
    // HEADSUP, ORDSUP, SIMPSUP: all ways to queue.
    body[1] = 0x07;
    // V_SUP: there is a cache that a flush empties.
    body[2] = 0x01;
    body
}

fn block_limits(disk: &Disk) -> Vec<u8> {
    /// WSNZ: WRITE SAME must say how many blocks.
    const NON_ZERO: u8 = 0x01;
    /// UGAVALID, with units that begin at block 0.
    const ALIGNED: u32 = 0x8000_0000;
    let mut body = zeros();
    let mut put = |at: usize, value: u64| {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        body[at..at + 4].copy_from_slice(&value.to_be_bytes());
    };
    put(4, disk.transfer_max());
    put(16, disk.unmap_max());
    put(20, UNMAP_RANGES_MAX as u64);
    put(24, disk.granule);
    put(28, ALIGNED.into());
    body[0] = NON_ZERO;
    body[1] = COMPARE_BLOCKS_MAX;
    body[2..4].copy_from_slice(&u16::try_from(disk.granule).unwrap_or(u16::MAX).to_be_bytes());
    body[32..40].copy_from_slice(&SAME_BLOCKS_MAX.to_be_bytes());
    body
}

fn characteristics() -> Vec<u8> {
    let mut body = zeros();
    // Nothing turns.
    body[1] = 1;
    body
}

fn provisioning() -> Vec<u8> {
    // UNMAP and both forms of WRITE SAME give space back, and what has none reads as zeros. No
    // anchors. Thin.
    vec![0, 0xE4, 0x02, 0]
}

#[cfg(test)]
mod tests;
