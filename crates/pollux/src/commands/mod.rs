//! One module per command; each returns how the process is to end.
pub mod attachments;
pub mod certs;
mod demo;
mod direct;
mod disk;
pub mod serve_catalog;
pub mod serve_control;
pub mod serve_csi;
mod serve_node;
mod site;
pub mod stop;
mod up;

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;
use pollux::proof::{self, Orders};

use crate::cli::site::ApiArgs;
use crate::cli::{Cli, Command, DemoWriter, Serve};
use crate::render;

pub fn run(cli: Cli) -> Result<ExitCode> {
    let site = |command, api: &ApiArgs| site::run(command, api, cli.output);
    match cli.command {
        Command::Disk(command) => disk::run(command, cli.output),
        Command::Volume { command, api } => site(site::Command::Volume(command), &api),
        Command::Snapshot { command, api } => site(site::Command::Snapshot(command), &api),
        Command::Group { command, api } => site(site::Command::Group(command), &api),
        Command::Node { command, api } => site(site::Command::Node(command), &api),
        Command::Host { command, api } => site(site::Command::Host(command), &api),
        Command::Pool { command, api } => site(site::Command::Pool(command), &api),
        Command::Token { command, api } => site(site::Command::Token(command), &api),
        Command::Site { command: None, api } => site(site::Command::Site, &api),
        Command::Site { command: Some(command), api } => {
            site::recover::run(command, &api, cli.output)
        }
        Command::Explain(command) => site::explain(&command, cli.output),
        Command::Up(up) => up::run(&up),
        Command::Direct { catalog, command } => direct::run(command, &catalog, cli.output),
        Command::Certs(command) => certs::run(&command, cli.output),
        Command::Serve(Serve::Attachment(attachment)) => attachments::serve(&attachment),
        Command::Serve(Serve::Catalog(catalog)) => serve_catalog::run(&catalog, cli.output),
        Command::Serve(Serve::Control(arguments)) => serve_control::run(*arguments),
        Command::Serve(Serve::Csi(csi)) => serve_csi::run(csi, cli.output),
        Command::Serve(Serve::Node(arguments)) => serve_node::run(*arguments),
        Command::Demo { seed } => demo::run(seed, cli.output),
        Command::Completions { shell } => completions(shell),
        Command::DemoWriter(orders) => demo_writer(orders),
    }
}

fn completions(shell: Shell) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pollux", &mut text);
    render::say(String::from_utf8_lossy(&text).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn demo_writer(orders: DemoWriter) -> Result<ExitCode> {
    let DemoWriter { path, backend, direct, seed, term, depth } = orders;
    let (backend, direct) = (backend.into(), direct.into());
    let orders = Orders { path, backend, direct, seed, term, depth };
    proof::write_until_killed(&orders, io::stdout().lock())?;
    Ok(ExitCode::FAILURE)
}
