//! The process of the catalog: opens the file, listens, and stops when it is told to.
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use certs::{Identity, Incoming, ListenError, LoadError, Refused};
use proto::v1::catalog_server::CatalogServer;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tracing::warn;

use crate::catalog::file::{CatalogFile, FileError, OpenError};
use crate::catalog::limits::{CLOSING_MAX, ENVELOPE_MAX, REQUEST_MAX};
use crate::catalog::refusals::Refusals;
use crate::catalog::service::Service;
use crate::catalog::writer;

/// A client that says nothing for so long is asked, and let go if it does not answer.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// Requests and watches of one connection at a time.
const STREAMS_MAX: u32 = 1024;

#[derive(Clone, Debug)]
pub struct Options {
    /// Made if it does not exist.
    pub file: PathBuf,
    /// Port 0: any that is free.
    pub listen: SocketAddr,
    /// The folder of a certificate. Without it only this machine can be served.
    pub tls: Option<PathBuf>,
}

#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Certificate(#[from] LoadError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("the catalog stopped: {0}")]
    File(#[from] FileError),
    #[error("the catalog could not be started: {0}")]
    Start(io::Error),
    #[error("it cannot be told that the catalog is ready: {0}")]
    Ready(io::Error),
    #[error("the catalog's server stopped: {0}")]
    Server(#[from] tonic::transport::Error),
}

/// Serves until SIGTERM or SIGINT. `ready` is told the address when the first call can come.
pub fn run(
    options: &Options,
    ready: impl FnOnce(SocketAddr) -> io::Result<()>,
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

/// Serves until `stop` comes to its end, or the file fails.
pub async fn serve(
    options: &Options,
    ready: impl FnOnce(SocketAddr) -> io::Result<()>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    if let Err(error) = certs::raise_descriptors() {
        tracing::warn!(%error, "the limit of descriptors stays as it is");
    }
    let (address, incoming) = listen(options).await?;
    let file = Arc::new(CatalogFile::open(&options.file)?);
    let running = writer::start(file.clone()).map_err(ServeError::Start)?;
    let writer = running.writer.clone();
    let service = Service::new(file, running.writer, running.news);
    let service = CatalogServer::new(service).max_decoding_message_size(REQUEST_MAX + ENVELOPE_MAX);
    let service = InterceptedService::new(service, certs::admit);
    let (closing, closed) = tokio::sync::oneshot::channel();
    let server = Server::builder()
        .http2_keepalive_interval(Some(ALIVE_EVERY))
        .http2_keepalive_timeout(Some(ALIVE_WITHIN))
        .max_concurrent_streams(STREAMS_MAX)
        .serve_with_incoming_shutdown(service, incoming, async {
            // It is dropped only together with the server.
            let _ = closed.await;
        });
    ready(address).map_err(ServeError::Ready)?;

    let (mut server, mut ended) = (pin!(server), running.ended);
    let end = tokio::select! {
        () = stop => {
            writer.stop().await;
            ended.await
        }
        end = &mut ended => end,
        served = &mut server => return Ok(served?),
    };
    // The writer has ended, and with it every watch: what is left are answers on their way.
    let _ = closing.send(());
    let _ = tokio::time::timeout(CLOSING_MAX, server).await;
    Ok(end.expect("the writer tells how it ended")?)
}

async fn listen(options: &Options) -> Result<(SocketAddr, Incoming), ServeError> {
    let identity = options.tls.as_deref().map(Identity::load).transpose()?;
    let refusals = Refusals::default();
    let tell = move |from: Option<SocketAddr>, why: &Refused| {
        if let Some(line) = refusals.line(Instant::now(), from, why) {
            warn!("catalog: {line}");
        }
    };
    Ok(certs::listen(options.listen, identity.as_ref(), tell).await?)
}
