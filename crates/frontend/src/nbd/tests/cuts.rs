//! A stream means the same however it is cut.
use super::client::*;
use crate::ask::Answer;
use crate::nbd::hello::{Hello, Proof};

/// Numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % bound as u64).unwrap()
    }
}

fn hello() -> Hello {
    Hello { initiator: "iqn.host".into(), client: 1, number: 2, nonce: [4; 32] }
}

fn proof() -> Proof {
    Proof { export: "disk".into(), user: "user".into(), mac: [8; 32] }
}

/// A life with every option and every command, right and wrong.
fn story(headers: Headers) -> Vec<u8> {
    let mut stream = vec![0, 0, 0, 3];
    stream.extend(option(5, &[]));
    stream.extend(option(99, &[1; 300]));
    stream.extend(option(3, &[]));
    stream.extend(option(0x504c_5802, &[1; 40]));
    stream.extend(option(0x504c_5801, &hello().text()));
    stream.extend(option(0x504c_5801, &[2; 7]));
    stream.extend(option(0x504c_5802, &proof().text()));
    stream.extend(option(6, &question("disk", &[1, 2, 3])));
    stream.extend(option(9, &context_query("disk", &[])));
    stream.extend(option(7, &[1, 2, 3]));
    stream.extend(option(12, &vec![7; (64 << 10) + 5]));
    stream.extend(negotiation(headers, "disk"));
    stream.extend(request(headers, 0, 0, 1, 0, 4096));
    stream.extend(write(headers, 1, 2, 512, &[0x25; 1536]));
    stream.extend(write(headers, 0, 3, 513, &[0x60; 512]));
    stream.extend(write(headers, 0, 4, SIZE, &[0x95; 512]));
    stream.extend(request(headers, 0, 3, 5, 0, 0));
    stream.extend(request(headers, 0, 4, 6, 0, SIZE));
    stream.extend(request(headers, 0, 5, 7, 0, 512));
    stream.extend(request(headers, 2, 6, 8, 0, 512));
    stream.extend(request(headers, 8, 7, 9, 0, 1024));
    stream.extend(request(headers, 0, 8, 10, 0, 512));
    stream.extend(write(headers, 0, 11, 0, &[]));
    stream.extend(write(headers, 0, 12, 8192, &[0x13; 512]));
    stream.extend(request(headers, 0, 2, 13, 0, 0));
    stream.extend(b"nothing of this counts");
    stream
}

/// Everything that a client hears, where cuts are at these places. With `lands`, payloads take the
/// short way where they can.
fn life(stream: &[u8], mut cut: impl FnMut(usize) -> (usize, bool)) -> Vec<Heard> {
    let mut out = Vec::new();
    let connection = crate::nbd::Connection::new(CHALLENGE, &mut out);
    let mut client = Client { connection, out };
    let mut heard = Vec::new();
    let mut rest = stream;
    loop {
        heard.extend(client.heard());
        // At once, so that the order does not depend on the cuts.
        match heard.last() {
            Some(Heard::List) => client.connection.listed(&["disk".into()], None, &mut client.out),
            Some(Heard::Open(..) | Heard::OpenBy(..)) => client.opened(Ok(export())),
            _ if rest.is_empty() => break,
            _ => {
                let (len, lands) = cut(rest.len());
                let landing = client.connection.landing();
                if lands && !landing.is_empty() {
                    let len = len.min(landing.len());
                    landing[..len].copy_from_slice(&rest[..len]);
                    client.connection.landed(len, &mut Memory, &mut client.out);
                    rest = &rest[len..];
                } else {
                    client.send(&rest[..len]);
                    rest = &rest[len..];
                }
            }
        }
    }
    for id in 0..client.connection.under_way() as u64 {
        let answer = match heard
            .iter()
            .find(|heard| matches!(heard, Heard::Ask(of, ..) if *of == id))
        {
            Some(Heard::Ask(_, ask, _)) if ask.starts_with("Read") => Answer::Read(data(1, 4096)),
            Some(Heard::Ask(_, ask, _)) if ask.starts_with("Extents") => {
                let extent = crate::ask::Extent { len: block::ByteLen(512), has_data: true };
                Answer::Extents(vec![extent])
            }
            _ => Answer::Done,
        };
        client.answered(id, Ok(answer));
    }
    heard.extend(client.heard());
    joined(heard)
}

/// What was sent in parts as one.
fn joined(heard: Vec<Heard>) -> Vec<Heard> {
    let mut joined: Vec<Heard> = Vec::new();
    for next in heard {
        match (joined.last_mut(), next) {
            (Some(Heard::Sent(sent)), Heard::Sent(more)) => sent.extend(more),
            (_, next) => joined.push(next),
        }
    }
    joined
}

#[test]
fn a_story_is_the_same_in_one_piece_and_byte_by_byte() {
    for headers in ALL {
        let stream = story(headers);
        let whole = life(&stream, |left| (left, false));
        assert_eq!(whole.last(), Some(&Heard::Close(None)));
        let asks = whole.iter().filter(|heard| matches!(heard, Heard::Ask(..))).count();
        assert_eq!(asks, if headers == Headers::Simple { 6 } else { 7 });
        assert_eq!(life(&stream, |_| (1, false)), whole);
        assert_eq!(life(&stream, |_| (1, true)), whole);
        assert_eq!(life(&stream, |left| (left, true)), whole);
    }
}

#[test]
fn a_story_is_the_same_with_one_cut_anywhere() {
    for headers in ALL {
        let stream = story(headers);
        let whole = life(&stream, |left| (left, false));
        let long_option = stream.len() - (64 << 10);
        for at in (1..stream.len()).filter(|at| *at < 900 || *at > stream.len() - long_option + 600)
        {
            let mut first = true;
            let cut = |left| (if std::mem::take(&mut first) { at } else { left }, at % 2 == 0);
            assert_eq!(life(&stream, cut), whole, "cut at {at}");
        }
    }
}

#[test]
fn a_story_is_the_same_with_random_cuts() {
    for headers in ALL {
        let stream = story(headers);
        let whole = life(&stream, |left| (left, false));
        for seed in 0..300 {
            let mut chance = Chance(seed);
            let scale = [5, 40, 600, 40_000][chance.below(4)];
            let cut = |left: usize| (left.min(1 + chance.below(scale)), chance.below(2) == 0);
            assert_eq!(life(&stream, cut), whole, "seed {seed}");
        }
    }
}

/// The rest of a batch is not looked at twice, and payloads are copied once: to where they stay.
#[test]
fn a_batch_of_requests_is_taken_at_once() {
    let headers = Headers::Simple;
    let mut client = Client::serving(headers);
    let batch: Vec<u8> = (0..100u8)
        .flat_map(|cookie| write(headers, 0, u64::from(cookie), 512, &[cookie; 512]))
        .collect();
    client.send(&batch);
    let heard = client.heard();
    assert_eq!(heard.len(), 100);
    for (cookie, heard) in (0u8..).zip(heard) {
        assert!(matches!(heard, Heard::Ask(_, _, bytes) if bytes == [cookie; 512]));
    }
}
