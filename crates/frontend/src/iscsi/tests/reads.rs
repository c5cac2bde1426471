//! Data for the initiator, and what was moved beside what was expected.
use super::client::*;
use crate::piece::Piece;
use crate::scsi::words::{Response, Status};

/// Reads, lets the unit answer, and gives what was sent.
fn answered(world: &mut World, expected: u32, response: Response) -> Vec<Pdu> {
    world.send(&read(5, 1, expected));
    let (_, task, command) = world.command();
    assert_eq!((command.room_in, command.data_out.len()), (expected, 0));
    world.respond(task, response);
    world.pdus()
}

#[test]
fn data_comes_in_parts_with_the_status_at_its_end() {
    let mut world =
        World::in_session("MaxRecvDataSegmentLength=1024 MaxBurstLength=2560 FirstBurstLength=512");
    let data = pattern(5000);
    let pdus = answered(&mut world, 5000, good(vec![piece(&data)]));
    let shape: Vec<_> = pdus
        .iter()
        .map(|pdu| (pdu.flags(), pdu.number(36), pdu.number(40), pdu.data.len()))
        .collect();
    assert_eq!(
        shape,
        [
            (0x00, 0, 0, 1024),
            (0x00, 1, 1024, 1024),
            (0x80, 2, 2048, 512),
            (0x00, 3, 2560, 1024),
            (0x00, 4, 3584, 1024),
            (0x81, 5, 4608, 392),
        ]
    );
    assert!(pdus.iter().all(|pdu| pdu.opcode() == DATA_IN && pdu.number(16) == 5));
    assert!(pdus[..5].iter().all(|pdu| pdu.number(24) == 0), "no status, no number of one");
    assert_eq!((pdus[5].number(24), pdus[5].number(28), pdus[5].number(32)), (2, 2, 129));
    assert_eq!(pdus.iter().flat_map(|pdu| pdu.data.clone()).collect::<Vec<_>>(), data);
    assert_eq!(world.shared, 6, "data is sent as it came");
}

#[test]
fn pieces_of_any_length_become_segments() {
    let mut world = World::in_session("MaxRecvDataSegmentLength=512");
    let data = pattern(1501);
    let pieces = vec![
        Piece::Bytes(data[..3].to_vec()),
        piece(&data[3..3]),
        piece(&data[3..700]),
        Piece::Bytes(data[700..1400].to_vec()),
        piece(&data[1400..]),
    ];
    let pdus = answered(&mut world, 1501, good(pieces));
    assert_eq!(pdus.iter().map(|pdu| pdu.data.len()).collect::<Vec<_>>(), [512, 512, 477]);
    assert_eq!(pdus.iter().flat_map(|pdu| pdu.data.clone()).collect::<Vec<_>>(), data);
    assert!(world.sent[&CONN].is_empty(), "padding is sent too");
}

#[test]
fn a_status_that_is_not_good_has_a_response_of_its_own() {
    let mut world = World::in_session("");
    let sense = vec![0x70, 0, 3, 0, 0, 0, 0, 10];
    let status = Status::CheckCondition;
    let response =
        Response { status, sense: sense.clone(), data_in: vec![piece(&[7; 100])], took_out: 0 };
    let pdus = answered(&mut world, 512, response);
    assert_eq!((pdus[0].opcode(), pdus[0].flags(), pdus[0].data.len()), (DATA_IN, 0x80, 100));
    let pdu = &pdus[1];
    assert_eq!((pdu.opcode(), pdu.flags(), pdu.header.0[2], pdu.header.0[3]), (0x21, 0x82, 0, 2));
    assert_eq!((pdu.number(36), pdu.number(44)), (1, 412), "PDUs before, and what is missing");
    assert_eq!(pdu.data, [&[0, 8][..], &sense].concat());
}

#[test]
fn every_status_has_its_code() {
    for (status, code) in [
        (Status::Good, 0x00),
        (Status::CheckCondition, 0x02),
        (Status::ConditionMet, 0x04),
        (Status::Busy, 0x08),
        (Status::ReservationConflict, 0x18),
        (Status::TaskSetFull, 0x28),
        (Status::AcaActive, 0x30),
        (Status::TaskAborted, 0x40),
    ] {
        let mut world = World::in_session("");
        world.send(&command(5, 1));
        let (_, task, _) = world.command();
        world.respond(task, Response { status, ..good(vec![]) });
        let pdu = world.pdu();
        assert_eq!((pdu.opcode(), pdu.flags(), pdu.header.0[3]), (SCSI_RESPONSE, 0x80, code));
    }
}

#[test]
fn residuals_of_reads() {
    for (expected, has, opcode, flags, residual, sent) in [
        (512, 512, DATA_IN, 0x81, 0, 512),
        (512, 100, DATA_IN, 0x83, 412, 100),
        (100, 512, DATA_IN, 0x85, 412, 100),
        (512, 0, SCSI_RESPONSE, 0x82, 512, 0),
        (0, 512, SCSI_RESPONSE, 0x84, 512, 0),
        (0, 0, SCSI_RESPONSE, 0x80, 0, 0),
    ] {
        let mut world = World::in_session("");
        let pdus = answered(&mut world, expected, good(vec![piece(&pattern(has))]));
        let found: Vec<_> = pdus
            .iter()
            .map(|pdu| (pdu.opcode(), pdu.flags(), pdu.number(44), pdu.data.len()))
            .collect();
        assert_eq!(found, [(opcode, flags, residual, sent)], "{expected} {has}");
    }
}

#[test]
fn residuals_of_writes() {
    for (expected, took, flags, residual) in
        [(512, 512, 0x80, 0), (512, 100, 0x82, 412), (100, 512, 0x84, 412), (0, 512, 0x84, 512)]
    {
        let mut world = World::in_session("");
        world.send(&write(5, 1, expected).data(&pattern(expected as usize)));
        let (_, task, command) = world.command();
        assert_eq!((command.data_out.len(), command.room_in), (expected as usize, 0));
        world.good(task, took);
        let pdu = world.pdu();
        assert_eq!((pdu.opcode(), pdu.flags(), pdu.number(44)), (0x21, flags, residual));
    }
}

#[test]
fn a_command_without_direction_moves_nothing() {
    // What the unit would have moved is told nevertheless.
    for (response, residual) in
        [(good(vec![piece(&[1; 36])]), 36), (Response { took_out: 24, ..good(vec![]) }, 24)]
    {
        let mut world = World::in_session("");
        world.send(&command(5, 1).u32(20, u32::MAX));
        let (_, task, given) = world.command();
        assert_eq!((given.room_in, given.data_out.len()), (0, 0));
        world.respond(task, response);
        let pdu = world.pdu();
        assert_eq!((pdu.opcode(), pdu.flags(), pdu.number(44)), (0x21, 0x84, residual));
    }
}

#[test]
fn a_smaller_segment_may_be_declared_later() {
    let mut world = World::in_session("MaxRecvDataSegmentLength=65536");
    world.send(&text_request(0x80, 9, crate::iscsi::pdu::NO_TAG, "MaxRecvDataSegmentLength=512"));
    world.pdu();
    let pdus = answered(&mut world, 1024, good(vec![piece(&pattern(1024))]));
    assert_eq!(pdus.len(), 2);
}
