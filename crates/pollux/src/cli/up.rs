//! The words of `pollux up`.
use std::path::PathBuf;

use block::ByteLen;
use clap::Args;

use crate::size;

/// Runs in the foreground, until Ctrl-C or SIGTERM. The same folder again brings the same site back.
#[derive(Debug, Args)]
pub struct Up {
    /// Where everything is kept; `pollux/site` among the data of this user unless given.
    #[arg(long, env = "POLLUX_SITE", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// How many nodes; 3 unless the folder has others. More than it has are added.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=16))]
    pub nodes: Option<u64>,
    /// The size of each new pool. It is a file that takes space as it is used.
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = size::parse)]
    pub pool_size: ByteLen,
}
