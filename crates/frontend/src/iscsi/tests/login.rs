//! Logins: stages, keys, secrets, and everything that is refused.
use md5::{Digest, Md5};

use super::client::*;
use crate::export::OpenError;
use crate::iscsi::{
    Access, Chap, CloseReason, ConnNo, Event, Limits, LoginError, Output, Secret, SessionNo,
};
use crate::scsi::words::NexusId;

fn world() -> World {
    let mut world = World::new(Limits::default());
    world.accept(CONN);
    world
}

fn chap(mutual: bool) -> Access {
    let mutual = mutual.then(|| ("us".into(), Secret::new("our-own-secret")));
    Access { chap: Some(Chap { user: "them".into(), secret: Secret::new("their-secret"), mutual }) }
}

/// Sends a first request and answers that the target is there.
fn introduced(access: Access, request: &Pdu) -> World {
    let mut world = world();
    world.send(request);
    let Output::Find { name, initiator, .. } = world.asked() else { panic!("it is looked for") };
    assert_eq!((name.as_str(), initiator.as_str()), (TARGET, INITIATOR));
    world.found(CONN, access);
    world
}

/// Status, and why the connection was closed.
fn refusal(world: &mut World) -> (u32, LoginError) {
    let response = world.pdu();
    assert_eq!(response.opcode(), LOGIN_RESPONSE);
    match world.closed(CONN) {
        Some(CloseReason::Refused(error)) => (response.number(36) >> 16, error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_request_is_enough_and_waits_for_the_volume() {
    let mut world = introduced(
        Access::default(),
        &login(0x87, "SessionType=Normal InitialR2T=No MaxRecvDataSegmentLength=65536"),
    );
    assert_eq!(world.pdus(), [], "the last response waits");
    assert!(!world.portal.wants_bytes(CONN));
    let Output::Login { session, nexus, target, port, replaces } = world.asked() else {
        panic!("it logs in")
    };
    assert_eq!((session, nexus, target.as_str()), (SessionNo(1), NexusId(1), TARGET));
    assert_eq!((port.name.as_str(), port.isid), (INITIATOR, [0x80, 0, 0, 0, 0, 7]));
    assert_eq!(replaces, None);
    world.logged_in(session);
    let response = world.pdu();
    assert_eq!((response.flags(), response.number(16)), (0x87, 0x11));
    assert_eq!(response.header.at::<6>(8), [0x80, 0, 0, 0, 0, 7]);
    assert_ne!(response.header.u16_at(14), 0, "the session has a handle");
    assert_eq!((response.number(28), response.number(32)), (1, 128));
    assert_eq!(
        response.text(),
        "TargetPortalGroupTag=1 InitialR2T=No MaxRecvDataSegmentLength=262144"
    );
    assert!(world.portal.wants_bytes(CONN));
}

#[test]
fn stages_follow_one_another() {
    let mut world = introduced(Access::default(), &login(0x81, "AuthMethod=CHAP,None"));
    let response = world.pdu();
    assert_eq!(response.flags(), 0x81);
    assert_eq!(response.text(), "TargetPortalGroupTag=1 AuthMethod=None");
    // Names may come again, as some initiators have it.
    let again = format!("InitiatorName={INITIATOR} TargetName={TARGET} SessionType=Normal");
    world.send(&login_raw(0x04, &format!("{again} HeaderDigest=None")));
    let response = world.pdu();
    assert_eq!(response.flags(), 0x04, "without transit we stay");
    assert_eq!(response.text(), "HeaderDigest=None MaxRecvDataSegmentLength=262144");
    world.send(&login_raw(0x87, "MaxBurstLength=512"));
    let Output::Login { session, .. } = world.asked() else { panic!("it logs in") };
    world.logged_in(session);
    let response = world.pdu();
    assert_eq!((response.flags(), response.text().as_str()), (0x87, "MaxBurstLength=512"));
    assert_eq!(response.number(24), 3, "the third status");
}

#[test]
fn security_may_lead_straight_into_the_session() {
    let mut world = introduced(Access::default(), &login(0x83, "AuthMethod=None"));
    let Output::Login { session, .. } = world.asked() else { panic!("it logs in") };
    world.logged_in(session);
    assert_eq!(world.pdu().flags(), 0x83);
}

/// What the initiator of Linux says, and what it knows to take: it gives up at any other key.
#[test]
fn linux_logs_in() {
    let security = "InitiatorAlias=host SessionType=Normal AuthMethod=None";
    let mut world = introduced(Access::default(), &login(0x81, security));
    assert_eq!(world.pdu().text(), "TargetPortalGroupTag=1 AuthMethod=None");
    world.send(&login_raw(
        0x87,
        "HeaderDigest=None,CRC32C DataDigest=None DefaultTime2Wait=2 DefaultTime2Retain=0 \
         IFMarker=No OFMarker=No ErrorRecoveryLevel=0 InitialR2T=No ImmediateData=Yes \
         MaxBurstLength=16776192 FirstBurstLength=262144 MaxOutstandingR2T=1 MaxConnections=1 \
         DataPDUInOrder=Yes DataSequenceInOrder=Yes MaxRecvDataSegmentLength=262144",
    ));
    let Output::Login { session, .. } = world.asked() else { panic!("it logs in") };
    world.logged_in(session);
    let response = world.pdu();
    assert_eq!(response.flags(), 0x87);
    assert_eq!(
        response.text(),
        "HeaderDigest=None DataDigest=None DefaultTime2Wait=2 DefaultTime2Retain=0 IFMarker=No \
         OFMarker=No ErrorRecoveryLevel=0 InitialR2T=No ImmediateData=Yes MaxBurstLength=1048576 \
         FirstBurstLength=262144 MaxOutstandingR2T=1 MaxConnections=1 DataPDUInOrder=Yes \
         DataSequenceInOrder=Yes MaxRecvDataSegmentLength=262144"
    );
}

#[test]
fn text_may_come_in_parts() {
    let mut world = world();
    let whole = login(0x87, "InitialR2T=No").data;
    for part in [&whole[..20], &whole[20..21]] {
        world.send(&login_raw(0x44, "").data(part));
        let response = world.pdu();
        assert_eq!((response.flags(), response.data.len()), (0x04, 0));
    }
    world.send(&login_raw(0x87, "").data(&whole[21..]));
    assert!(matches!(world.asked(), Output::Find { .. }));
}

fn response(id: u8, secret: &str, challenge: &[u8]) -> String {
    let digest = Md5::digest([&[id], secret.as_bytes(), challenge].concat());
    digest.iter().fold("0x".into(), |hex, byte| format!("{hex}{byte:02X}"))
}

/// Leads to the challenge: gives its number and bytes.
fn challenged(access: Access) -> (World, u8, Vec<u8>) {
    let mut world = introduced(access, &login(0x81, "AuthMethod=CHAP,None"));
    let pdu = world.pdu();
    assert_eq!((pdu.flags(), pdu.text().as_str()), (0, "TargetPortalGroupTag=1 AuthMethod=CHAP"));
    world.send(&login_raw(0x00, "CHAP_A=5"));
    let pdu = world.pdu();
    assert_eq!(pdu.flags(), 0);
    let text = pdu.text();
    let mut values = text.split(' ').map(|pair| pair.split_once('=').expect("a pair").1);
    assert_eq!(values.next(), Some("5"));
    let id = values.next().expect("a number").parse().expect("a number");
    let hex = values.next().expect("a challenge").strip_prefix("0x").expect("hexadecimal");
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (world, id, (0..hex.len()).step_by(2).map(byte).collect())
}

#[test]
fn the_right_secret_lets_in() {
    let (mut world, id, challenge) = challenged(chap(false));
    let right = response(id, "their-secret", &challenge);
    world.send(&login_raw(0x81, &format!("CHAP_N=them CHAP_R={right}")));
    let pdu = world.pdu();
    assert_eq!((pdu.flags(), pdu.data.len()), (0x81, 0));
    world.send(&login_raw(0x87, ""));
    assert!(matches!(world.asked(), Output::Login { .. }));
}

#[test]
fn the_wrong_secret_does_not() {
    let (mut world, id, challenge) = challenged(chap(false));
    let wrong = response(id, "their-secreT", &challenge);
    world.send(&login_raw(0x81, &format!("CHAP_N=them CHAP_R={wrong}")));
    assert_eq!(refusal(&mut world), (0x0201, LoginError::WrongSecret));
}

#[test]
fn both_may_show_who_they_are() {
    let (mut world, id, challenge) = challenged(chap(true));
    let right = response(id, "their-secret", &challenge);
    let keys = format!("CHAP_N=them CHAP_R={right} CHAP_I=200 CHAP_C=0x0102030405");
    world.send(&login_raw(0x81, &keys));
    let ours = response(200, "our-own-secret", &[1, 2, 3, 4, 5]).to_lowercase();
    assert_eq!(world.pdu().text(), format!("CHAP_N=us CHAP_R={ours}"));
}

#[test]
fn our_own_challenge_is_not_answered() {
    let (mut world, id, challenge) = challenged(chap(true));
    let right = response(id, "their-secret", &challenge);
    let back = challenge.iter().fold("0x".to_owned(), |hex, byte| format!("{hex}{byte:02x}"));
    let keys = format!("CHAP_N=them CHAP_R={right} CHAP_I={id} CHAP_C={back}");
    world.send(&login_raw(0x81, &keys));
    assert_eq!(refusal(&mut world), (0x0201, LoginError::Reflected));
}

#[test]
fn nobody_gets_past_the_secret() {
    // To the operational stage at once, or through security without a word, or without CHAP.
    for (flags, keys, error) in [
        (0x87, "", LoginError::NotAuthenticated),
        (0x81, "", LoginError::NotAuthenticated),
        (0x83, "", LoginError::NotAuthenticated),
        (0x81, "AuthMethod=None", LoginError::NoCommonMethod),
        (0x81, "CHAP_N=them", LoginError::OutOfPlace { key: "CHAP_N".into() }),
    ] {
        let mut world = introduced(chap(false), &login(flags, keys));
        let (status, found) = refusal(&mut world);
        assert_eq!(found, error, "{keys}");
        assert_eq!(status, if keys.starts_with("CHAP") { 0x0200 } else { 0x0201 });
    }
    // With the method chosen, and then on without it.
    let mut world = introduced(chap(false), &login(0x81, "AuthMethod=CHAP"));
    world.pdus();
    world.send(&login_raw(0x87, ""));
    assert_eq!(refusal(&mut world), (0x0200, LoginError::BadStages));
    let (mut world, ..) = challenged(chap(false));
    world.send(&login_raw(0x83, ""));
    assert_eq!(refusal(&mut world), (0x0207, LoginError::Missing { key: "CHAP_N" }));
}

#[test]
fn what_is_wrong_with_a_first_request_is_told() {
    let names = format!("InitiatorName={INITIATOR} TargetName={TARGET}");
    let long = "n".repeat(224);
    let bad = |key| LoginError::BadValue { key };
    for (request, status, error) in [
        (login_raw(0x87, ""), 0x0207, LoginError::Missing { key: "InitiatorName" }),
        (
            login_raw(0x87, &format!("InitiatorName={INITIATOR}")),
            0x0207,
            LoginError::Missing { key: "TargetName" },
        ),
        (login_raw(0x87, "InitiatorName="), 0x0200, bad("InitiatorName")),
        (login_raw(0x87, &format!("InitiatorName={long}")), 0x0200, bad("InitiatorName")),
        (login_raw(0x87, &format!("{names} SessionType=Odd")), 0x0200, bad("SessionType")),
        (login(0x87, "").byte(3, 1), 0x0205, LoginError::Version { min: 1 }),
        (login(0xc7, ""), 0x0200, LoginError::BadStages),
        (login(0x8b, ""), 0x0200, LoginError::BadStages),
        (login(0x8f, ""), 0x0200, LoginError::BadStages),
        (login(0x84, ""), 0x0200, LoginError::BadStages),
        (login(0x86, ""), 0x0200, LoginError::BadStages),
        (login(0x87, "").data(b"what"), 0x0200, LoginError::Text(crate::iscsi::TextError::NoValue)),
        (nop(1, 1), 0x020b, LoginError::NotALogin { opcode: 0 }),
    ] {
        let mut world = world();
        world.send(&request);
        assert_eq!(refusal(&mut world), (status, error));
    }
}

#[test]
fn what_is_wrong_with_a_later_request_is_told() {
    let changed = |key| LoginError::Changed { key };
    for (request, status, error) in [
        (login_raw(0x87, "").byte(13, 8), 0x0200, changed("ISID")),
        (login_raw(0x87, "").byte(21, 8), 0x0200, changed("CID")),
        (login_raw(0x87, "").byte(15, 8), 0x0200, changed("TSIH")),
        (login_raw(0x87, "InitiatorName=iqn.other"), 0x0200, changed("InitiatorName")),
        (login_raw(0x87, "TargetName=iqn.other"), 0x0200, changed("TargetName")),
        (login_raw(0x87, "SessionType=Discovery"), 0x0200, changed("SessionType")),
        (login_raw(0x81, ""), 0x0200, LoginError::BadStages),
        (
            login_raw(0x87, "InitialR2T=No InitialR2T=No"),
            0x0200,
            LoginError::Repeated { key: "InitialR2T" },
        ),
        (
            login_raw(0x87, "SendTargets=All"),
            0x0200,
            LoginError::OutOfPlace { key: "SendTargets".into() },
        ),
    ] {
        let mut world = introduced(Access::default(), &login(0x81, ""));
        world.pdus();
        world.send(&request);
        assert_eq!(refusal(&mut world), (status, error));
    }
    // Operational keys do not belong into security.
    let mut world = introduced(Access::default(), &login(0x81, "InitialR2T=No"));
    let error = LoginError::OutOfPlace { key: "InitialR2T".into() };
    assert_eq!(refusal(&mut world), (0x0200, error));
}

#[test]
fn a_target_that_cannot_be_had_is_told_apart() {
    for (error, status) in [
        (OpenError::Unknown, 0x0203),
        (OpenError::Denied, 0x0202),
        (OpenError::Unnamed, 0x0202),
        (OpenError::UnflushedWritesLost, 0x0204),
        (OpenError::OlderConnection, 0x0202),
        (OpenError::NotReady { reason: "soon".into() }, 0x0301),
    ] {
        let mut world = world();
        world.send(&login(0x87, ""));
        world.asked();
        world.event(Event::Found { conn: CONN, result: Err(error.clone()) });
        assert_eq!(refusal(&mut world), (status, LoginError::Target(error.clone())));

        // The same at the volume. A session that never began does not end.
        let mut world = introduced(Access::default(), &login(0x87, ""));
        let Output::Login { session, .. } = world.asked() else { panic!("it logs in") };
        world.event(Event::LoggedIn { session, result: Err(error.clone()) });
        assert_eq!(world.asked.len(), 1, "{:?}", world.asked);
        assert_eq!(refusal(&mut world), (status, LoginError::Target(error)));
    }
}

#[test]
fn whoever_does_not_wait_for_an_answer_is_refused() {
    let twice = [login(0x87, "").encode((false, false)), nop(1, 1).encode((false, false))].concat();
    let mut one = world();
    one.send_bytes(CONN, &twice);
    one.asked.remove(0);
    assert_eq!(refusal(&mut one), (0x020b, LoginError::OutOfTurn));

    let mut world = introduced(Access::default(), &login(0x87, ""));
    world.asked();
    world.send_bytes(CONN, &[0]);
    assert!(matches!(world.asked[1], Output::Ended { nexus: NexusId(1) }), "{:?}", world.asked);
    assert_eq!(refusal(&mut world), (0x020b, LoginError::OutOfTurn));
    // The answer comes too late, and nobody minds.
    world.logged_in(SessionNo(1));
    world.nothing_asked();
}

#[test]
fn a_login_has_bounds() {
    let mut world = world();
    world.send_bytes(CONN, &login_raw(0x44, "").u32(4, 64 * 1024 + 1).header.0);
    let (len, max) = (64 * 1024 + 1, 64 * 1024);
    assert_eq!(refusal(&mut world), (0x0200, LoginError::SegmentTooLong { len, max }));

    let mut world = World::new(Limits::default());
    world.accept(CONN);
    for _ in 0..8 {
        world.send(&login_raw(0x44, "").data(&[b'a'; 8192]));
        world.pdu();
    }
    world.send(&login_raw(0x44, "").data(b"a"));
    assert_eq!(refusal(&mut world), (0x0200, LoginError::TooMuchText));

    // More unknown keys than an answer has room for.
    let keys: String = (0..250).map(|n| format!("X-{n}-{}=1 ", "k".repeat(40))).collect();
    let mut world = introduced(Access::default(), &login(0x87, &keys));
    assert_eq!(refusal(&mut world), (0x0200, LoginError::TooMuchText));
}

#[test]
fn a_login_has_its_time() {
    let mut world = world();
    world.pass(14);
    world.nothing_asked();
    world.pass(1);
    assert_eq!(world.closed(CONN), Some(CloseReason::LoginTimeout));

    // Also while the owner takes his: then he is told that it ended.
    let mut world = introduced(Access::default(), &login(0x87, ""));
    world.asked();
    world.pass(15);
    assert!(matches!(world.asked[1], Output::Ended { nexus: NexusId(1) }));
}

#[test]
fn sessions_are_counted() {
    let mut world = World::new(Limits { sessions_max: 1, ..Limits::default() });
    world.log_in(ConnNo(1), &login(0x87, ""));
    for conn in [2, 3] {
        world.accept(ConnNo(conn));
    }
    world.nothing_asked();
    world.send_on(ConnNo(2), &login(0x87, "").byte(13, 99));
    world.asked();
    world.found(ConnNo(2), Access::default());
    let status = world.pdu_on(ConnNo(2)).number(36) >> 16;
    let reason = world.closed(ConnNo(2));
    assert_eq!((status, reason), (0x0302, Some(LoginError::TooManySessions.into())));
    // One that takes the place of the other is none more.
    world.send_on(ConnNo(3), &login(0x87, ""));
    world.asked();
    world.found(ConnNo(3), Access::default());
    assert!(matches!(world.asked[0], Output::Close { conn: ConnNo(1), .. }));
    assert!(matches!(world.asked[1], Output::Login { replaces: Some(NexusId(1)), .. }));
}

/// Protects the hosts of other volumes, and those at other addresses, from one that logs in again and
/// again.
#[test]
fn sessions_are_counted_by_target_and_by_address() {
    let limits = Limits { target_sessions_max: 2, address_sessions_max: 3, ..Limits::default() };
    let mut world = World::new(limits);
    let refused = |world: &mut World, conn: u64, peer: &str, login: &Pdu| {
        let conn = ConnNo(conn);
        world.accept_from(conn, peer);
        world.send_on(conn, login);
        world.asked();
        world.found(conn, Access::default());
        // What it replaces is closed first.
        let last = world.asked.drain(..).next_back().expect("an answer");
        match last {
            Output::Login { session, .. } => {
                world.event(Event::LoggedIn { session, result: Ok(()) });
                world.pdus_on(conn);
                None
            }
            Output::Close { reason: Some(CloseReason::Refused(error)), .. } => Some(error),
            other => panic!("{other:?}"),
        }
    };
    let at = |target: &str, port: u8| {
        login_raw(0x87, &format!("InitiatorName={INITIATOR} TargetName={target}")).byte(13, port)
    };
    let staged = format!("{TARGET}:stage.3");
    assert_eq!(refused(&mut world, 1, "192.0.2.1", &at(TARGET, 1)), None);
    assert_eq!(refused(&mut world, 2, "192.0.2.1", &at(&staged, 2)), None);
    let full = Some(LoginError::TooManyAtTarget { max: 2 });
    assert_eq!(refused(&mut world, 3, "192.0.2.2", &at(TARGET, 3)), full, "whatever its stage");
    assert_eq!(refused(&mut world, 4, "192.0.2.1", &at(TARGET, 1)), None, "it replaces its own");
    assert_eq!(refused(&mut world, 5, "192.0.2.1", &at("iqn.b", 5)), None);
    let full = Some(LoginError::TooManyFromAddress { max: 3 });
    assert_eq!(refused(&mut world, 6, "192.0.2.1", &at("iqn.c", 6)), full);
    assert_eq!(refused(&mut world, 7, "192.0.2.2", &at("iqn.c", 7)), None, "others may");
}

/// Protects those from being pushed out of a crowd who have proved who they are, and wait for the target.
#[test]
fn a_connection_is_unproved_until_its_login_is_negotiated() {
    let mut world = world();
    assert!(world.portal.is_unproved(CONN));
    world.send(&login(0x87, ""));
    world.asked();
    assert!(world.portal.is_unproved(CONN), "its secret may be asked for");
    world.found(CONN, Access::default());
    assert!(!world.portal.is_unproved(CONN), "the owner logs it in");
    assert!(!world.portal.is_unproved(ConnNo(99)), "there is none");
}
