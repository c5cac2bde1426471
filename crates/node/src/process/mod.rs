//! The process of a node: one thread is the data plane, another talks to the catalog and to
//! whoever administers the node.
mod copies;
mod data;
mod failures;
mod memory;
mod register;
mod topology;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use certs::session::Sessions;
use certs::tls::Protocol;
use certs::{Identity, ListenError, LoadError, Name, Refused};
use mio::Poll;
use proto::catalog_client::Client;
use proto::v1::node_admin_server::NodeAdminServer;
use replication::target::starting;
use replication::words::NodeId;
use thiserror::Error;
use tokio::sync::mpsc;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tracing::{error, info, warn};

use crate::admin::{Admin, Fence};
use crate::catalog::{Books, Of, follow};
use crate::clock;
use crate::complaints::Complaints;
use crate::shard::{Order, Report, Sender, Shard};

use failures::Failures;

pub use copies::Copies;
pub use data::{DataError, PoolOption};
pub use memory::{Memory, MemoryError};
pub use topology::{OWN_KEY, TopologyError, TopologyPair, topology};

/// How long a node that starts waits for the catalog before it goes on with what it remembers.
const CATALOG_PATIENCE: Duration = Duration::from_secs(2);

/// Administrators that vanished leave their places within twice as long.
const ALIVE_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Options {
    pub id: NodeId,
    pub name: String,
    /// Where it remembers what the catalog said.
    pub state: PathBuf,
    pub pools: Vec<PoolOption>,
    pub peers: SocketAddr,
    pub nbd: Option<SocketAddr>,
    pub nbd_socket: Option<PathBuf>,
    pub iscsi: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    pub admin: SocketAddr,
    /// host:port of the catalog.
    pub catalog: String,
    /// The folder of a certificate. Without it only this machine can be served.
    pub tls: Option<PathBuf>,
    /// Where it is, beside its own name.
    pub topology: Vec<TopologyPair>,
    /// How often it takes a copy of the catalog.
    pub copies_every: Duration,
}

/// Where a node that runs can be reached.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub peers: SocketAddr,
    pub nbd: Option<SocketAddr>,
    pub iscsi: Option<SocketAddr>,
    pub admin: SocketAddr,
    pub metrics: Option<SocketAddr>,
}

#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    Certificate(#[from] LoadError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(
        "{address} can be reached from other machines, and peers are served there with certificates \
         only: give the folder of one with --tls (`pollux certs` makes it), or listen on 127.0.0.1"
    )]
    PlainBeyondThisMachine { address: SocketAddr },
    #[error(
        "the certificate is that of {found}, and this is node {id}: its peers would refuse it; make one \
         with `pollux certs issue node-{id}`"
    )]
    OtherName { found: Name, id: NodeId },
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(transparent)]
    Connect(#[from] certs::ConnectError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("the node could not be started: {0}")]
    Start(#[from] io::Error),
    #[error("the admin server stopped: {0}")]
    Server(#[from] tonic::transport::Error),
    #[error("the data plane ended by itself")]
    DataEnded,
}

/// Serves until `stop` comes to its end; then closes everything cleanly.
pub async fn serve(
    options: Options,
    ready: impl FnOnce(Addresses) -> io::Result<()>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let place = topology(&options.name, &options.topology)?;
    let identity = options.tls.as_deref().map(Identity::load).transpose()?;
    check_identity(&options, identity.as_ref())?;
    if let Err(error) = certs::raise_descriptors() {
        warn!(%error, "the limit of descriptors stays as it is");
    }
    let memory = Arc::new(Memory::open(&options.state)?);
    let failures = Failures::open(&options.state)?;
    let poll = Poll::new()?;
    let (shard, orders) = Sender::new(Shard::waker(&poll)?);
    let (report, reports) = mpsc::unbounded_channel();
    let tls = identity.as_ref().map(|identity| Sessions::new(identity, Protocol::Peer));
    let mut data = data::start(&options, failures.clone(), tls, poll, orders, report)?;
    let refused = complaining("admin", "an administrator is refused");
    let (admin, incoming) = certs::listen(options.admin, identity.as_ref(), refused).await?;
    let metrics = match options.metrics {
        Some(at) => {
            let refused = complaining("metrics", "a connection for figures is closed");
            Some(crate::metrics::serve(at, shard.clone(), refused).await?)
        }
        None => None,
    };
    let addresses =
        Addresses { peers: data.peers, nbd: data.nbd, iscsi: data.iscsi, admin, metrics };

    let channel = certs::channel(&options.catalog, &Name::catalog(), identity.as_ref())?;
    let books = Arc::new(Books::new(Client::new(channel), options.id, Arc::clone(&memory)));
    let fence = Arc::new(Fence::default());
    tokio::spawn(follow(Arc::clone(&books), Arc::clone(&fence), shard.clone()));
    tokio::spawn(take_reports(Arc::clone(&books), failures.clone(), shard.clone(), reports));
    // Whoever reads that this node is ready finds it in the catalog too, unless that is away.
    let node = register::node(&options, addresses, place);
    let (registered, is_registered) = tokio::sync::oneshot::channel();
    tokio::spawn(register::stay_registered(Arc::clone(&books), node, registered));
    if tokio::time::timeout(CATALOG_PATIENCE, is_registered).await.is_err() {
        warn!("the catalog is away: it is told later where this node is");
    }
    let copies = Copies::open(&options.state)?;
    let taking = copies::keep_copies(Arc::clone(&books), copies.clone(), options.copies_every);
    tokio::spawn(taking);
    tokio::spawn(resume(Arc::clone(&books), shard.clone(), options.id));

    let service = Admin::new(options.id, identity, shard.clone(), books, fence, copies);
    let service = InterceptedService::new(NodeAdminServer::new(service), certs::admit);
    let server = Server::builder()
        .http2_keepalive_interval(Some(ALIVE_WITHIN))
        .http2_keepalive_timeout(Some(ALIVE_WITHIN))
        .serve_with_incoming(service, incoming);
    ready(addresses)?;
    info!(node = options.name, peers = %addresses.peers, admin = %addresses.admin, "serving");
    tokio::select! {
        served = server => served?,
        ended = &mut data.ended => {
            return Err(ended.map_or(ServeError::DataEnded, |end| match end {
                Ok(()) => ServeError::DataEnded,
                Err(error) => error.into(),
            }));
        }
        () = stop => {}
    }
    info!("stopping");
    shard.send(Order::End);
    let ended = data.ended.await;
    // A pool may have failed while it was closed.
    failures.sync()?;
    match ended {
        Ok(ended) => Ok(ended?),
        Err(_) => Err(ServeError::DataEnded),
    }
}

/// Tells the log of callers that are refused, and no flood of them.
fn complaining(
    kind: &'static str,
    message: &'static str,
) -> impl Fn(Option<SocketAddr>, &Refused) + Send + Sync + 'static {
    let complaints = Mutex::new(Complaints::default());
    move |from, why| {
        let what = format!("{:?} {why}", from.map(|from| from.ip()));
        let mut complaints = complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = complaints.due(kind, &what, clock::now()) {
            warn!(?from, %why, before, "{message}");
        }
    }
}

fn check_identity(options: &Options, identity: Option<&Identity>) -> Result<(), ServeError> {
    match identity.map(Identity::name) {
        None if !options.peers.ip().is_loopback() => {
            Err(ServeError::PlainBeyondThisMachine { address: options.peers })
        }
        Some(name) if name.node_id() != Some(options.id.0) => {
            Err(ServeError::OtherName { found: name.clone(), id: options.id })
        }
        _ => Ok(()),
    }
}

/// Carries questions of targets to the catalog, and makes notes of failed pools durable.
async fn take_reports(
    books: Arc<Books>,
    failures: Failures,
    shard: Sender,
    mut reports: mpsc::UnboundedReceiver<Report>,
) {
    while let Some(report) = reports.recv().await {
        let (volume, name, run, ask) = match report {
            Report::Catalog { volume, name, run, ask } => (volume, name, run, ask),
            Report::PoolFailed { .. } => {
                if let Err(error) = failures.sync() {
                    error!(%error, "the note that a pool failed lasts only until the next boot");
                }
                continue;
            }
            // Behind its last question: reports keep their order.
            Report::Stopped { run, .. } => {
                books.stopped(run);
                continue;
            }
        };
        let first = books.asked(run);
        let (books, shard) = (Arc::clone(&books), shard.clone());
        tokio::spawn(async move {
            let of = Of { name: &name, uid: volume };
            if let Some(answer) = books.answer(of, first, ask).await {
                shard.send(Order::Catalog { volume, run, answer });
            }
        });
    }
}

/// Targets that this node has the grant for start again by themselves.
async fn resume(books: Arc<Books>, shard: Sender, node: NodeId) {
    let known = tokio::time::timeout(CATALOG_PATIENCE, books.current()).await.is_ok();
    if !known {
        warn!("the catalog is away: going on with what it said before");
    }
    for known in books.granted_to(node) {
        let Some(begin) = starting::resume(&known.record.object, node) else { continue };
        let name = known.record.name.clone();
        let answer = Box::new(move |started| {
            if let Err(refusal) = started {
                error!(volume = name, %refusal, "a target does not start again");
            }
        });
        books.send_newest(known.record, |record| {
            let record = Box::new(record);
            shard.send(Order::StartTarget { record, begin, answer });
        });
    }
}

#[cfg(test)]
mod tests;
