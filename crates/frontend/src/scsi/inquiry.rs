//! INQUIRY, and the small reports about the target around the disk.
use crate::scsi::bytes::{long, short, text};
use crate::scsi::sense::Sense;

/// Who the disk says that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Eight characters are told.
    pub vendor: String,
    /// Sixteen characters are told.
    pub product: String,
    /// Four characters are told.
    pub revision: String,
    /// The target's iSCSI name.
    pub iqn: String,
    /// The tag of the portal group that sessions come through: with the name, the target's port.
    pub portal_group: u16,
}

/// The one target port, as relative identifiers number it, and its group.
pub(super) const TARGET_PORT: u16 = 1;
pub(super) const TARGET_PORT_GROUP: u16 = 1;

/// Versions of SAM-5, iSCSI, SPC-4 and SBC-3, no revision claimed.
const VERSIONS: [u16; 4] = [0x00A0, 0x0960, 0x0460, 0x04C0];

pub(super) fn standard(identity: &Identity) -> Vec<u8> {
    const SPC_4: u8 = 6;
    /// HISUP, and the format of this answer.
    const FORMAT: u8 = 0x12;
    /// TPGS and 3PC: who asks is told of port groups, and cannot change them; blocks can be copied.
    const GROUPS_AND_COPIES: u8 = 0x18;
    /// CMDQUE.
    const QUEUES: u8 = 0x02;
    let mut bytes = vec![0; 96];
    bytes[2..8].copy_from_slice(&[SPC_4, FORMAT, 96 - 5, GROUPS_AND_COPIES, 0, QUEUES]);
    bytes[8..16].copy_from_slice(&text::<8>(&identity.vendor));
    bytes[16..32].copy_from_slice(&text::<16>(&identity.product));
    bytes[32..36].copy_from_slice(&text::<4>(&identity.revision));
    for (field, version) in bytes[58..].chunks_exact_mut(2).zip(VERSIONS) {
        field.copy_from_slice(&version.to_be_bytes());
    }
    bytes
}

/// The answer where there is no disk: no device could be there.
pub(super) fn nobody(identity: &Identity) -> Vec<u8> {
    let mut bytes = standard(identity);
    bytes[0] = 0x7F;
    bytes
}

/// REPORT LUNS: there is number 0, and no well-known unit.
pub(super) fn luns(select: u8) -> Result<Vec<u8>, Sense> {
    let len = match select {
        0 | 2 => 8,
        1 => 0,
        _ => return Err(Sense::cdb(2)),
    };
    let mut bytes = long(len).to_vec();
    bytes.resize(8 + len, 0);
    Ok(bytes)
}

/// REPORT TARGET PORT GROUPS: one group with one port, which is as good as it gets.
pub(super) fn port_groups(extended: bool) -> Vec<u8> {
    const ACTIVE_OPTIMIZED: u8 = 0;
    /// No other state is ever told.
    const SUPPORTED: u8 = 0x01;
    const NO_CHANGE: u8 = 0;
    let mut groups = if extended { vec![0x10, 0, 0, 0] } else { Vec::new() };
    groups.extend([ACTIVE_OPTIMIZED, SUPPORTED]);
    groups.extend(TARGET_PORT_GROUP.to_be_bytes());
    groups.extend([0, NO_CHANGE, 0, 1, 0, 0]);
    groups.extend(TARGET_PORT.to_be_bytes());
    let mut bytes = long(groups.len()).to_vec();
    bytes.extend(groups);
    bytes
}

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: aborting a task or all of an initiator's, clearing
/// the task set, and resets of the unit and of the target.
pub(super) fn functions(extended: bool) -> Vec<u8> {
    let mut bytes = vec![0b1101_1010, 0, 0, 0];
    if extended {
        bytes[3] = 0x0C;
        bytes.resize(16, 0);
    }
    bytes
}

/// READ DEFECT DATA: whatever list is asked for, it is empty. `lists` has the flags of the lists
/// and the format as the CDB has them.
pub(super) fn defects(long: bool, lists: u8) -> Vec<u8> {
    let mut bytes = vec![0, lists & 0x1F, 0, 0];
    if long {
        bytes.resize(8, 0);
    }
    bytes
}

/// LOG SENSE: only that there are no other logs.
pub(super) fn log(page: u8, subpage: u8) -> Result<Vec<u8>, Sense> {
    const WITH_SUBPAGES: u8 = 0x40;
    let list: &[u8] = match (page, subpage) {
        (0, 0) => &[0],
        (0, 0xFF) => &[0, 0, 0, 0xFF],
        (0, _) => return Err(Sense::cdb(3)),
        _ => return Err(Sense::cdb_bit(2, 5)),
    };
    let mut bytes = if subpage == 0 { vec![0, 0] } else { vec![WITH_SUBPAGES, subpage] };
    bytes.extend(short(list.len()));
    bytes.extend(list);
    Ok(bytes)
}
