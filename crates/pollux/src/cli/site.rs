//! The words for a site that runs: its nodes and volumes.
use std::net::SocketAddr;
use std::path::PathBuf;

use block::ByteLen;
use clap::{Args, Subcommand};

use crate::size;

/// How a site is reached.
#[derive(Clone, Debug, Args)]
pub struct SiteArgs {
    /// The catalog of the site, host:port.
    #[arg(long, env = "POLLUX_CATALOG", default_value = "127.0.0.1:7460", value_name = "ADDRESS")]
    pub catalog: String,
    /// The folder of a certificate; needed for another machine.
    #[arg(long, env = "POLLUX_TLS", value_name = "DIR")]
    pub tls: Option<PathBuf>,
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
    #[command(flatten)]
    pub site: SiteArgs,
    /// Written when the node serves, with its addresses as JSON.
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

fn pool(text: &str) -> Result<node::process::PoolOption, String> {
    let split = text.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty());
    let (name, path) = split.ok_or("write NAME=PATH")?;
    Ok(node::process::PoolOption { name: name.into(), path: path.into() })
}

/// `node` or `node:pool`.
fn place(text: &str) -> Result<(String, String), String> {
    let (node, pool) = text.split_once(':').unwrap_or((text, "main"));
    match node.is_empty() || pool.is_empty() {
        true => Err("write NODE or NODE:POOL".into()),
        false => Ok((node.into(), pool.into())),
    }
}

#[derive(Clone, Debug, Args)]
pub struct VolumeCreate {
    pub name: String,
    #[arg(long, value_parser = size::parse)]
    pub size: ByteLen,
    /// Where its replicas are, one for each.
    #[arg(long = "replica", value_name = "NODE[:POOL]", required = true, value_parser = place)]
    pub replicas: Vec<(String, String)>,
    #[arg(long, value_parser = size::parse, default_value = "4K")]
    pub block_size: ByteLen,
    #[arg(long, default_value = "off")]
    pub compression: String,
    /// How long IO waits for a quorum before it fails, in seconds.
    #[arg(long, value_name = "SECONDS")]
    pub hold_deadline: Option<u64>,
    /// Concurrent operations of a replica; as many as its pool takes unless given.
    #[arg(long, default_value_t = 0)]
    pub zvol_workers: u32,
    /// What initiators have to know; the secret is read from the environment, POLLUX_CHAP_SECRET.
    #[arg(long, value_name = "USER")]
    pub chap_user: Option<String>,
    /// Who this target is to initiators that ask; the secret is POLLUX_CHAP_MUTUAL_SECRET.
    #[arg(long, value_name = "USER", requires = "chap_user")]
    pub chap_mutual_user: Option<String>,
    /// Names of initiators that may log in; all unless given.
    #[arg(long = "initiator", value_name = "IQN")]
    pub initiators: Vec<String>,
    /// Serves it at once, on this node.
    #[arg(long, value_name = "NODE")]
    pub serve_on: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct VolumeClone {
    pub source: String,
    pub snapshot: String,
    pub name: String,
    /// At least that of the snapshot, which it has unless given.
    #[arg(long, value_parser = size::parse)]
    pub size: Option<ByteLen>,
    /// Serves it at once, on this node.
    #[arg(long, value_name = "NODE")]
    pub serve_on: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum SiteVolume {
    /// Make a volume.
    Create(VolumeCreate),
    /// Make a volume that begins as a snapshot of another, and shares its blocks.
    Clone(VolumeClone),
    /// List all volumes.
    List,
    /// Serve a volume on a node, wherever it was served before.
    Serve {
        name: String,
        #[arg(long, value_name = "NODE")]
        on: String,
    },
    /// End the target of a volume cleanly.
    Stop { name: String },
    /// Delete a volume with everything in it.
    Delete { name: String },
    /// How a volume and its replicas are.
    Status { name: String },
    /// The same in the form of the volume resource's status (JSON).
    VolumeStatus { name: Option<String> },
    /// Make a volume larger.
    Resize {
        name: String,
        #[arg(value_parser = size::parse)]
        size: ByteLen,
    },
    /// Change the replicas of a volume.
    #[command(subcommand)]
    Replica(SiteReplica),
    /// Snapshots of a volume.
    #[command(subcommand)]
    Snapshot(SiteSnapshot),
    /// The quorum of a volume is lost for good: see what is left, and choose.
    Recover {
        name: String,
        /// Go on with what this replica has, whatever is lost with the others.
        #[arg(long, value_name = "REPLICA")]
        choose: Option<u64>,
        /// Without being asked.
        #[arg(long, requires = "choose")]
        yes: bool,
    },
    /// Note that acknowledged writes may have been lost, and let initiators come back.
    TakeNote { name: String },
}

#[derive(Debug, Subcommand)]
pub enum SiteReplica {
    /// One more replica.
    Add {
        name: String,
        #[arg(long, value_name = "NODE[:POOL]", value_parser = place)]
        on: (String, String),
        /// Wait until it votes.
        #[arg(long)]
        wait: bool,
    },
    /// One replica less.
    Remove {
        name: String,
        #[arg(long, value_name = "NODE")]
        on: String,
    },
    /// Empties a replica that has no vote, for want of space for instance; it comes back as new.
    Renew {
        name: String,
        #[arg(long, value_name = "NODE")]
        on: String,
    },
    /// One replica for another.
    Replace {
        name: String,
        #[arg(long, value_name = "NODE")]
        old: String,
        #[arg(long, value_name = "NODE[:POOL]", value_parser = place)]
        new: (String, String),
    },
}

#[derive(Debug, Subcommand)]
pub enum SiteSnapshot {
    Create {
        volume: String,
        name: String,
    },
    List {
        volume: String,
    },
    Delete {
        volume: String,
        name: String,
    },
    /// Take a volume back to a snapshot.
    Rollback {
        volume: String,
        name: String,
    },
}
