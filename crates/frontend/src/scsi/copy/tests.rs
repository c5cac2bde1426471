//! Lists of EXTENDED COPY; what they do is tested with the unit.
use super::list::parse;
use super::*;
use crate::scsi::sense::{Code, Key, Sense};
use crate::scsi::vpd;

const UID: [u8; 16] = *b"0123456789abcdef";
const DISK: Disk = Disk { block: 512, blocks: 100_000, granule: 8, read_only: false };

fn target(uid: &[u8; 16]) -> Vec<u8> {
    let mut bytes = vec![0xE4, 0, 0, 0, 1, 3, 0, 8];
    bytes.extend(vpd::locally_assigned(uid));
    bytes.resize(32, 0);
    bytes[30] = 2;
    bytes
}

fn blocks(from: u64, to: u64, blocks: u16, source: u8, destination: u8) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0x18, 0, source, 0, destination, 0, 0];
    bytes.extend(blocks.to_be_bytes());
    bytes.extend(from.to_be_bytes());
    bytes.extend(to.to_be_bytes());
    bytes
}

fn bytes(from: u64, to: u64, bytes: u32, offsets: [u16; 2]) -> Vec<u8> {
    let mut list = vec![0x0A, 0, 0, 0x1C, 0, 0, 0, 0];
    list.extend(bytes.to_be_bytes());
    list.extend(from.to_be_bytes());
    list.extend(to.to_be_bytes());
    list.extend(offsets[0].to_be_bytes());
    list.extend(offsets[1].to_be_bytes());
    list
}

fn list(usage: u8, targets: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (targets, segments) = (targets.concat(), segments.concat());
    let mut list = vec![7, usage << 3];
    list.extend(u16::try_from(targets.len()).unwrap().to_be_bytes());
    list.extend([0; 4]);
    list.extend(u32::try_from(segments.len()).unwrap().to_be_bytes());
    list.extend([0; 4]);
    [list, targets, segments].concat()
}

fn read(list: &[u8]) -> Result<(Option<u8>, Vec<Segment>), (Key, Code)> {
    parse(list, &UID, &DISK).map_err(|Sense { key, code, .. }| (key, code))
}

#[test]
fn segments_are_read_in_both_kinds() {
    let segment = |from, to, blocks| Segment { from: Lba(from), to: Lba(to), blocks };
    let targets = [target(&UID)];
    let both = [blocks(1, 50, 8, 0, 0), bytes(2, 60, 4096, [512, 1024])];
    let found = vec![segment(1, 50, 8), segment(3, 62, 8)];
    assert_eq!(read(&list(0, &targets, &both)), Ok((Some(7), found.clone())));
    assert_eq!(read(&list(2, &targets, &both)), Ok((None, found)));
    assert_eq!(read(&[]), Ok((None, vec![])));
    assert_eq!(hull(&list(0, &targets, &both), &DISK), Some(Span::new(1, 69_u64)));
}

#[test]
fn lists_that_end_early_are_refused() {
    let good = list(0, &[target(&UID)], &[blocks(1, 50, 8, 0, 0)]);
    for len in 1..good.len() {
        assert_eq!(read(&good[..len]), Err((Key::IllegalRequest, Code(0x1A, 0))), "{len}");
        assert_eq!(hull(&good[..len], &DISK), None);
    }
}

#[test]
fn what_is_too_much_or_unknown_is_refused_by_its_name() {
    let here = target(&UID);
    let segment = blocks(1, 50, 8, 0, 0);
    let mut other_target = here.clone();
    other_target[0] = 0xE0;
    let mut stream = segment.clone();
    stream[0] = 3;
    for (targets, segments, code) in [
        (vec![here.clone(); 5], vec![segment.clone()], Code(0x26, 6)),
        (vec![here.clone()], vec![segment.clone(); 17], Code(0x26, 8)),
        (vec![here.clone(); 5], vec![segment.clone(); 40], Code(0x1A, 0)),
        (vec![other_target], vec![segment], Code(0x26, 7)),
        (vec![here.clone()], vec![stream], Code(0x26, 9)),
        (vec![here.clone()], vec![bytes(0, 9, 700, [0, 0])], Code(0x26, 0)),
        (vec![here.clone()], vec![bytes(0, 9, 512, [1, 0])], Code(0x26, 0)),
        (vec![here], vec![blocks(0, 50_000, 40_000, 0, 0)], Code(0x26, 0)),
    ] {
        let result = read(&list(0, &targets, &segments));
        assert_eq!(result, Err((Key::IllegalRequest, code)));
    }
}

#[test]
fn other_disks_and_other_blocks_cannot_be_reached() {
    let (here, there) = (target(&UID), target(&[9; 16]));
    let segment = |source, destination| [blocks(1, 50, 8, source, destination)];
    let reach = |targets: &[Vec<u8>], segments: &[Vec<u8>]| read(&list(0, targets, segments));
    let not_reachable = Err((Key::CopyAborted, Code(0x0D, 2)));
    assert_eq!(reach(std::slice::from_ref(&here), &segment(0, 1)), not_reachable);
    assert_eq!(reach(&[here.clone(), there.clone()], &segment(0, 1)), not_reachable);
    assert!(reach(&[there, here.clone()], &segment(1, 1)).is_ok(), "it may be named in vain");
    let mut other_blocks = here.clone();
    other_blocks[30] = 16;
    assert_eq!(reach(&[other_blocks], &segment(0, 0)), not_reachable);
    for outside in [blocks(0, 99_999, 2, 0, 0), blocks(99_999, 0, 2, 0, 0)] {
        let result = reach(std::slice::from_ref(&here), &[outside]);
        assert_eq!(result, Err((Key::CopyAborted, Code(0, 0))));
    }
}

#[test]
fn the_reports_agree() {
    let parameters = operating_parameters(&DISK);
    assert_eq!((parameters.len(), parameters[3]), (47, 43));
    assert_eq!(parameters[8..12], [0, 4, 0, 16]);
    assert_eq!((parameters[37], &parameters[43..]), (9, &[3, 2, 0x0A, 0xE4][..]));
    let page = third_party(&DISK);
    let mut rest = &page[..];
    let mut kinds = Vec::new();
    while let [a, b, c, d, tail @ ..] = rest {
        kinds.push(u16::from_be_bytes([*a, *b]));
        rest = &tail[usize::from(u16::from_be_bytes([*c, *d]))..];
    }
    assert_eq!(kinds, [1, 4, 8, 0xC, 0x8001]);
}
