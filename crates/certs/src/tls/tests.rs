//! Protects from a connection with somebody who has not proved who it is.
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, ServerConfig,
    ServerConnection,
};

use super::*;
use crate::scratch::{DAY, Scratch, authority, expired, issue};

/// Somebody with a certificate of this authority.
fn somebody(authority: &crate::Authority, name: &Name) -> Identity {
    let scratch = Scratch::new();
    Identity::load(&issue(authority, name, scratch.path())).expect("it is in order")
}

/// Somebody whose certificate was in order a week ago.
fn of_last_week(authority: &crate::Authority, name: &Name) -> Identity {
    let scratch = Scratch::new();
    let folder = authority.issue(name, &[], expired()).unwrap().write(scratch.path()).unwrap();
    let week_ago = Duration::from_secs(UnixTime::now().as_secs()) - 7 * DAY;
    Identity::load_at(&folder, UnixTime::since_unix_epoch(week_ago)).expect("it was in order then")
}

struct Met {
    client: Result<Name, Error>,
    server: Result<Name, Error>,
}

/// Carries bytes to and fro until both are content, or one is not.
fn meet(client: Arc<ClientConfig>, server: Arc<ServerConfig>, whom: &Name) -> Met {
    let mut client = ClientConnection::new(client, server_name(whom)).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    let (mut client_said, mut server_said) = (Ok(()), Ok(()));
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut arrived = &wire[..];
        while !arrived.is_empty() && server.read_tls(&mut arrived).unwrap() > 0 {
            server_said = server_said.and(server.process_new_packets().map(drop));
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut arrived = &wire[..];
        while !arrived.is_empty() && client.read_tls(&mut arrived).unwrap() > 0 {
            client_said = client_said.and(client.process_new_packets().map(drop));
        }
    }
    let name = |said: Result<(), Error>, connection: &CommonState| {
        said.map(|()| peer_name(connection).expect("a finished connection has a peer"))
    };
    Met { client: name(client_said, &client), server: name(server_said, &server) }
}

fn alert(error: &Result<Name, Error>) -> Option<AlertDescription> {
    match error {
        Err(Error::AlertReceived(alert)) => Some(*alert),
        _ => None,
    }
}

#[test]
fn participants_of_one_site_know_each_other() {
    let authority = authority();
    let node = somebody(&authority, &Name::node(7));
    let catalog = somebody(&authority, &Name::catalog());
    for protocol in [Protocol::Grpc, Protocol::Peer] {
        let met = meet(client(&node, protocol), server(&catalog, protocol), &Name::catalog());
        assert_eq!(met.client, Ok(Name::catalog()));
        assert_eq!(met.server, Ok(Name::node(7)));
    }
}

#[test]
fn whoever_is_certified_by_another_authority_is_refused_on_both_sides() {
    let ours = authority();
    let stranger = somebody(&authority(), &Name::catalog());
    let (node, grpc) = (somebody(&ours, &Name::node(7)), Protocol::Grpc);
    let met = meet(client(&node, grpc), server(&stranger, grpc), &Name::catalog());
    assert!(matches!(met.client, Err(Error::InvalidCertificate(_))), "{:?}", met.client);

    // A client that trusts everybody's authority still has to be certified by the server's.
    let mut trusting = stranger.clone();
    trusting.authorities = node.authorities.clone();
    let met = meet(client(&trusting, grpc), server(&node, grpc), &Name::node(7));
    assert!(matches!(met.server, Err(Error::InvalidCertificate(_))), "{:?}", met.server);
    assert!(alert(&met.client).is_some(), "the client is told");
}

#[test]
fn whoever_shows_no_certificate_is_refused_and_told() {
    let authority = authority();
    let catalog = somebody(&authority, &Name::catalog());
    let mut nobody = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(catalog.authorities.clone())
        .with_no_client_auth();
    nobody.alpn_protocols = vec![Protocol::Grpc.alpn()];
    let met = meet(nobody.into(), server(&catalog, Protocol::Grpc), &Name::catalog());
    assert_eq!(met.server, Err(Error::NoCertificatesPresented));
    assert_eq!(alert(&met.client), Some(AlertDescription::CertificateRequired));
}

#[test]
fn a_certificate_that_expired_is_refused_on_both_sides() {
    let authority = authority();
    let (old, grpc) = (of_last_week(&authority, &Name::node(7)), Protocol::Grpc);
    let catalog = somebody(&authority, &Name::catalog());
    let is_expired = |met: &Result<Name, Error>| {
        matches!(met, Err(Error::InvalidCertificate(CertificateError::ExpiredContext { .. })))
    };
    let met = meet(client(&old, grpc), server(&catalog, grpc), &Name::catalog());
    assert!(is_expired(&met.server), "{:?}", met.server);
    assert_eq!(alert(&met.client), Some(AlertDescription::CertificateExpired));
    let met = meet(client(&catalog, grpc), server(&old, grpc), &Name::node(7));
    assert!(is_expired(&met.client), "{:?}", met.client);
}

/// Protects from one participant that answers in the place of another.
#[test]
fn a_participant_that_is_not_the_one_who_was_called_is_refused() {
    let authority = authority();
    let (one, two) = (somebody(&authority, &Name::node(1)), somebody(&authority, &Name::node(2)));
    let met = meet(client(&one, Protocol::Peer), server(&two, Protocol::Peer), &Name::node(3));
    assert!(matches!(met.client, Err(Error::InvalidCertificate(_))), "{:?}", met.client);
}

#[test]
fn a_caller_at_the_wrong_door_is_turned_away() {
    let authority = authority();
    let (one, two) = (somebody(&authority, &Name::node(1)), somebody(&authority, &Name::node(2)));
    let met = meet(client(&one, Protocol::Grpc), server(&two, Protocol::Peer), &Name::node(2));
    assert_eq!(met.server, Err(Error::NoApplicationProtocol));
}

#[test]
fn a_connection_that_is_not_finished_has_no_peer() {
    let node = somebody(&authority(), &Name::node(1));
    let connection = ServerConnection::new(server(&node, Protocol::Peer)).unwrap();
    assert_eq!(peer_name(&connection), Err(PeerError::NoCertificate));
}
