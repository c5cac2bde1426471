//! `pollux serve catalog`: the catalog of a site that keeps it in a file of its own.
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use control::catalog::{self, Options};

use crate::render::{self, Output};
use crate::whole;

#[derive(Debug, Args)]
pub struct ServeCatalog {
    /// Where it is kept; made if it does not exist. One process at a time may have it.
    #[arg(long)]
    pub file: PathBuf,
    /// The address to serve on; port 0 is any that is free.
    #[arg(long, default_value = "127.0.0.1:7460", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// The folder of the catalog's certificate. Needed where other machines can reach the address.
    #[arg(long, value_name = "FOLDER")]
    pub tls: Option<PathBuf>,
    /// Written with the address when the catalog is ready.
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

pub fn run(command: &ServeCatalog, output: Output) -> Result<ExitCode> {
    logging::start();
    let ServeCatalog { file, listen, tls, ready_file } = command;
    let options = Options { file: file.clone(), listen: *listen, tls: tls.clone() };
    catalog::run(&options, |address| {
        if let Some(path) = ready_file {
            whole::write(path, |file| writeln!(file, "{address}"))?;
        }
        let line = match output {
            Output::Table => format!("catalog {} is served on {address}", file.display()),
            Output::Json => serde_json::json!({ "address": address }).to_string(),
            Output::Yaml => format!("address: \"{address}\""),
        };
        render::announce(&line);
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
