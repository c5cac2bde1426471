//! How a client is held back.
use super::client::*;
use crate::ask::{Answer, Ask};
use crate::nbd::{Output, ProtocolError};

const H: Headers = Headers::Structured;
const MIB: u64 = 1 << 20;

fn flushes(cookies: std::ops::Range<u64>) -> Vec<u8> {
    cookies.flat_map(|cookie| request(H, 0, 3, cookie, 0, 0)).collect()
}

#[test]
fn requests_under_way_have_a_bound() {
    let mut client = Client::serving(H);
    client.send(&flushes(0..255));
    assert!(client.connection.wants_bytes());
    client.send(&flushes(255..256));
    assert!(!client.connection.wants_bytes());
    assert_eq!(client.heard().len(), 256);
    client.answered(17, Ok(Answer::Done));
    assert!(client.connection.wants_bytes());
    assert_eq!(client.sent(), done(H, 17, 0));
}

/// In the order in which they came, as soon as there is room.
#[test]
fn what_comes_beyond_the_bound_waits() {
    let mut client = Client::serving(H);
    client.send(&flushes(0..1000));
    assert_eq!(client.heard().len(), 256);
    assert_eq!(client.connection.under_way(), 256);
    for answered in 0..1000u64 {
        assert_eq!(client.connection.wants_bytes(), answered > 744, "{answered}");
        client.answered(0, Ok(Answer::Done));
        let heard = client.heard();
        let waits = answered < 744;
        // The first place is given to the next that waits.
        let cookie = match answered {
            0 => 0,
            _ => 255 + answered,
        };
        assert_eq!(heard[0], Heard::Sent(done(H, cookie, 0)));
        assert_eq!(heard.len(), if waits { 2 } else { 1 });
        if !waits {
            break;
        }
    }
}

#[test]
fn reads_under_way_have_a_bound_in_bytes() {
    let mut client = Client::serving(H);
    client.send(&request(H, 0, 0, 1, 0, 16 * MIB));
    client.send(&request(H, 0, 0, 2, 0, 15 * MIB));
    assert!(client.connection.wants_bytes());
    assert_eq!(client.heard().len(), 2);
    client.send(&[request(H, 0, 0, 3, 0, 2 * MIB), request(H, 0, 3, 4, 0, 0)].concat());
    assert!(client.heard().is_empty(), "and nothing overtakes it");
    assert!(!client.connection.wants_bytes());
    client.answered(1, Ok(Answer::Read(data(0, 15 << 20))));
    assert_eq!(client.out.len(), 2, "the reply is in memory until it is sent");
    assert!(!client.connection.can_go_on());
    client.out.clear();
    client.connection.unsent(14 << 20);
    assert!(client.connection.can_go_on());
    client.connection.go_on(&mut Memory, &mut client.out);
    let asks = std::mem::take(&mut client.out);
    assert!(matches!(
        asks[..],
        [Output::Ask { ask: Ask::Read { .. }, .. }, Output::Ask { ask: Ask::Flush, .. }]
    ));
    assert!(client.connection.wants_bytes());
}

/// Protects from a client that asks and does not read.
#[test]
fn a_client_that_reads_no_replies_has_no_more_read_for_it() {
    let mut client = Client::serving(H);
    client.send(&request(H, 0, 0, 1, 0, 16 * MIB).repeat(200));
    let mut unsent = 0;
    for _ in 0..200 {
        let reads = client.out.iter().filter(|output| matches!(output, Output::Ask { .. })).count();
        let waits: usize = client.out.drain(..).map(sent_len).sum();
        unsent += waits;
        assert!((reads << 20) * 16 + unsent <= (32 << 20) + 1000, "{reads} reads, {unsent} bytes");
        if client.connection.under_way() == 0 {
            break;
        }
        let id = u64::from(client.connection.under_way() == 1 && reads == 0);
        client.answered(id, Ok(Answer::Read(data(0, 16 << 20))));
    }
    assert!(unsent > 31 << 20, "{unsent} bytes of replies");
    assert_eq!(client.connection.under_way(), 0, "the rest waits for the client");
    client.connection.unsent(0);
    assert!(client.connection.can_go_on());
}

fn sent_len(output: Output) -> usize {
    match output {
        Output::Send(piece) => piece.as_bytes().len(),
        _ => 0,
    }
}

#[test]
fn writes_under_way_have_a_bound_in_bytes() {
    let mut client = Client::serving(H);
    let payload = vec![5; 32 << 20];
    client.send(&write(H, 0, 1, 0, &payload));
    assert!(client.connection.wants_bytes());
    client.send(&write(H, 0, 2, 0, &payload));
    assert!(!client.connection.wants_bytes(), "64 MiB are the most");
    assert_eq!(client.heard().len(), 2);
    client.answered(0, Ok(Answer::Done));
    assert!(client.connection.wants_bytes());
}

/// A payload that could not be asked about when it is there waits on its way.
#[test]
fn a_payload_is_not_fetched_before_there_is_room_for_it() {
    let mut client = Client::serving(H);
    client.send(&request(H, 0, 0, 1, 0, 32 * MIB));
    client.send(&write(H, 0, 2, 0, &vec![5; 16 << 20]));
    client.send(&request(H, 0, 1, 3, 0, 32 * MIB));
    assert!(!client.connection.wants_bytes());
    assert_eq!(client.connection.landing().len(), 32 << 20);
    client.answered(1, Ok(Answer::Done));
    assert!(client.connection.wants_bytes());
}

/// Protects from a client whose payloads always end within what the owner brings.
#[test]
fn a_chain_of_payloads_is_held_back() {
    let mut client = Client::serving(H);
    let one = write(H, 0, 1, 0, &vec![5; 1 << 20]);
    let stream: Vec<u8> = one.iter().copied().cycle().take(200 * one.len()).collect();
    let mut brought = 0;
    for part in stream.chunks(300_000) {
        if !client.connection.wants_bytes() {
            break;
        }
        client.send(part);
        brought += part.len();
    }
    let most = (64 << 20) + (1 << 20) + 300_000;
    assert!(brought < most, "{brought} bytes were taken");
    assert_eq!(client.connection.under_way(), 64);
}

#[test]
fn a_client_that_is_not_held_back_is_let_go() {
    let mut client = Client::serving(H);
    client.send(&flushes(0..256));
    client.heard();
    let part = flushes(0..1000);
    let mut brought = 0;
    while brought + part.len() <= 256 << 10 {
        client.send(&part);
        brought += part.len();
        assert!(client.heard().is_empty());
    }
    client.send(&part);
    assert_eq!(client.closed(), Some(ProtocolError::Flooded { max: 256 << 10 }));
    client.answered(3, Ok(Answer::Done));
    assert!(client.heard().is_empty());
}

#[test]
fn unwanted_bytes_are_forgiven_when_bytes_are_wanted_again() {
    let mut client = Client::serving(H);
    for _ in 0..20 {
        // A refused request waits for nobody, and takes no place.
        client.send(&flushes(0..256));
        client.send(&request(H, 0, 99, 1, 0, 0).repeat(5000));
        for id in 0..256 {
            client.answered(id, Ok(Answer::Done));
        }
        client.send(&flushes(0..1));
        client.answered(255, Ok(Answer::Done));
        assert!(!client.heard().iter().any(|heard| matches!(heard, Heard::Close(_))));
    }
}
