//! What becomes of the volume's answers.
use block::{ByteLen, ByteOffset};

use super::client::*;
use crate::ask::{Answer, AskError, Extent};
use crate::nbd::Output;
use crate::piece::Piece;

const CHUNKED: [Headers; 2] = [Headers::Structured, Headers::Extended];

#[test]
fn a_read_is_a_head_and_the_data_as_it_was_given() {
    for headers in ALL {
        let mut client = Client::serving(headers);
        client.send(&request(headers, 0, 0, 0x1122_3344_5566_7788, 1024, 4096));
        let (id, _) = client.asked();
        let data = data(0x5a, 4096);
        client.answered(id, Ok(Answer::Read(data.clone())));
        let [Output::Send(Piece::Bytes(head)), Output::Send(Piece::Data(sent))] = &client.out[..]
        else {
            panic!("{:?}", client.out);
        };
        assert_eq!(sent.as_ptr(), data.as_ptr(), "nobody copied it");
        let expected = match headers {
            Headers::Simple => simple(0, 0x1122_3344_5566_7788),
            _ => {
                let payload = [&1024u64.to_be_bytes()[..], &data].concat();
                let reply = chunk(headers, 1, 0x1122_3344_5566_7788, 1024, &payload);
                reply[..reply.len() - 4096].to_vec()
            }
        };
        assert_eq!(*head, expected);
    }
}

#[test]
fn what_is_done_is_acknowledged() {
    for headers in ALL {
        let mut client = Client::serving(headers);
        let requests = [
            write(headers, 0, 1, 512, &[3; 512]),
            request(headers, 0, 3, 2, 0, 0),
            request(headers, 0, 4, 3, 1024, 512),
            request(headers, 0, 6, 4, 2048, 512),
        ];
        for (bytes, (cookie, offset)) in
            requests.iter().zip([(1, 512), (2, 0), (3, 1024), (4, 2048)])
        {
            client.send(bytes);
            let (id, _) = client.asked();
            client.answered(id, Ok(Answer::Done));
            assert_eq!(client.sent(), done(headers, cookie, offset));
        }
    }
}

#[test]
fn answers_may_come_in_any_order() {
    let headers = Headers::Simple;
    let mut client = Client::serving(headers);
    let heads = (0..4u64).flat_map(|cookie| request(headers, 0, 3, cookie, 0, 0));
    client.send(&heads.collect::<Vec<u8>>());
    assert_eq!(client.heard().len(), 4);
    for id in [2, 0, 3, 1] {
        client.answered(id, Ok(Answer::Done));
        assert_eq!(client.sent(), simple(0, id));
    }
    // Places are used again, and never by two at a time.
    client.send(&request(headers, 0, 3, 77, 0, 0));
    let (first, _) = client.asked();
    client.send(&request(headers, 0, 3, 78, 0, 0));
    assert_ne!(client.asked().0, first);
    client.answered(first, Ok(Answer::Done));
    assert_eq!(client.sent(), simple(0, 77));
}

#[test]
fn every_trouble_of_the_volume_is_told() {
    let rows = [
        (AskError::OutOfRange, 22),
        (AskError::NoQuorum { reason: "node b is down".into() }, 5),
        (AskError::NoSpace, 28),
        (AskError::Superseded, 108),
        (AskError::UnflushedWritesLost, 5),
        (AskError::Busy, 5),
        (AskError::Stopped, 108),
    ];
    for headers in ALL {
        let mut client = Client::serving(headers);
        for (trouble, code) in &rows {
            for bytes in [
                request(headers, 0, 0, 7, 512, 512),
                write(headers, 0, 7, 512, &[1; 512]),
                request(headers, 0, 3, 7, 512, 0),
                request(headers, 0, 4, 7, 512, 512),
                request(headers, 0, 6, 7, 512, 512),
            ] {
                client.send(&bytes);
                let (id, _) = client.asked();
                client.answered(id, Err(trouble.clone()));
                let (found, message) = error(headers, &client.sent(), 7, 512);
                assert_eq!(found, *code);
                let expected = if headers == Headers::Simple { "" } else { &trouble.to_string() };
                assert_eq!(message, expected);
            }
        }
    }
}

/// An offset outside of its request would be a breach of the protocol.
#[test]
fn damage_is_told_with_its_place_if_that_is_within() {
    for headers in CHUNKED {
        let mut client = Client::serving(headers);
        for (at, within) in [(1024, true), (1535, true), (1536, false), (512, false)] {
            client.send(&request(headers, 0, 0, 7, 1024, 512));
            let (id, _) = client.asked();
            let trouble = AskError::Damaged { offset: ByteOffset(at) };
            let message = trouble.to_string();
            client.answered(id, Err(trouble));
            let len = u16::try_from(message.len()).unwrap();
            let mut payload =
                [&5u32.to_be_bytes()[..], &len.to_be_bytes(), message.as_bytes()].concat();
            if within {
                payload.extend(at.to_be_bytes());
            }
            let kind = if within { 0x8002 } else { 0x8001 };
            assert_eq!(client.sent(), chunk(headers, kind, 7, 1024, &payload), "{at}");
        }
    }
}

/// Messages have at most 4096 bytes, and are cut between characters.
#[test]
fn a_long_message_is_cut() {
    for headers in CHUNKED {
        let mut client = Client::serving(headers);
        client.send(&request(headers, 0, 3, 7, 0, 0));
        let (id, _) = client.asked();
        client.answered(id, Err(AskError::NoQuorum { reason: "\u{20ac}".repeat(4096) }));
        let (code, message) = error(headers, &client.sent(), 7, 0);
        assert_eq!(code, 5);
        assert!((4093..=4096).contains(&message.len()), "{} bytes", message.len());
    }
}

fn extents(of: &[(u64, bool)]) -> Answer {
    Answer::Extents(
        of.iter().map(|&(len, has_data)| Extent { len: ByteLen(len), has_data }).collect(),
    )
}

/// The status chunk of `base:allocation`.
fn status(headers: Headers, of: &[(u64, u32)]) -> Vec<u8> {
    let mut payload = 1u32.to_be_bytes().to_vec();
    if headers == Headers::Extended {
        payload.extend(u32::try_from(of.len()).unwrap().to_be_bytes());
    }
    for &(len, flags) in of {
        match headers {
            Headers::Extended => {
                payload.extend([len.to_be_bytes(), u64::from(flags).to_be_bytes()].concat());
            }
            _ => {
                let len = u32::try_from(len).unwrap();
                payload.extend([len.to_be_bytes(), flags.to_be_bytes()].concat());
            }
        }
    }
    chunk(headers, if headers == Headers::Extended { 6 } else { 5 }, 7, 512, &payload)
}

#[test]
fn extents_are_told_within_the_range() {
    const REQ_ONE: u16 = 8;
    let whole = [(512, true), (1024, false), (512, true)];
    for headers in CHUNKED {
        let mut client = Client::serving(headers);
        for (flags, answer, expected) in [
            (0, &whole[..], &[(512, 0), (1024, 3), (512, 0)][..]),
            (REQ_ONE, &whole, &[(512, 0)]),
            // Ends early.
            (0, &whole[..1], &[(512, 0)]),
            // Goes further than it was asked to.
            (0, &[(512, false), (1 << 40, true)], &[(512, 3), (1536, 0)]),
            (REQ_ONE, &[(1 << 40, false)], &[(2048, 3)]),
            (0, &[(2048, true), (512, false)], &[(2048, 0)]),
        ] {
            client.send(&request(headers, flags, 7, 7, 512, 2048));
            let (id, _) = client.asked();
            client.answered(id, Ok(extents(answer)));
            assert_eq!(client.sent(), status(headers, expected), "{answer:?}");
        }
    }
}

/// Protects from lengths beyond 32 bits, and from a reply without a bound.
#[test]
fn large_and_many_extents_fit_their_reply() {
    let mut export = export();
    export.size = ByteLen(1 << 50);
    let mut client = Client::serving_export(Headers::Structured, export.clone());
    let most = u64::from(u32::MAX) & !511;
    client.send(&request(Headers::Structured, 0, 7, 7, 512, most));
    let (id, _) = client.asked();
    client.answered(id, Ok(extents(&[(1 << 49, false)])));
    assert_eq!(client.sent(), status(Headers::Structured, &[(most, 3)]));

    for headers in CHUNKED {
        let mut client = Client::serving_export(headers, export.clone());
        client.send(&request(headers, 0, 7, 7, 512, most));
        let (id, _) = client.asked();
        let many: Vec<(u64, bool)> = (0..100_000).map(|at| (512, at % 2 == 0)).collect();
        client.answered(id, Ok(extents(&many)));
        let first: Vec<(u64, u32)> = many[..1 << 16]
            .iter()
            .map(|&(len, has_data)| (len, if has_data { 0 } else { 3 }))
            .collect();
        assert_eq!(client.sent(), status(headers, &first));
    }
    let mut client = Client::serving_export(Headers::Extended, export);
    client.send(&request(Headers::Extended, 0, 7, 7, 512, 1 << 49));
    let (id, _) = client.asked();
    client.answered(id, Ok(extents(&[(1 << 48, true), (1 << 48, false)])));
    assert_eq!(client.sent(), status(Headers::Extended, &[(1 << 48, 0), (1 << 48, 3)]));
}
