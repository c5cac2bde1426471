//! Initiator ports that log in a second time.
use super::client::*;
use crate::iscsi::{Access, CloseReason, ConnNo, Limits, LoginError, Output, SessionNo};
use crate::scsi::words::NexusId;

const OTHER: ConnNo = ConnNo(2);

/// Sends a login on a second connection and says that the target is there.
fn second(world: &mut World, request: &Pdu) {
    world.digests = (false, false);
    world.accept(OTHER);
    world.send_on(OTHER, request);
    assert!(matches!(world.asked(), Output::Find { conn: OTHER, .. }));
    world.found(OTHER, Access::default());
}

#[test]
fn a_session_is_reinstated() {
    let mut world = World::in_session("");
    world.send(&write(5, 1, 4096));
    world.pdus();
    second(&mut world, &login(0x87, ""));
    let [Output::Close { conn, reason }, Output::Login { session, nexus, replaces, .. }] =
        &world.asked[..]
    else {
        panic!("{:?}", world.asked)
    };
    assert_eq!((*conn, reason), (CONN, &Some(CloseReason::Replaced)));
    assert_eq!((*session, *nexus, *replaces), (SessionNo(2), NexusId(2), Some(NexusId(1))));
    world.asked.clear();
    world.logged_in(SessionNo(2));
    assert_eq!(world.pdu_on(OTHER).flags(), 0x87);
    // Nothing comes of the old one.
    world.send(&nop(1, 1));
    world.event(crate::iscsi::Event::Lost { conn: CONN });
    assert_eq!((world.pdus(), world.asked.len()), (vec![], 0));
}

#[test]
fn a_login_that_waits_is_replaced_too() {
    let mut world = World::new(Limits::default());
    world.accept(CONN);
    world.send(&login(0x87, ""));
    world.asked();
    world.found(CONN, Access::default());
    world.asked();
    second(&mut world, &login(0x87, ""));
    assert!(matches!(world.asked[0], Output::Close { conn: CONN, .. }));
    assert!(matches!(world.asked[1], Output::Login { replaces: Some(NexusId(1)), .. }));
    world.asked.clear();
    world.logged_in(SessionNo(1));
    assert_eq!((world.pdus(), world.asked.len()), (vec![], 0), "the first is forgotten");
}

#[test]
fn another_port_or_target_is_another_session() {
    let elsewhere = format!("InitiatorName={INITIATOR} TargetName={TARGET}:stage.2");
    for request in [login(0x87, "").byte(13, 8), login_raw(0x87, &elsewhere)] {
        let mut world = World::in_session("");
        second(&mut world, &request);
        assert!(matches!(world.asked(), Output::Login { replaces: None, .. }));
    }
}

#[test]
fn a_connection_is_not_added_and_not_taken_over() {
    let mut world = World::new(Limits::default());
    world.log_in(CONN, &login(0x87, ""));
    // The handle that the first session got: a counter behind a known start.
    let handle = |world: &mut World, request: Pdu| {
        second(world, &request);
        let status = world.pdu_on(OTHER).number(36) >> 16;
        (status, world.closed(OTHER))
    };
    let tsih = {
        let mut start = [0; 2];
        counting()(&mut start);
        u16::from_be_bytes(start) + 1
    };
    let with = |tsih: u16, cid: u8| {
        let [high, low] = tsih.to_be_bytes();
        login(0x87, "").byte(14, high).byte(15, low).byte(21, cid)
    };
    let refused = |error: LoginError| Some(CloseReason::Refused(error));
    assert_eq!(handle(&mut world, with(tsih, 0)), (0x0208, refused(LoginError::NoReinstatement)));
    assert_eq!(handle(&mut world, with(tsih, 1)), (0x0206, refused(LoginError::SecondConnection)));
    let error = LoginError::NoSuchSession { tsih: tsih + 1 };
    assert_eq!(handle(&mut world, with(tsih + 1, 0)), (0x020a, refused(error)));
    // The session is as it was.
    world.send(&nop(1, 1));
    assert_eq!(world.pdu().opcode(), NOP_IN);
}
