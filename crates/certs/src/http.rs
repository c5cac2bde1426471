//! The two ends of the site's API: HTTP/1.1 for people and programs, who are not of the site.
//!
//! Only the server shows a certificate, that of the catalog; who calls is told by what it says, such as a token,
//! and that is not our affair. Without certificates both ends stay on this machine.
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Body;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_stream::StreamExt;

use crate::HANDSHAKE_MAX;
use crate::connection::{self, Io};
use crate::dial::{self, ConnectError};
use crate::door::{self, Greeter, ListenError, Refused};
use crate::identity::Identity;
use crate::name::Name;
use crate::tls::{self, Protocol};
use crate::trust::Trust;
use crate::unproved::{Limits, Proof};

/// From the first byte of a request to the end of its headers. They fit into one packet or two.
pub const HEADERS_MAX: Duration = Duration::from_secs(5);

/// A connection of which only its address is known.
pub type Connection = connection::Connection<SocketAddr>;

pub type Incoming = door::Incoming<SocketAddr>;

/// Listens on an address; without an identity only where no other machine can reach it. A connection is handed
/// over when its first byte has come: whoever says nothing is refused. `refused` is told of everybody who is
/// turned away; the address is unknown if not even that could be found out.
pub async fn listen(
    address: SocketAddr,
    identity: Option<&Identity>,
    refused: impl Fn(Option<SocketAddr>, &Refused) + Send + Sync + 'static,
) -> Result<(SocketAddr, Incoming), ListenError> {
    door::check_plain(address, identity.is_none())?;
    let tls = identity.map(|identity| tls::server(identity, Protocol::Http));
    door::open(address, Limits::SITE, Open { tls }, refused).await
}

/// The same without TLS on any address, for what everybody may see. No connection proves anything here: there are few at
/// a time, and the oldest goes when more come.
pub async fn listen_public(
    address: SocketAddr,
    refused: impl Fn(Option<SocketAddr>, &Refused) + Send + Sync + 'static,
) -> Result<(SocketAddr, Incoming), ListenError> {
    door::open(address, Limits::PUBLIC, Open { tls: None }, refused).await
}

/// Serves connections until there are no more: one request each, whose headers have to come within [`HEADERS_MAX`], and
/// whose answer has to be read within `connection_max`. A [`Proof`] is found among the extensions of a request.
pub async fn serve<S, B>(mut incoming: Incoming, connection_max: Duration, service: S)
where
    S: Service<Request<hyper::body::Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    while let Some(connection) = incoming.next().await {
        let Ok(connection) = connection else { continue };
        let (proof, service) = (connection.proof(), service.clone());
        let service = service_fn(move |mut request| {
            request.extensions_mut().insert(proof.clone());
            service.call(request)
        });
        tokio::spawn(async move {
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEADERS_MAX).keep_alive(false);
            let served = http.serve_connection(TokioIo::new(connection), service);
            // Whoever breaks off, speaks something else, or does not listen loses its own connection.
            let _ = tokio::time::timeout(connection_max, served).await;
        });
    }
}

/// Connects to the API of a site, host:port; without trust only on this machine.
pub async fn connect(address: &str, trust: Option<&Trust>) -> Result<Box<dyn Io>, ConnectError> {
    let opened = tokio::time::timeout(HANDSHAKE_MAX, dial(address, trust)).await;
    opened.map_err(|_| ConnectError::TooSlow)?
}

async fn dial(address: &str, trust: Option<&Trust>) -> Result<Box<dyn Io>, ConnectError> {
    let bad = || ConnectError::BadAddress { address: address.into() };
    let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
    let port = port.parse().map_err(|_| bad())?;
    let host = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.strip_suffix(']').ok_or_else(bad)?,
        None => host,
    };
    if host.is_empty() {
        return Err(bad());
    }
    let found = dial::resolve(host, port).await?;
    let Some(trust) = trust else {
        return match dial::beyond(&found) {
            Some(address) => Err(ConnectError::NobodyTrusted { address }),
            None => Ok(Box::new(dial::plain(&found).await?)),
        };
    };
    let server = tls::server_name(&Name::catalog());
    Ok(Box::new(dial::secured(&found, tls::anonymous(trust), server).await?))
}

struct Open {
    tls: Option<Arc<ServerConfig>>,
}

/// What TLS begins with, and no word of HTTP.
const TLS_HANDSHAKE: u8 = 0x16;

impl Greeter for Open {
    type Caller = SocketAddr;

    async fn greet(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        _: Proof,
    ) -> Result<(Box<dyn Io>, SocketAddr), Refused> {
        let Some(tls) = &self.tls else {
            let mut first = [0];
            return match stream.peek(&mut first).await.map_err(Refused::Accept)? {
                0 => Err(Refused::Gone),
                _ if first == [TLS_HANDSHAKE] => Err(Refused::SpeaksTls),
                _ => Ok((Box::new(stream), address)),
            };
        };
        let handshake = TlsAcceptor::from(tls.clone()).accept(stream);
        let mut stream = handshake.await.map_err(Refused::Handshake)?;
        // A client that does not believe our certificate says so here.
        match stream.fill_buf().await.map_err(Refused::Handshake)? {
            [] => Err(Refused::Gone),
            _ => Ok((Box::new(stream), address)),
        }
    }
}

#[cfg(test)]
mod tests;
