//! What initiators are told before their next command.
use block::ByteLen;

use super::rig::*;
use crate::ask::AskError;
use crate::scsi::Event;
use crate::scsi::words::Status;

#[test]
fn a_new_nexus_hears_of_the_power() {
    let mut rig = Rig::of(export(512), &[]);
    rig.up(A);
    assert_eq!(rig.bad(A, &read(0, 1), &[]), (6, [0x29, 0]));
    rig.good(A, &read(0, 1), &[]);
}

#[test]
fn some_commands_do_not_wait_for_attentions() {
    let mut rig = Rig::of(export(512), &[]);
    rig.up(A);
    rig.good(A, &[0x12, 0, 0, 0, 96, 0], &[]);
    rig.good(A, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], &[]);
    assert_eq!(rig.bad(A, &[0xFF], &[]), (6, [0x29, 0]), "also before an unknown command");
    assert_eq!(rig.bad(A, &[0xFF], &[]), (5, [0x20, 0]));
}

#[test]
fn request_sense_tells_an_attention_with_good_status() {
    let mut rig = Rig::of(export(512), &[]);
    rig.up(A);
    let sense = rig.good(A, &[0x03, 0, 0, 0, 255, 0], &[]);
    assert_eq!((sense[0], sense[2], sense[12], sense[13]), (0x70, 6, 0x29, 0));
    let sense = rig.good(A, &[0x03, 1, 0, 0, 255, 0], &[]);
    assert_eq!(sense, [0x72, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rig.good(A, &[0x03, 0, 0, 0, 4, 0], &[]).len(), 4);
}

#[test]
fn everybody_hears_of_a_new_size_once() {
    let mut rig = Rig::new(512);
    rig.step(Event::Resized { size: ByteLen(SIZE as u64 / 2) });
    rig.step(Event::Resized { size: ByteLen(SIZE as u64 / 2) });
    for nexus in [A, B, C] {
        assert_eq!(rig.hear(nexus), [[0x2A, 9]]);
    }
    assert_eq!(rig.good(A, &ten(0x25, 0, 0, 0), &[])[..4], 1023_u32.to_be_bytes());
    assert_eq!(rig.bad(A, &read(1024, 1), &[]), (5, [0x21, 0]));
    rig.step(Event::Resized { size: ByteLen(SIZE as u64 / 2) });
    assert_eq!(rig.hear(A), Vec::<[u8; 2]>::new(), "the same size is no news");
}

#[test]
fn an_immediate_flush_that_fails_is_told_with_the_next_command() {
    let mut rig = Rig::new(512);
    let task = rig.send(A, &ten(0x35, 2, 0, 0), &[]);
    assert_eq!(rig.take(task).unwrap().status, Status::Good);
    rig.fail(0, AskError::UnflushedWritesLost);
    assert!(rig.done.is_empty());
    let response = rig.run(A, &read(0, 1), &[]);
    assert_eq!(response.sense[0], 0x71, "deferred");
    assert_eq!(codes(&response), (4, [0x44, 0]));
    rig.good(A, &read(0, 1), &[]);
    rig.good(B, &read(0, 1), &[]);
}

#[test]
fn sense_has_descriptors_when_somebody_switched_to_them() {
    let mut rig = Rig::new(512);
    let mut list = vec![0, 0, 0, 0, 0x0A, 0x0A, 6, 0x10, 0, 0, 0, 0, 0xFF, 0xFF];
    list.extend([0; 2]);
    rig.good(A, &[0x15, 0x10, 0, 0, 16, 0], &list);
    let response = rig.run(B, &read(0, 1), &[]);
    assert_eq!(response.sense[..4], [0x72, 6, 0x2A, 1]);
    let response = rig.run(A, &[0xFF], &[]);
    assert_eq!(response.sense[..4], [0x72, 5, 0x20, 0]);
}
