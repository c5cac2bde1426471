//! Discovery sessions, and text requests in any session.
use super::client::*;
use crate::iscsi::pdu::NO_TAG;
use crate::iscsi::{
    Access, Chap, CloseReason, ConnNo, Event, Limits, LoginError, Output, Secret, TargetRecord,
};

fn record(iqn: &str, portals: &[&str]) -> TargetRecord {
    let portals = portals.iter().map(|portal| (*portal).into()).collect();
    TargetRecord { iqn: iqn.into(), portals }
}

fn targets() -> Vec<TargetRecord> {
    vec![
        record(TARGET, &[]),
        record("iqn.2024-01.example:other", &["192.0.2.2:3260", "[2001:db8::1]:3260"]),
    ]
}

fn discovery() -> World {
    let mut world = World::new(Limits::default());
    world.accept(CONN);
    world.send(&login_raw(
        0x87,
        &format!("InitiatorName={INITIATOR} SessionType=Discovery MaxBurstLength=4096"),
    ));
    let pdu = world.pdu();
    assert_eq!(pdu.flags(), 0x87);
    assert_eq!(pdu.text(), "MaxBurstLength=Irrelevant MaxRecvDataSegmentLength=262144");
    world.nothing_asked();
    world
}

/// Asks, and lets the owner answer.
fn list(world: &mut World, keys: &str) -> String {
    world.send(&text_request(0x80, 9, NO_TAG, keys));
    assert!(matches!(world.asked(), Output::List { conn: CONN, .. }));
    world.event(Event::Listed { conn: CONN, targets: targets() });
    let pdu = world.pdu();
    assert_eq!((pdu.opcode(), pdu.flags()), (TEXT_RESPONSE, 0x80));
    assert_eq!((pdu.number(16), pdu.number(20)), (9, NO_TAG));
    pdu.text()
}

const OWN: &str = "TargetName=iqn.2024-01.example:disk TargetAddress=192.0.2.1:3260,1";
const OTHER: &str = "TargetName=iqn.2024-01.example:other TargetAddress=192.0.2.2:3260,1 \
                     TargetAddress=[2001:db8::1]:3260,1";

#[test]
fn targets_are_listed_with_their_addresses() {
    let mut world = discovery();
    assert_eq!(list(&mut world, "SendTargets=All"), format!("{OWN} {OTHER}"));
    assert_eq!(list(&mut world, "SendTargets=iqn.2024-01.example:other"), OTHER);
    assert_eq!(list(&mut world, "SendTargets=iqn.2024-01.example:none"), "");
}

#[test]
fn a_session_at_a_target_is_told_of_that_one() {
    let mut world = World::in_session("");
    assert_eq!(list(&mut world, "SendTargets="), OWN);
    assert_eq!(list(&mut world, "SendTargets=All"), OWN);
    assert_eq!(list(&mut world, &format!("SendTargets={TARGET}")), OWN);
    assert_eq!(list(&mut world, "SendTargets=iqn.2024-01.example:other"), "");
}

#[test]
fn a_stage_behind_the_name_is_no_other_target() {
    let mut world = World::new(Limits::default());
    let names = format!("InitiatorName={INITIATOR} TargetName={TARGET}:stage.3");
    world.log_in(CONN, &login_raw(0x87, &names));
    assert_eq!(list(&mut world, "SendTargets="), OWN);
}

#[test]
fn what_makes_no_sense_is_rejected_and_the_session_goes_on() {
    for keys in [
        "SendTargetsPlease=All",
        "SendTargets=Alle",
        "SendTargets=A",
        "sENDtARGETS=aLL",
        "SendTargets",
        "SendTargets=All SendTargets=All",
        "X-odd=1 Y-odd=2",
    ] {
        let mut world = World::in_session("");
        let request = text_request(0x80, 9, NO_TAG, keys);
        world.send(&request);
        let pdu = world.pdu();
        assert_eq!((pdu.opcode(), pdu.header.0[2]), (REJECT, 4), "{keys}");
        assert_eq!(pdu.data[16..20], request.header.0[16..20]);
        assert_eq!(list(&mut world, "SendTargets="), OWN);
    }
    let mut world = discovery();
    world.send(&text_request(0x80, 9, NO_TAG, "SendTargets="));
    assert_eq!(world.pdu().opcode(), REJECT, "nothing is nowhere");
}

#[test]
fn other_keys_are_answered_beside() {
    let mut world = World::in_session("");
    world.send(&text_request(0x80, 9, NO_TAG, "X-odd=1 InitiatorAlias=me X-even=Reject"));
    assert_eq!(world.pdu().text(), "X-odd=NotUnderstood");
    world.send(&text_request(0x80, 9, NO_TAG, "MaxRecvDataSegmentLength=1"));
    assert_eq!(world.pdu().text(), "MaxRecvDataSegmentLength=Reject");
    world.send(&text_request(0x80, 9, NO_TAG, ""));
    assert_eq!(world.pdu().text(), "");
}

#[test]
fn an_answer_that_is_too_long_comes_in_parts() {
    let mut world = discovery();
    world.send(&text_request(0x80, 8, NO_TAG, "MaxRecvDataSegmentLength=512"));
    world.pdu();
    world.send(&text_request(0x80, 9, NO_TAG, "SendTargets=All"));
    world.asked();
    let many: Vec<_> = (0..20).map(|n| record(&format!("iqn.t{n}"), &["192.0.2.9:1"])).collect();
    world.event(Event::Listed { conn: CONN, targets: many });
    let mut text = Vec::new();
    loop {
        let pdu = world.pdu();
        assert!(pdu.data.len() <= 512);
        text.extend_from_slice(&pdu.data);
        if pdu.flags() == 0x80 {
            break;
        }
        assert_eq!(pdu.flags(), 0x40);
        assert_ne!(pdu.number(20), NO_TAG);
        world.send(&text_request(0x80, 9, pdu.number(20), ""));
    }
    assert_eq!(text.iter().filter(|byte| **byte == b'=').count(), 40);
}

#[test]
fn a_request_may_come_in_parts() {
    let mut world = discovery();
    world.send(&text_request(0x40, 9, NO_TAG, "").data(b"SendTar"));
    let pdu = world.pdu();
    assert_eq!((pdu.flags(), pdu.data.len()), (0, 0));
    world.send(&text_request(0x80, 9, pdu.number(20), "").data(b"gets=All\0"));
    assert!(matches!(world.asked(), Output::List { .. }));
    // Another one has to wait.
    world.send(&text_request(0x80, 10, NO_TAG, "SendTargets=All"));
    let pdu = world.pdu();
    assert_eq!((pdu.opcode(), pdu.header.0[2]), (REJECT, 7));
}

#[test]
fn a_talk_may_have_several_turns() {
    let mut world = discovery();
    world.send(&text_request(0x00, 9, NO_TAG, "InitiatorAlias=me"));
    let pdu = world.pdu();
    assert_eq!(pdu.flags(), 0);
    world.send(&text_request(0x80, 9, pdu.number(20), "X-odd=1 InitiatorAlias=you"));
    let pdu = world.pdu();
    assert_eq!((pdu.flags(), pdu.text().as_str()), (0x80, "X-odd=NotUnderstood"));
}

#[test]
fn a_talk_has_bounds() {
    let mut world = discovery();
    let mut ttt = NO_TAG;
    for _ in 0..8 {
        world.send(&text_request(0x40, 9, ttt, "").data(&[b'a'; 8192]));
        ttt = world.pdu().number(20);
    }
    world.send(&text_request(0x40, 9, ttt, "").data(b"a"));
    assert_eq!(world.pdu().opcode(), REJECT);
    // A tag that names nothing, and flags that contradict each other.
    for (flags, ttt) in [(0x80, ttt), (0xc0, NO_TAG)] {
        world.send(&text_request(flags, 9, ttt, "SendTargets=All"));
        assert_eq!(world.pdu().opcode(), REJECT);
    }
}

#[test]
fn a_discovery_session_takes_no_commands() {
    let mut world = discovery();
    for (request, reason) in [(command(1, 1), 5), (manage(5, 2, 2), 5)] {
        world.send(&request);
        let pdu = world.pdu();
        assert_eq!((pdu.opcode(), pdu.header.0[2]), (REJECT, reason));
    }
    world.send(&nop(3, 2));
    assert_eq!(world.pdu().opcode(), NOP_IN, "the rejected command kept its place");
    world.nothing_asked();
    world.send(&logout(0, 4));
    assert_eq!(world.pdu().opcode(), LOGOUT_RESPONSE);
    assert_eq!(world.closed(CONN), None);
}

#[test]
fn a_discovery_session_may_need_a_secret() {
    let chap = Chap { user: "them".into(), secret: Secret::new("secret"), mutual: None };
    let limits = Limits { discovery: Access { chap: Some(chap) }, ..Limits::default() };
    let mut world = World::new(limits);
    world.accept(CONN);
    let keys = format!("InitiatorName={INITIATOR} SessionType=Discovery");
    world.send(&login_raw(0x87, &keys));
    assert_eq!(world.pdu().number(36) >> 16, 0x0201);
    assert_eq!(world.closed(CONN), Some(CloseReason::Refused(LoginError::NotAuthenticated)));
}

/// Protects from places that are held for ever: also by those who keep talking.
#[test]
fn a_discovery_session_has_its_time() {
    let mut world = discovery();
    for second in 1..15 {
        world.pass(1);
        world.send(&nop(3, second));
    }
    assert!(world.asked.is_empty());
    world.pass(1);
    assert_eq!(world.closed(CONN), Some(CloseReason::DiscoveryTimeout));
}

/// Begins a discovery session. Who has to go for it, if anybody.
fn discover(world: &mut World, conn: u64, peer: &str) -> Option<ConnNo> {
    world.accept_from(ConnNo(conn), peer);
    let names = format!("InitiatorName={INITIATOR} SessionType=Discovery");
    world.send_on(ConnNo(conn), &login_raw(0x87, &names));
    match world.asked.pop() {
        None => None,
        Some(Output::Close { conn, reason: Some(CloseReason::DiscoveryCrowded) }) => Some(conn),
        other => panic!("{other:?}"),
    }
}

/// Protects hosts from strangers that hold all places: anybody may have a discovery session.
#[test]
fn discovery_sessions_take_no_place_of_others() {
    let limits = Limits { sessions_max: 2, discovery_max: 3, ..Limits::default() };
    let mut world = World::new(limits);
    assert_eq!(discover(&mut world, 1, "192.0.2.50"), None);
    for conn in [2, 3] {
        assert_eq!(discover(&mut world, conn, "192.0.2.66"), None);
    }
    for conn in 4..100 {
        let gone = discover(&mut world, conn, "192.0.2.66");
        assert_eq!(gone, Some(ConnNo(conn - 2)), "who has most loses its oldest");
    }
    assert_eq!(discover(&mut world, 100, "192.0.2.51"), Some(ConnNo(98)));
    assert_eq!(discover(&mut world, 101, "192.0.2.51"), Some(ConnNo(100)), "or its own");
    world.log_in(ConnNo(200), &login(0x87, ""));
    world.log_in(ConnNo(201), &login(0x87, "").byte(13, 7));
}

/// Protects the thread that serves volumes from one that asks for all of them again and again.
#[test]
fn a_discovery_session_asks_for_targets_so_many_times() {
    let mut world = discovery();
    for _ in 0..16 {
        list(&mut world, "SendTargets=All");
    }
    world.send(&text_request(0x80, 9, NO_TAG, "SendTargets=All"));
    assert_eq!(world.pdu().opcode(), REJECT);
    world.nothing_asked();
}

/// Protects from memory for a list that nobody fetches: whatever length an initiator takes at once.
#[test]
fn a_long_list_is_told_as_fast_as_it_is_asked_for() {
    let mut world = discovery();
    world.send(&text_request(0x80, 8, NO_TAG, "MaxRecvDataSegmentLength=16777215"));
    world.pdu();
    world.send(&text_request(0x80, 9, NO_TAG, "SendTargets=All"));
    world.asked();
    let many: Vec<_> = (0..5000).map(|n| record(&format!("iqn.t{n}"), &["192.0.2.9:1"])).collect();
    world.event(Event::Listed { conn: CONN, targets: many });
    let mut names = 0;
    loop {
        let pdu = world.pdu();
        assert!(pdu.data.len() <= 8192, "{} bytes at once", pdu.data.len());
        names += pdu.data.iter().filter(|byte| **byte == b'=').count();
        if pdu.flags() == 0x80 {
            break;
        }
        world.send(&text_request(0x80, 9, pdu.number(20), ""));
    }
    assert_eq!(names, 10_000);
}

/// Only what is wanted is looked for.
#[test]
fn a_session_asks_for_its_own_target() {
    let mut world = World::in_session("");
    world.send(&text_request(0x80, 9, NO_TAG, "SendTargets="));
    let name = Some(TARGET.to_owned());
    assert!(matches!(world.asked(), Output::List { name: asked, .. } if asked == name));
}
