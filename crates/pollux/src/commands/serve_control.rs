//! `pollux serve control`: the catalog, the controller and the API of a site.
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use control::catalog;
use control::controller::Settings;
use control::serve::{Addresses, Options, serve};
use serde::Serialize;

use super::stop::{self, ParentPipe};
use crate::whole;

#[derive(Clone, Debug, Args)]
pub struct ServeControl {
    /// Where the catalog is kept; made if it does not exist. One process at a time may have it.
    #[arg(long)]
    pub file: PathBuf,
    /// Where nodes reach the catalog.
    #[arg(long, default_value = "127.0.0.1:7460", value_name = "ADDRESS")]
    pub catalog: SocketAddr,
    /// Where the API is served.
    #[arg(long, default_value = "127.0.0.1:7470", value_name = "ADDRESS")]
    pub api: SocketAddr,
    /// The folder of the catalog's certificate. Needed where other machines can reach the addresses.
    #[arg(long, value_name = "FOLDER")]
    pub tls: Option<PathBuf>,
    /// Where the first token of a new site is written; `admin.token` beside the catalog unless given.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A node that says nothing for so many seconds is away: its targets move.
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    pub away_after: u64,
    /// A node that is away for so many seconds has its replicas replaced.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub grace: u64,
    /// What is promised to volumes may be so much of what pools have, in percent.
    #[arg(long, default_value_t = 200, value_name = "PERCENT")]
    pub overcommit: u64,
    /// How long a group may be held for a snapshot, in milliseconds.
    #[arg(long, default_value_t = 2000, value_name = "MILLISECONDS")]
    pub hold: u64,
    /// Written when it serves, with its addresses as JSON.
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    #[command(flatten)]
    pub parent: ParentPipe,
}

/// What the ready file has.
#[derive(Debug, Serialize)]
struct Ready {
    catalog: SocketAddr,
    api: SocketAddr,
}

pub fn run(arguments: ServeControl) -> Result<ExitCode> {
    logging::start();
    let beside = arguments.file.with_file_name("admin.token");
    let options = Options {
        catalog: catalog::Options {
            file: arguments.file,
            listen: arguments.catalog,
            tls: arguments.tls,
        },
        api: arguments.api,
        token_file: arguments.token_file.unwrap_or(beside),
        settings: Settings {
            away_after: Duration::from_secs(arguments.away_after.max(2)),
            grace: Duration::from_secs(arguments.grace),
            overcommit_percent: arguments.overcommit,
            hold: Duration::from_millis(arguments.hold),
            host: host(),
            ..Settings::default()
        },
    };
    let ready_file = arguments.ready_file;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop::told(arguments.parent)?;
        let ready = |at: Addresses| match &ready_file {
            Some(path) => tell(path, at),
            None => Ok(()),
        };
        serve(options, ready, stop).await.context("the control plane")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().chars().take(100).collect()
}

/// Whole or not at all.
fn tell(path: &Path, at: Addresses) -> io::Result<()> {
    let ready = Ready { catalog: at.catalog, api: at.api };
    whole::write(path, |file| serde_json::to_writer_pretty(file, &ready).map_err(io::Error::other))
}
