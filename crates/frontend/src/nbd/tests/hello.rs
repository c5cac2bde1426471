//! Clients that say who they are. Texts are built here from their description, not by the code.
use super::client::*;
use crate::export::OpenError;
use crate::nbd::hello::{Hello, Proof};
use crate::nbd::{Opened, ProtocolError};

const HELLO: u32 = 0x504c_5801;
const PROVE: u32 = 0x504c_5802;
const GO: u32 = 7;

const UNSUPPORTED: u32 = 1;
const INVALID: u32 = 3;
const TOO_BIG: u32 = 9;

fn hello() -> Hello {
    Hello { initiator: "iqn.host".into(), client: 0x0102, number: 5, nonce: [0x0e; 32] }
}

fn hello_text(version: u16, initiator: &[u8], number: u64) -> Vec<u8> {
    let len = u16::try_from(initiator.len()).unwrap();
    let mut text = [version.to_be_bytes(), len.to_be_bytes()].concat();
    text.extend(initiator);
    text.extend(0x0102_u64.to_be_bytes());
    text.extend(number.to_be_bytes());
    text.extend([0x0e; 32]);
    text
}

fn proof() -> Proof {
    Proof { export: "disk:stage.7".into(), user: "user".into(), mac: [0xac; 32] }
}

fn proof_text(export: &[u8], user: &[u8]) -> Vec<u8> {
    let len = u16::try_from(user.len()).unwrap();
    [&sized(export)[..], &len.to_be_bytes(), user, &[0xac; 32]].concat()
}

fn challenged() -> Vec<u8> {
    let challenge = option_reply(HELLO, 0x504c_5801, &CHALLENGE);
    [challenge, option_reply(HELLO, 1, &[])].concat()
}

/// Has said hello, and was challenged.
fn named() -> Client {
    let mut client = Client::new();
    client.send(&option(HELLO, &hello_text(1, b"iqn.host", 5)));
    assert_eq!(client.sent(), challenged());
    client
}

fn refused(client: &mut Client, number: u32, text: &[u8]) -> (u32, String) {
    client.send(&option(number, text));
    option_error(number, &client.sent())
}

#[test]
fn texts_are_as_they_are_described() {
    assert_eq!(hello().text(), hello_text(1, b"iqn.host", 5));
    assert_eq!(Hello::parse(&hello().text()), Ok(hello()));
    assert_eq!(proof().text(), proof_text(b"disk:stage.7", b"user"));
    assert_eq!(Proof::parse(&proof().text()), Ok(proof()));
}

/// Both ends have to make the same bytes of the same words, and no others of others.
#[test]
fn claims_have_everything_that_was_said() {
    let rest = [
        &CHALLENGE[..],
        &[0x0e; 32],
        b"\0\x08iqn.host\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x05",
        b"\0\0\0\x04disk",
    ]
    .concat();
    let claim = hello().initiator_claim(&CHALLENGE, "disk");
    assert_eq!(claim, [b"pollux-nbd-initiator-1\0", &rest[..]].concat());
    let target = hello().target_claim(&CHALLENGE, "disk");
    assert_eq!(target, [b"pollux-nbd-target-1\0", &rest[..]].concat());
    let others = [
        Hello { initiator: "iqn.hosu".into(), ..hello() },
        Hello { client: 1, ..hello() },
        Hello { number: 6, ..hello() },
        Hello { nonce: [0; 32], ..hello() },
    ];
    for other in others {
        assert_ne!(other.initiator_claim(&CHALLENGE, "disk"), claim, "{other:?}");
    }
    assert_ne!(hello().initiator_claim(&[0; 32], "disk"), claim);
    assert_ne!(hello().initiator_claim(&CHALLENGE, "disk:stage.1"), claim);
}

#[test]
fn whoever_said_hello_is_known_to_the_owner() {
    let mut client = named();
    client.send(&option(6, &question("disk", &[])));
    let heard = client.heard();
    let [Heard::OpenBy(name, false, by)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((&name[..], &by.hello, by.challenge), ("disk", &hello(), CHALLENGE));
    assert_eq!(by.proof, None);
    client.opened(Ok(export()));
    client.heard();

    client.send(&option(PROVE, &proof_text(b"disk:stage.7", b"user")));
    assert_eq!(client.sent(), option_reply(PROVE, 1, &[]));
    client.send(&option(GO, &question("disk:stage.7", &[])));
    let heard = client.heard();
    let [Heard::OpenBy(name, true, by)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((&name[..], &by.proof), ("disk:stage.7", &Some(proof())));
    client.opened(Ok(read_only()));
    let sent = client.sent();
    assert!(!sent.windows(2).any(|it| it == b"PL"), "nobody has a mutual secret");
    client.send(&write(Headers::Simple, 0, 1, 0, &[1; 512]));
    assert_eq!(client.sent(), simple(1, 1), "it is read-only");
}

#[test]
fn the_target_proves_itself_in_its_answer_to_go() {
    for number in [6, GO] {
        let mut client = named();
        client.send(&option(number, &question("disk", &[])));
        client.heard();
        let opened = Opened { export: export(), target_mac: Some([0x7a; 32]) };
        client.connection.opened(Ok(opened), &mut client.out);
        let proof = option_reply(number, 3, &[&[0x50, 0x4c][..], &[0x7a; 32]].concat());
        let end = [proof, option_reply(number, 1, &[])].concat();
        assert_eq!(client.sent().ends_with(&end), number == GO);
    }
}

#[test]
fn options_in_another_order_are_refused_and_change_nothing() {
    let mut client = Client::new();
    let (kind, reason) = refused(&mut client, PROVE, &proof().text());
    assert_eq!(kind, INVALID);
    assert!(reason.contains("say hello before"), "{reason}");
    client.send(&option(HELLO, &hello().text()));
    assert_eq!(client.sent(), challenged());
    let other = Hello { initiator: "iqn.other".into(), ..hello() };
    let (kind, reason) = refused(&mut client, HELLO, &other.text());
    assert_eq!(kind, INVALID);
    assert!(reason.contains("already"), "{reason}");
    client.send(&option(PROVE, &proof().text()));
    client.heard();
    let second = Proof { export: "disk".into(), ..proof() };
    assert_eq!(refused(&mut client, PROVE, &second.text()).0, INVALID);
    for number in [6, GO] {
        let (kind, reason) = refused(&mut client, number, &question("disk", &[]));
        assert_eq!(kind, INVALID);
        assert!(reason.contains("disk:stage.7"), "{reason}");
    }
    client.send(&option(GO, &question("disk:stage.7", &[])));
    let heard = client.heard();
    let [Heard::OpenBy(_, true, by)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((&by.hello, &by.proof), (&hello(), &Some(proof())));
}

/// EXPORT_NAME has no way to tell an error.
#[test]
fn an_export_name_other_than_the_proved_one_ends_the_connection() {
    let mut client = named();
    client.send(&option(PROVE, &proof().text()));
    client.heard();
    client.send(&option(1, b"disk"));
    assert_eq!(client.closed(), Some(ProtocolError::ProvedOther { name: "disk".into() }));
    let mut client = named();
    client.send(&option(1, b"disk"));
    assert!(matches!(client.heard()[..], [Heard::OpenBy(_, true, _)]));
}

#[test]
fn texts_that_are_no_hello_are_refused_and_a_right_one_still_counts() {
    let right = hello_text(1, b"iqn.host", 5);
    let mut client = Client::new();
    for len in 0..right.len() {
        assert_eq!(refused(&mut client, HELLO, &right[..len]).0, INVALID, "{len} bytes");
    }
    let long = [b'a'; 224];
    let rows = [
        ([&right[..], &[0]].concat(), INVALID),
        (hello_text(0, b"iqn.host", 5), UNSUPPORTED),
        (hello_text(2, b"iqn.host", 5), UNSUPPORTED),
        (hello_text(1, b"", 5), INVALID),
        (hello_text(1, b"iqn\0host", 5), INVALID),
        (hello_text(1, b"iqn.\xff", 5), INVALID),
        (hello_text(1, &long, 5), TOO_BIG),
        (hello_text(1, b"iqn.host", 0), INVALID),
        ([&[0, 1, 0xff, 0xff][..], &right[4..]].concat(), INVALID),
    ];
    for (text, kind) in rows {
        assert_eq!(refused(&mut client, HELLO, &text).0, kind, "{text:?}");
    }
    let (_, reason) = refused(&mut client, HELLO, &hello_text(9, b"iqn.host", 5));
    assert!(reason.contains("version 9") && reason.contains('1'), "{reason}");
    client.send(&option(HELLO, &hello_text(1, &long[..223], 1)));
    assert_eq!(client.sent(), challenged());
}

#[test]
fn texts_that_are_no_proof_are_refused_and_a_right_one_still_counts() {
    let right = proof_text(b"disk", b"user");
    let mut client = named();
    for len in 0..right.len() {
        assert_eq!(refused(&mut client, PROVE, &right[..len]).0, INVALID, "{len} bytes");
    }
    let rows = [
        ([&right[..], &[0]].concat(), INVALID),
        (proof_text(b"di\0sk", b"user"), INVALID),
        (proof_text(b"disk", b"\xfe"), INVALID),
        (proof_text(&[b'a'; 4097], b"user"), TOO_BIG),
        (proof_text(b"disk", &[b'a'; 4097]), TOO_BIG),
        ([&[0xff; 4][..], &right[4..]].concat(), INVALID),
    ];
    for (text, kind) in rows {
        assert_eq!(refused(&mut client, PROVE, &text).0, kind, "{text:?}");
    }
    client.send(&option(PROVE, &right));
    assert_eq!(client.sent(), option_reply(PROVE, 1, &[]));
}

/// What is too long for its field must not become another text that is right.
#[test]
fn words_that_are_too_long_are_refused_by_the_other_side() {
    for len in [224, 65_535, 65_536, 70_000] {
        let hello = Hello { initiator: "a".repeat(len), ..hello() };
        assert!(Hello::parse(&hello.text()).is_err(), "{len}");
        let proof = Proof { user: "a".repeat(len.max(4097)), ..proof() };
        assert!(Proof::parse(&proof.text()).is_err(), "{len}");
    }
}

/// Plain clients do not know our numbers.
#[test]
fn only_who_said_hello_is_told_our_errors() {
    let rows = [
        (OpenError::UnflushedWritesLost, 0x50_4c01),
        (OpenError::OlderConnection, 0x50_4c02),
        (OpenError::Denied, 2),
        (OpenError::Unknown, 6),
    ];
    for (error, kind) in rows {
        let mut client = named();
        client.send(&option(GO, &question("disk", &[])));
        client.heard();
        client.opened(Err(error.clone()));
        assert_eq!(option_error(GO, &client.sent()), (kind, error.to_string()));
    }
}

#[test]
fn a_hello_is_refused_when_the_server_ends() {
    let mut client = Client::new();
    client.connection.shut_down();
    assert_eq!(refused(&mut client, HELLO, &hello().text()).0, 7);
}
