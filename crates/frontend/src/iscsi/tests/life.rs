//! Pings, logouts, drains, and ends.
use super::client::*;
use crate::export::OpenError;
use crate::iscsi::pdu::NO_TAG;
use crate::iscsi::{
    Access, CloseReason, ConnNo, Event, Found, Limits, LoginError, Output, SessionNo,
};
use crate::scsi::words::{NexusId, TaskId};

#[test]
fn a_ping_is_answered_with_what_it_carried() {
    let mut world = World::in_session("MaxRecvDataSegmentLength=512");
    for (request, len) in [(nop(7, 1), 0), (nop(7, 2).immediate(), 600), (nop(7, 2), 13)] {
        world.send(&request.data(&pattern(len)));
        let pdu = world.pdu();
        assert_eq!((pdu.opcode(), pdu.flags()), (NOP_IN, 0x80));
        assert_eq!((pdu.number(16), pdu.number(20)), (7, NO_TAG));
        assert_eq!(pdu.data, pattern(len.min(512)), "as much as the initiator takes");
    }
    // One that wants no answer gets none.
    world.send(&nop(NO_TAG, 3).immediate());
    world.send(&nop(NO_TAG, 3));
    assert_eq!(world.pdus(), []);
    world.send(&nop(7, 3));
    assert_eq!(world.pdu().number(28), 4, "it is not counted either");
}

#[test]
fn whoever_is_silent_is_asked_and_then_closed() {
    let mut world = World::in_session("");
    world.pass(29);
    assert_eq!(world.pdus(), []);
    world.pass(1);
    let ping = world.pdu();
    assert_eq!((ping.opcode(), ping.number(16)), (NOP_IN, NO_TAG));
    assert_ne!(ping.number(20), NO_TAG);
    let next = ping.number(24);
    world.pass(10);
    assert_eq!(world.pdus(), [], "it is asked once");
    world.send(&nop(NO_TAG, 1).immediate().u32(20, ping.number(20)));
    world.send(&nop(7, 1));
    assert_eq!(world.pdu().number(24), next, "a ping of ours takes no number");
    world.pass(30);
    world.pdu();
    world.pass(29);
    world.nothing_asked();
    world.pass(1);
    assert!(matches!(world.asked[1], Output::Ended { nexus: NexusId(1) }));
    assert_eq!(world.closed(CONN), Some(CloseReason::Silent));
}

#[test]
fn logouts() {
    for (request, response, is_over) in [
        (logout(0, 7), 0, true),
        (logout(1, 7), 0, true),
        (logout(1, 7).byte(21, 9), 1, false),
        (logout(2, 7), 2, false),
    ] {
        let mut world = World::in_session("DefaultTime2Wait=3");
        world.send(&read(5, 1, 512));
        let (_, task, _) = world.command();
        world.send(&request);
        let pdu = world.pdu();
        assert_eq!((pdu.opcode(), pdu.flags()), (LOGOUT_RESPONSE, 0x80));
        assert_eq!((pdu.number(16), pdu.header.0[2]), (7, response));
        assert_eq!((pdu.header.u16_at(40), pdu.header.u16_at(42)), (3, 0));
        if !is_over {
            world.good(task, 0);
            world.pdu();
            continue;
        }
        assert!(matches!(world.asked[0], Output::Close { conn: CONN, reason: None }));
        assert!(matches!(world.asked[1], Output::Ended { nexus: NexusId(1) }));
        world.good(TaskId(1), 0);
        world.send(&nop(1, 1));
        assert_eq!((world.pdus(), world.asked.len()), (vec![], 2), "nothing comes after it");
    }
}

#[test]
fn a_logout_stands_at_its_place_in_the_order() {
    let mut world = World::in_session("");
    let mut request = logout(0, 7).u32(24, 2);
    request.header.0[0] = 0x06;
    world.send(&request);
    assert_eq!((world.pdus(), world.asked.len()), (vec![], 0));
    world.send(&command(5, 1));
    assert_eq!(world.pdu().opcode(), LOGOUT_RESPONSE);
    assert!(matches!(world.asked[0], Output::Command { .. }));
}

#[test]
fn a_drain_asks_for_a_logout_and_closes_later() {
    let mut world = World::in_session("");
    let other = "InitiatorName=iqn.b TargetName=iqn.elsewhere";
    world.log_in(ConnNo(2), &login_raw(0x87, other));
    for _ in 0..2 {
        world.event(Event::Drain { iqn: TARGET.into() });
    }
    let pdu = world.pdu();
    assert_eq!((pdu.opcode(), pdu.flags(), pdu.number(16)), (ASYNC, 0x80, NO_TAG));
    assert_eq!((pdu.header.0[36], pdu.header.u16_at(42)), (1, 10));
    // Until then commands are served.
    world.send(&command(5, 1));
    let (_, task, _) = world.command();
    world.good(task, 0);
    assert_eq!(world.pdu().number(24), pdu.number(24) + 1);
    world.pass(9);
    world.nothing_asked();
    world.pass(1);
    assert_eq!(world.closed(CONN), Some(CloseReason::Drained));
    assert!(world.portal.wants_bytes(ConnNo(2)));
    assert_eq!(world.pdus_on(ConnNo(2)), []);
}

/// Protects from an initiator that goes on writing though it may not any more.
#[test]
fn who_is_expelled_is_cut_off_at_once() {
    let mut world = World::in_session("");
    let other = "InitiatorName=iqn.b TargetName=iqn.2024-01.example:disk";
    world.log_in(ConnNo(2), &login_raw(0x87, other));
    world.send(&command(5, 1));
    let (nexus, task, _) = world.command();
    world.event(Event::Expel { nexus });
    assert!(matches!(
        &world.asked[..],
        [Output::Close { conn: CONN, reason: Some(CloseReason::Expelled) }, Output::Ended { nexus: ended }]
            if *ended == nexus
    ));
    world.asked.clear();
    world.good(task, 0);
    world.send(&command(6, 2));
    assert_eq!((world.pdus(), world.asked.len()), (vec![], 0), "nothing comes after it");
    assert!(world.portal.wants_bytes(ConnNo(2)), "it is another's session");
}

#[test]
fn who_is_expelled_while_it_logs_in_is_refused() {
    let mut world = World::new(Limits::default());
    world.accept(CONN);
    world.send(&login(0x87, ""));
    world.asked();
    world.found(CONN, Access::default());
    let Output::Login { nexus, .. } = world.asked() else { panic!("no login") };
    world.event(Event::Expel { nexus });
    let pdu = world.pdu();
    assert_eq!((pdu.opcode(), pdu.header.u16_at(36)), (LOGIN_RESPONSE, 0x0202));
    assert!(matches!(world.asked[1], Output::Ended { nexus: ended } if ended == nexus));
}

#[test]
fn a_drain_refuses_logins_that_are_under_way() {
    let drained = |world: &mut World| {
        world.event(Event::Drain { iqn: TARGET.into() });
        world.asked.retain(|output| matches!(output, Output::Close { .. }));
        world.closed(CONN)
    };
    let refused = Some(CloseReason::Refused(LoginError::Draining));
    let mut world = World::new(Limits::default());
    world.accept(CONN);
    world.event(Event::Drain { iqn: TARGET.into() });
    world.nothing_asked();
    world.send(&login(0x81, ""));
    world.asked();
    world.found(CONN, Access::default());
    world.pdu();
    assert_eq!(drained(&mut world), refused);
    for has_found in [false, true] {
        let mut world = World::new(Limits::default());
        world.accept(CONN);
        world.send(&login(0x87, ""));
        world.asked();
        if has_found {
            world.found(CONN, Access::default());
        }
        assert_eq!(drained(&mut world), refused);
        assert_eq!(world.pdu().number(36) >> 16, 0x0301);
    }
}

#[test]
fn a_lost_connection_ends_its_session() {
    let mut world = World::in_session("");
    world.send(&write(5, 1, 4096));
    world.event(Event::Lost { conn: CONN });
    assert!(matches!(world.asked(), Output::Ended { nexus: NexusId(1) }));
    world.event(Event::Lost { conn: CONN });
    assert!(!world.portal.wants_bytes(CONN));
    assert!(world.portal.landing(CONN).is_empty());
    world.nothing_asked();
}

#[test]
fn answers_that_nobody_waits_for_are_ignored() {
    let mut world = World::in_session("");
    world.event(Event::Listed { conn: CONN, targets: vec![] });
    world.event(Event::Found { conn: CONN, result: Err(OpenError::Unknown) });
    world.event(Event::LoggedIn { session: SessionNo(1), result: Err(OpenError::Unknown) });
    world.event(Event::LoggedIn { session: SessionNo(9), result: Ok(()) });
    world.respond(TaskId(9), good(vec![]));
    world.event(Event::Response { nexus: NexusId(9), task: TaskId(1), response: good(vec![]) });
    // A write that is not given yet cannot be answered.
    world.send(&write(5, 1, 4096));
    world.pdu();
    world.good(TaskId(1), 0);
    assert_eq!((world.pdus(), world.asked.len()), (vec![], 0));

    let mut world = World::new(Limits::default());
    world.accept(CONN);
    world.event(Event::Found { conn: CONN, result: Ok(Found { access: Access::default() }) });
    world.event(Event::Listed { conn: CONN, targets: vec![] });
    assert_eq!((world.pdus(), world.asked.len()), (vec![], 0));
}
