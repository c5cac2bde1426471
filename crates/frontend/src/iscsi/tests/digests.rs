//! Digests of headers and data.
use super::client::*;
use crate::iscsi::pdu::NO_TAG;
use crate::iscsi::{CloseReason, ProtocolError};

const KEYS: &str = "HeaderDigest=CRC32C DataDigest=CRC32C InitialR2T=No FirstBurstLength=4096";

#[test]
fn whatever_is_sent_has_digests() {
    for (cut, lands) in [(usize::MAX, false), (1, false), (3, true)] {
        let mut world = World::in_session(&format!("{KEYS} MaxRecvDataSegmentLength=512"));
        assert_eq!(world.digests, (true, true));
        (world.cut, world.lands) = (cut, lands);
        world.send(&nop(1, 1).data(b"hello"));
        assert_eq!(world.pdu().data, b"hello");

        let data = pattern(1999);
        world.send(&write(5, 2, 1999).byte(1, 0x21).data(&data[..1001]));
        world.send(&data_out(0x80, 5, NO_TAG, 0, 1001, &data[1001..]));
        let (_, task, command) = world.command();
        assert_eq!(&*command.data_out, data);
        world.good(task, 1999);
        assert_eq!(world.pdu().flags(), 0x80);

        world.send(&read(6, 3, 1999));
        let (_, task, _) = world.command();
        world.respond(task, good(vec![piece(&data[..700]), piece(&data[700..])]));
        let pdus = world.pdus();
        assert_eq!(pdus.iter().flat_map(|pdu| pdu.data.clone()).collect::<Vec<_>>(), data);
        assert!(world.sent[&CONN].is_empty());

        let mut long = command_with_ahs();
        long = long.u32(24, 4);
        world.send(&long);
        world.command();
    }
}

fn command_with_ahs() -> Pdu {
    let mut request = command(7, 1);
    request.ahs = vec![0, 1, 9, 0];
    request
}

#[test]
fn digests_may_be_had_one_by_one() {
    for keys in ["HeaderDigest=CRC32C", "DataDigest=CRC32C", "HeaderDigest=None DataDigest=None"] {
        let mut world = World::in_session(keys);
        world.send(&nop(1, 1).data(b"hello"));
        assert_eq!(world.pdu().data, b"hello");
    }
}

#[test]
fn a_broken_header_ends_the_session() {
    let mut world = World::in_session(KEYS);
    let mut bytes = nop(1, 1).encode((true, true));
    bytes[20] ^= 1;
    world.send_bytes(CONN, &bytes);
    assert_eq!(world.pdus(), []);
    let reason = world.closed(CONN);
    assert_eq!(reason, Some(CloseReason::Protocol(ProtocolError::HeaderDigest)));
}

/// Flips a bit of the data of a PDU.
fn broken(pdu: &Pdu) -> Vec<u8> {
    let mut bytes = pdu.encode((true, true));
    bytes[52] ^= 1;
    bytes
}

fn rejected(world: &mut World) {
    let pdu = world.pdus().remove(0);
    assert_eq!((pdu.opcode(), pdu.header.0[2]), (REJECT, 2));
}

/// The answer to task 5: protocol service CRC error.
fn failed(pdu: &Pdu) {
    assert_eq!((pdu.opcode(), pdu.header.0[3], pdu.number(16)), (SCSI_RESPONSE, 2, 5));
    assert_eq!((pdu.data[4], pdu.data[14], pdu.data[15]), (0x0b, 0x47, 0x05));
}

#[test]
fn broken_data_is_rejected_and_fails_its_command() {
    let mut world = World::in_session(KEYS);
    world.send_bytes(CONN, &broken(&write(5, 1, 100).data(&pattern(100))));
    let pdus = world.pdus();
    assert_eq!((pdus[0].opcode(), pdus[0].header.0[2]), (REJECT, 2));
    failed(&pdus[1]);
    world.nothing_asked();
    // The order goes on.
    world.send(&command(6, 2));
    world.command();
}

#[test]
fn a_command_with_broken_data_is_answered_after_the_last_of_it() {
    let mut world = World::in_session(KEYS);
    world.send(&write(5, 1, 300).byte(1, 0x21).data(&pattern(100)));
    world.send_bytes(CONN, &broken(&data_out(0x00, 5, NO_TAG, 0, 100, &pattern(100))));
    rejected(&mut world);
    world.send(&data_out(0x80, 5, NO_TAG, 1, 200, &pattern(100)));
    failed(&world.pdu());
    world.nothing_asked();
}

#[test]
fn broken_data_of_a_burst() {
    let mut world = World::in_session(
        "HeaderDigest=CRC32C DataDigest=CRC32C MaxOutstandingR2T=2 MaxBurstLength=512",
    );
    world.send(&write(5, 1, 1500));
    let tags: Vec<u32> = world.pdus().iter().map(|pdu| pdu.number(20)).collect();
    assert_eq!(tags.len(), 2);
    world.send_bytes(CONN, &broken(&data_out(0x80, 5, tags[0], 0, 0, &pattern(512))));
    rejected(&mut world);
    world.send(&data_out(0x80, 5, tags[1], 0, 512, &pattern(512)));
    failed(&world.pdu());
}

#[test]
fn a_broken_request_is_rejected_and_nothing_comes_of_it() {
    let mut world = World::in_session(KEYS);
    world.send_bytes(CONN, &broken(&nop(1, 1).data(b"hello")));
    assert_eq!(world.pdu().opcode(), REJECT);
    world.send_bytes(CONN, &broken(&text_request(0x80, 2, NO_TAG, "SendTargets=All")));
    assert_eq!(world.pdu().opcode(), REJECT);
    world.nothing_asked();
    world.send(&nop(1, 2));
    assert_eq!(world.pdu().opcode(), NOP_IN);
    // Data for nobody may be broken.
    world.send_bytes(CONN, &broken(&data_out(0x80, 99, NO_TAG, 0, 0, b"hello")));
    assert_eq!(world.pdus(), []);
}
