//! The words of the command line.
mod pool;
mod site;

use std::path::PathBuf;

use block::SectorSize;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands::certs::Certs;
use crate::commands::serve_catalog::ServeCatalog;
use crate::commands::serve_csi::ServeCsi;
pub use pool::{Create, Disk, Export, Import, Mode, Scrub, Snapshot, Volume};
pub use site::{
    ServeNode, SiteArgs, SiteReplica, SiteSnapshot, SiteVolume, VolumeClone, VolumeCreate,
};

use crate::render::Output;

#[derive(Debug, Parser)]
#[command(name = "pollux", version, about, arg_required_else_help = true)]
pub struct Cli {
    /// How answers are written.
    #[arg(long, global = true, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: Output,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Work on a pool that nobody has open.
    #[command(subcommand)]
    Disk(Disk),
    /// Volumes of a site that runs.
    Volume {
        #[command(flatten)]
        site: SiteArgs,
        #[command(subcommand)]
        command: SiteVolume,
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
    /// The process that the demo kills.
    #[command(hide = true)]
    DemoWriter(DemoWriter),
}

#[derive(Debug, Subcommand)]
pub enum Serve {
    /// The catalog: where a site keeps what it is to be.
    Catalog(ServeCatalog),
    /// The driver by which an orchestrator has volumes of the site.
    Csi(ServeCsi),
    /// The data plane of one machine: pools, replicas, targets.
    Node(Box<ServeNode>),
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
