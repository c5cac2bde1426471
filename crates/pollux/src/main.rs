//! The binary: the daemons of a site, what a person can do with it, and with a pool that nobody has open.
#![forbid(unsafe_code)]

mod cli;
mod clock;
mod commands;
mod confirm;
mod local;
mod offline;
mod render;
mod size;
mod span;
mod transfer;
mod uid;
mod whole;
mod yaml;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let code = commands::run(cli).unwrap_or_else(|error| {
        // One line, whatever the error is made of.
        let text = format!("{error:#}").replace('\n', " ");
        logging::last_line(&format!("error: {text}"));
        ExitCode::FAILURE
    });
    logging::flush();
    code
}
