//! The words of `pollux direct`: each step by hand, without a controller.
use std::path::PathBuf;

use block::ByteLen;
use clap::{Args, Subcommand};

use crate::size;

/// How the catalog of a site is reached.
#[derive(Clone, Debug, Args)]
pub struct CatalogArgs {
    /// The catalog of the site, host:port.
    #[arg(long, env = "POLLUX_CATALOG", default_value = "127.0.0.1:7460", value_name = "ADDRESS")]
    pub catalog: String,
    /// The folder of a certificate; needed for another machine.
    #[arg(long, env = "POLLUX_TLS", value_name = "DIR")]
    pub tls: Option<PathBuf>,
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
pub struct DirectCreate {
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
pub struct DirectClone {
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
pub enum DirectCommand {
    /// Volumes: where their replicas are, who serves them, and what to do when a quorum is lost.
    #[command(subcommand)]
    Volume(DirectVolume),
}

#[derive(Debug, Subcommand)]
pub enum DirectVolume {
    /// Make a volume.
    Create(DirectCreate),
    /// Make a volume that begins as a snapshot of another, and shares its blocks.
    Clone(DirectClone),
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
    Replica(DirectReplica),
    /// Snapshots of a volume.
    #[command(subcommand)]
    Snapshot(DirectSnapshot),
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
pub enum DirectReplica {
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
pub enum DirectSnapshot {
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
