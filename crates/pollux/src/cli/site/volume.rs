//! The words of `pollux volume`.
use std::time::Duration;

use block::ByteLen;
use std::path::PathBuf;

use attach::ways::Way;
use clap::{Args, Subcommand};
use control::api::types::Pairs;

use super::{ChapArgs, WaitArgs};
use crate::commands::attachments;
use crate::{size, span};

#[derive(Debug, Subcommand)]
pub enum Volume {
    /// List all volumes, and how they are.
    List,
    /// Show a volume: what it is, who serves it, and its replicas.
    Get { name: String },
    /// Make a volume. The controller places its replicas and serves it.
    Create(Box<VolumeCreate>),
    /// Delete a volume with everything in it.
    Delete {
        name: String,
        #[command(flatten)]
        chap: ChapArgs,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Make a volume larger.
    Resize {
        name: String,
        #[arg(value_parser = size::parse)]
        size: ByteLen,
        #[command(flatten)]
        chap: ChapArgs,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Keep more, or fewer, replicas of a volume.
    Scale {
        name: String,
        replicas: u32,
        #[command(flatten)]
        chap: ChapArgs,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Change what can be changed later. What is not given stays.
    Modify(VolumeModify),
    /// Let a host use a volume.
    Attach {
        name: String,
        #[arg(long, value_name = "HOST")]
        host: String,
        /// It may only read.
        #[arg(long)]
        read_only: bool,
        /// Other hosts may have it at the same time.
        #[arg(long)]
        shared: bool,
        #[command(flatten)]
        chap: ChapArgs,
    },
    /// Let a host use a volume no longer.
    Detach {
        name: String,
        /// All of them unless given.
        #[arg(long, value_name = "HOST")]
        host: Option<String>,
        #[command(flatten)]
        chap: ChapArgs,
    },
    /// Mount a volume on this machine. Needs root.
    Mount(VolumeMount),
    /// Unmount a volume on this machine, and let it use it no longer.
    Unmount {
        name: String,
        /// Also if writes that are buffered here cannot be written to it: they are lost.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        host: HostArgs,
        #[command(flatten)]
        chap: ChapArgs,
    },
    /// After a resize: the device and the file system on this machine become as large as the volume.
    Expand {
        name: String,
        #[command(flatten)]
        host: HostArgs,
    },
    /// List what is attached to this machine, how, and why in that way.
    Mounts {
        #[command(flatten)]
        host: HostArgs,
    },
    /// Serve a volume on another node. Clients wait for a moment.
    Move {
        name: String,
        #[arg(long, value_name = "NODE")]
        to: String,
    },
    /// Let a volume be what it was at a snapshot. What was written since is lost, unless a newer
    /// snapshot has it.
    Rollback {
        name: String,
        #[arg(long, value_name = "SNAPSHOT")]
        to: String,
    },
}

#[derive(Debug, Args)]
pub struct VolumeCreate {
    pub name: String,
    /// As its source, or 1GiB, unless given.
    #[arg(long, value_parser = size::parse)]
    pub size: Option<ByteLen>,
    /// How many replicas are kept; 3 unless the site says otherwise.
    #[arg(long, value_name = "NUMBER")]
    pub replicas: Option<u32>,
    /// A power of two from 512 to 128KiB.
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub block_size: Option<ByteLen>,
    /// How blocks are stored: off, lz4, gzip, gzip-1 to gzip-9, zle or lzjb.
    #[arg(long, value_name = "NAME")]
    pub compression: Option<String>,
    /// How long IO waits for a quorum before it fails, such as 60s.
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    pub hold_deadline: Option<Duration>,
    /// Concurrent operations of a replica.
    #[arg(long, value_name = "NUMBER")]
    pub zvol_workers: Option<u32>,
    /// A pool that will do, by name; can be given several times. All of them unless given.
    #[arg(long = "pool", value_name = "NAME")]
    pub pools: Vec<String>,
    /// Replicas only on nodes that have all of these in their topology; can be given several times.
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = pairs)]
    pub accessible: Vec<Pairs>,
    /// And rather on these, the first first.
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = pairs)]
    pub preferred: Vec<Pairs>,
    /// Replicas on nodes that differ in this key of their topology, such as a zone.
    #[arg(long, value_name = "KEY")]
    pub spread: Option<String>,
    /// It begins as this snapshot.
    #[arg(long, value_name = "SNAPSHOT", conflicts_with = "from_volume")]
    pub from_snapshot: Option<String>,
    /// It begins as this volume is now.
    #[arg(long, value_name = "VOLUME")]
    pub from_volume: Option<String>,
    /// Only hosts that it is attached to may use it.
    #[arg(long)]
    pub attached_only: bool,
    /// What initiators have to know; the secret is read from POLLUX_CHAP_SECRET.
    #[arg(long, value_name = "USER")]
    pub chap_user: Option<String>,
    /// Who this target is to initiators that ask; the secret is POLLUX_CHAP_MUTUAL_SECRET.
    #[arg(long, value_name = "USER", requires = "chap_user")]
    pub chap_mutual_user: Option<String>,
    /// The group that it enters.
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, Args)]
#[group(id = "changes", required = true, multiple = true, args = ["replicas", "hold_deadline", "zvol_workers"])]
pub struct VolumeModify {
    pub name: String,
    /// How many replicas are kept.
    #[arg(long, value_name = "NUMBER")]
    pub replicas: Option<u32>,
    /// How long IO waits for a quorum before it fails, such as 60s.
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    pub hold_deadline: Option<Duration>,
    /// Concurrent operations of a replica.
    #[arg(long, value_name = "NUMBER")]
    pub zvol_workers: Option<u32>,
    #[command(flatten)]
    pub chap: ChapArgs,
}

fn pairs(text: &str) -> Result<Pairs, String> {
    let pair = |pair: &str| match pair.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE, or several with commas between them".to_owned()),
    };
    text.split(',').map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::pairs;

    #[test]
    fn a_place_is_read_as_pairs() {
        let found = pairs("zone=a,rack=7").unwrap();
        assert_eq!((found["zone"].as_str(), found["rack"].as_str()), ("a", "7"));
        for bad in ["", "zone", "=a", "zone=a,,"] {
            assert!(pairs(bad).is_err(), "{bad}");
        }
    }
}

#[derive(Debug, Args)]
pub struct VolumeMount {
    pub name: String,
    /// An empty folder.
    pub at: PathBuf,
    /// The file system that a blank volume gets.
    #[arg(long, value_name = "KIND", value_parser = ["ext4", "xfs", "btrfs"])]
    pub fs: Option<String>,
    #[arg(long)]
    pub read_only: bool,
    /// How it is attached: iscsi, nbd or fuse; the best that the kernel has unless given.
    #[arg(long, value_name = "WAY", value_parser = attachments::way)]
    pub via: Option<Way>,
    #[command(flatten)]
    pub host: HostArgs,
    #[command(flatten)]
    pub chap: ChapArgs,
}

/// This machine.
#[derive(Clone, Debug, Args)]
pub struct HostArgs {
    /// As the site knows it; its host name unless given.
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Where it keeps note of what is attached; a place that is empty after a boot.
    #[arg(long, env = "POLLUX_ATTACHMENTS", value_name = "DIR", default_value = attachments::STATE)]
    pub state: PathBuf,
}
