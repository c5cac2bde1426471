//! TLS between participants of a site, for whatever protocol they speak.
//!
//! TLS 1.3 only; both sides show a certificate and verify the other's against the site's authority, but for
//! HTTP, whose clients prove who they are by other means.
//! Nothing is resumed: every connection is verified anew, so that a certificate that expired is out.
use std::sync::Arc;

use rustls::client::{Resumption, WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, CommonState, ConfigBuilder, RootCertStore, ServerConfig};

use crate::errors::PeerError;
use crate::identity::Identity;
use crate::inspect::name_of;
use crate::name::Name;
use crate::provider::provider;
use crate::trust::Trust;

/// What is spoken inside; told in the handshake, so that a caller at the wrong door is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Grpc,
    /// Between targets and replicas.
    Peer,
    /// For people and programs that have no certificate: only the server shows one.
    Http,
}

impl Protocol {
    fn alpn(self) -> Vec<u8> {
        match self {
            Protocol::Grpc => b"h2".into(),
            Protocol::Peer => b"pollux-peer/1".into(),
            Protocol::Http => b"http/1.1".into(),
        }
    }
}

pub fn server(identity: &Identity, protocol: Protocol) -> Arc<ServerConfig> {
    server_by(identity, protocol, provider())
}

pub(crate) fn server_by(
    identity: &Identity,
    protocol: Protocol,
    by: Arc<CryptoProvider>,
) -> Arc<ServerConfig> {
    let verifier = match protocol {
        Protocol::Http => WebPkiClientVerifier::no_client_auth(),
        Protocol::Grpc | Protocol::Peer => {
            WebPkiClientVerifier::builder_with_provider(identity.authorities.clone(), by.clone())
                .build()
                .expect("an identity has an authority")
        }
    };
    let mut config = ServerConfig::builder_with_provider(by)
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites for TLS 1.3")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity.own.clone())));
    config.alpn_protocols = vec![protocol.alpn()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

pub fn client(identity: &Identity, protocol: Protocol) -> Arc<ClientConfig> {
    client_by(identity, protocol, provider())
}

pub(crate) fn client_by(
    identity: &Identity,
    protocol: Protocol,
    by: Arc<CryptoProvider>,
) -> Arc<ClientConfig> {
    let own = Arc::new(SingleCertAndKey::from(identity.own.clone()));
    let config = client_builder(&identity.authorities, by).with_client_cert_resolver(own);
    finished(config, protocol)
}

/// A client that shows no certificate: for [`Protocol::Http`].
pub fn anonymous(trust: &Trust) -> Arc<ClientConfig> {
    let config = client_builder(&trust.authorities, provider()).with_no_client_auth();
    finished(config, Protocol::Http)
}

fn client_builder(
    authorities: &Arc<RootCertStore>,
    by: Arc<CryptoProvider>,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let verifier = WebPkiServerVerifier::builder_with_provider(authorities.clone(), by.clone())
        .build()
        .expect("there is an authority");
    ClientConfig::builder_with_provider(by)
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites for TLS 1.3")
        .with_webpki_verifier(verifier)
}

fn finished(mut config: ClientConfig, protocol: Protocol) -> Arc<ClientConfig> {
    config.alpn_protocols = vec![protocol.alpn()];
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// Whom a client wants to reach: the participant, wherever it is.
pub fn server_name(name: &Name) -> ServerName<'static> {
    ServerName::try_from(name.dns()).expect("a name is a label of DNS")
}

/// Who is at the other end of a connection whose handshake is finished.
pub fn peer_name(connection: &CommonState) -> Result<Name, PeerError> {
    let certificates = connection.peer_certificates().unwrap_or_default();
    name_of(certificates.first().ok_or(PeerError::NoCertificate)?)
}

#[cfg(test)]
mod tests;
