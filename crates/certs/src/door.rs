//! The called end of any protocol: accepts, greets, and hands over connections that are ready.
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::HANDSHAKE_MAX;
use crate::connection::{CROWDED, Connection, Io};
use crate::errors::PeerError;
use crate::unproved::{Limits, Place, Proof, Unproved};

/// Connections that wait in the kernel to be accepted: as many as get in within two seconds if all before them are silent. Who waits
/// does not give up before its turn.
const BACKLOG: u32 = 1024;
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
    #[error("{CROWDED}")]
    Crowded,
    #[error("there are too many connections of this site")]
    TooMany,
    #[error("the connection could not be accepted: {0}")]
    Accept(io::Error),
}

/// Ready connections, as servers take them.
pub type Incoming<C> = ReceiverStream<io::Result<Connection<C>>>;

/// What is done with a new connection before anybody sees it.
pub trait Greeter: Send + Sync + 'static {
    type Caller: Send + Unpin + 'static;

    /// It is given [`HANDSHAKE_MAX`] for that. A caller that is known by then is accepted by its proof; others may prove
    /// themselves later, and can be evicted until they do.
    fn greet(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        proof: Proof,
    ) -> impl Future<Output = Result<(Box<dyn Io>, Self::Caller), Refused>> + Send;
}

/// What may be served without TLS on an address that other machines reach.
pub fn check_plain(address: SocketAddr, plain: bool) -> Result<(), ListenError> {
    match plain && !address.ip().is_loopback() {
        true => Err(ListenError::PlainBeyondThisMachine { address }),
        false => Ok(()),
    }
}

/// Listens on an address. `refused` is told of everybody who is turned away; the address is unknown if not even
/// that could be found out.
pub async fn open<G: Greeter>(
    address: SocketAddr,
    limits: Limits,
    greeter: G,
    refused: impl Fn(Option<SocketAddr>, &Refused) + Send + Sync + 'static,
) -> Result<(SocketAddr, Incoming<G::Caller>), ListenError> {
    let bind = |error| ListenError::Bind { address, error };
    let listener = bound(address).map_err(bind)?;
    let bound = listener.local_addr().map_err(bind)?;
    let (ready, incoming) = mpsc::channel(READY_MAX);
    let door = Arc::new(Door { greeter, ready, refused: Box::new(refused) });
    tokio::spawn(door.accept_all(listener, Unproved::new(limits)));
    Ok((bound, ReceiverStream::new(incoming)))
}

fn bound(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

type Tell = dyn Fn(Option<SocketAddr>, &Refused) + Send + Sync;

struct Door<G: Greeter> {
    greeter: G,
    ready: mpsc::Sender<io::Result<Connection<G::Caller>>>,
    refused: Box<Tell>,
}

impl<G: Greeter> Door<G> {
    /// Goes on until nobody takes connections any more.
    async fn accept_all(self: Arc<Self>, listener: TcpListener, unproved: Arc<Unproved>) {
        let accepted = async || {
            unproved.room().await;
            listener.accept().await
        };
        loop {
            let accepted = tokio::select! {
                next = accepted() => next,
                () = self.ready.closed() => return,
            };
            match accepted {
                Ok((stream, address)) => {
                    tokio::spawn(self.clone().welcome(stream, address, unproved.enter()));
                }
                Err(error) => {
                    (self.refused)(None, &Refused::Accept(error));
                    unproved.shed();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn welcome(self: Arc<Self>, stream: TcpStream, address: SocketAddr, mut place: Place) {
        let proof = place.proof();
        let greeted = tokio::select! {
            greeted = self.greet(stream, address, proof) => greeted,
            () = place.evicted() => Err(Refused::Crowded),
        };
        match greeted {
            Ok((io, caller)) => {
                place.greeted();
                // Nobody may be left to take it: then the server stops.
                let _ = self.ready.send(Ok(Connection { io, caller, place })).await;
            }
            Err(why) => (self.refused)(Some(address), &why),
        }
    }

    async fn greet(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        proof: Proof,
    ) -> Result<(Box<dyn Io>, G::Caller), Refused> {
        stream.set_nodelay(true).map_err(Refused::Accept)?;
        let greeted =
            tokio::time::timeout(HANDSHAKE_MAX, self.greeter.greet(stream, address, proof)).await;
        greeted.map_err(|_| Refused::TooSlow)?
    }
}
