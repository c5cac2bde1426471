//! The words of `pollux serve`.
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::direct::CatalogArgs;
use crate::commands::attachments::ServeAttachment;
use crate::commands::serve_catalog::ServeCatalog;
use crate::commands::serve_control::ServeControl;
use crate::commands::serve_csi::ServeCsi;
use crate::commands::stop::ParentPipe;

#[derive(Debug, Subcommand)]
pub enum Serve {
    /// The catalog: where a site keeps what it is to be.
    Catalog(ServeCatalog),
    /// The control plane of a site: catalog, controller, API.
    Control(Box<ServeControl>),
    /// The driver by which an orchestrator has volumes of the site.
    Csi(ServeCsi),
    /// One volume as a device of this machine; started by whoever attaches it.
    #[command(hide = true)]
    Attachment(ServeAttachment),
    /// The data plane of one machine: pools, replicas, targets.
    Node(Box<ServeNode>),
}

#[derive(Clone, Debug, Args)]
pub struct ServeNode {
    /// Number of the node in its site, from 1 on; the same for ever.
    #[arg(long)]
    pub id: u64,
    /// Name of the node; `node-<id>` unless given.
    #[arg(long)]
    pub name: Option<String>,
    /// Where the node remembers what the catalog said.
    #[arg(long, value_name = "DIR")]
    pub state: PathBuf,
    /// A pool that it serves; can be given several times.
    #[arg(long = "pool", value_name = "NAME=PATH", required = true, value_parser = pool)]
    pub pools: Vec<node::process::PoolOption>,
    /// Where other nodes reach it.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub peers: SocketAddr,
    /// Where NBD clients reach it.
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Option<SocketAddr>,
    /// Where NBD clients of this machine reach it.
    #[arg(long, value_name = "PATH")]
    pub nbd_socket: Option<PathBuf>,
    /// Where iSCSI initiators reach it.
    #[arg(long, value_name = "ADDRESS")]
    pub iscsi: Option<SocketAddr>,
    /// Where it is administered.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub admin: SocketAddr,
    /// Where Prometheus finds its figures.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Where it is, for instance topology.pollux.io/zone=east; can be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub topology: Vec<node::process::TopologyPair>,
    /// How often it takes a copy of the catalog, such as 10m; the last three are kept in the state directory.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = crate::span::parse)]
    pub copy_catalog_every: std::time::Duration,
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// Written when the node serves, with its addresses as JSON.
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    #[command(flatten)]
    pub parent: ParentPipe,
}

fn pool(text: &str) -> Result<node::process::PoolOption, String> {
    let split = text.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty());
    let (name, path) = split.ok_or("write NAME=PATH")?;
    Ok(node::process::PoolOption { name: name.into(), path: path.into() })
}
