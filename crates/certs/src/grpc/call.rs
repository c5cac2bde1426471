//! The calling end: a channel to a participant that has to prove who it is.
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

use crate::grpc::HANDSHAKE_MAX;
use crate::grpc::io::Io;
use crate::identity::Identity;
use crate::name::Name;
use crate::tls::{self, Protocol};

/// A peer that is silent for so long is asked, and given up if it stays so: calls fail within seconds
/// when a machine vanishes.
const ALIVE_EVERY: Duration = Duration::from_secs(3);
const ALIVE_WITHIN: Duration = Duration::from_secs(3);

#[derive(Debug, Error)]
pub enum ConnectError {
    #[error("{address:?} is no address to call: give host:port")]
    BadAddress { address: String },
    #[error(
        "{address} is another machine, and is not called without certificates: give the folder of a \
         certificate (`pollux certs` makes one)"
    )]
    PlainBeyondThisMachine { address: SocketAddr },
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

/// A channel that connects when it is used, and again after it was lost. `server` is who has to be there.
/// It is made on the runtime that is to carry it.
pub fn channel(
    address: &str,
    server: &Name,
    identity: Option<&Identity>,
) -> Result<Channel, ConnectError> {
    let bad = || ConnectError::BadAddress { address: address.into() };
    let uri: Uri = format!("http://{address}").parse().map_err(|_| bad())?;
    if uri.host().is_none_or(str::is_empty) || uri.port().is_none() || uri.path() != "/" {
        return Err(bad());
    }
    let endpoint = Endpoint::from(uri)
        .http2_keep_alive_interval(ALIVE_EVERY)
        .keep_alive_timeout(ALIVE_WITHIN)
        .keep_alive_while_idle(true);
    let tls =
        identity.map(|identity| (tls::client(identity, Protocol::Grpc), tls::server_name(server)));
    Ok(endpoint.connect_with_connector_lazy(Connector { tls }))
}

#[derive(Clone)]
struct Connector {
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

type Opened = Result<TokioIo<Box<dyn Io>>, ConnectError>;

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Io>>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Opened> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let opened = tokio::time::timeout(HANDSHAKE_MAX, connector.open(&uri)).await;
            opened.map_err(|_| ConnectError::TooSlow)?.map(TokioIo::new)
        })
    }
}

impl Connector {
    async fn open(&self, uri: &Uri) -> Result<Box<dyn Io>, ConnectError> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = uri.port_u16().unwrap_or_default();
        let found = tokio::net::lookup_host((host, port)).await.map_err(ConnectError::Connect)?;
        let found: Vec<SocketAddr> = found.collect();
        let beyond = found.iter().find(|address| !address.ip().is_loopback());
        match (&self.tls, found.is_empty(), beyond) {
            (_, true, _) => return Err(ConnectError::Unresolved { host: host.into() }),
            (None, false, Some(address)) => {
                return Err(ConnectError::PlainBeyondThisMachine { address: *address });
            }
            _ => {}
        }
        let stream = TcpStream::connect(&found[..]).await.map_err(ConnectError::Connect)?;
        stream.set_nodelay(true).map_err(ConnectError::Connect)?;
        let Some((config, server)) = &self.tls else { return Ok(Box::new(stream)) };
        let handshake = TlsConnector::from(config.clone()).connect(server.clone(), stream);
        let mut stream = handshake.await.map_err(ConnectError::Handshake)?;
        // In TLS 1.3 a client is done before the server has looked at its certificate. The server speaks
        // first in HTTP/2, so its word, or why there is none, is waited for here.
        if stream.fill_buf().await.map_err(ConnectError::Handshake)?.is_empty() {
            return Err(ConnectError::Closed);
        }
        Ok(Box::new(stream))
    }
}
