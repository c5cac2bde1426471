//! The binary: what a person can do with a pool that nobody has open, and a demo.
#![forbid(unsafe_code)]

mod cli;
mod clock;
mod commands;
mod offline;
mod render;
mod size;
mod transfer;
mod uid;
mod yaml;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) => {
            // One line, whatever the error is made of.
            let text = format!("{error:#}").replace('\n', " ");
            eprintln!("error: {text}");
            ExitCode::FAILURE
        }
    }
}
