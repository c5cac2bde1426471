//! One module per command; each returns how the process is to end.
pub mod certs;
mod demo;
mod direct;
mod disk;
mod logging;
pub mod serve_catalog;
pub mod serve_control;
mod serve_node;

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use pollux::proof::{self, Orders};

use crate::cli::{Cli, Command, DemoWriter, Serve};

pub fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Disk(command) => disk::run(command, cli.output),
        Command::Direct { catalog, command } => direct::run(command, &catalog, cli.output),
        Command::Certs(command) => certs::run(&command, cli.output),
        Command::Serve(Serve::Catalog(catalog)) => serve_catalog::run(&catalog, cli.output),
        Command::Serve(Serve::Control(arguments)) => serve_control::run(*arguments),
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
