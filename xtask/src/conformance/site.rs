//! A site of real processes: a catalog or a control plane, and three nodes, in a folder that goes with them.
use std::env;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::shell;

const NODES: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(30);
const POOL: &str = "2G";

pub struct Site {
    folder: PathBuf,
    catalog: String,
    children: Vec<Child>,
    /// Of the children, and of their logs.
    names: Vec<String>,
    nodes: Vec<Value>,
}

fn binary() -> PathBuf {
    shell::target().join("debug/pollux")
}

impl Site {
    /// A catalog and nodes, for whoever does each step by hand.
    pub fn start(name: &str) -> Result<Site> {
        let mut site = Site::empty(name)?;
        let ready = site.serve("catalog", &["--listen", "127.0.0.1:0"])?;
        site.catalog = wait_for(&ready)?.trim().to_owned();
        site.start_nodes()?;
        Ok(site)
    }

    /// With a controller; where its API is.
    pub fn start_controlled(name: &str) -> Result<(Site, String)> {
        let mut site = Site::empty(name)?;
        let addresses = ["--catalog", "127.0.0.1:0", "--api", "127.0.0.1:0"];
        let ready = site.serve("control", &addresses)?;
        let at: Value = serde_json::from_str(&wait_for(&ready)?)?;
        let address = |of: &str| at[of].as_str().map(str::to_owned).context("no address");
        site.catalog = address("catalog")?;
        site.start_nodes()?;
        let api = address("api")?;
        Ok((site, api))
    }

    /// Until the controller has heard of all nodes.
    pub fn wait_for_nodes(&self, api: &str) -> Result<()> {
        let token = text(&self.folder.join("admin.token"));
        let words = ["--output", "json", "node", "list", "--api", api, "--token-file", &token];
        let begun = Instant::now();
        loop {
            let nodes: Value = serde_json::from_str(&self.pollux(&words)?)?;
            let is_here = |node: &&Value| node["state"]["health"] == "Healthy";
            let here = nodes.as_array().map_or(0, |all| all.iter().filter(is_here).count());
            if here as u64 == NODES {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "the controller has heard of {here} nodes");
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn empty(name: &str) -> Result<Site> {
        let folder = env::temp_dir().join(format!("pollux-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Site {
            folder,
            catalog: String::new(),
            children: Vec::new(),
            names: Vec::new(),
            nodes: Vec::new(),
        })
    }

    /// Starts what keeps the catalog; the file that it writes when it is ready.
    fn serve(&mut self, what: &str, options: &[&str]) -> Result<PathBuf> {
        let (ready, file) = (self.folder.join("head.ready"), self.folder.join("catalog.db"));
        let (ready_text, file_text) = (text(&ready), text(&file));
        let mut words = vec!["serve", what, "--file", &file_text, "--ready-file", &ready_text];
        words.extend(options);
        self.spawn(what, &words)?;
        Ok(ready)
    }

    fn start_nodes(&mut self) -> Result<()> {
        (1..=NODES).try_for_each(|id| self.start_node(id))
    }

    fn start_node(&mut self, id: u64) -> Result<()> {
        let pool = self.folder.join(format!("pool-{id}"));
        self.pollux(&["disk", "create", &text(&pool), "--size", POOL])?;
        let ready = self.folder.join(format!("node-{id}.ready"));
        let state = self.folder.join(format!("state-{id}"));
        let catalog = self.catalog.clone();
        self.spawn(
            &format!("node-{id}"),
            &[
                "serve",
                "node",
                "--id",
                &id.to_string(),
                "--state",
                &text(&state),
                "--pool",
                &format!("main={}", text(&pool)),
                "--nbd",
                "127.0.0.1:0",
                "--iscsi",
                "127.0.0.1:0",
                "--catalog",
                &catalog,
                "--ready-file",
                &text(&ready),
            ],
        )?;
        self.nodes.push(serde_json::from_str(&wait_for(&ready)?)?);
        Ok(())
    }

    pub fn spawn(&mut self, name: &str, words: &[&str]) -> Result<()> {
        let log = fs::File::create(self.folder.join(format!("{name}.log")))?;
        let child = Command::new(binary())
            .args(words)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", binary().display()))?;
        self.children.push(child);
        self.names.push(name.to_owned());
        Ok(())
    }

    pub fn pollux(&self, words: &[&str]) -> Result<String> {
        let output =
            Command::new(binary()).args(words).env("POLLUX_CATALOG", &self.catalog).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "pollux {}: {said}", words.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A volume with three replicas, served by the first node and healthy.
    pub fn volume(&self, name: &str, size: &str, block_size: &str) -> Result<()> {
        self.pollux(&[
            "direct",
            "volume",
            "create",
            name,
            "--size",
            size,
            "--block-size",
            block_size,
            "--replica",
            "node-1",
            "--replica",
            "node-2",
            "--replica",
            "node-3",
            "--serve-on",
            "node-1",
        ])?;
        let begun = Instant::now();
        loop {
            // It cannot be asked for before the target has the grant.
            let status = self.pollux(&["--output", "json", "direct", "volume", "status", name]);
            let phase = status.ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
            if phase.is_some_and(|status| status["phase"] == "Healthy") {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "the volume does not become healthy");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Where the first node offers a protocol.
    pub fn address(&self, protocol: &str) -> Result<String> {
        let address = self.nodes.first().and_then(|node| node[protocol].as_str());
        Ok(address.with_context(|| format!("the node offers no {protocol}"))?.to_owned())
    }

    /// Somebody listens on it.
    pub fn wait_for_socket(&self, socket: &Path) -> Result<()> {
        let begun = Instant::now();
        while let Err(error) = UnixStream::connect(socket) {
            ensure!(begun.elapsed() < PATIENCE, "{} does not answer: {error}", socket.display());
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the processes said, where that explains a failure.
    pub fn show_logs(&self) {
        for name in &self.names {
            let log = fs::read_to_string(self.folder.join(format!("{name}.log")));
            let log = log.unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            println!("-- {name}, last lines");
            tail.iter().rev().for_each(|line| println!("{line}"));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself; either way it is gone after this.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn wait_for(file: &Path) -> Result<String> {
    let begun = Instant::now();
    loop {
        match fs::read_to_string(file) {
            Ok(text) => return Ok(text),
            Err(_) if begun.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(50)),
            Err(error) => bail!("{} did not appear: {error}", file.display()),
        }
    }
}
