//! The parameter list of EXTENDED COPY.
use super::{DESCRIPTORS_MAX, SEGMENT_MAX, SEGMENTS_MAX, Segment, TARGETS_MAX};
use crate::scsi::bytes::{index, u16_at, u24_at, u32_at, u64_at};
use crate::scsi::disk::{Disk, Lba, Span};
use crate::scsi::sense::{Code, Key, Sense};
use crate::scsi::vpd;

const HEADER: usize = 16;
const TARGET: usize = 32;

pub(super) const BY_IDENTIFICATION: u8 = 0xE4;
pub(super) const BLOCKS: u8 = 0x02;
pub(super) const BYTES: u8 = 0x0A;

const TOO_SHORT: Sense = Sense::illegal(Code::LIST_LENGTH);
const TOO_MANY_TARGETS: Code = Code(0x26, 0x06);
const UNKNOWN_TARGET: Code = Code(0x26, 0x07);
const TOO_MANY_SEGMENTS: Code = Code(0x26, 0x08);
const UNKNOWN_SEGMENT: Code = Code(0x26, 0x09);
const NOT_REACHABLE: Sense = Sense::new(Key::CopyAborted, Code(0x0D, 0x02));

/// What a list asks for: what to keep its outcome under, and what to copy. An empty one asks for
/// nothing.
pub(super) fn parse(
    list: &[u8],
    uid: &[u8; 16],
    disk: &Disk,
) -> Result<(Option<u8>, Vec<Segment>), Sense> {
    if list.is_empty() {
        return Ok((None, Vec::new()));
    }
    let (targets, segments) = descriptors(list)?;
    let reachable = targets
        .chunks_exact(TARGET)
        .map(|target| is_here(target, uid, disk))
        .collect::<Result<Vec<_>, _>>()?;
    let is_here = |at: u16| reachable.get(usize::from(at)) == Some(&true);
    let mut found = Vec::new();
    for descriptor in split(segments)? {
        if !is_here(u16_at(descriptor, 4)) || !is_here(u16_at(descriptor, 6)) {
            return Err(NOT_REACHABLE);
        }
        let segment = segment(descriptor, disk)?;
        let inside = |span| disk.check(span).is_ok();
        if !inside(segment.source()) || !inside(segment.destination()) {
            return Err(Sense::new(Key::CopyAborted, Code::NONE));
        }
        found.push(segment);
    }
    const HELD: u8 = 0;
    let held = (list[1] >> 3) & 3 == HELD;
    Ok((held.then_some(list[0]), found))
}

/// The two lists of descriptors, both whole.
fn descriptors(list: &[u8]) -> Result<(&[u8], &[u8]), Sense> {
    if list.len() < HEADER {
        return Err(TOO_SHORT);
    }
    let (targets, segments) = (usize::from(u16_at(list, 2)), index(u32_at(list, 8)));
    let all = targets.checked_add(segments).ok_or(TOO_SHORT)?;
    let described = list[HEADER..].get(..all).ok_or(TOO_SHORT)?;
    if all > DESCRIPTORS_MAX || !targets.is_multiple_of(TARGET) {
        return Err(TOO_SHORT);
    }
    if targets / TARGET > TARGETS_MAX {
        return Err(Sense::illegal(TOO_MANY_TARGETS));
    }
    Ok(described.split_at(targets))
}

/// Whether a target is this disk.
fn is_here(target: &[u8], uid: &[u8; 16], disk: &Disk) -> Result<bool, Sense> {
    /// Binary, and a name of the unit by a naming authority.
    const NAME: [u8; 4] = [1, 3, 0, 8];
    if target[0] != BY_IDENTIFICATION {
        return Err(Sense::illegal(UNKNOWN_TARGET));
    }
    let same_blocks = u64::from(u24_at(target, 29)) == disk.block;
    Ok(target[4..8] == NAME && target[8..16] == vpd::locally_assigned(uid) && same_blocks)
}

/// The segments of a list, of the kinds that there are.
fn split(mut segments: &[u8]) -> Result<Vec<&[u8]>, Sense> {
    let mut found = Vec::new();
    while !segments.is_empty() {
        let header = segments.get(..4).ok_or(TOO_SHORT)?;
        let len = match header[0] {
            BLOCKS => 0x18,
            BYTES => 0x1C,
            _ => return Err(Sense::illegal(UNKNOWN_SEGMENT)),
        };
        if usize::from(u16_at(header, 2)) != len {
            return Err(Sense::illegal(Code::INVALID_FIELD_IN_LIST));
        }
        let (segment, rest) = segments.split_at_checked(4 + len).ok_or(TOO_SHORT)?;
        if found.len() >= SEGMENTS_MAX {
            return Err(Sense::illegal(TOO_MANY_SEGMENTS));
        }
        found.push(segment);
        segments = rest;
    }
    Ok(found)
}

fn segment(descriptor: &[u8], disk: &Disk) -> Result<Segment, Sense> {
    let (mut from, mut to) = (u64_at(descriptor, 12), u64_at(descriptor, 20));
    let blocks = if descriptor[0] == BLOCKS {
        u64::from(u16_at(descriptor, 10))
    } else {
        // Bytes, with offsets into the first blocks: as long as that is whole blocks.
        let offsets = [u16_at(descriptor, 28), u16_at(descriptor, 30)].map(u64::from);
        let bytes = u64::from(u32_at(descriptor, 8));
        if [bytes, offsets[0], offsets[1]].iter().any(|number| number % disk.block != 0) {
            return Err(Sense::illegal(Code::INVALID_FIELD_IN_LIST));
        }
        from = from.saturating_add(offsets[0] / disk.block);
        to = to.saturating_add(offsets[1] / disk.block);
        bytes / disk.block
    };
    if blocks > SEGMENT_MAX / disk.block {
        return Err(Sense::illegal(Code::INVALID_FIELD_IN_LIST));
    }
    Ok(Segment { from: Lba(from), to: Lba(to), blocks })
}

/// All blocks from the first to the last that a list touches.
pub(in crate::scsi) fn hull(list: &[u8], disk: &Disk) -> Option<Span> {
    let (_, segments) = descriptors(list).ok()?;
    let segments = split(segments).ok()?.into_iter();
    let spans = segments.filter_map(|descriptor| segment(descriptor, disk).ok());
    spans.map(|segment| segment.source().hull(segment.destination())).reduce(Span::hull)
}
