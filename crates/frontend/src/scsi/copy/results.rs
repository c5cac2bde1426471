//! What initiators ask about copies.
use super::list::{BLOCKS, BY_IDENTIFICATION, BYTES};
use super::{DESCRIPTORS_MAX, SEGMENT_MAX, SEGMENTS_MAX, TARGETS_MAX};
use crate::scsi::bytes::{long, short};
use crate::scsi::disk::Disk;

/// How far a copy came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(super) segments: u16,
    pub(super) bytes: u64,
}

/// The last copy of a nexus whose outcome is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) id: u8,
    /// `None`: it is under way.
    pub(crate) good: Option<bool>,
    pub(crate) progress: Progress,
}

impl Copied {
    /// RECEIVE COPY STATUS.
    pub(crate) fn report(&self) -> Vec<u8> {
        const IN_KIB: u8 = 1;
        let status = match self.good {
            None => 0,
            Some(true) => 1,
            Some(false) => 2,
        };
        let mut bytes = long(8).to_vec();
        bytes.push(status);
        bytes.extend(self.progress.segments.to_be_bytes());
        bytes.push(IN_KIB);
        let kib = u32::try_from(self.progress.bytes >> 10).unwrap_or(u32::MAX);
        bytes.extend(kib.to_be_bytes());
        bytes
    }
}

const DESCRIPTORS: [u8; 3] = [BLOCKS, BYTES, BY_IDENTIFICATION];

fn granularity(disk: &Disk) -> u8 {
    u8::try_from(disk.block.checked_ilog2().unwrap_or(0)).unwrap_or(0)
}

fn segment_max() -> [u8; 4] {
    u32::try_from(SEGMENT_MAX).unwrap_or(u32::MAX).to_be_bytes()
}

/// RECEIVE COPY OPERATING PARAMETERS.
pub(crate) fn operating_parameters(disk: &Disk) -> Vec<u8> {
    let mut bytes = vec![0; 44];
    bytes[8..10].copy_from_slice(&short(TARGETS_MAX));
    bytes[10..12].copy_from_slice(&short(SEGMENTS_MAX));
    bytes[12..16].copy_from_slice(&long(DESCRIPTORS_MAX));
    bytes[16..20].copy_from_slice(&segment_max());
    // One copy per nexus is remembered.
    (bytes[35], bytes[36], bytes[37]) = (1, 1, granularity(disk));
    bytes[43] = 3;
    bytes.extend(DESCRIPTORS);
    let len = long(bytes.len() - 4);
    bytes[..4].copy_from_slice(&len);
    bytes
}

fn descriptor(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    value.resize(value.len().next_multiple_of(4), 0);
    [&kind.to_be_bytes()[..], &short(value.len()), &value].concat()
}

/// The page of vital product data about copies.
pub(crate) fn third_party(disk: &Disk) -> Vec<u8> {
    let commands = [7, 0x83, 1, 0x00, 0x84, 2, 0x00, 0x03];
    let mut limits = vec![0; 28];
    limits[4..6].copy_from_slice(&short(TARGETS_MAX));
    limits[6..8].copy_from_slice(&short(SEGMENTS_MAX));
    limits[8..12].copy_from_slice(&long(DESCRIPTORS_MAX));
    let mut kinds = vec![3];
    kinds.extend(DESCRIPTORS);
    let mut general = vec![0; 32];
    (general[3], general[7]) = (1, 1);
    general[8..12].copy_from_slice(&segment_max());
    general[12] = granularity(disk);
    [
        descriptor(0x0001, &commands),
        descriptor(0x0004, &limits),
        descriptor(0x0008, &kinds),
        descriptor(0x000C, &[0, 0]),
        descriptor(0x8001, &general),
    ]
    .concat()
}
