//! The words of the command line.
mod direct;
mod pool;
mod serve;
pub mod site;
mod up;

use std::path::PathBuf;

use block::SectorSize;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands::certs::Certs;
pub use direct::{
    CatalogArgs, DirectClone, DirectCommand, DirectCreate, DirectReplica, DirectSnapshot,
    DirectVolume,
};
pub use pool::{Create, Disk, Export, Import, Mode, Scrub, Snapshot, Volume};
pub use serve::{Serve, ServeNode};
use site::{ApiArgs, Explain};
pub use up::Up;

use crate::render::Output;

#[derive(Debug, Parser)]
#[command(name = "pollux", version, about, arg_required_else_help = true)]
pub struct Cli {
    /// How answers are written.
    #[arg(long, short, global = true, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: Output,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Work on a pool that nobody has open.
    #[command(subcommand)]
    Disk(Disk),
    /// Run a small site on this machine, to try things: a controller and three nodes.
    Up(Up),
    /// Volumes: replicated, served over iSCSI and NBD.
    Volume {
        #[command(subcommand)]
        command: site::Volume,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Snapshots of volumes.
    Snapshot {
        #[command(subcommand)]
        command: site::Snapshot,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Groups of volumes, and snapshots of them at one instant.
    Group {
        #[command(subcommand)]
        command: site::Group,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Nodes of a site.
    Node {
        #[command(subcommand)]
        command: site::Node,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Machines that use volumes and are no nodes.
    Host {
        #[command(subcommand)]
        command: site::Host,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Pools of the nodes, and their space.
    Pool {
        #[command(subcommand)]
        command: site::Pool,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Tokens: who may ask a site, and for what.
    Token {
        #[command(subcommand)]
        command: site::Token,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Who controls the site, and what it has; copies of its catalog, and a catalog from them.
    Site {
        #[command(subcommand)]
        command: Option<site::SiteCommand>,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Why something is not healthy, since when, what happens next, and what to do.
    Explain(Explain),
    /// Each step by hand, over the catalog: for sites without a controller, and for emergencies.
    ///
    /// No controller is needed, and none is asked: it goes on with what it finds.
    Direct {
        #[command(flatten)]
        catalog: CatalogArgs,
        #[command(subcommand)]
        command: DirectCommand,
    },
    /// Certificates, by which the parts of a site know each other.
    #[command(subcommand)]
    Certs(Certs),
    /// Run a part of a site until it is told to stop.
    #[command(subcommand)]
    Serve(Serve),
    /// Show, in a few seconds, that crashes lose nothing that was promised.
    Demo {
        /// Do the same again: the seed that an earlier demo printed.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Write what a shell needs to complete these words to the standard output.
    Completions { shell: clap_complete::Shell },
    /// The process that the demo kills.
    #[command(hide = true)]
    DemoWriter(DemoWriter),
}

#[derive(Debug, Args)]
pub struct DemoWriter {
    pub path: PathBuf,
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: Backend,
    #[arg(long, value_enum, default_value = "auto")]
    pub direct: Direct,
    #[arg(long)]
    pub seed: u64,
    #[arg(long)]
    pub term: u64,
    #[arg(long, default_value_t = 16)]
    pub depth: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Sector {
    #[value(name = "512")]
    B512,
    #[value(name = "4096")]
    B4096,
}

impl From<Sector> for SectorSize {
    fn from(sector: Sector) -> SectorSize {
        match sector {
            Sector::B512 => SectorSize::B512,
            Sector::B4096 => SectorSize::B4096,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Backend {
    Auto,
    Ring,
    Threads,
    Calls,
}

impl From<Backend> for disk::Backend {
    fn from(backend: Backend) -> disk::Backend {
        match backend {
            Backend::Auto => disk::Backend::Auto,
            Backend::Ring => disk::Backend::Ring,
            Backend::Threads => disk::Backend::Threads,
            Backend::Calls => disk::Backend::Calls,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Direct {
    Auto,
    Never,
}

impl From<Direct> for disk::Direct {
    fn from(direct: Direct) -> disk::Direct {
        match direct {
            Direct::Auto => disk::Direct::Auto,
            Direct::Never => disk::Direct::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    /// Protects from a command line that contradicts itself: clap finds out only when run.
    #[test]
    fn the_command_line_makes_sense() {
        super::Cli::command().debug_assert();
    }
}
