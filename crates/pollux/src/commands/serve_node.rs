//! `pollux serve node`: the data plane of one machine.
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use node::process::{Addresses, Options, serve};
use replication::words::NodeId;
use serde::Serialize;

use super::stop;
use crate::cli::ServeNode;
use crate::whole;

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
    logging::start();
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
        copies_every: arguments.copy_catalog_every.max(std::time::Duration::from_secs(1)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop::told(arguments.parent)?;
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
    whole::write(path, |file| serde_json::to_writer_pretty(file, &ready).map_err(io::Error::other))
}
