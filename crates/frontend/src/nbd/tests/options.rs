//! Options that the server answers by itself.
use super::client::*;
use crate::nbd::ProtocolError;

/// The flags that a fresh client may send: all that were offered, or fewer.
#[test]
fn client_flags_are_known_or_the_connection_ends() {
    for flags in 0..4 {
        let mut client = raw_client();
        client.send(&[0, 0, 0, flags]);
        assert!(client.heard().is_empty());
    }
    for flags in [4u32, 1 << 31, u32::MAX] {
        let mut client = raw_client();
        client.send(&flags.to_be_bytes());
        assert_eq!(client.closed(), Some(ProtocolError::ClientFlags { flags }));
    }
}

fn raw_client() -> Client {
    let mut out = Vec::new();
    let connection = crate::nbd::Connection::new(CHALLENGE, &mut out);
    let mut client = Client { connection, out };
    assert_eq!(client.sent(), greeting());
    client
}

#[test]
fn an_option_with_a_wrong_magic_ends_the_connection() {
    let mut client = Client::new();
    client.send(&[7; 16]);
    let found = 0x0707_0707_0707_0707;
    assert_eq!(client.closed(), Some(ProtocolError::OptionMagic { found }));
}

#[test]
fn abort_is_acknowledged_and_ends_the_connection() {
    for text in [&b""[..], b"whatever"] {
        let mut client = Client::new();
        client.send(&option(2, text));
        let ack = Heard::Sent(option_reply(2, 1, &[]));
        assert_eq!(client.heard(), [ack, Heard::Close(None)]);
        client.send(b"anything");
        assert!(client.heard().is_empty());
    }
}

#[test]
fn the_list_has_every_name() {
    let mut client = Client::new();
    client.send(&option(3, &[]));
    assert_eq!(client.heard(), [Heard::List]);
    assert!(!client.connection.wants_bytes());
    client.connection.listed(&["a".into(), "längst".into()], None, &mut client.out);
    let expected = [
        option_reply(3, 2, &sized(b"a")),
        option_reply(3, 2, &sized("längst".as_bytes())),
        option_reply(3, 1, &[]),
    ];
    assert_eq!(client.sent(), expected.concat());
    assert!(client.connection.wants_bytes());
    client.send(&option(3, &[]));
    client.heard();
    client.connection.listed(&[], None, &mut client.out);
    assert_eq!(client.sent(), option_reply(3, 1, &[]));
}

#[test]
fn options_without_data_refuse_data() {
    for number in [3, 8, 11] {
        let mut client = Client::new();
        client.send(&option(number, &[0]));
        assert_eq!(option_error(number, &client.sent()).0, 3, "option {number}");
        assert!(client.connection.wants_bytes());
    }
}

#[test]
fn tls_and_unknown_options_are_unsupported_and_negotiation_goes_on() {
    let mut client = Client::new();
    for number in [0, 4, 5, 12, 77, u32::MAX] {
        for text in [&b""[..], b"with data"] {
            client.send(&option(number, text));
            let (kind, message) = option_error(number, &client.sent());
            assert_eq!(kind, 1);
            assert!(message.contains("TLS") || message.contains("not known"), "{message}");
        }
    }
    client.send(&option(8, &[]));
    assert_eq!(client.sent(), option_reply(8, 1, &[]));
}

#[test]
fn structured_replies_are_not_a_step_back_from_extended_headers() {
    let mut client = Client::new();
    client.send(&[option(8, &[]), option(8, &[]), option(11, &[]), option(11, &[])].concat());
    let ack = |number| option_reply(number, 1, &[]);
    assert_eq!(client.sent(), [ack(8), ack(8), ack(11), ack(11)].concat());
    client.send(&option(8, &[]));
    assert_eq!(option_error(8, &client.sent()).0, 10);
}

/// Protects from memory for what a client only announces.
#[test]
fn an_option_that_is_too_long_is_skipped_and_refused() {
    for len in [(64 << 10) + 1, u32::MAX] {
        let mut client = Client::new();
        let head = [b"IHAVEOPT", &7u32.to_be_bytes()[..], &len.to_be_bytes()].concat();
        client.send(&head);
        let mut left = u64::from(len);
        let part = vec![0x55; 16 << 20];
        while left > 0 {
            assert!(client.heard().is_empty());
            let len = usize::try_from(left.min(part.len() as u64)).unwrap();
            client.send(&part[..len]);
            left -= len as u64;
        }
        let (kind, message) = option_error(7, &client.sent());
        assert_eq!(kind, 9);
        assert!(message.contains("64 KiB"), "{message}");
        client.send(&option(8, &[]));
        assert_eq!(client.sent(), option_reply(8, 1, &[]));
    }
}

#[test]
fn an_option_as_long_as_it_may_be_is_read() {
    let mut client = Client::new();
    client.send(&option(99, &vec![1; 64 << 10]));
    assert_eq!(option_error(99, &client.sent()).0, 1);
}

/// EXPORT_NAME has no way to tell an error.
#[test]
fn an_export_name_that_cannot_be_one_ends_the_connection() {
    for name in [&b"\xff"[..], b"a\0b", &[b'a'; 4097]] {
        let mut client = Client::new();
        client.send(&option(1, name));
        assert!(matches!(client.closed(), Some(ProtocolError::ExportName { .. })));
    }
    let mut client = Client::new();
    let head = [b"IHAVEOPT", &1u32.to_be_bytes()[..], &65_537u32.to_be_bytes()].concat();
    client.send(&head);
    assert_eq!(client.closed(), Some(ProtocolError::ExportNameTooLong { len: 65_537 }));
}
