//! The words of the command line.
use std::path::PathBuf;

use block::{ByteLen, SectorSize};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::render::Output;
use crate::size;

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
pub enum Disk {
    /// Make a pool in a new file, or on a block device.
    Create(Create),
    /// Show what a pool is and how full. Changes nothing.
    Info { path: PathBuf },
    /// List the volumes of a pool. Changes nothing.
    Volumes { path: PathBuf },
    /// Look for damage. Changes nothing; exits with 1 when something is wrong.
    Check {
        path: PathBuf,
        /// Read the stored bytes of every block too, and compare their checksums.
        #[arg(long)]
        data: bool,
    },
    /// Let a pool have all of a device, or of a file that is made larger first.
    Grow {
        path: PathBuf,
        /// The new size of the file.
        #[arg(long, value_parser = size::parse)]
        size: Option<ByteLen>,
    },
    /// Create, delete and grow volumes.
    #[command(subcommand)]
    Volume(Volume),
}

#[derive(Debug, Args)]
pub struct Create {
    /// A file that does not exist yet, a block device, or with --force an existing file.
    pub path: PathBuf,
    /// The size of the new file, such as 10GiB. Not for devices, which have one.
    #[arg(long, value_parser = size::parse)]
    pub size: Option<ByteLen>,
    /// The unit of allocation in bytes. What the device writes without tearing, unless told.
    #[arg(long, value_enum, value_name = "BYTES")]
    pub sector: Option<Sector>,
    /// The size of the journal: 256KiB to 256MiB. A 32nd of the pool, unless told.
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub journal: Option<ByteLen>,
    /// Overwrite what is there. It is lost for good.
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Subcommand)]
pub enum Volume {
    /// Make a volume. It takes space only for what is written to it.
    Create {
        path: PathBuf,
        name: String,
        #[arg(long, value_parser = size::parse)]
        size: ByteLen,
        /// A power of two from 512 to 128KiB.
        #[arg(long, value_parser = size::parse, default_value = "4KiB", value_name = "SIZE")]
        block_size: ByteLen,
    },
    /// Delete a volume and all that is in it.
    Delete { path: PathBuf, name: String },
    /// Make a volume larger.
    Grow {
        path: PathBuf,
        name: String,
        #[arg(long, value_parser = size::parse)]
        size: ByteLen,
    },
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
}

impl From<Backend> for disk::Backend {
    fn from(backend: Backend) -> disk::Backend {
        match backend {
            Backend::Auto => disk::Backend::Auto,
            Backend::Ring => disk::Backend::Ring,
            Backend::Threads => disk::Backend::Threads,
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
