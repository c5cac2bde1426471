//! The one table of commands: what decoding, reservations and REPORT SUPPORTED OPERATION CODES
//! share.
use crate::scsi::bytes::{long, short};
use crate::scsi::cdb::{Cdb, Op, Opcodes};
use crate::scsi::decode;
use crate::scsi::disk::Span;
use crate::scsi::sense::{Code, Sense};

/// What a command does, as persistent reservations see it (SPC-4 and SBC-3 have tables of it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing that a reservation protects.
    Free,
    /// Conflicts with exclusive access.
    Reads,
    /// Conflicts with any reservation.
    Writes,
    /// Free when it only starts the unit.
    Starts,
    /// Free when it allows removal.
    Prevents,
}

impl Access {
    /// With the kinds that depend on more than the operation code told apart.
    pub(super) fn of(self, cdb: &Cdb) -> Access {
        let free = match self {
            Access::Starts => cdb[4] & 0xF1 == 1,
            Access::Prevents => cdb[4] & 3 == 0,
            access => return access,
        };
        if free { Access::Free } else { Access::Writes }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) opcode: u8,
    pub(super) action: Option<u8>,
    pub(super) len: u8,
    /// The bits that the command has. Bits that it has and that change nothing are among them.
    mask: u128,
    pub(super) access: Access,
    /// Carried out although RESERVE(6) of another nexus holds.
    pub(super) unreserved: bool,
    /// Carried out although something is to be told first.
    pub(super) unattended: bool,
    decode: fn(&Cdb, Span) -> Result<Op, Sense>,
}

const fn row(mask: &[u8], access: Access, decode: fn(&Cdb, Span) -> Result<Op, Sense>) -> Row {
    let mut wide = [0; 16];
    let mut at = 0;
    while at < mask.len() {
        wide[at] = mask[at];
        at += 1;
    }
    let len = match mask.len() {
        6 => 6,
        10 => 10,
        12 => 12,
        _ => 16,
    };
    wide[0] = 0xFF;
    Row {
        opcode: mask[0],
        action: None,
        len,
        mask: u128::from_be_bytes(wide),
        access,
        unreserved: false,
        unattended: false,
        decode,
    }
}

impl Row {
    const fn action(self, action: u8) -> Row {
        Row { action: Some(action), ..self }
    }

    const fn unreserved(self) -> Row {
        Row { unreserved: true, ..self }
    }

    const fn unattended(self) -> Row {
        Row { unreserved: true, unattended: true, ..self }
    }

    /// Where the CDB has the number of blocks.
    pub(super) fn length_at(&self) -> u16 {
        match self.len {
            6 => 4,
            10 => 7,
            12 => 6,
            _ => 10,
        }
    }

    /// The CDB with all its bits set, as it is reported: the service action is its number.
    fn usage(&self) -> Vec<u8> {
        let mut usage = self.mask.to_be_bytes()[..usize::from(self.len)].to_vec();
        usage[0] = self.opcode;
        if let Some(action) = self.action {
            usage[1] = (usage[1] & 0xE0) | action;
        }
        usage
    }

    fn check(&self, cdb: &Cdb) -> Result<(), Sense> {
        let len = u32::from(self.len) * 8;
        let unused = u128::MAX.checked_shr(len).unwrap_or(0);
        let wrong = u128::from_be_bytes(*cdb) & !self.mask & !unused;
        if wrong == 0 {
            return Ok(());
        }
        let position = wrong.leading_zeros();
        let byte = u16::try_from(position / 8).expect("a CDB has 16 bytes");
        let bit = u8::try_from(7 - position % 8).expect("a byte has 8 bits");
        Err(Sense::cdb_bit(byte, bit))
    }
}

use Access::{Free, Prevents, Reads, Starts, Writes};

const F: u8 = 0xFF;
/// DPO, FUA, and FUA_NV, which is obsolete and changes nothing.
const DPO_FUA: u8 = 0x1A;
/// DPO and BYTCHK.
const CHECK: u8 = 0x16;
/// GROUP NUMBER, which changes nothing.
const GROUP: u8 = 0x1F;
const ACTION: u8 = 0x1F;

const RESERVE_IN: Row = row(&[0x5E, ACTION, 0, 0, 0, 0, 0, F, F, 0], Free, decode::reserve_in);
const RESERVE_OUT: Row = row(&[0x5F, ACTION, F, 0, 0, F, F, F, F, 0], Free, decode::reserve_out);

const fn maintenance(first: u8, options: [u8; 4], access: Access, action: u8) -> Row {
    let [a, b, c, d] = options;
    let decode = match action {
        0x0A => decode::report_port_groups,
        0x0C => decode::report_opcodes,
        _ => decode::report_functions,
    };
    row(&[0xA3, first, a, b, c, d, F, F, F, F, 0, 0], access, decode).action(action)
}

/// Rows of one operation code stand together, in the order of its service actions.
const TABLE: &[Row] = &[
    row(&[0x00, 0, 0, 0, 0, 0], Free, decode::ready),
    row(&[0x03, 1, 0, 0, F, 0], Free, decode::request_sense).unattended(),
    row(&[0x08, 0x1F, F, F, F, 0], Reads, decode::read),
    row(&[0x0A, 0x1F, F, F, F, 0], Writes, decode::write6),
    row(&[0x12, 1, F, F, F, 0], Free, decode::inquiry).unattended(),
    row(&[0x15, 0x11, 0, 0, F, 0], Writes, decode::mode_select6),
    row(&[0x16, 0, 0, 0, 0, 0], Free, decode::reserve),
    row(&[0x17, 0, 0, 0, 0, 0], Free, decode::release).unreserved(),
    row(&[0x1A, 0x08, F, F, F, 0], Reads, decode::mode_sense6),
    row(&[0x1B, 1, 0, 0, 0xF7, 0], Starts, decode::start_stop),
    row(&[0x1D, 0xF7, 0, F, F, 0], Writes, decode::diagnose),
    row(&[0x1E, 0, 0, 0, 3, 0], Prevents, decode::prevent),
    row(&[0x25, 0, F, F, F, F, 0, 0, 1, 0], Free, decode::capacity10).unreserved(),
    row(&[0x28, DPO_FUA, F, F, F, F, GROUP, F, F, 0], Reads, decode::read),
    row(&[0x2A, DPO_FUA, F, F, F, F, GROUP, F, F, 0], Writes, decode::write),
    row(&[0x2E, CHECK, F, F, F, F, GROUP, F, F, 0], Writes, decode::write_verify),
    row(&[0x2F, CHECK, F, F, F, F, GROUP, F, F, 0], Reads, decode::verify),
    row(&[0x34, 2, F, F, F, F, GROUP, F, F, 0], Reads, decode::prefetch),
    row(&[0x35, 6, F, F, F, F, GROUP, F, F, 0], Writes, decode::flush),
    row(&[0x37, 0, 0x1F, 0, 0, 0, 0, F, F, 0], Reads, decode::defects10),
    row(&[0x41, 0x08, F, F, F, F, GROUP, F, F, 0], Writes, decode::write_same),
    row(&[0x42, 0, 0, 0, 0, 0, GROUP, F, F, 0], Writes, decode::unmap),
    row(&[0x4D, 1, F, F, 0, F, F, F, F, 0], Free, decode::log_sense).unreserved(),
    row(&[0x55, 0x11, 0, 0, 0, 0, 0, F, F, 0], Writes, decode::mode_select10),
    row(&[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0], Free, decode::reserve),
    row(&[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0], Free, decode::release).unreserved(),
    row(&[0x5A, 0x18, F, F, 0, 0, 0, F, F, 0], Reads, decode::mode_sense10),
    RESERVE_IN.action(0),
    RESERVE_IN.action(1),
    RESERVE_IN.action(2),
    RESERVE_IN.action(3),
    RESERVE_OUT.action(0),
    RESERVE_OUT.action(1),
    RESERVE_OUT.action(2),
    RESERVE_OUT.action(3),
    RESERVE_OUT.action(4),
    RESERVE_OUT.action(5),
    RESERVE_OUT.action(6),
    RESERVE_OUT.action(7),
    row(&[0x83, ACTION, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0], Writes, decode::extended_copy)
        .action(0),
    row(&[0x84, ACTION, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0], Writes, decode::copy_results)
        .action(0),
    row(&[0x84, ACTION, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0], Writes, decode::copy_results)
        .action(3),
    row(&[0x88, DPO_FUA, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, 0], Reads, decode::read),
    row(&[0x89, DPO_FUA, F, F, F, F, F, F, F, F, 0, 0, 0, F, GROUP, 0], Writes, decode::compare),
    row(&[0x8A, DPO_FUA, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, 0], Writes, decode::write),
    row(&[0x8B, DPO_FUA, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, 0], Writes, decode::or_write),
    row(&[0x8E, CHECK, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, 0], Writes, decode::write_verify),
    row(&[0x8F, CHECK, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, 0], Reads, decode::verify),
    row(&[0x90, 2, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, 0], Reads, decode::prefetch),
    row(&[0x91, 6, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, 0], Writes, decode::flush),
    row(&[0x93, 0x09, F, F, F, F, F, F, F, F, F, F, F, F, GROUP, 0], Writes, decode::write_same),
    row(&[0x9E, ACTION, F, F, F, F, F, F, F, F, F, F, F, F, 1, 0], Free, decode::capacity16)
        .unreserved()
        .action(0x10),
    row(&[0x9E, ACTION, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0], Reads, decode::provisioning)
        .action(0x12),
    row(&[0xA0, 0, F, 0, 0, 0, F, F, F, F, 0, 0], Free, decode::report_luns).unattended(),
    maintenance(0xFF, [0, 0, 0, 0], Free, 0x0A),
    maintenance(ACTION, [0x87, F, F, F], Reads, 0x0C),
    maintenance(ACTION, [0x80, 0, 0, 0], Reads, 0x0D),
    row(&[0xA8, DPO_FUA, F, F, F, F, F, F, F, F, GROUP, 0], Reads, decode::read),
    row(&[0xAA, DPO_FUA, F, F, F, F, F, F, F, F, GROUP, 0], Writes, decode::write),
    row(&[0xAE, CHECK, F, F, F, F, F, F, F, F, GROUP, 0], Writes, decode::write_verify),
    row(&[0xAF, CHECK, F, F, F, F, F, F, F, F, GROUP, 0], Reads, decode::verify),
    row(&[0xB7, 0x1F, F, F, F, F, F, F, F, F, 0, 0], Reads, decode::defects12),
];

const NO_ROW: u8 = 0xFF;

/// Where the rows of each operation code begin.
const FIRST: [u8; 256] = {
    let mut first = [NO_ROW; 256];
    let mut at = TABLE.len();
    assert!(at < NO_ROW as usize);
    while at > 0 {
        at -= 1;
        // The assertion above: no number of a row is cut.
        #[allow(clippy::cast_possible_truncation)]
        let number = at as u8;
        first[TABLE[at].opcode as usize] = number;
    }
    first
};

fn rows(opcode: u8) -> &'static [Row] {
    let first = FIRST[usize::from(opcode)];
    if first == NO_ROW {
        return &[];
    }
    let rows = &TABLE[usize::from(first)..];
    let len = rows.iter().take_while(|row| row.opcode == opcode).count();
    &rows[..len]
}

/// The row of a command, and what it asks for, where all its fields are right.
pub(super) fn find(cdb: &Cdb) -> Result<(&'static Row, Result<Op, Sense>), Sense> {
    let first = FIRST[usize::from(cdb[0])];
    if first == NO_ROW {
        return Err(Sense::illegal(Code::INVALID_OPCODE));
    }
    let mut row = &TABLE[usize::from(first)];
    if row.action.is_some() {
        let action = Some(cdb[1] & ACTION);
        let rows = rows(cdb[0]);
        row = rows.iter().find(|row| row.action == action).ok_or(Sense::cdb_bit(1, 4))?;
    }
    let op = row.check(cdb).and_then(|()| (row.decode)(cdb, decode::span(cdb, row.len)));
    Ok((row, op))
}

/// How long a command may take, in seconds: what initiators wait unless told otherwise.
const TIMEOUT_SECS: u32 = 30;

fn timeouts() -> [u8; 12] {
    let mut descriptor = [0; 12];
    descriptor[1] = 0x0A;
    descriptor[8..12].copy_from_slice(&TIMEOUT_SECS.to_be_bytes());
    descriptor
}

fn all(with_timeouts: bool) -> Vec<u8> {
    let mut list = Vec::new();
    for row in TABLE {
        let flags = u8::from(row.action.is_some()) | u8::from(with_timeouts) << 1;
        let action = row.action.unwrap_or(0);
        list.extend([row.opcode, 0, 0, action, 0, flags, 0, row.len]);
        if with_timeouts {
            list.extend(timeouts());
        }
    }
    let mut bytes = long(list.len()).to_vec();
    bytes.extend(list);
    bytes
}

fn one(row: Option<&Row>, with_timeouts: bool) -> Vec<u8> {
    const NOT_SUPPORTED: u8 = 1;
    const AS_THE_STANDARD_SAYS: u8 = 3;
    let Some(row) = row else { return vec![0, NOT_SUPPORTED, 0, 0] };
    let usage = row.usage();
    let mut bytes = vec![0, AS_THE_STANDARD_SAYS | u8::from(with_timeouts) << 7];
    bytes.extend(short(usage.len()));
    bytes.extend(usage);
    if with_timeouts {
        bytes.extend(timeouts());
    }
    bytes
}

/// REPORT SUPPORTED OPERATION CODES.
pub(super) fn report(query: &Opcodes) -> Result<Vec<u8>, Sense> {
    let rows = rows(query.opcode);
    let has_actions = rows.iter().any(|row| row.action.is_some());
    let with_action = rows.iter().find(|row| row.action.map(u16::from) == Some(query.action));
    let found = match query.options {
        0 => return Ok(all(query.timeouts)),
        1 if !has_actions => rows.first(),
        2 if has_actions || rows.is_empty() => with_action,
        3 if has_actions => with_action,
        3 => rows.first().filter(|_| query.action == 0),
        _ => return Err(Sense::cdb_bit(2, 2)),
    };
    Ok(one(found, query.timeouts))
}

/// The CDBs of all commands with all their bits set.
#[cfg(test)]
pub(super) fn every() -> Vec<Vec<u8>> {
    TABLE.iter().map(Row::usage).collect()
}

#[cfg(test)]
mod tests;
