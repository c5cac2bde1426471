//! One module per command; each returns how the process is to end.
pub mod certs;
mod demo;
mod disk;
mod logging;
pub mod serve_catalog;
pub mod serve_csi;
mod serve_node;
mod volume;

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use pollux::proof::{self, Orders};

use crate::cli::{Cli, Command, DemoWriter, Serve};

pub fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Disk(command) => disk::run(command, cli.output),
        Command::Volume { site, command } => volume::run(command, &site, cli.output),
        Command::Certs(command) => certs::run(&command, cli.output),
        Command::Serve(Serve::Catalog(catalog)) => serve_catalog::run(&catalog, cli.output),
        Command::Serve(Serve::Csi(csi)) => serve_csi::run(csi, cli.output),
        Command::Serve(Serve::Node(arguments)) => serve_node::run(*arguments),
        Command::Demo { seed } => demo::run(seed, cli.output),
        Command::DemoWriter(orders) => demo_writer(orders),
    }
}

fn demo_writer(orders: DemoWriter) -> Result<ExitCode> {
    let DemoWriter { path, backend, direct, seed, term, depth } = orders;
    let (backend, direct) = (backend.into(), direct.into());
    let orders = Orders { path, backend, direct, seed, term, depth };
    proof::write_until_killed(&orders, io::stdout().lock())?;
    Ok(ExitCode::FAILURE)
}
