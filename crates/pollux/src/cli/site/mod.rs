//! The words for a site that has a controller, and how it is found.
mod group;
mod volume;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use control::api::types::Role;

pub use group::{Group, GroupSnapshot, Snapshot};
pub use volume::{HostArgs, Volume, VolumeCreate, VolumeModify, VolumeMount};

use crate::span;

/// How a site is reached. If nothing of it is given, the site that `pollux up` runs is meant.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "The site")]
pub struct ApiArgs {
    /// Its API, host:port; 127.0.0.1:7470 unless given.
    #[arg(long, env = "POLLUX_API", value_name = "ADDRESS", global = true)]
    pub api: Option<String>,
    /// The file with the token that says who asks; POLLUX_TOKEN may have the token itself.
    #[arg(long, env = "POLLUX_TOKEN_FILE", value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,
    /// The certificate of its authority (`ca.crt`); needed for another machine.
    #[arg(long, env = "POLLUX_CA", value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
    /// The folder of a site that `pollux up` runs, instead of all that.
    #[arg(
        long,
        env = "POLLUX_SITE",
        value_name = "DIR",
        global = true,
        conflicts_with_all = ["api", "token_file", "ca"]
    )]
    pub site: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct WaitArgs {
    /// Wait until it is done, and show how far it is.
    #[arg(long)]
    pub wait: bool,
    /// How long to wait, such as 90s, 10m or 2h. It goes on by itself after that.
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "wait", value_parser = span::parse)]
    pub timeout: Duration,
}

/// Who asks, where a volume has credentials.
#[derive(Clone, Debug, Default, Args)]
pub struct ChapArgs {
    /// The CHAP user of the volume, if it has one; the secret is read from POLLUX_CHAP_SECRET.
    #[arg(long, value_name = "USER")]
    pub chap_user: Option<String>,
}

/// What is done to the catalog of a site. It is asked itself, not by way of the API: one that was lost knows no token.
#[derive(Debug, Subcommand)]
pub enum SiteCommand {
    /// Copy the whole catalog into a file, while it is used. Secrets of volumes are in it.
    Backup {
        file: PathBuf,
        #[command(flatten)]
        at: CatalogAt,
    },
    /// Bring the catalog back from a copy, and from what nodes know since.
    Restore(Restore),
    /// Bring the catalog back from what nodes know and replicas hold.
    Rebuild(Rebuild),
    /// Give up a volume that the catalog has lost: mark it as deleted, and wipe what nodes have of it.
    Forget {
        /// The volume.
        name: String,
        /// Without being asked.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        at: CatalogAt,
    },
}

#[derive(Clone, Debug, Args)]
pub struct Restore {
    /// Of `pollux site backup`, or one that a node keeps in `catalog` in its state directory.
    pub file: PathBuf,
    #[command(flatten)]
    pub how: BringBack,
    #[command(flatten)]
    pub at: CatalogAt,
}

#[derive(Clone, Debug, Args)]
pub struct Rebuild {
    #[command(flatten)]
    pub how: BringBack,
    #[command(flatten)]
    pub at: CatalogAt,
}

#[derive(Clone, Debug, Args)]
pub struct BringBack {
    /// Only show what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// Go on though the catalog is not empty. What is newer there stays.
    #[arg(long)]
    pub force: bool,
    /// A node that the catalog does not list: its number, and where it is administered.
    #[arg(long = "node", value_name = "ID=HOST:PORT", value_parser = node)]
    pub nodes: Vec<proto::v1::Node>,
}

fn node(text: &str) -> Result<proto::v1::Node, String> {
    let wrong = "write ID=HOST:PORT, such as 2=10.0.0.2:7462";
    let (id, admin) = text.split_once('=').filter(|(_, at)| at.contains(':')).ok_or(wrong)?;
    let id = id.parse().ok().filter(|id| *id > 0).ok_or(wrong)?;
    let (name, admin_address) = (format!("node-{id}"), admin.into());
    Ok(proto::v1::Node { id, name, admin_address, ..proto::v1::Node::default() })
}

/// Where the catalog is. If nothing is given, that of the site which `pollux up` runs.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "The catalog")]
pub struct CatalogAt {
    /// host:port; 127.0.0.1:7460 unless given.
    #[arg(long, env = "POLLUX_CATALOG", value_name = "ADDRESS")]
    pub catalog: Option<String>,
    /// The folder of a certificate; needed for another machine.
    #[arg(long, env = "POLLUX_TLS", value_name = "DIR")]
    pub tls: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Node {
    /// List the nodes of a site.
    List,
    /// Show a node.
    Get { name: String },
    /// Place no new replicas there. What it has stays.
    Cordon { name: String },
    /// Place new replicas there again.
    Uncordon { name: String },
    /// The node is gone for good, and whatever it had: its replicas are made anew on others.
    Forget {
        name: String,
        /// Without being asked.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum Host {
    /// List the hosts of a site that are no nodes.
    List,
    /// Show a host.
    Get { name: String },
    /// Forget a host. No volume may be attached to it.
    Delete { name: String },
}

#[derive(Debug, Subcommand)]
pub enum Pool {
    /// List the pools of all nodes, and how full they are.
    List,
}

#[derive(Debug, Subcommand)]
pub enum Token {
    /// List tokens, without what is secret of them.
    List,
    /// Make a token. It is shown once.
    Create {
        name: String,
        /// What it may do.
        #[arg(long, value_enum)]
        role: RoleWord,
        /// How long it counts, such as 12h or 90d; for ever unless given.
        #[arg(long, value_name = "TIME", value_parser = span::parse)]
        lasts: Option<Duration>,
    },
    /// Delete a token. Whoever has it is refused from then on.
    Delete { name: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleWord {
    /// Sees everything but secrets.
    Viewer,
    /// Makes, changes and deletes volumes, snapshots and groups.
    Editor,
    /// Everything: nodes and tokens too.
    Admin,
}

impl From<RoleWord> for Role {
    fn from(word: RoleWord) -> Role {
        match word {
            RoleWord::Viewer => Role::Viewer,
            RoleWord::Editor => Role::Editor,
            RoleWord::Admin => Role::Admin,
        }
    }
}

/// `pollux explain volume db`, or `pollux explain db`.
#[derive(Debug, Args)]
pub struct Explain {
    /// volume, snapshot, node or pool; whatever has the name unless given.
    #[arg(value_name = "KIND")]
    pub first: String,
    #[arg(value_name = "NAME")]
    pub second: Option<String>,
    #[command(flatten)]
    pub api: ApiArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Volume,
    Snapshot,
    Node,
    Pool,
}
