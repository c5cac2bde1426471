//! Data of the initiator: with the command, unasked behind it, and asked for.
use super::client::*;
use crate::iscsi::pdu::NO_TAG;
use crate::iscsi::{CloseReason, Limits, ProtocolError};

/// Unasked data behind commands, and bursts of 4 KiB.
const EAGER: &str = "InitialR2T=No ImmediateData=Yes FirstBurstLength=4096 MaxBurstLength=4096";
/// Nothing unasked but what comes with a command.
const TIMID: &str = "InitialR2T=Yes ImmediateData=Yes FirstBurstLength=4096 MaxBurstLength=4096";
/// Nothing unasked.
const SILENT: &str = "InitialR2T=Yes ImmediateData=No MaxBurstLength=4096";

/// What an R2T asks for: transfer tag, its number, offset, length.
fn r2t(pdu: &Pdu) -> (u32, u32, u32, u32) {
    assert_eq!((pdu.opcode(), pdu.flags()), (R2T, 0x80));
    (pdu.number(20), pdu.number(36), pdu.number(40), pdu.number(44))
}

/// Checks that the unit got it, and answers it.
fn given(world: &mut World, data: &[u8]) {
    let (_, task, command) = world.command();
    assert_eq!(&*command.data_out, data);
    world.good(task, u32::try_from(data.len()).expect("short"));
    assert_eq!(world.pdu().flags(), 0x80);
}

#[test]
fn data_with_the_command() {
    for (cut, lands) in [(usize::MAX, false), (1, false), (100, true), (7, true)] {
        let mut world = World::in_session(EAGER);
        (world.cut, world.lands) = (cut, lands);
        let data = pattern(2050);
        world.send(&write(5, 1, 2050).data(&data));
        assert_eq!(world.memory.taken, [2050], "one buffer");
        given(&mut world, &data);
    }
}

#[test]
fn unasked_data_behind_the_command() {
    for lands in [false, true] {
        let mut world = World::in_session(EAGER);
        (world.cut, world.lands) = (61, lands);
        let data = pattern(3000);
        world.send(&write(5, 1, 3000).byte(1, 0x21).data(&data[..1000]));
        world.send(&data_out(0x00, 5, NO_TAG, 0, 1000, &data[1000..1001]));
        world.nothing_asked();
        world.send(&data_out(0x80, 5, NO_TAG, 1, 1001, &data[1001..]));
        assert_eq!(world.pdus(), [], "nothing has to be asked for");
        given(&mut world, &data);
    }
}

#[test]
fn the_rest_is_asked_for_in_bursts() {
    let mut world = World::in_session(TIMID);
    let data = pattern(10_000);
    world.send(&write(5, 1, 10_000).data(&data[..1000]));
    let (tag, ..) = r2t(&world.pdu());
    // Bursts are answered in any number of PDUs.
    world.send(&data_out(0x00, 5, tag, 0, 1000, &data[1000..2000]));
    assert_eq!(world.pdus(), []);
    world.send(&data_out(0x80, 5, tag, 1, 2000, &data[2000..5096]));
    let (tag, number, offset, len) = r2t(&world.pdu());
    assert_eq!((number, offset, len), (1, 5096, 4096));
    world.send(&data_out(0x80, 5, tag, 0, 5096, &data[5096..9192]));
    let (tag, number, offset, len) = r2t(&world.pdu());
    assert_eq!((number, offset, len), (2, 9192, 808));
    world.nothing_asked();
    world.send(&data_out(0x80, 5, tag, 0, 9192, &data[9192..]));
    let (_, task, command) = world.command();
    assert_eq!(&*command.data_out, data);
    assert_eq!(world.memory.taken, [10_000]);
    world.good(task, 10_000);
    assert_eq!(world.pdu().number(36), 3, "three R2Ts went before");
}

#[test]
fn nothing_unasked_and_several_bursts_at_a_time() {
    let mut world = World::in_session(&format!("{SILENT} MaxOutstandingR2T=2"));
    let data = pattern(9000);
    world.send(&write(5, 1, 9000));
    let pdus = world.pdus();
    let (first, second) = (r2t(&pdus[0]), r2t(&pdus[1]));
    assert_eq!((first.2, first.3, second.2, second.3), (0, 4096, 4096, 4096));
    assert_eq!(pdus.len(), 2);
    world.send(&data_out(0x80, 5, first.0, 0, 0, &data[..4096]));
    let third = r2t(&world.pdu());
    assert_eq!((third.1, third.2, third.3), (2, 8192, 808));
    world.send(&data_out(0x80, 5, second.0, 0, 4096, &data[4096..8192]));
    world.send(&data_out(0x80, 5, third.0, 0, 8192, &data[8192..]));
    given(&mut world, &data);
}

#[test]
fn a_burst_may_end_with_nothing() {
    let mut world = World::in_session(EAGER);
    let data = pattern(100);
    world.send(&write(5, 1, 100).byte(1, 0x21).data(&data));
    world.nothing_asked();
    world.send(&data_out(0x80, 5, NO_TAG, 0, 100, &[]));
    given(&mut world, &data);

    let mut world = World::in_session(SILENT);
    world.send(&write(5, 1, 100));
    let (tag, ..) = r2t(&world.pdu());
    world.send(&data_out(0x00, 5, tag, 0, 0, &data));
    world.nothing_asked();
    world.send(&data_out(0x80, 5, tag, 1, 100, &[]));
    given(&mut world, &data);
}

#[test]
fn less_unasked_data_than_allowed_is_no_fault() {
    let mut world = World::in_session(EAGER);
    let data = pattern(3000);
    world.send(&write(5, 1, 3000).byte(1, 0x21));
    world.send(&data_out(0x80, 5, NO_TAG, 0, 0, &data[..10]));
    let (tag, _, offset, len) = r2t(&world.pdu());
    assert_eq!((offset, len), (10, 2990));
    world.send(&data_out(0x80, 5, tag, 0, 10, &data[10..]));
    given(&mut world, &data);
}

#[test]
fn a_write_that_waits_stops_nobody() {
    let mut world = World::in_session(SILENT);
    world.send(&write(5, 1, 4096));
    let (tag, ..) = r2t(&world.pdu());
    world.send(&read(6, 2, 512));
    let (_, task, _) = world.command();
    world.respond(task, good(vec![piece(&[1; 512])]));
    assert_eq!(world.pdu().number(16), 6);
    world.send(&data_out(0x80, 5, tag, 0, 0, &pattern(4096)));
    given(&mut world, &pattern(4096));
}

/// Sends what is wrong and gives the sense of the answer: key, code, qualifier.
fn sense(world: &mut World) -> (u8, u8, u8) {
    world.nothing_asked();
    let pdu = world.pdu();
    assert_eq!((pdu.opcode(), pdu.header.0[3], pdu.number(16)), (SCSI_RESPONSE, 2, 5));
    assert_eq!(pdu.data[..2], [0, 18]);
    (pdu.data[4], pdu.data[14], pdu.data[15])
}

#[test]
fn a_transfer_that_is_too_long_is_refused_without_asking_for_data() {
    let too_long = Limits::default().transfer_max + 1;
    let mut world = World::in_session(EAGER);
    world.send(&write(5, 1, too_long).byte(1, 0x21).data(&[1; 1000]));
    assert_eq!(world.pdus(), [], "its data is on its way");
    world.send(&data_out(0x00, 5, NO_TAG, 0, 1000, &[1; 1000]));
    assert_eq!(world.pdus(), []);
    world.send(&data_out(0x80, 5, NO_TAG, 1, 2000, &[1; 1000]));
    assert_eq!(sense(&mut world), (5, 0x24, 0));
    assert_eq!(world.memory.taken, [], "no memory for it");

    for request in [write(5, 1, too_long), read(5, 1, u32::MAX)] {
        let mut world = World::in_session(EAGER);
        world.send(&request);
        assert_eq!(sense(&mut world), (5, 0x24, 0));
    }
    // Exactly the bound is good.
    let mut world = World::in_session(SILENT);
    world.send(&write(5, 1, too_long - 1));
    r2t(&world.pdu());
}

#[test]
fn unasked_data_that_was_not_agreed_on_fails_the_command() {
    let mut world = World::in_session(SILENT);
    world.send(&write(5, 1, 100).data(&[1; 100]));
    assert_eq!(sense(&mut world), (0x0b, 0x0c, 0x0c));

    let mut world = World::in_session(TIMID);
    world.send(&write(5, 1, 200).byte(1, 0x21).data(&[1; 100]));
    world.send(&data_out(0x80, 5, NO_TAG, 0, 100, &[1; 100]));
    assert_eq!(sense(&mut world), (0x0b, 0x0c, 0x0c));

    // Data with a command that takes none.
    let mut world = World::in_session(EAGER);
    world.send(&read(5, 1, 100).data(&[1; 100]));
    assert_eq!(sense(&mut world), (0x0b, 0x0c, 0x0c));
}

#[test]
fn too_much_unasked_data_fails_the_command() {
    for (expected, first) in [(8192, 4097), (100, 101)] {
        let mut world = World::in_session(EAGER);
        world.send(&write(5, 1, expected).data(&pattern(first)));
        assert_eq!(sense(&mut world), (0x0b, 0x0c, 0x0d));
    }
    let mut world = World::in_session(EAGER);
    world.send(&write(5, 1, 8192).byte(1, 0x21).data(&pattern(4000)));
    world.send(&data_out(0x00, 5, NO_TAG, 0, 4000, &[1; 97]));
    world.send(&data_out(0x80, 5, NO_TAG, 1, 4097, &[1; 97]));
    assert_eq!(sense(&mut world), (0x0b, 0x0c, 0x0d));
}

#[test]
fn a_gap_in_the_numbers_of_data_fails_the_command_after_the_last_of_it() {
    for numbers in [[0, 0], [27, 1], [u32::MAX, 0], [1, 0]] {
        let mut world = World::in_session(EAGER);
        world.send(&write(5, 1, 100).byte(1, 0x21));
        world.send(&data_out(0x00, 5, NO_TAG, numbers[0], 0, &[1; 10]));
        assert_eq!(world.pdus(), []);
        world.send(&data_out(0x80, 5, NO_TAG, numbers[1], 10, &[1; 90]));
        assert_eq!(sense(&mut world), (0x0b, 0x47, 0x05));

        let mut world = World::in_session(SILENT);
        world.send(&write(5, 1, 100));
        let (tag, ..) = r2t(&world.pdu());
        world.send(&data_out(0x00, 5, tag, numbers[0], 0, &[1; 10]));
        world.send(&data_out(0x80, 5, tag, numbers[1], 10, &[1; 90]));
        assert_eq!(sense(&mut world), (0x0b, 0x47, 0x05));
    }
}

#[test]
fn both_directions_and_long_commands_are_refused() {
    let mut long = command(5, 1);
    long.ahs = [&[0, 17, 1, 0][..], &[0; 16]].concat();
    let mut second = read(5, 1, 512);
    second.ahs = vec![0, 5, 2, 0, 0, 0, 2, 0];
    let mut unknown = command(5, 1);
    unknown.ahs = vec![0, 1, 9, 0];
    for request in [write(5, 1, 512).byte(1, 0xe1), long, second] {
        let mut world = World::in_session(SILENT);
        world.cut = 5;
        world.send(&request);
        assert_eq!(sense(&mut world), (5, 0x20, 0));
    }
    let mut world = World::in_session(SILENT);
    world.send(&unknown);
    world.command();
}

#[test]
fn data_that_is_out_of_order_ends_the_session() {
    let itt = 5;
    for (data, error) in [
        (data_out(0x80, 5, NO_TAG, 0, 0, &[1; 10]), ProtocolError::UnexpectedData { itt }),
        (data_out(0x80, 5, 77, 0, 0, &[1; 10]), ProtocolError::WrongTransferTag { itt, ttt: 77 }),
        (
            data_out(0x80, 5, 0, 0, 10, &[1; 10]),
            ProtocolError::WrongOffset { itt, found: 10, expected: 0 },
        ),
        (data_out(0x80, 5, 0, 0, 0, &[1; 10]), ProtocolError::ShortBurst { itt, missing: 4086 }),
        (data_out(0x80, 5, 0, 0, 0, &[1; 4097]), ProtocolError::LongBurst { itt }),
    ] {
        let mut world = World::in_session(SILENT);
        world.send(&write(5, 1, 8192));
        let (tag, ..) = r2t(&world.pdu());
        let data = if data.number(20) == 0 { data.u32(20, tag) } else { data };
        world.send(&data);
        let pdu = world.pdu();
        assert_eq!((pdu.opcode(), pdu.header.0[2]), (REJECT, 4));
        assert_eq!(world.closed(CONN), Some(CloseReason::Protocol(error)));
    }
    // Data for a command that has all of it.
    let mut world = World::in_session(EAGER);
    world.send(&write(5, 1, 100).data(&[1; 100]));
    world.command();
    world.send(&data_out(0x80, 5, NO_TAG, 0, 100, &[]));
    let error = ProtocolError::UnexpectedData { itt };
    assert_eq!(world.closed(CONN), Some(CloseReason::Protocol(error)));
}

#[test]
fn data_for_nobody_is_dropped() {
    let mut world = World::in_session(EAGER);
    world.lands = true;
    world.send(&data_out(0x80, 99, NO_TAG, 0, 0, &[1; 100]));
    assert_eq!((world.pdus(), world.asked.len()), (vec![], 0));
    world.send(&nop(1, 1));
    assert_eq!(world.pdu().opcode(), NOP_IN);
}
