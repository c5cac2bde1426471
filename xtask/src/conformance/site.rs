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
/// The least. Where it is that short, checkpoints come often: they give trimmed space back.
const SHORT_JOURNAL: &str = "256K";

/// Who reaches the processes, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Programs of this machine, plainly, at whatever ports are free.
    Machine,
    /// Other machines too, with certificates: see [`addresses`].
    Network,
}

/// The last number of the control plane's address, where nodes have theirs.
const HEAD: u64 = 10;

fn address_of(process: u64) -> String {
    format!("10.99.7.{process}")
}

/// What a site that others reach listens on. Whoever starts it has given them to the machine.
pub fn addresses() -> impl Iterator<Item = String> {
    (1..=NODES).chain([HEAD]).map(address_of)
}

pub struct Site {
    folder: PathBuf,
    reach: Reach,
    catalog: String,
    children: Vec<Child>,
    /// Of the children, and of their logs.
    names: Vec<String>,
    nodes: Vec<Value>,
}

pub fn binary() -> PathBuf {
    shell::target().join("debug/pollux")
}

impl Site {
    /// A catalog and nodes, for whoever does each step by hand.
    pub fn start(name: &str) -> Result<Site> {
        let mut site = Site::empty(name, Reach::Machine)?;
        let ready = site.serve("catalog", &["--listen", "127.0.0.1:0"])?;
        site.catalog = wait_for(&ready)?.trim().to_owned();
        site.start_nodes()?;
        Ok(site)
    }

    /// With a controller; where its API is.
    pub fn start_controlled(name: &str) -> Result<(Site, String)> {
        Site::with_controller(name, Reach::Machine)
    }

    /// With a controller, for clients on other machines; where its API is.
    pub fn start_reachable(name: &str) -> Result<(Site, String)> {
        Site::with_controller(name, Reach::Network)
    }

    fn with_controller(name: &str, reach: Reach) -> Result<(Site, String)> {
        let mut site = Site::empty(name, reach)?;
        if reach == Reach::Network {
            site.pollux(&["certs", "init", "--dir", &text(&site.certificates())])?;
        }
        let (catalog, api) = (site.listen(HEAD, 7460), site.listen(HEAD, 7470));
        site.issue("catalog", HEAD)?;
        let tls = site.tls("catalog");
        let addresses = ["--catalog", &catalog, "--api", &api];
        let ready = site.serve("control", &[&addresses[..], &words(&tls)].concat())?;
        let at: Value = serde_json::from_str(&wait_for(&ready)?)?;
        let address = |of: &str| at[of].as_str().map(str::to_owned).context("no address");
        site.catalog = address("catalog")?;
        site.start_nodes()?;
        let api = address("api")?;
        Ok((site, api))
    }

    /// Until the controller has heard of all nodes.
    pub fn wait_for_nodes(&self, api: &str) -> Result<()> {
        let token = text(&self.token());
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

    fn empty(name: &str, reach: Reach) -> Result<Site> {
        let folder = env::temp_dir().join(format!("pollux-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Site {
            folder,
            reach,
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

    fn certificates(&self) -> PathBuf {
        self.folder.join("certs")
    }

    /// What clients of the API trust, if it has a certificate.
    pub fn authority(&self) -> Option<PathBuf> {
        let file = self.certificates().join("ca/ca.crt");
        (self.reach == Reach::Network).then_some(file)
    }

    /// What clients of the API show.
    pub fn token(&self) -> PathBuf {
        self.folder.join("admin.token")
    }

    /// Where a process listens. The port counts only where the address is its own.
    fn listen(&self, process: u64, port: u16) -> String {
        match self.reach {
            Reach::Machine => "127.0.0.1:0".to_owned(),
            Reach::Network => format!("{}:{port}", address_of(process)),
        }
    }

    fn issue(&self, name: &str, process: u64) -> Result<()> {
        if self.reach == Reach::Network {
            let (folder, address) = (text(&self.certificates()), address_of(process));
            self.pollux(&["certs", "issue", name, "--address", &address, "--dir", &folder])?;
        }
        Ok(())
    }

    /// The words for the certificate of this name, where there are any.
    fn tls(&self, name: &str) -> Vec<String> {
        match self.reach {
            Reach::Machine => Vec::new(),
            Reach::Network => vec!["--tls".to_owned(), text(&self.certificates().join(name))],
        }
    }

    fn start_nodes(&mut self) -> Result<()> {
        (1..=NODES).try_for_each(|id| {
            self.create_pool(id)?;
            self.issue(&node(id), id)?;
            let ready = self.start_node(id)?;
            self.nodes.push(ready);
            Ok(())
        })
    }

    fn pool(&self, id: u64) -> PathBuf {
        self.folder.join(format!("pool-{id}"))
    }

    fn create_pool(&self, id: u64) -> Result<()> {
        let pool = text(&self.pool(id));
        let mut words = vec!["disk", "create", &pool, "--size", POOL];
        if self.reach == Reach::Network {
            words.extend(["--journal", SHORT_JOURNAL]);
        }
        self.pollux(&words).map(drop)
    }

    /// Starts a node on the pool that it has; what it says when it serves.
    fn start_node(&mut self, id: u64) -> Result<Value> {
        let ready = self.folder.join(format!("{}.ready", node(id)));
        let mut options = vec![
            ("--id", id.to_string()),
            ("--state", text(&self.folder.join(format!("state-{id}")))),
            ("--pool", format!("main={}", text(&self.pool(id)))),
            ("--catalog", self.catalog.clone()),
            ("--ready-file", text(&ready)),
        ];
        let doors = [("--nbd", 10809), ("--iscsi", 3260), ("--peers", 7461), ("--admin", 7462)];
        options.extend(doors.map(|(door, port)| (door, self.listen(id, port))));
        let mut line = vec!["serve", "node"];
        line.extend(options.iter().flat_map(|(name, value)| [*name, value.as_str()]));
        let tls = self.tls(&node(id));
        line.extend(words(&tls));
        self.spawn(&node(id), &line)?;
        Ok(serde_json::from_str(&wait_for(&ready)?)?)
    }

    /// Kills a node of this name, as a power cut of its machine would.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        let place = self.names.iter().position(|known| known == name);
        let place = place.with_context(|| format!("there is no process {name}"))?;
        let mut child = self.children.remove(place);
        self.names.remove(place);
        let killed = child.kill();
        child.wait()?;
        killed.with_context(|| format!("killing {name}"))?;
        let ready = self.folder.join(format!("{name}.ready"));
        fs::remove_file(&ready).with_context(|| format!("removing {}", ready.display()))
    }

    /// Brings a node back that was killed.
    pub fn revive(&mut self, name: &str) -> Result<()> {
        let id = (1..=NODES).find(|id| node(*id) == name).context("it is no node")?;
        self.start_node(id).map(drop)
    }

    pub fn spawn(&mut self, name: &str, words: &[&str]) -> Result<()> {
        let log = self.folder.join(format!("{name}.log"));
        let log = fs::File::options().create(true).append(true).open(log)?;
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
        let mut command = Command::new(binary());
        command.args(words).env("POLLUX_CATALOG", &self.catalog);
        if let Some(authority) = self.authority() {
            command.env("POLLUX_CA", authority);
        }
        let output = command.output()?;
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

fn node(id: u64) -> String {
    format!("node-{id}")
}

fn words(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
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
