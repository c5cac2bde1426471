//! Every command: what the volume is asked, and what is refused.
use block::{ByteLen, ByteOffset};

use super::client::*;
use crate::ask::{Ask, Zeroing};
use crate::nbd::ProtocolError;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const CACHE: u16 = 5;
const ZEROES: u16 = 6;
const STATUS: u16 = 7;

const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const DF: u16 = 4;
const REQ_ONE: u16 = 8;
const FAST_ZERO: u16 = 16;
const PAYLOAD_LEN: u16 = 32;

#[test]
fn reads_ask_for_their_range() {
    for headers in ALL {
        for flags in [0, FUA, DF] {
            if headers == Headers::Simple && flags == DF {
                continue;
            }
            let mut client = Client::serving(headers);
            client.send(&request(headers, flags, READ, 7, 1024, 2048));
            let (_, ask) = client.asked();
            assert!(matches!(ask, Ask::Read { offset: ByteOffset(1024), len: ByteLen(2048) }));
        }
    }
}

#[test]
fn writes_bring_their_payload() {
    for headers in ALL {
        for (flags, durable) in [(0, false), (FUA, true)] {
            let mut client = Client::serving(headers);
            let bytes: Vec<u8> = (0..1024u32).map(|at| at.to_be_bytes()[3]).collect();
            client.send(&write(headers, flags, 7, 512, &bytes));
            let (_, ask) = client.asked();
            let Ask::Write { offset, data, fua } = ask else { panic!("{ask:?}") };
            assert_eq!((offset, &data[..], fua), (ByteOffset(512), &bytes[..], durable));
        }
    }
}

#[test]
fn trims_and_zeroes_ask_for_zeros() {
    let rows = [
        (TRIM, 0, Zeroing::Discard, false),
        (TRIM, FUA, Zeroing::Discard, true),
        (ZEROES, 0, Zeroing::Discard, false),
        (ZEROES, FAST_ZERO | FUA, Zeroing::Discard, true),
        (ZEROES, NO_HOLE, Zeroing::Zeroes, false),
        (ZEROES, NO_HOLE | FAST_ZERO | FUA, Zeroing::Zeroes, true),
    ];
    for headers in ALL {
        let mut client = Client::serving(headers);
        for (command, flags, expected_how, expected_fua) in rows {
            // More than any payload.
            client.send(&request(headers, flags, command, 7, 0, SIZE));
            let (_, ask) = client.asked();
            let Ask::Zero { offset, len, how, fua } = ask else { panic!("{ask:?}") };
            assert_eq!((offset, len), (ByteOffset(0), ByteLen(SIZE)));
            assert_eq!((how, fua), (expected_how, expected_fua), "{command} {flags}");
        }
    }
}

#[test]
fn extended_headers_carry_64_bits() {
    let size = 1 << 50;
    let mut export = export();
    export.size = ByteLen(size);
    let mut client = Client::serving_export(Headers::Extended, export);
    client.send(&request(Headers::Extended, 0, TRIM, 7, 512, size - 512));
    let (_, ask) = client.asked();
    assert!(matches!(ask, Ask::Zero { len, .. } if len == ByteLen(size - 512)));
    client.send(&request(Headers::Extended, 0, STATUS, 7, 512, size - 512));
    let (_, ask) = client.asked();
    assert!(matches!(ask, Ask::Extents { len, .. } if len == ByteLen(size - 512)));
}

/// Its range is reserved, and some clients do not set it to zero.
#[test]
fn a_flush_is_asked_for() {
    for headers in ALL {
        let mut client = Client::serving(headers);
        for (flags, offset, len) in [(0, 0, 0), (FUA, 0, 0), (0, 5, u64::from(u32::MAX))] {
            client.send(&request(headers, flags, FLUSH, 7, offset, len));
            assert!(matches!(client.asked().1, Ask::Flush));
        }
    }
}

#[test]
fn the_status_of_blocks_is_asked_for() {
    for headers in [Headers::Structured, Headers::Extended] {
        let mut client = Client::serving(headers);
        for flags in [0, REQ_ONE, FUA] {
            client.send(&request(headers, flags, STATUS, 7, 512, 1024));
            let (_, ask) = client.asked();
            assert!(matches!(ask, Ask::Extents { offset: ByteOffset(512), len: ByteLen(1024) }));
        }
    }
}

/// A hint, and nothing is gained by following it.
#[test]
fn cache_is_answered_at_once() {
    for headers in ALL {
        let mut client = Client::serving(headers);
        client.send(&request(headers, 0, CACHE, 7, 512, SIZE - 512));
        assert_eq!(client.sent(), done(headers, 7, 512));
    }
}

/// The protocol leaves it open what they mean.
#[test]
fn empty_ranges_succeed_where_they_can() {
    for headers in ALL {
        let mut client = Client::serving(headers);
        for command in [READ, WRITE, TRIM, CACHE, ZEROES] {
            for offset in [0, 512, SIZE] {
                client.send(&request(headers, 0, command, 7, offset, 0));
                assert_eq!(client.sent(), done(headers, 7, offset), "{command}");
            }
        }
        let reply = client.refused(&request(headers, 0, STATUS, 7, 0, 0));
        assert_eq!(error(headers, &reply, 7, 0).0, 22);
    }
}

/// A payload is skipped with the rest of a request that is wrong.
fn refusals(headers: Headers, client: &mut Client, rows: &[(u16, u16, u64, u64, u32)]) {
    for &(flags, command, offset, len, code) in rows {
        let mut bytes = request(headers, flags, command, 7, offset, len);
        if command == WRITE {
            let len = usize::try_from(len).expect("a test's payload");
            bytes.resize(bytes.len() + len, 0x25);
        }
        let reply = client.refused(&bytes);
        let (found, message) = error(headers, &reply, 7, offset);
        assert_eq!(found, code, "{flags} {command} {offset} {len}: {message}");
        assert_eq!(message.is_empty(), headers == Headers::Simple);
    }
    // The stream is still in step.
    client.send(&request(headers, 0, CACHE, 9, 0, 512));
    assert_eq!(client.sent(), done(headers, 9, 0));
}

#[test]
fn ranges_beyond_the_end_are_refused_as_the_protocol_says() {
    for headers in ALL {
        let mut client = Client::serving(headers);
        let mut rows = Vec::new();
        for (command, code) in [(READ, 22), (WRITE, 28), (TRIM, 22), (CACHE, 22), (ZEROES, 28)] {
            rows.push((0, command, SIZE, 512, code));
            rows.push((0, command, SIZE - 512, 1024, code));
            rows.push((0, command, u64::MAX - 511, 1024, code));
            rows.push((0, command, u64::MAX - 511, 0, code));
        }
        rows.push((0, STATUS, SIZE, 512, 22));
        refusals(headers, &mut client, &rows);
    }
    let far = [(0, TRIM, 512, u64::MAX - 511, 22), (0, ZEROES, 512, u64::MAX - 511, 28)];
    refusals(Headers::Extended, &mut Client::serving(Headers::Extended), &far);
}

#[test]
fn sectors_are_the_smallest_addresses() {
    for headers in ALL {
        let mut client = Client::serving(headers);
        let mut rows = Vec::new();
        for command in [READ, WRITE, TRIM, CACHE, ZEROES, STATUS] {
            for (offset, len) in [(1, 512), (0, 513), (511, 1), (256, 256), (SIZE - 1, 1)] {
                rows.push((0, command, offset, len, 22));
            }
        }
        refusals(headers, &mut client, &rows);
    }
}

/// A client with smaller blocks than were offered is served all the same.
#[test]
fn sectors_are_served_whatever_the_block_is() {
    let mut export = export();
    export.block = ByteLen(4096);
    let mut client = Client::serving_export(Headers::Simple, export);
    client.send(&request(Headers::Simple, 0, READ, 7, 512, 512));
    assert!(matches!(client.asked().1, Ask::Read { .. }));
}

#[test]
fn a_read_only_export_is_not_written() {
    for headers in ALL {
        let mut client = Client::serving_export(headers, read_only());
        let mut rows = Vec::new();
        for command in [WRITE, TRIM, ZEROES] {
            for (flags, offset, len) in [(0, 0, 512), (FUA, 512, 0), (0, SIZE, 4096)] {
                rows.push((flags, command, offset, len, 1));
            }
        }
        refusals(headers, &mut client, &rows);
        client.send(&request(headers, 0, READ, 7, 0, 512));
        assert!(matches!(client.asked().1, Ask::Read { .. }));
        client.send(&request(headers, 0, FLUSH, 7, 0, 0));
        assert!(matches!(client.asked().1, Ask::Flush));
    }
}

#[test]
fn flags_that_do_not_go_with_a_command_are_refused() {
    for headers in ALL {
        let known = [FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO, PAYLOAD_LEN, 64, 1 << 15];
        let mut rows = Vec::new();
        for command in [READ, WRITE, FLUSH, TRIM, CACHE, ZEROES, STATUS] {
            let allowed = FUA
                | match (command, headers) {
                    (READ, Headers::Structured | Headers::Extended) => DF,
                    (WRITE, Headers::Extended) => PAYLOAD_LEN,
                    (ZEROES, _) => NO_HOLE | FAST_ZERO,
                    (STATUS, _) => REQ_ONE,
                    _ => 0,
                };
            let wrong = known.into_iter().filter(|flag| flag & allowed == 0);
            let has_payload = |flag: &u16| headers == Headers::Extended && *flag == PAYLOAD_LEN;
            rows.extend(
                wrong.filter(|flag| !has_payload(flag)).map(|flag| (flag, command, 0, 512, 22)),
            );
        }
        refusals(headers, &mut Client::serving(headers), &rows);
    }
}

/// The payload form of a status query, and whatever else announces one.
#[test]
fn an_extended_payload_that_nobody_expects_is_skipped() {
    let headers = Headers::Extended;
    let mut client = Client::serving(headers);
    for command in [READ, FLUSH, TRIM, CACHE, ZEROES, STATUS, 99] {
        let head = request(headers, PAYLOAD_LEN, command, 7, 0, 512);
        client.send(&head);
        assert!(client.heard().is_empty(), "not before its payload has come");
        client.send(&[0x21; 512]);
        assert_eq!(error(headers, &client.sent(), 7, 0).0, 22);
    }
}

#[test]
fn an_extended_write_without_payload_is_refused() {
    let headers = Headers::Extended;
    let mut client = Client::serving(headers);
    let mut head = request(headers, 0, WRITE, 7, 0, 512);
    head[5] = 0;
    assert_eq!(error(headers, &client.refused(&head), 7, 0).0, 22);
    client.send(&request(headers, 0, CACHE, 7, 0, 512));
    assert_eq!(client.sent(), done(headers, 7, 0));
}

#[test]
fn resizing_and_unknown_commands_are_refused() {
    for headers in ALL {
        let rows = [8, 9, 100, u16::MAX].map(|command| (0, command, 0, 512, 22));
        refusals(headers, &mut Client::serving(headers), &rows);
    }
}

#[test]
fn a_status_needs_its_context() {
    let mut client = Client::serving(Headers::Simple);
    let reply = client.refused(&request(Headers::Simple, 0, STATUS, 7, 0, 512));
    assert_eq!(reply, simple(22, 7));
}

#[test]
fn more_than_a_payload_at_a_time_is_refused() {
    let (most, more) = (32 << 20, (32 << 20) + 512);
    for headers in ALL {
        let mut client = Client::serving(headers);
        client.send(&request(headers, 0, READ, 7, 0, most));
        assert!(matches!(client.asked().1, Ask::Read { .. }));
        let code = if headers == Headers::Simple { 22 } else { 75 };
        refusals(headers, &mut client, &[(0, READ, 0, more, code), (FUA, READ, 0, SIZE, code)]);
    }
    for headers in [Headers::Simple, Headers::Structured] {
        let mut client = Client::serving(headers);
        refusals(headers, &mut client, &[(0, WRITE, 0, more, 22), (0, WRITE, 0, SIZE, 22)]);
        client.send(&write(headers, 0, 7, 0, &vec![1; 32 << 20]));
        assert!(matches!(client.asked().1, Ask::Write { data, .. } if data.len() == 32 << 20));
    }
}

/// With 64 bits nobody will ever send what is announced, and the protocol asks for an end.
#[test]
fn an_extended_payload_that_is_too_long_ends_the_connection() {
    for (command, len) in [(WRITE, (32 << 20) + 1), (WRITE, u64::MAX), (STATUS, 1 << 40)] {
        let mut client = Client::serving(Headers::Extended);
        client.send(&request(Headers::Extended, PAYLOAD_LEN, command, 7, 0, len));
        assert_eq!(client.closed(), Some(ProtocolError::PayloadTooLong { len }));
    }
}

#[test]
fn requests_of_another_style_end_the_connection() {
    for headers in ALL {
        let other = match headers {
            Headers::Extended => Headers::Simple,
            Headers::Simple | Headers::Structured => Headers::Extended,
        };
        let mut client = Client::serving(headers);
        client.send(&[request(other, 0, READ, 7, 0, 512), vec![0; 8]].concat());
        assert!(matches!(client.closed(), Some(ProtocolError::RequestMagic { .. })));
    }
}

#[test]
fn another_size_is_another_end() {
    let headers = Headers::Structured;
    let mut client = Client::serving(headers);
    client.connection.resized(ByteLen(SIZE + 512));
    client.send(&request(headers, 0, READ, 7, SIZE, 512));
    assert!(matches!(client.asked().1, Ask::Read { .. }));
    client.connection.resized(ByteLen(512));
    let reply = client.refused(&request(headers, 0, READ, 7, 512, 512));
    let (code, message) = error(headers, &reply, 7, 512);
    assert_eq!(code, 22);
    assert!(message.contains("512 bytes"), "{message}");
}
