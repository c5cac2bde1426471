//! The process of the control plane: the catalog, the controller, and the API, in one thread.
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use certs::{Identity, ListenError, LoadError, Refused};
use thiserror::Error;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::api::{self, ApiError};
use crate::catalog;
use crate::catalog::Refusals;
use crate::controller::{self, Settings};
use crate::steps::StepError;
use crate::steps::faults::Faults;

#[derive(Clone, Debug)]
pub struct Options {
    pub catalog: catalog::Options,
    /// Where the API is served.
    pub api: SocketAddr,
    /// Where the first token of a new site is written.
    pub token_file: PathBuf,
    pub settings: Settings,
}

/// Where a control plane that runs can be reached.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub catalog: SocketAddr,
    pub api: SocketAddr,
}

#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    Catalog(#[from] catalog::ServeError),
    #[error("the catalog ended before it was ready")]
    NoCatalog,
    #[error(transparent)]
    Certificate(#[from] LoadError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("the site could not be taken over: {0}")]
    TakeOver(#[from] StepError),
    #[error(transparent)]
    Token(ApiError),
    #[error("it cannot be told that it is ready: {0}")]
    Ready(io::Error),
}

/// Serves until `stop` comes to its end, or the catalog fails.
pub async fn serve(
    options: Options,
    ready: impl FnOnce(Addresses) -> io::Result<()>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (at, catalog_at) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let catalog_options = options.catalog.clone();
    let tell = move |address| {
        // Whoever waits may have given up.
        let _ = at.send(address);
        Ok(())
    };
    let mut catalog = tokio::spawn(async move {
        let until = async {
            // Dropped with whoever would say it: that is an end too.
            let _ = ended.await;
        };
        catalog::serve(&catalog_options, tell, until).await
    });
    let served = match catalog_at.await {
        Ok(catalog_at) => {
            let control = control(&options, catalog_at, ready, stop);
            tokio::select! {
                served = control => served,
                over = &mut catalog => return over.unwrap_or(Ok(())).map_err(ServeError::from),
            }
        }
        Err(_) => Err(ServeError::NoCatalog),
    };
    drop(end);
    let over = catalog.await.unwrap_or(Ok(()));
    over?;
    served
}

async fn control(
    options: &Options,
    catalog: SocketAddr,
    ready: impl FnOnce(Addresses) -> io::Result<()>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let identity = options.catalog.tls.as_deref().map(Identity::load).transpose()?;
    let (settings, faults) = (options.settings.clone(), Faults::from_env());
    let running =
        controller::begin(&catalog.to_string(), identity.clone(), settings, faults).await?;
    let controller = &running.controller;
    controller.ensure_admin(&options.token_file).await.map_err(ServeError::Token)?;
    let refusals = Refusals::default();
    let tell = move |from: Option<SocketAddr>, why: &Refused| {
        if let Some(line) = refusals.line(Instant::now(), from, why) {
            warn!("api: {line}");
        }
    };
    let (api, incoming) = certs::http::listen(options.api, identity.as_ref(), tell).await?;
    let server = api::serve(api::router(controller), incoming);
    ready(Addresses { catalog, api }).map_err(ServeError::Ready)?;
    info!(%catalog, %api, generation = controller.generation(), "controlling the site");
    tokio::select! {
        () = server => {}
        () = stop => {}
    }
    Ok(())
}
