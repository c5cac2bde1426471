//! The words of `pollux snapshot` and `pollux group`.
use block::ByteLen;
use clap::{Args, Subcommand};

use super::{ChapArgs, WaitArgs};
use crate::size;

#[derive(Debug, Subcommand)]
pub enum Snapshot {
    /// List snapshots.
    List {
        /// Only those of this volume.
        #[arg(long, value_name = "VOLUME")]
        volume: Option<String>,
    },
    /// Show a snapshot.
    Get { name: String },
    /// Freeze a volume as it is now.
    Create {
        volume: String,
        name: String,
        #[command(flatten)]
        chap: ChapArgs,
    },
    /// Delete a snapshot.
    Delete {
        name: String,
        #[command(flatten)]
        chap: ChapArgs,
    },
    /// Make a volume that begins as a snapshot.
    Restore(Restore),
    /// List the ranges of bytes that a snapshot has, or that changed since an earlier one.
    Extents {
        name: String,
        /// An earlier snapshot of the same volume.
        #[arg(long, value_name = "SNAPSHOT")]
        since: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct Restore {
    pub snapshot: String,
    /// The new volume.
    pub volume: String,
    /// That of the snapshot unless given; never less.
    #[arg(long, value_parser = size::parse)]
    pub size: Option<ByteLen>,
    /// How many replicas are kept.
    #[arg(long, value_name = "NUMBER")]
    pub replicas: Option<u32>,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, Subcommand)]
pub enum Group {
    /// List groups of volumes.
    List,
    /// Show a group.
    Get { name: String },
    /// Make a group of volumes, of which snapshots are taken at one instant.
    Create { name: String, volumes: Vec<String> },
    /// Delete a group. Its volumes stay.
    Delete { name: String },
    /// Say which volumes are in a group.
    Members {
        name: String,
        /// All that it is to have.
        #[arg(required_unless_present_any = ["add", "remove"], conflicts_with_all = ["add", "remove"])]
        volumes: Vec<String>,
        /// One more; can be given several times.
        #[arg(long, value_name = "VOLUME")]
        add: Vec<String>,
        /// One less; can be given several times.
        #[arg(long, value_name = "VOLUME")]
        remove: Vec<String>,
    },
    /// Snapshots of several volumes, taken at one instant.
    #[command(subcommand)]
    Snapshot(GroupSnapshot),
}

#[derive(Debug, Subcommand)]
pub enum GroupSnapshot {
    /// List snapshots of groups.
    List,
    /// Show the snapshot of a group.
    Get { name: String },
    /// Freeze all volumes of a group, or several volumes, at one instant.
    Create {
        name: String,
        #[arg(long, value_name = "GROUP", required_unless_present = "volumes")]
        group: Option<String>,
        /// A volume; can be given several times.
        #[arg(long = "volume", value_name = "VOLUME", conflicts_with = "group")]
        volumes: Vec<String>,
        #[command(flatten)]
        chap: ChapArgs,
    },
    /// Delete the snapshot of a group, and all of its snapshots.
    Delete {
        name: String,
        #[command(flatten)]
        chap: ChapArgs,
    },
}
