//! `pollux serve csi`: the driver by which an orchestrator has volumes of a site.
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use attach::ways::Way;
use clap::{Args, ValueEnum};
use control::csi::{self, Host, Machine, Options, Part, Site};

use super::attachments;
use crate::render::{self, Output};
use crate::whole;

/// The longest id of a node that orchestrators take.
const NODE_LEN_MAX: usize = 256;

#[derive(Debug, Args)]
pub struct ServeCsi {
    /// Which part of the driver this is.
    #[arg(long, value_enum)]
    pub mode: Mode,
    /// The socket that the orchestrator calls; also as unix:///path.
    #[arg(long, env = "CSI_ENDPOINT", value_name = "PATH", value_parser = socket)]
    pub socket: PathBuf,
    /// The API of the site.
    #[arg(long, value_name = "HOST:PORT")]
    pub api: String,
    /// The token for it; read for every call.
    #[arg(long, value_name = "FILE")]
    pub token_file: PathBuf,
    /// The certificate of the site's authority, `ca.crt`; needed where the API speaks TLS.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// The name of this machine, as the orchestrator calls it.
    #[arg(
        long,
        value_name = "NAME",
        value_parser = node,
        required_if_eq_any([("mode", "node"), ("mode", "all")])
    )]
    pub node: Option<String>,
    /// Where this machine is; can be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, requires = "node")]
    pub topology: Vec<(String, String)>,
    /// Where this machine keeps note of what is attached; a place that is empty after a boot.
    #[arg(long, env = "POLLUX_ATTACHMENTS", value_name = "DIR", default_value = attachments::STATE)]
    pub state: PathBuf,
    /// How volumes are attached; the best that the kernel has unless given.
    #[arg(long, value_name = "WAY", value_parser = attachments::way)]
    pub via: Option<Way>,
    /// Written with the path of the socket when the first call can come.
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Makes, changes and publishes volumes: one or two for a site.
    Controller,
    /// Uses them on this machine.
    Node,
    All,
}

pub fn run(command: ServeCsi, output: Output) -> Result<ExitCode> {
    logging::start();
    let ready_file = command.ready_file.clone();
    let options = Options { socket: command.socket.clone(), part: part(command)? };
    csi::run(&options, |socket| {
        if let Some(path) = &ready_file {
            whole::write(path, |file| writeln!(file, "{}", socket.display()))?;
        }
        let line = match output {
            Output::Table => format!("{} is served on {}", csi::DRIVER, socket.display()),
            Output::Json | Output::Yaml => serde_json::json!({ "socket": socket }).to_string(),
        };
        render::announce(&line);
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn part(command: ServeCsi) -> Result<Part> {
    let ServeCsi { mode, api, token_file, ca, node, topology, state, via, .. } = command;
    let trust = ca.as_deref().map(certs::Trust::load).transpose().context("--ca")?;
    // Processes of attachments read them too, from wherever they are.
    let token_file = std::path::absolute(token_file).context("--token-file")?;
    let ca = ca.map(std::path::absolute).transpose().context("--ca")?;
    let site = Site { api, token_file, trust };
    let place = csi::place(topology).context("--topology")?;
    let host = node.map(|name| Host { name, place });
    let machine =
        || -> Result<Machine> { Ok(Machine { host: attachments::host(&state)?, way: via, ca }) };
    match (mode, host) {
        (Mode::Controller, None) => Ok(Part::Controller(site)),
        (Mode::Controller, Some(_)) => bail!("--node is for --mode node and --mode all"),
        (Mode::Node, Some(host)) => Ok(Part::Node(site, host, machine()?)),
        (Mode::All, Some(host)) => Ok(Part::All(site, host, machine()?)),
        (Mode::Node | Mode::All, None) => bail!("--node is missing"),
    }
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
    match path.is_empty() || path.contains("://") {
        true => Err("write a path, or unix:///path".into()),
        false => Ok(path.into()),
    }
}

fn node(text: &str) -> Result<String, String> {
    let fits = (1..=NODE_LEN_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    match fits {
        true => Ok(text.to_owned()),
        false => Err(format!("write 1 to {NODE_LEN_MAX} printable characters, and no space")),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((split.0.to_owned(), split.1.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, Serve};

    fn read(arguments: &str) -> Result<Part> {
        let words = ["pollux", "serve", "csi"].into_iter().chain(arguments.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            Command::Serve(Serve::Csi(command)) => part(command),
            other => bail!("{other:?}"),
        }
    }

    #[test]
    fn every_mode_has_what_it_needs() {
        let site = "--api localhost:7480 --token-file t";
        let part = read(&format!("--mode controller --socket /s {site}")).unwrap();
        assert!(matches!(part, Part::Controller(_)), "{part:?}");
        let part = read(&format!("--mode node --socket unix:///s --node w --topology z=1 {site}"))
            .unwrap();
        assert!(matches!(part, Part::Node(_, host, _) if host.place["z"] == "1"));
        let part = read(&format!("--mode all --socket /s --node w {site}")).unwrap();
        assert!(matches!(part, Part::All(..)), "{part:?}");
    }

    #[test]
    fn what_does_not_fit_the_mode_is_refused() {
        for arguments in [
            "--mode controller --socket /s",
            "--mode controller --socket /s --api a:1",
            "--mode controller --socket /s --token-file t",
            "--mode controller --socket /s --api a:1 --token-file t --ca nowhere",
            "--mode controller --socket /s --api a:1 --token-file t --node w",
            "--mode node --socket /s --node w",
            "--mode node --socket /s --api a:1 --token-file t",
            "--mode node --socket /s --api a:1 --token-file t --node w --topology z",
            "--mode node --socket /s --api a:1 --token-file t --node w --topology z=",
            "--mode node --socket /s --api a:1 --token-file t --node w --topology a/z=1 --topology b/y=1",
            "--mode node --socket tcp://x --api a:1 --token-file t --node w",
            "--mode node --socket /s --api a:1 --token-file t --node w --via rfc1149",
            "--mode all --socket /s --node w",
            "--mode all --socket /s --api a:1 --token-file t",
            "--socket /s --node w",
        ] {
            assert!(read(arguments).is_err(), "{arguments}");
        }
    }

    #[test]
    fn a_socket_is_a_path_or_an_endpoint() {
        for text in ["/csi/csi.sock", "unix:///csi/csi.sock", "unix:/csi/csi.sock"] {
            assert_eq!(socket(text), Ok("/csi/csi.sock".into()), "{text}");
        }
    }
}
