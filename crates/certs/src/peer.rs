//! The calling end of the peer protocol for a caller that awaits; the data plane moves its bytes itself ([`crate::session`]).
use std::net::SocketAddr;

use crate::HANDSHAKE_MAX;
use crate::connection::Io;
use crate::dial::{self, ConnectError};
use crate::identity::Identity;
use crate::name::Name;
use crate::tls::{self, Protocol};

/// Connects to the peer address of a node, which has to prove that it is `server`; without an identity only on this
/// machine.
pub async fn connect(
    address: SocketAddr,
    server: &Name,
    identity: Option<&Identity>,
) -> Result<Box<dyn Io>, ConnectError> {
    let opened = tokio::time::timeout(HANDSHAKE_MAX, open(address, server, identity)).await;
    opened.map_err(|_| ConnectError::TooSlow)?
}

async fn open(
    address: SocketAddr,
    server: &Name,
    identity: Option<&Identity>,
) -> Result<Box<dyn Io>, ConnectError> {
    let Some(identity) = identity else {
        return match dial::beyond(&[address]) {
            Some(address) => Err(ConnectError::PlainBeyondThisMachine { address }),
            None => Ok(Box::new(dial::plain(&[address]).await?)),
        };
    };
    let (config, server) = (tls::client(identity, Protocol::Peer), tls::server_name(server));
    Ok(Box::new(dial::secured(&[address], config, server).await?))
}
