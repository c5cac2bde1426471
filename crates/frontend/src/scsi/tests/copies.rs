//! EXTENDED COPY, and what is told about it.
use super::rig::*;
use crate::ask::AskError;
use crate::scsi::vpd;
use crate::scsi::words::{Management, Status};

/// The list of one copy within the disk.
fn list(usage: u8, from: u64, to: u64, blocks: u16) -> Vec<u8> {
    let mut list = vec![7, usage << 3, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    list.extend([0xE4, 0, 0, 0, 1, 3, 0, 8]);
    list.extend(vpd::locally_assigned(&export(512).uid));
    list.resize(16 + 28, 0);
    list.extend([0, 0, 2, 0]);
    list.extend([2, 0, 0, 0x18, 0, 0, 0, 0, 0, 0]);
    list.extend(blocks.to_be_bytes());
    list.extend(from.to_be_bytes());
    list.extend(to.to_be_bytes());
    list
}

fn copy(list: &[u8]) -> Vec<u8> {
    sixteen(0x83, 0, 0, u32::try_from(list.len()).unwrap())
}

/// RECEIVE COPY STATUS for a list.
fn status(id: u8) -> Vec<u8> {
    vec![0x84, 0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0]
}

#[test]
fn blocks_are_copied_a_chunk_at_a_time() {
    let mut rig =
        Rig::of(crate::export::Export { size: block::ByteLen(8 << 20), ..export(512) }, &[]);
    rig.volume = super::volume::Volume::new(8 << 20);
    rig.up(A);
    rig.hear(A);
    for (at, byte) in rig.volume.bytes[..3 << 20].iter_mut().enumerate() {
        *byte = u8::try_from(at / 512 % 251).unwrap();
    }
    let copied = list(2, 1, 8192, 5000);
    let task = rig.send(A, &copy(&copied), &copied);
    while !rig.asks.is_empty() {
        assert_eq!(rig.asks.len(), 1);
        rig.answer(0);
    }
    assert_eq!(rig.take(task).unwrap().status, Status::Good);
    assert_eq!(rig.blocks(1, 5000), rig.blocks(8192, 5000));
    assert_eq!(rig.blocks(8192 + 5000, 1), [0; 512]);
    assert_eq!(rig.bad(A, &status(7), &[]), (5, [0x24, 0]), "nobody wanted to know");
}

#[test]
fn how_a_copy_stands_is_told_to_its_initiator() {
    let mut rig = Rig::new(512);
    assert_eq!(rig.bad(A, &status(7), &[]), (5, [0x24, 0]));
    let copied = list(0, 0, 100, 16);
    rig.send(A, &copy(&copied), &copied);
    let look = rig.send(A, &status(7), &[]);
    assert_eq!(data_in(&rig.take(look).unwrap())[4..], [0, 0, 0, 1, 0, 0, 0, 0]);
    rig.settle();
    assert_eq!(rig.good(A, &status(7), &[]), [0, 0, 0, 8, 1, 0, 1, 1, 0, 0, 0, 8]);
    assert_eq!(rig.bad(B, &status(7), &[]), (5, [0x24, 0]));
    let task = rig.send(A, &copy(&copied), &copied);
    rig.answer(0);
    rig.fail(0, AskError::NoSpace);
    assert_eq!(codes(&rig.take(task).unwrap()), (7, [0x27, 7]));
    assert_eq!(rig.good(A, &status(7), &[])[4], 2);
}

#[test]
fn a_copy_and_a_compare_and_write_keep_apart() {
    let mut rig = Rig::new(512);
    let copied = list(2, 0, 100, 16);
    rig.send(A, &copy(&copied), &copied);
    rig.send(B, &compare(105), &[[0; 512], [1; 512]].concat());
    assert_eq!(rig.asks.len(), 1);
    rig.settle();
    assert_eq!(rig.blocks(105, 1), [1; 512]);
}

#[test]
fn an_aborted_copy_goes_no_further() {
    let mut rig = Rig::new(512);
    rig.good(A, &write(0, 16), &[7; 16 * 512]);
    let copied = list(0, 0, 100, 16);
    let task = rig.send(A, &copy(&copied), &copied);
    rig.manage(A, Management::AbortTask { task });
    rig.settle();
    assert_eq!(rig.good(A, &status(7), &[])[4], 2, "it ended, and not well");
    assert_eq!(rig.blocks(100, 16), [0; 16 * 512]);
    assert!(rig.unit.is_idle() && rig.done.is_empty());
}

#[test]
fn an_empty_list_copies_nothing() {
    let mut rig = Rig::new(512);
    assert_eq!(rig.good(A, &copy(&[]), &[]), []);
    let empty = list(2, 0, 100, 0);
    assert_eq!(rig.good(A, &copy(&empty), &empty), []);
    assert_eq!(rig.bad(A, &sixteen(0x83, 0, 0, 100), &[]), (5, [0x1A, 0]));
    assert_eq!(rig.good(A, &sixteen(0x84, 3, 0, 255), &[]).len(), 47);
}
