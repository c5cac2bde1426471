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
