//! The called end: hands over connections whose caller is known.
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tonic::transport::server::Connected;
use tonic::{Request, Status};

use crate::connection::{self, Io};
use crate::door::{self, Greeter, ListenError, Refused};
use crate::identity::Identity;
use crate::name::Name;
use crate::tls::{self, Protocol};
use crate::unproved::{Limits, Proof};

/// Who sent a request; found among its extensions.
#[derive(Clone, Debug)]
pub struct Caller {
    pub address: SocketAddr,
    /// Proved by a certificate. `None`: the connection is plain, and from this machine.
    pub name: Option<Name>,
    proof: Proof,
}

/// For servers of gRPC, as an interceptor: a plain connection, which has no certificate to show, counts as proved when
/// its first request has come. Until then it can be evicted.
pub fn admit(request: Request<()>) -> Result<Request<()>, Status> {
    match request.extensions().get::<Caller>().is_none_or(|caller| caller.proof.accept()) {
        true => Ok(request),
        false => Err(Status::unavailable("too many connections are served: try again")),
    }
}

pub type Connection = connection::Connection<Caller>;

/// Ready connections, as a server of gRPC takes them.
pub type Incoming = door::Incoming<Caller>;

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

/// Listens on an address; without an identity only where no other machine can reach it. `refused` is told of
/// everybody who is turned away; the address is unknown if not even that could be found out.
pub async fn listen(
    address: SocketAddr,
    identity: Option<&Identity>,
    refused: impl Fn(Option<SocketAddr>, &Refused) + Send + Sync + 'static,
) -> Result<(SocketAddr, Incoming), ListenError> {
    door::check_plain(address, identity.is_none())?;
    let tls = identity.map(|identity| tls::server(identity, Protocol::Grpc));
    door::open(address, Limits::SITE, Mutual { tls }, refused).await
}

struct Mutual {
    tls: Option<Arc<ServerConfig>>,
}

impl Greeter for Mutual {
    type Caller = Caller;

    async fn greet(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        proof: Proof,
    ) -> Result<(Box<dyn Io>, Caller), Refused> {
        let Some(tls) = &self.tls else {
            first_words(&stream).await?;
            return Ok((Box::new(stream), Caller { address, name: None, proof }));
        };
        let handshake = TlsAcceptor::from(tls.clone()).accept(stream);
        let stream = handshake.await.map_err(Refused::Handshake)?;
        let name = tls::peer_name(stream.get_ref().1)?;
        match proof.accept() {
            true => Ok((Box::new(stream), Caller { address, name: Some(name), proof })),
            false => Err(Refused::TooMany),
        }
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
