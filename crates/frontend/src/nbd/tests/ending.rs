//! How connections end: by the client, by a shutdown, by nonsense.
use super::client::*;
use crate::ask::{Answer, AskError};
use crate::nbd::ProtocolError;

const DISC: u16 = 2;

#[test]
fn a_client_that_disconnects_is_let_go() {
    for headers in ALL {
        let mut client = Client::serving(headers);
        client.send(&request(headers, 0, DISC, 7, 0, 0));
        assert_eq!(client.closed(), None);
    }
}

/// Also those that had to wait for their turn.
#[test]
fn what_is_under_way_is_finished_before_the_end() {
    for headers in ALL {
        let mut client = Client::serving(headers);
        let mut stream = Vec::new();
        for cookie in 0..300 {
            stream.extend(request(headers, 0, 3, cookie, 0, 0));
        }
        stream.extend(request(headers, 0, DISC, 7, 0, 0));
        stream.extend(request(headers, 0, 3, 999, 0, 0));
        client.send(&stream);
        assert_eq!(client.heard().len(), 256);
        assert!(!client.connection.wants_bytes());
        client.send(&request(headers, 0, 3, 1000, 0, 0));
        assert!(client.heard().is_empty(), "nothing counts after a disconnect");
        for cookie in 0..300u64 {
            // The place of the first is taken by the first that waited, and so on.
            let id = if cookie < 256 { cookie } else { cookie - 256 };
            client.answered(id, Ok(Answer::Done));
            let heard = client.heard();
            assert_eq!(heard[0], Heard::Sent(done(headers, cookie, 0)));
            match cookie {
                0..44 => assert!(matches!(heard[1..], [Heard::Ask(..)])),
                299 => assert_eq!(heard[1..], [Heard::Close(None)]),
                _ => assert!(heard[1..].is_empty()),
            }
        }
    }
}

#[test]
fn requests_are_refused_while_the_server_shuts_down() {
    for headers in ALL {
        let mut client = Client::serving(headers);
        client.send(&request(headers, 0, 3, 1, 0, 0));
        let (id, _) = client.asked();
        client.connection.shut_down();
        assert!(client.connection.wants_bytes());
        let bytes = [
            request(headers, 0, 0, 7, 512, 512),
            write(headers, 0, 7, 512, &[0x25; 512]),
            request(headers, 0, 3, 7, 512, 0),
            request(headers, 0, 5, 7, 512, 512),
            request(headers, 0, 99, 7, 512, 512),
        ];
        for bytes in bytes {
            let reply = client.refused(&bytes);
            assert_eq!(error(headers, &reply, 7, 512).0, 108);
        }
        assert_eq!(client.connection.under_way(), 1);
        client.answered(id, Ok(Answer::Done));
        assert_eq!(client.sent(), done(headers, 1, 0));
        assert_eq!(client.connection.under_way(), 0);
        client.send(&request(headers, 0, DISC, 7, 0, 0));
        assert_eq!(client.closed(), None);
    }
}

/// Its head came before.
#[test]
fn a_write_whose_payload_is_on_its_way_is_carried_out() {
    let mut client = Client::serving(Headers::Simple);
    let bytes = write(Headers::Simple, 0, 7, 0, &[1; 1024]);
    client.send(&bytes[..500]);
    client.connection.shut_down();
    client.send(&bytes[500..]);
    let (id, _) = client.asked();
    client.answered(id, Ok(Answer::Done));
    assert_eq!(client.sent(), simple(0, 7));
}

#[test]
fn a_negotiation_is_refused_while_the_server_shuts_down() {
    let mut client = Client::new();
    client.send(&option(7, &question("disk", &[])));
    client.heard();
    client.connection.shut_down();
    client.opened(Ok(export()));
    assert_eq!(option_error(7, &client.sent()).0, 7);
    for number in [3, 5, 6, 7, 8, 9, 10, 11, 99] {
        client.send(&option(number, b"whatever"));
        assert_eq!(option_error(number, &client.sent()).0, 7);
    }
    client.send(&option(2, &[]));
    assert_eq!(client.heard()[1..], [Heard::Close(None)]);

    let mut client = Client::new();
    client.connection.shut_down();
    client.send(&option(1, b"disk"));
    assert_eq!(client.closed(), Some(ProtocolError::ShuttingDown));

    let mut client = Client::new();
    client.send(&option(1, b"disk"));
    client.heard();
    client.connection.shut_down();
    client.opened(Ok(export()));
    assert_eq!(client.closed(), Some(ProtocolError::ShuttingDown));
}

#[test]
fn nonsense_ends_the_connection_and_late_answers_are_nothing_to_it() {
    for headers in ALL {
        let mut client = Client::serving(headers);
        client.send(&request(headers, 0, 3, 1, 0, 0));
        let (id, _) = client.asked();
        client.send(&[0xcc; 64]);
        let Some(ProtocolError::RequestMagic { found: 0xcccc_cccc, expected }) = client.closed()
        else {
            panic!("not closed for its magic");
        };
        assert_eq!(expected == 0x21e4_1c71, headers == Headers::Extended);
        client.answered(id, Err(AskError::Stopped));
        client.send(&request(headers, 0, 3, 1, 0, 0));
        client.connection.resized(block::ByteLen(512));
        client.connection.shut_down();
        assert!(client.heard().is_empty());
        assert!(client.connection.landing().is_empty());
        assert_eq!(client.connection.under_way(), 0);
    }
}
