//! The words of `pollux disk`.
use std::path::PathBuf;

use block::ByteLen;
use clap::{Args, Subcommand, ValueEnum};
use engine::Compression;

use super::Sector;
use crate::size;

#[derive(Debug, Subcommand)]
pub enum Disk {
    /// Make a pool in a new file, or on a block device.
    Create(Create),
    /// Show what a pool is and how full. Changes nothing.
    Info { path: PathBuf },
    /// List the volumes of a pool, as `volume list` does. Changes nothing.
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
    /// Create, list, delete and grow volumes.
    #[command(subcommand)]
    Volume(Volume),
    /// Create, list, delete and clone snapshots, and go back to one.
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Write what differs between two points of a volume to a file or a pipe. Changes nothing.
    Export(Export),
    /// Bring a volume to the point that an exported delta leads to, all or nothing.
    Import(Import),
    /// Read everything, compare it with its checksums, and mend what can be mended: bookkeeping
    /// from its second copy, data from another pool. Exits with 1 when damage is left.
    Scrub(Scrub),
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
    /// Let the new file take its space in steps, as it is used, instead of all at once. While the file system
    /// has none, the pool is full.
    #[arg(long, requires = "size")]
    pub sparse: bool,
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
        /// How blocks are stored: off, on (= lz4), lz4, gzip, gzip-1 to gzip-9, zle or lzjb. Blocks
        /// of 4KiB and less are not compressed.
        #[arg(long, default_value = "off", value_name = "NAME")]
        compression: Compression,
    },
    /// List the volumes of a pool. Changes nothing.
    List {
        path: PathBuf,
        /// Also hidden volumes, which unfinished imports fill.
        #[arg(long)]
        all: bool,
    },
    /// Delete a volume and all that is in it.
    Delete {
        path: PathBuf,
        name: String,
        /// Delete its snapshots as well.
        #[arg(long, conflicts_with = "keep_snapshots")]
        with_snapshots: bool,
        /// Keep its snapshots: they are named @SNAPSHOT from then on, and can be cloned.
        #[arg(long)]
        keep_snapshots: bool,
    },
    /// Make a volume larger.
    Grow {
        path: PathBuf,
        name: String,
        #[arg(long, value_parser = size::parse)]
        size: ByteLen,
    },
    /// Show the space that volumes take, and how much of it is theirs alone. Changes nothing.
    Usage {
        path: PathBuf,
        /// Only this volume.
        name: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum Snapshot {
    /// Freeze a volume as it is now. Takes no space until something changes.
    Create { path: PathBuf, volume: String, name: String },
    /// List the snapshots of a pool. Changes nothing.
    List {
        path: PathBuf,
        /// Only those of this volume.
        volume: Option<String>,
        /// Also internal snapshots, and deleted ones that clones still need.
        #[arg(long)]
        all: bool,
    },
    /// Delete a snapshot. One that has clones is hidden, and goes with the last of them.
    Delete {
        path: PathBuf,
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        snapshot: String,
    },
    /// Make a new volume that begins with the content of a snapshot.
    Clone {
        path: PathBuf,
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        snapshot: String,
        name: String,
        /// The size of the new volume. That of the snapshot, unless told; never less.
        #[arg(long, value_parser = size::parse)]
        size: Option<ByteLen>,
    },
    /// Let a volume be what it was at a snapshot. What was written since is lost, unless a newer
    /// snapshot has it: those stay.
    Rollback {
        path: PathBuf,
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        snapshot: String,
        /// Also when the volume is marked as in use.
        #[arg(long)]
        force: bool,
    },
    /// Show the space that snapshots take, and how much of it is theirs alone: what deleting one
    /// gives back. Changes nothing.
    Usage {
        path: PathBuf,
        /// Only this snapshot.
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        snapshot: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct Export {
    pub path: PathBuf,
    /// Where the delta begins: a snapshot of the same volume, `seq:N`, or `empty` for all that the
    /// volume has. The destination must be there already.
    #[arg(long, value_name = "SNAPSHOT|seq:N|empty")]
    pub from: String,
    /// Where it leads to.
    #[arg(long, value_name = "VOLUME@SNAPSHOT")]
    pub to: String,
    /// The file to write, or `-` for the standard output.
    #[arg(long, default_value = "-")]
    pub file: PathBuf,
    /// Overwrite the file if it is there.
    #[arg(long)]
    pub force: bool,
    /// Only what lies behind this offset of the volume: where an interrupted import stopped.
    #[arg(long, value_parser = size::parse, default_value = "0", value_name = "OFFSET")]
    pub resume_from: ByteLen,
    /// Do not show how far it is.
    #[arg(long)]
    pub quiet: bool,
}

#[derive(Debug, Args)]
pub struct Import {
    pub path: PathBuf,
    pub volume: String,
    /// The file that an export wrote, or `-` for the standard input.
    #[arg(long, visible_alias = "input", default_value = "-")]
    pub file: PathBuf,
    /// Another name for the snapshot that the delta leads to.
    #[arg(long, value_name = "NAME")]
    pub snapshot: Option<String>,
    /// How blocks are stamped. Unless told: catch-up if this is the same volume as the exported
    /// one, else mirror.
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// Make the volume if it is not there, with size and blocks of the exported one.
    #[arg(long)]
    pub create: bool,
    /// How blocks of a volume that is made are stored: off, lz4, gzip, ... as for `volume create`.
    #[arg(long, default_value = "off", value_name = "NAME", requires = "create")]
    pub compression: Compression,
    /// Do not show how far it is.
    #[arg(long)]
    pub quiet: bool,
    /// Drop what an unfinished import has left, instead of importing.
    #[arg(long, conflicts_with_all = ["file", "snapshot", "mode", "create", "quiet"])]
    pub abandon: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// The volume goes on in the sequence of the exported one, with its positions.
    CatchUp,
    /// The volume keeps a sequence of its own.
    Mirror,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mode::CatchUp => "catch-up",
            Mode::Mirror => "mirror",
        })
    }
}

#[derive(Debug, Args)]
pub struct Scrub {
    pub path: PathBuf,
    /// Read at most so many MiB in a second.
    #[arg(long, value_name = "MIB/S", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: Option<u32>,
    /// A pool that has the same volumes or snapshots: damaged blocks are replaced by its copies.
    #[arg(long, value_name = "POOL")]
    pub repair_from: Option<PathBuf>,
    /// Do not show how far it is.
    #[arg(long)]
    pub quiet: bool,
}
