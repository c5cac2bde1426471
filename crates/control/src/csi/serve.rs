//! The process of the driver: its services on one socket, until it is told to stop.
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::csi::controller_server::ControllerServer;
use proto::csi::group_controller_server::GroupControllerServer;
use proto::csi::identity_server::IdentityServer;
use proto::csi::node_server::NodeServer;
use proto::csi::snapshot_metadata_server::SnapshotMetadataServer;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

use super::controller::ControllerService;
use super::group::GroupService;
use super::identity::IdentityService;
use super::metadata::MetadataService;
use super::node::{Host, Machine, NodeService};
use super::site::{Site, TokenError};
use super::socket::{Socket, SocketError};

/// How long calls that are under way may take when the driver stops. They can all be made again.
const CLOSING_MAX: Duration = Duration::from_secs(5);
/// Calls of one connection at a time.
const STREAMS_MAX: u32 = 256;

/// Which part of the driver this process is.
#[derive(Clone, Debug)]
pub enum Part {
    Controller(Site),
    Node(Site, Host, Machine),
    All(Site, Host, Machine),
}

#[derive(Clone, Debug)]
pub struct Options {
    pub part: Part,
    pub socket: PathBuf,
}

#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("the driver could not be started: {0}")]
    Start(io::Error),
    #[error("it cannot be told that the driver is ready: {0}")]
    Ready(io::Error),
    #[error("the driver's server stopped: {0}")]
    Server(#[from] tonic::transport::Error),
}

/// Serves until SIGTERM or SIGINT. `ready` is told the socket when the first call can come.
pub fn run(
    options: &Options,
    ready: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), ServeError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().map_err(ServeError::Start)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Start)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Start)?;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        serve(options, ready, stop).await
    })
}

/// Serves until `stop` comes to its end. The socket is gone when this returns.
pub async fn serve(
    options: &Options,
    ready: impl FnOnce(&Path) -> io::Result<()>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let services = services(&options.part)?;
    let (socket, listener) = Socket::open(&options.socket)?;
    let listener = tokio::net::UnixListener::from_std(listener).map_err(ServeError::Start)?;
    let (closing, closed) = oneshot::channel::<()>();
    let server = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .add_routes(services)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async {
            // It is dropped only together with the server.
            let _ = closed.await;
        });
    ready(&options.socket).map_err(ServeError::Ready)?;
    let mut server = std::pin::pin!(server);
    tokio::select! {
        () = stop => {}
        served = &mut server => return Ok(served?),
    }
    // Gone first, so that whoever comes now waits for the next driver and not for this one.
    drop(socket);
    let _ = closing.send(());
    let _ = tokio::time::timeout(CLOSING_MAX, server).await;
    Ok(())
}

/// A token that cannot be read is found now, and not by the first claim.
fn services(part: &Part) -> Result<Routes, TokenError> {
    let (site, controls, node) = match part.clone() {
        Part::Controller(site) => (site, true, None),
        Part::Node(site, host, machine) => (site, false, Some((host, machine))),
        Part::All(site, host, machine) => (site, true, Some((host, machine))),
    };
    site.client()?;
    let mut routes = Routes::new(IdentityServer::new(IdentityService { site: Some(site.clone()) }));
    if controls {
        routes = routes
            .add_service(ControllerServer::new(ControllerService { site: site.clone() }))
            .add_service(GroupControllerServer::new(GroupService { site: site.clone() }))
            .add_service(SnapshotMetadataServer::new(MetadataService { site: site.clone() }));
    }
    if let Some((host, machine)) = node {
        routes = routes.add_service(NodeServer::new(NodeService { host, site, machine }));
    }
    Ok(routes)
}
