//! `pollux serve node`: the data plane of one machine.
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use node::process::{Addresses, Options, serve};
use replication::words::NodeId;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::ServeNode;

/// What the ready file has.
#[derive(Debug, Serialize)]
struct Ready {
    peers: SocketAddr,
    admin: SocketAddr,
    nbd: Option<SocketAddr>,
    iscsi: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

pub fn run(arguments: ServeNode) -> Result<ExitCode> {
    super::logging::start();
    let name = arguments.name.unwrap_or_else(|| format!("node-{}", arguments.id));
    let ready_file = arguments.ready_file;
    let options = Options {
        id: NodeId(arguments.id),
        name,
        state: arguments.state,
        pools: arguments.pools,
        peers: arguments.peers,
        nbd: arguments.nbd,
        nbd_socket: arguments.nbd_socket,
        iscsi: arguments.iscsi,
        admin: arguments.admin,
        metrics: arguments.metrics,
        catalog: arguments.catalog.catalog,
        tls: arguments.catalog.tls,
        topology: arguments.topology,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let ready = |at: Addresses| match &ready_file {
            Some(path) => tell(path, at),
            None => Ok(()),
        };
        serve(options, ready, stop).await.context("the node")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Whole or not at all.
fn tell(path: &Path, at: Addresses) -> io::Result<()> {
    let Addresses { peers, nbd, iscsi, admin, metrics } = at;
    let ready = Ready { peers, admin, nbd, iscsi, metrics };
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec_pretty(&ready).map_err(io::Error::other)?)?;
    fs::rename(new, path)
}
