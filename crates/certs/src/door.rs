//! The called end of any protocol: accepts, greets, and hands over connections that are ready.
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use crate::HANDSHAKE_MAX;
use crate::connection::{Connection, Io};
use crate::errors::PeerError;

/// Connections at a time, those in their handshake included. Nodes, controllers and operators of a site
/// have a few each; more are somebody who does not behave.
const CONNECTIONS_MAX: usize = 1024;
/// Connections that are ready and not yet taken over.
const READY_MAX: usize = 16;
/// After an accept that failed, usually for want of file descriptors: they come back, or nothing helps.
const PAUSE: Duration = Duration::from_millis(50);

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
    #[error(
        "it speaks TLS, and this end has no certificate: call it without, or start it with --tls"
    )]
    SpeaksTls,
    #[error("it is nobody of this site: {0}")]
    Unknown(#[from] PeerError),
    #[error("the connection could not be accepted: {0}")]
    Accept(io::Error),
}

/// Ready connections, as servers take them.
pub type Incoming<C> = ReceiverStream<io::Result<Connection<C>>>;

/// What is done with a new connection before anybody sees it.
pub trait Greeter: Send + Sync + 'static {
    type Caller: Send + Unpin + 'static;

    /// It is given [`HANDSHAKE_MAX`] for that.
    fn greet(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> impl Future<Output = Result<(Box<dyn Io>, Self::Caller), Refused>> + Send;
}

/// Listens on an address; plainly only where no other machine can reach it. `refused` is told of
/// everybody who is turned away; the address is unknown if not even that could be found out.
pub async fn open<G: Greeter>(
    address: SocketAddr,
    plain: bool,
    greeter: G,
    refused: impl Fn(Option<SocketAddr>, &Refused) + Send + Sync + 'static,
) -> Result<(SocketAddr, Incoming<G::Caller>), ListenError> {
    if plain && !address.ip().is_loopback() {
        return Err(ListenError::PlainBeyondThisMachine { address });
    }
    let bind = |error| ListenError::Bind { address, error };
    let listener = TcpListener::bind(address).await.map_err(bind)?;
    let bound = listener.local_addr().map_err(bind)?;
    let (ready, incoming) = mpsc::channel(READY_MAX);
    let door = Arc::new(Door { greeter, ready, refused: Box::new(refused) });
    tokio::spawn(door.accept_all(listener));
    Ok((bound, ReceiverStream::new(incoming)))
}

type Tell = dyn Fn(Option<SocketAddr>, &Refused) + Send + Sync;

struct Door<G: Greeter> {
    greeter: G,
    ready: mpsc::Sender<io::Result<Connection<G::Caller>>>,
    refused: Box<Tell>,
}

impl<G: Greeter> Door<G> {
    /// Goes on until nobody takes connections any more.
    async fn accept_all(self: Arc<Self>, listener: TcpListener) {
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

    async fn welcome(
        self: Arc<Self>,
        stream: TcpStream,
        address: SocketAddr,
        place: OwnedSemaphorePermit,
    ) {
        match self.greet(stream, address).await {
            Ok((io, caller)) => {
                let connection = Connection { io, caller, _place: place };
                // Nobody may be left to take it: then the server stops.
                let _ = self.ready.send(Ok(connection)).await;
            }
            Err(why) => (self.refused)(Some(address), &why),
        }
    }

    async fn greet(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Result<(Box<dyn Io>, G::Caller), Refused> {
        stream.set_nodelay(true).map_err(Refused::Accept)?;
        let greeted =
            tokio::time::timeout(HANDSHAKE_MAX, self.greeter.greet(stream, address)).await;
        greeted.map_err(|_| Refused::TooSlow)?
    }
}
