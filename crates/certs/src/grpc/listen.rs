//! The called end: accepts, shakes hands, and hands over connections whose caller is known.
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;

use crate::errors::PeerError;
use crate::grpc::HANDSHAKE_MAX;
use crate::grpc::io::{Caller, Connection, Io};
use crate::identity::Identity;
use crate::tls::{self, Protocol};

/// Connections at a time, those in their handshake included. Nodes, controllers and operators of a site
/// have a few each; more are somebody who does not behave.
const CONNECTIONS_MAX: usize = 1024;
/// Connections that are ready and not yet taken over.
const READY_MAX: usize = 16;
/// After an accept that failed, usually for want of file descriptors: they come back, or nothing helps.
const PAUSE: Duration = Duration::from_millis(50);

/// Ready connections, as a server of gRPC takes them.
pub type Incoming = ReceiverStream<io::Result<Connection>>;

#[derive(Debug, Error)]
pub enum ListenError {
    #[error(
        "{address} can be reached from other machines, and would be served without certificates: give \
         the folder of a certificate with --tls (`pollux certs` makes one), or listen on 127.0.0.1"
    )]
    PlainBeyondThisMachine { address: SocketAddr },
    #[error("{address} cannot be listened on: {error}")]
    Bind { address: SocketAddr, error: io::Error },
}

/// Why a caller was turned away.
#[derive(Debug, Error)]
pub enum Refused {
    #[error("the TLS handshake failed: {0}")]
    Handshake(io::Error),
    #[error("its first words took more than {} s", HANDSHAKE_MAX.as_secs())]
    TooSlow,
    #[error("it went away without a word")]
    Gone,
    #[error("it does not speak gRPC: its first words are others")]
    OtherProtocol,
    #[error("it is nobody of this site: {0}")]
    Unknown(#[from] PeerError),
    #[error("the connection could not be accepted: {0}")]
    Accept(io::Error),
}

/// Listens on an address; without an identity only where no other machine can reach it. `refused` is told of
/// everybody who is turned away; the address is unknown if not even that could be found out.
pub async fn listen(
    address: SocketAddr,
    identity: Option<&Identity>,
    refused: impl Fn(Option<SocketAddr>, &Refused) + Send + Sync + 'static,
) -> Result<(SocketAddr, Incoming), ListenError> {
    if identity.is_none() && !address.ip().is_loopback() {
        return Err(ListenError::PlainBeyondThisMachine { address });
    }
    let bind = |error| ListenError::Bind { address, error };
    let listener = TcpListener::bind(address).await.map_err(bind)?;
    let bound = listener.local_addr().map_err(bind)?;
    let (ready, incoming) = mpsc::channel(READY_MAX);
    let tls = identity.map(|identity| tls::server(identity, Protocol::Grpc));
    let door = Door { tls, ready, refused: Arc::new(refused) };
    tokio::spawn(door.accept_all(listener));
    Ok((bound, ReceiverStream::new(incoming)))
}

type Tell = dyn Fn(Option<SocketAddr>, &Refused) + Send + Sync;

#[derive(Clone)]
struct Door {
    tls: Option<Arc<ServerConfig>>,
    ready: mpsc::Sender<io::Result<Connection>>,
    refused: Arc<Tell>,
}

impl Door {
    /// Goes on until nobody takes connections any more.
    async fn accept_all(self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let accepted = async || {
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            (listener.accept().await, place)
        };
        loop {
            let (accepted, place) = tokio::select! {
                next = accepted() => next,
                () = self.ready.closed() => return,
            };
            match accepted {
                Ok((stream, address)) => {
                    tokio::spawn(self.clone().welcome(stream, address, place));
                }
                Err(error) => {
                    (self.refused)(None, &Refused::Accept(error));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn welcome(self, stream: TcpStream, address: SocketAddr, place: OwnedSemaphorePermit) {
        match self.shake_hands(stream, address).await {
            Ok((io, caller)) => {
                let connection = Connection { io, caller, _place: place };
                // Nobody may be left to take it: then the server stops.
                let _ = self.ready.send(Ok(connection)).await;
            }
            Err(why) => (self.refused)(Some(address), &why),
        }
    }

    async fn shake_hands(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Result<(Box<dyn Io>, Caller), Refused> {
        stream.set_nodelay(true).map_err(Refused::Accept)?;
        let Some(tls) = &self.tls else {
            let greeted = tokio::time::timeout(HANDSHAKE_MAX, first_words(&stream)).await;
            greeted.map_err(|_| Refused::TooSlow)??;
            return Ok((Box::new(stream), Caller { address, name: None }));
        };
        let handshake = TlsAcceptor::from(tls.clone()).accept(stream);
        let stream = tokio::time::timeout(HANDSHAKE_MAX, handshake).await;
        let stream = stream.map_err(|_| Refused::TooSlow)?.map_err(Refused::Handshake)?;
        let name = tls::peer_name(stream.get_ref().1)?;
        Ok((Box::new(stream), Caller { address, name: Some(name) }))
    }
}

/// What every connection of HTTP/2 begins with.
const FIRST_WORDS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Before it is looked again whether the rest has come: clients send it in one.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Waits for them without taking them: the server of gRPC, which does, waits for ever.
async fn first_words(stream: &TcpStream) -> Result<(), Refused> {
    let mut bytes = [0; FIRST_WORDS.len()];
    loop {
        let have = stream.peek(&mut bytes).await.map_err(Refused::Accept)?;
        if have == 0 {
            return Err(Refused::Gone);
        }
        if bytes[..have] != FIRST_WORDS[..have] {
            return Err(Refused::OtherProtocol);
        }
        if have == FIRST_WORDS.len() {
            return Ok(());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
