//! The calling end: a channel to a participant that has to prove who it is.
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::AsyncBufReadExt;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

use crate::HANDSHAKE_MAX;
use crate::connection::Io;
use crate::dial::{self, ConnectError};
use crate::identity::Identity;
use crate::name::Name;
use crate::tls::{self, Protocol};

/// A peer that is silent for so long is asked, and given up if it stays so: calls fail within seconds
/// when a machine vanishes.
const ALIVE_EVERY: Duration = Duration::from_secs(3);
const ALIVE_WITHIN: Duration = Duration::from_secs(3);

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
        let found = dial::resolve(host, uri.port_u16().unwrap_or_default()).await?;
        let Some((config, server)) = &self.tls else {
            return match dial::beyond(&found) {
                Some(address) => Err(ConnectError::PlainBeyondThisMachine { address }),
                None => Ok(Box::new(dial::plain(&found).await?)),
            };
        };
        let mut stream = dial::secured(&found, config.clone(), server.clone()).await?;
        // In TLS 1.3 a client is done before the server has looked at its certificate. The server speaks
        // first in HTTP/2, so its word, or why there is none, is waited for here.
        if stream.fill_buf().await.map_err(ConnectError::Handshake)?.is_empty() {
            return Err(ConnectError::Closed);
        }
        Ok(Box::new(stream))
    }
}
