//! What is rejected, with the header of what was wrong.
use super::client::*;
use crate::iscsi::pdu::NO_TAG;
use crate::iscsi::{CloseReason, ProtocolError};

/// Sends something and checks that it is rejected; the session goes on.
fn rejected(world: &mut World, request: &Pdu, reason: u8) {
    world.send(request);
    let pdu = world.pdu();
    assert_eq!((pdu.opcode(), pdu.flags(), pdu.header.0[2]), (REJECT, 0x80, reason));
    assert_eq!(pdu.number(16), NO_TAG);
    let mut header = request.header;
    header.set_segment_len(request.data.len());
    assert_eq!(pdu.data, header.0);
    world.nothing_asked();
}

#[test]
fn what_is_not_known_or_not_done() {
    let mut world = World::in_session("");
    rejected(&mut world, &Pdu::new(0x10, 0x80), 3);
    rejected(&mut world, &Pdu::new(0x1c, 0x80).data(&[1; 5]), 5);
    rejected(&mut world, &Pdu::new(0x3f, 0x80), 5);
    world.send(&nop(1, 1));
    assert_eq!(world.pdu().number(24), 5, "rejects are numbered as statuses");
}

#[test]
fn a_tag_that_is_in_use() {
    let mut world = World::in_session("");
    world.send(&command(5, 1));
    world.command();
    rejected(&mut world, &command(5, 2).data(&[1; 9]), 7);
    // The rejected one keeps its place in the order.
    world.send(&command(6, 3));
    world.command();
}

#[test]
fn fields_that_cannot_be() {
    let mut world = World::in_session("");
    rejected(&mut world, &command(NO_TAG, 1), 9);
    rejected(&mut world, &command(5, 2).byte(1, 0x85), 9);
    rejected(&mut world, &logout(9, 5), 9);
    rejected(&mut world, &manage(5, NO_TAG, 3), 9);
    world.send(&command(6, 3));
    world.command();
}

#[test]
fn a_login_within_a_session_ends_it() {
    let mut world = World::in_session("");
    rejected_and_closed(&mut world, &login(0x87, ""), 4, ProtocolError::LoginInSession);
}

#[test]
fn a_segment_may_be_as_long_as_was_declared() {
    let mut world = World::in_session("MaxRecvDataSegmentLength=262144");
    world.send(&nop(1, 1).data(&pattern(256 * 1024)));
    assert_eq!(world.pdu().data, pattern(256 * 1024));
    let (len, max) = (256 * 1024 + 1, 256 * 1024);
    let error = ProtocolError::SegmentTooLong { len, max };
    rejected_and_closed(&mut world, &nop(1, 2).data(&pattern(len)), 9, error);
}

#[test]
fn a_broken_additional_header_ends_the_session() {
    let mut world = World::in_session("");
    let mut request = command(5, 1);
    request.ahs = vec![0, 99, 1, 0];
    world.send(&request);
    assert_eq!(world.pdus(), []);
    let reason = world.closed(CONN);
    assert_eq!(reason, Some(CloseReason::Protocol(ProtocolError::BrokenAhs)));
}

fn rejected_and_closed(world: &mut World, request: &Pdu, reason: u8, error: ProtocolError) {
    world.send(request);
    let pdu = world.pdu();
    assert_eq!((pdu.opcode(), pdu.header.0[2]), (REJECT, reason));
    assert_eq!(world.closed(CONN), Some(CloseReason::Protocol(error)));
}
