//! INFO, GO and EXPORT_NAME: which volume, and what the client is told of it.
use block::ByteLen;

use super::client::*;
use crate::export::{Export, OpenError};
use crate::nbd::ProtocolError;

/// HAS_FLAGS, FLUSH, FUA, TRIM, WRITE_ZEROES, MULTI_CONN, CACHE, FAST_ZERO.
const WRITABLE: u16 = 0b1101_0110_1101;
/// HAS_FLAGS, READ_ONLY, FLUSH, FUA, MULTI_CONN, CACHE.
const READABLE: u16 = 0b0101_0000_1111;
const SEND_DF: u16 = 1 << 7;

fn info(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes(), data].concat()
}

fn export_info(size: u64, flags: u16) -> Vec<u8> {
    info(0, &[&size.to_be_bytes()[..], &flags.to_be_bytes()].concat())
}

fn block_info(sizes: [u32; 3]) -> Vec<u8> {
    info(3, &sizes.map(u32::to_be_bytes).concat())
}

#[test]
fn go_tells_what_was_asked_for_and_serves() {
    let mut client = Client::new();
    client.send(&option(7, &question("disk:stage.7", &[0, 1, 2, 3, 99])));
    assert_eq!(client.heard(), [Heard::Open("disk:stage.7".into(), true)]);
    client.opened(Ok(export()));
    let text = format!("Pollux volume {}, 128 MiB", "ab".repeat(16));
    let expected = [
        option_reply(7, 3, &export_info(SIZE, WRITABLE)),
        option_reply(7, 3, &info(1, b"disk")),
        option_reply(7, 3, &info(2, text.as_bytes())),
        option_reply(7, 3, &block_info([512, 4096, 32 << 20])),
        option_reply(7, 1, &[]),
    ];
    assert_eq!(client.sent(), expected.concat());
    client.send(&request(Headers::Simple, 0, 5, 1, 0, 512));
    assert_eq!(client.sent(), simple(0, 1));
}

#[test]
fn info_is_for_no_use_and_negotiation_goes_on() {
    let mut client = Client::new();
    let expected = [
        option_reply(6, 3, &export_info(SIZE, WRITABLE)),
        option_reply(6, 3, &block_info([512, 4096, 32 << 20])),
        option_reply(6, 1, &[]),
    ]
    .concat();
    for _ in 0..2 {
        client.send(&option(6, &question("disk", &[])));
        assert_eq!(client.heard(), [Heard::Open("disk".into(), false)]);
        client.opened(Ok(export()));
        assert_eq!(client.sent(), expected);
    }
}

#[test]
fn flags_tell_the_truth() {
    let rows = [
        (Headers::Simple, export(), WRITABLE),
        (Headers::Structured, export(), WRITABLE | SEND_DF),
        (Headers::Extended, export(), WRITABLE | SEND_DF),
        (Headers::Simple, read_only(), READABLE),
        (Headers::Structured, read_only(), READABLE | SEND_DF),
        (Headers::Extended, read_only(), READABLE | SEND_DF),
    ];
    for (headers, export, flags) in rows {
        let mut client = Client::new();
        client.send(&negotiation(headers, "disk"));
        client.heard();
        client.opened(Ok(export));
        let expected = option_reply(7, 3, &export_info(SIZE, flags));
        assert_eq!(client.sent()[..expected.len()], expected, "{headers:?}");
    }
}

#[test]
fn block_sizes_are_what_the_protocol_allows() {
    let rows = [
        (512, 4096, [512, 4096, 32 << 20]),
        (4096, 4096, [4096, 4096, 32 << 20]),
        (4096, 512, [4096, 4096, 32 << 20]),
        (512, 1 << 40, [512, 32 << 20, 32 << 20]),
        (1, 1, [512, 512, 32 << 20]),
    ];
    for (block, granule, sizes) in rows {
        let mut client = Client::new();
        client.send(&option(6, &question("disk", &[3])));
        client.heard();
        let export = Export { block: ByteLen(block), granule: ByteLen(granule), ..export() };
        client.opened(Ok(export));
        let expected = [option_reply(6, 3, &block_info(sizes)), option_reply(6, 1, &[])].concat();
        assert!(client.sent().ends_with(&expected), "{block} {granule}");
    }
}

#[test]
fn a_volume_that_is_refused_leaves_the_client_in_negotiation() {
    let rows = [
        (OpenError::Unknown, 6),
        (OpenError::NotReady { reason: "electing".into() }, 6),
        (OpenError::Denied, 2),
        (OpenError::Unnamed, 2),
        (OpenError::UnflushedWritesLost, 2),
        (OpenError::OlderConnection, 2),
    ];
    let mut client = Client::new();
    for (error, kind) in rows {
        for number in [6, 7] {
            client.send(&option(number, &question("disk", &[])));
            client.heard();
            client.opened(Err(error.clone()));
            assert_eq!(option_error(number, &client.sent()), (kind, error.to_string()));
        }
    }
    client.send(&option(7, &question("", &[])));
    assert_eq!(client.heard(), [Heard::Open(String::new(), true)]);
}

#[test]
fn lengths_that_do_not_agree_are_invalid() {
    let right = question("disk", &[1, 3]);
    let mut client = Client::new();
    for number in [6, 7] {
        for len in 0..right.len() {
            client.send(&option(number, &right[..len]));
            assert_eq!(option_error(number, &client.sent()).0, 3, "{len} bytes");
        }
        client.send(&option(number, &[&right[..], &[0]].concat()));
        assert_eq!(option_error(number, &client.sent()).0, 3);
        let mut far = right.clone();
        far[0] = 0xff;
        client.send(&option(number, &far));
        assert_eq!(option_error(number, &client.sent()).0, 3);
        client.send(&option(number, &question("a\0b", &[])));
        assert_eq!(option_error(number, &client.sent()).0, 3);
        client.send(&option(number, &question(&"a".repeat(4097), &[])));
        assert_eq!(option_error(number, &client.sent()).0, 9);
    }
}

#[test]
fn an_export_name_is_answered_with_or_without_zeros() {
    for (flags, zeros) in [(0, 124), (1, 124), (2, 0), (3, 0)] {
        let mut out = Vec::new();
        let connection = crate::nbd::Connection::new(CHALLENGE, &mut out);
        let mut client = Client { connection, out: Vec::new() };
        client.send(&[0, 0, 0, flags]);
        client.send(&option(1, b"disk"));
        assert_eq!(client.heard(), [Heard::Open("disk".into(), true)]);
        client.opened(Ok(export()));
        let mut expected = [&SIZE.to_be_bytes()[..], &WRITABLE.to_be_bytes()].concat();
        expected.resize(10 + zeros, 0);
        assert_eq!(client.sent(), expected);
        client.send(&request(Headers::Simple, 0, 5, 1, 0, 512));
        assert_eq!(client.sent(), simple(0, 1));
    }
}

#[test]
fn an_export_name_that_is_refused_ends_the_connection() {
    let mut client = Client::new();
    client.send(&option(1, b"disk"));
    client.heard();
    client.opened(Err(OpenError::Denied));
    let reason = OpenError::Denied;
    assert_eq!(client.closed(), Some(ProtocolError::Refused { name: "disk".into(), reason }));

    let mut client = Client::new();
    client.send(&option(11, &[]));
    client.heard();
    client.send(&option(1, b"disk"));
    assert_eq!(client.closed(), Some(ProtocolError::ExportNameWithExtendedHeaders));
}

/// Clients should wait, but nothing is lost if they do not.
#[test]
fn what_comes_before_an_answer_is_kept() {
    let headers = Headers::Structured;
    let mut client = Client::new();
    let stream = [
        option(3, &[]),
        option(6, &question("disk", &[])),
        negotiation(headers, "disk"),
        write(headers, 0, 1, 512, &[9; 1024]),
        request(headers, 0, 3, 2, 0, 0),
        write(headers, 0, 3, 0, &[8; 1024])[..600].to_vec(),
    ];
    client.send(&stream.concat());
    assert_eq!(client.heard(), [Heard::List]);
    client.connection.listed(&[], None, &mut client.out);
    assert!(matches!(client.heard()[..], [Heard::Sent(_), Heard::Open(_, false)]));
    client.opened(Err(OpenError::Unknown));
    assert!(matches!(client.heard()[..], [Heard::Sent(_), Heard::Open(_, true)]));
    client.opened(Ok(export()));
    let heard = client.heard();
    let [Heard::Sent(_), Heard::Ask(0, write, bytes), Heard::Ask(1, flush, _)] = &heard[..] else {
        panic!("{heard:?}");
    };
    assert!(write.starts_with("Write { offset: ByteOffset(512)"), "{write}");
    assert_eq!((bytes, &flush[..]), (&vec![9; 1024], "Flush"));
    assert_eq!(client.connection.landing().len(), 1024 - (600 - 28));
    client.send(&[8; 1024 - (600 - 28)]);
    let (_, ask) = client.asked();
    assert!(matches!(ask, crate::ask::Ask::Write { data, .. } if data[..] == [8; 1024]));
}

#[test]
fn what_is_kept_before_an_answer_has_a_bound() {
    let mut client = Client::new();
    client.send(&option(3, &[]));
    client.heard();
    for _ in 0..256 {
        client.send(&[0; 1024]);
        assert!(client.heard().is_empty());
    }
    client.send(&[0]);
    assert_eq!(client.closed(), Some(ProtocolError::Flooded { max: 256 << 10 }));
    client.connection.listed(&["late".into()], None, &mut client.out);
    assert!(client.heard().is_empty());
}
