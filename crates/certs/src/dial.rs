//! The calling end of any protocol: finds an address, and connects where that may be done.
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::HANDSHAKE_MAX;

#[derive(Debug, Error)]
pub enum ConnectError {
    #[error("{address:?} is no address to call: give host:port")]
    BadAddress { address: String },
    #[error(
        "{address} is another machine, and is not called without certificates: give the folder of a \
         certificate (`pollux certs` makes one)"
    )]
    PlainBeyondThisMachine { address: SocketAddr },
    #[error(
        "{address} is another machine, and is not called without TLS: give the certificate of the \
         site's authority (`ca.crt`)"
    )]
    NobodyTrusted { address: SocketAddr },
    #[error("{host} has no address")]
    Unresolved { host: String },
    #[error("it cannot be connected to: {0}")]
    Connect(io::Error),
    #[error("the TLS handshake failed: {0}")]
    Handshake(io::Error),
    #[error("it closed the connection after the TLS handshake")]
    Closed,
    #[error("it did not answer within {} s", HANDSHAKE_MAX.as_secs())]
    TooSlow,
}

/// All addresses of a host that has some.
pub async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    let found = tokio::net::lookup_host((host, port)).await.map_err(ConnectError::Connect)?;
    let found: Vec<SocketAddr> = found.collect();
    match found.is_empty() {
        true => Err(ConnectError::Unresolved { host: host.into() }),
        false => Ok(found),
    }
}

/// One that is not of this machine.
pub fn beyond(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    addresses.iter().find(|address| !address.ip().is_loopback()).copied()
}

pub async fn plain(addresses: &[SocketAddr]) -> Result<TcpStream, ConnectError> {
    let stream = TcpStream::connect(addresses).await.map_err(ConnectError::Connect)?;
    stream.set_nodelay(true).map_err(ConnectError::Connect)?;
    Ok(stream)
}

pub async fn secured(
    addresses: &[SocketAddr],
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let stream = plain(addresses).await?;
    TlsConnector::from(config).connect(server, stream).await.map_err(ConnectError::Handshake)
}
