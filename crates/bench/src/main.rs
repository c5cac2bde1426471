//! Measurements of the storage engine, each beside what it is measured against.
//!
//! Nothing here judges a figure by itself: the device, the file system and the neighbours of a
//! machine change from minute to minute. Only ratios of rounds that ran side by side are compared
//! with goals.
#![forbid(unsafe_code)]

mod child;
mod contents;
mod cost;
mod counted;
mod engine_area;
mod latency;
mod load;
mod machines;
mod memory;
mod place;
mod pool_side;
mod raw_side;
mod served;
mod table;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

#[global_allocator]
static HEAP: counting::Counting = counting::Counting;

#[derive(Parser)]
#[command(about)]
struct Cli {
    #[command(subcommand)]
    area: Area,
}

#[derive(Subcommand)]
enum Area {
    /// One pool on one file, beside the same kind of file alone
    Engine {
        #[command(flatten)]
        common: Settings,
        /// Only lines whose name contains this
        #[arg(long, default_value = "")]
        only: String,
    },
    /// What a pool keeps in memory while its maps outgrow its cache, and what opening it reads
    Memory {
        #[command(flatten)]
        common: Settings,
    },
    /// Target and replicas by themselves, with stores that answer at once: processor time
    Machines,
    /// Served volumes beside other servers: speed, processor time and latencies
    Target {
        #[command(flatten)]
        common: served::Settings,
        /// Only lines whose name contains this
        #[arg(long, default_value = "")]
        only: String,
        /// Beside this older program of ours instead of other servers, in alternation
        #[arg(long)]
        against: Option<PathBuf>,
    },
    /// A hundred volumes that nobody uses: processor time and memory of each process
    Idle {
        #[command(flatten)]
        common: served::Settings,
    },
    /// Many volumes in one controller: rates, latencies, memory, and the hold of a group
    Control {
        #[command(flatten)]
        common: served::Settings,
    },
    /// One loop over all sockets beside a task for each: what the data plane is built on
    Runtime {
        #[command(flatten)]
        common: served::Settings,
        /// Only lines whose name contains this
        #[arg(long, default_value = "")]
        only: String,
    },
    /// The process that `memory` starts and kills
    #[command(hide = true)]
    MemoryWriter(memory::Task),
    /// A process that opens a pool which no process has seen before it
    #[command(hide = true)]
    Opener(engine_area::OpenerTask),
    /// A server that `runtime` measures
    #[command(hide = true)]
    RuntimeServer(served::RuntimeTask),
}

#[derive(Args)]
struct Settings {
    /// A short run: good for the order of magnitude, not for a claim
    #[arg(long)]
    quick: bool,
    /// Where the files go; it must lie on a disk. They are removed at the end
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Write the figures to this file too
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    match Cli::parse().area {
        Area::Engine { common, only } => engine_area::run(&common, &only),
        Area::Memory { common } => memory::run(&common),
        Area::Machines => machines::run(),
        Area::Target { common, only, against } => {
            served::run_target(&common, &only, against.as_deref())
        }
        Area::Idle { common } => served::run_idle(&common),
        Area::Control { common } => served::run_control(&common),
        Area::Runtime { common, only } => served::run_runtime(&common, &only),
        Area::RuntimeServer(task) => served::serve_runtime(&task),
        Area::MemoryWriter(task) => memory::write(&task),
        Area::Opener(task) => engine_area::run_opener(&task),
    }
}
