//! Volumes as their clients see them, beside servers of others: the same load, in turns.
mod arena;
mod comparison;
mod content;
mod control_area;
mod delay;
mod drive;
mod idle_area;
mod iscsi;
mod lines;
mod nbd;
mod noise;
mod older_area;
mod outbox;
mod pace;
mod peers;
mod points;
mod procs;
mod runtime;
mod server;
mod session;
mod site;
mod slow_replica;
mod target_area;
mod waiting;

use std::path::PathBuf;

pub use control_area::run as run_control;
pub use idle_area::run as run_idle;
pub use runtime::{Task as RuntimeTask, run as run_runtime, serve as serve_runtime};
pub use target_area::run as run_target;

#[derive(clap::Args)]
pub struct Settings {
    /// A short run: good for the order of magnitude, not for a claim
    #[arg(long)]
    quick: bool,
    /// Where pools and files go; in memory unless told. They are removed at the end
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Write the figures to this file too
    #[arg(long)]
    json: Option<PathBuf>,
}
