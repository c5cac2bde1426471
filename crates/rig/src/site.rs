//! A catalog and nodes on this machine, in a folder and on addresses of their own.
//!
//! Every node has an address of 127.0.0.0/8 to itself with fixed ports, so that it is found where
//! it was when it is started again, and so that links between two nodes can be told apart.
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use certs::Identity;

use crate::api::Api;
use crate::links::Network;
use crate::load::Finder;
use crate::operator::Operator;
use crate::process::{Process, Recipe, Watchdog, pollux};

const CATALOG: u16 = 7460;
const API: u16 = 7470;
const PEERS: u16 = 7461;
const ADMIN: u16 = 7462;
const NBD: u16 = 10809;
const ISCSI: u16 = 3260;

/// Whose certificate the operator has.
const OPERATOR: &str = "operator";

pub const MIB: u64 = 1 << 20;

/// What catalog, nodes and operator speak with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wires {
    Plain,
    Tls,
}

impl Wires {
    /// TLS if `RIG_TLS` says so.
    pub fn from_env() -> Wires {
        let told = std::env::var_os("RIG_TLS").is_some_and(|told| !told.is_empty() && told != "0");
        if told { Wires::Tls } else { Wires::Plain }
    }
}

/// When the files of pools take their space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSpace {
    AtOnce,
    AsUsed,
}

/// What the catalog is a part of.
#[derive(Clone, Copy, Debug)]
enum Head<'a> {
    Catalog,
    Control(&'a [&'a str]),
}

impl Head<'_> {
    fn name(self) -> String {
        match self {
            Head::Catalog => "catalog".into(),
            Head::Control(_) => "control".into(),
        }
    }

    fn words(self, folder: &Path, network: &Network) -> Vec<OsString> {
        let at = |port| SocketAddr::new(network.catalog(), port).to_string();
        let mut words: Vec<OsString> = vec![pollux().into(), "serve".into(), self.name().into()];
        words.extend(["--file".into(), folder.join("catalog.db").into()]);
        words.extend(["--ready-file".into(), folder.join("catalog.addr").into()]);
        match self {
            Head::Catalog => words.extend(["--listen".into(), at(CATALOG).into()]),
            Head::Control(options) => {
                words.extend(["--catalog".into(), at(CATALOG).into()]);
                words.extend(["--api".into(), at(API).into()]);
                words.extend(options.iter().map(OsString::from));
            }
        }
        words
    }
}

#[derive(Debug)]
pub struct Rig {
    // Fields are dropped in this order: processes before the network that they use.
    nodes: Vec<Process>,
    catalog: Process,
    folder: PathBuf,
    network: Network,
    wires: Wires,
    space: PoolSpace,
    _watchdog: Watchdog,
}

impl Rig {
    /// One node for each size of a pool; their numbers begin at 1.
    pub fn start(folder: &Path, pools: &[u64], network: Network) -> Result<Rig> {
        Rig::start_on(Wires::from_env(), folder, pools, network)
    }

    pub fn start_on(wires: Wires, folder: &Path, pools: &[u64], network: Network) -> Result<Rig> {
        Rig::start_as(Head::Catalog, wires, PoolSpace::AtOnce, folder, pools, network)
    }

    /// As [`Rig::start`], with pools whose files take their space at once or as it is used.
    pub fn start_with(
        space: PoolSpace,
        folder: &Path,
        pools: &[u64],
        network: Network,
    ) -> Result<Rig> {
        Rig::start_as(Head::Catalog, Wires::from_env(), space, folder, pools, network)
    }

    /// With a controller, which is told these options.
    pub fn start_controlled(folder: &Path, pools: &[u64], options: &[&str]) -> Result<Rig> {
        Rig::start_controlled_on(Network::loopback(), folder, pools, options)
    }

    pub fn start_controlled_on(
        network: Network,
        folder: &Path,
        pools: &[u64],
        options: &[&str],
    ) -> Result<Rig> {
        Rig::start_control(network, folder, pools, options, PoolSpace::AtOnce)
    }

    /// The same with pools in sparse files.
    pub fn start_controlled_sparse(folder: &Path, pools: &[u64], options: &[&str]) -> Result<Rig> {
        Rig::start_control(Network::loopback(), folder, pools, options, PoolSpace::AsUsed)
    }

    fn start_control(
        network: Network,
        folder: &Path,
        pools: &[u64],
        options: &[&str],
        space: PoolSpace,
    ) -> Result<Rig> {
        let head = Head::Control(options);
        let rig = Rig::start_as(head, Wires::Plain, space, folder, pools, network)?;
        rig.api()?.wait_nodes(pools.len(), Duration::from_secs(30))?;
        Ok(rig)
    }

    fn start_as(
        head: Head<'_>,
        wires: Wires,
        space: PoolSpace,
        folder: &Path,
        pools: &[u64],
        mut network: Network,
    ) -> Result<Rig> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
        let watchdog = Watchdog::over(folder)?;
        network.up(pools.len())?;
        if wires == Wires::Tls {
            certify(folder, pools.len())?;
        }
        let mut words = head.words(folder, &network);
        words.extend(tls_option(wires, folder, "catalog"));
        let recipe = Recipe { name: head.name(), words, ready: folder.join("catalog.addr") };
        let catalog = Process::start(folder, recipe)?;
        let folder = folder.into();
        let mut rig =
            Rig { nodes: Vec::new(), catalog, folder, network, wires, space, _watchdog: watchdog };
        for (id, size) in (1..).zip(pools) {
            rig.add_node(id, *size)?;
        }
        // A node is ready before the catalog knows it.
        rig.operator()?.wait_known(pools.len())?;
        Ok(rig)
    }

    /// The API of a site that has a controller.
    pub fn api(&self) -> Result<Api> {
        Api::new(&self.api_address(), &self.token_file())
    }

    pub fn api_address(&self) -> String {
        SocketAddr::new(self.network.catalog(), API).to_string()
    }

    pub fn token_file(&self) -> PathBuf {
        self.folder.join("admin.token")
    }

    fn add_node(&mut self, id: u64, pool_size: u64) -> Result<()> {
        let (pool, ready) = (self.pool(id), self.folder.join(format!("node-{id}.json")));
        let mut create = Command::new(pollux());
        create.args(["disk", "create"]).arg(&pool).args(["--size", &pool_size.to_string()]);
        create.args((self.space == PoolSpace::AsUsed).then_some("--sparse"));
        let made = create.output().context("pollux disk create")?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let address = |port| self.address(id, port).to_string();
        let mut main = OsString::from("main=");
        main.push(&pool);
        let mut words = self.network.prefix(id);
        words.extend([pollux().into(), "serve".into(), "node".into()]);
        let options: [(&str, OsString); 9] = [
            ("--id", id.to_string().into()),
            ("--state", self.folder.join(format!("state-{id}")).into()),
            ("--pool", main),
            ("--nbd", address(NBD).into()),
            ("--iscsi", address(ISCSI).into()),
            ("--peers", address(PEERS).into()),
            ("--admin", address(ADMIN).into()),
            ("--catalog", self.catalog_address().into()),
            ("--ready-file", ready.clone().into()),
        ];
        words.extend(options.into_iter().flat_map(|(option, value)| [option.into(), value]));
        words.extend(tls_option(self.wires, &self.folder, &node_name(id)));
        let recipe = Recipe { name: node_name(id), words, ready };
        self.nodes.push(Process::start(&self.folder, recipe)?);
        Ok(())
    }

    pub fn catalog_address(&self) -> String {
        SocketAddr::new(self.network.catalog(), CATALOG).to_string()
    }

    fn address(&self, id: u64, port: u16) -> SocketAddr {
        SocketAddr::new(self.network.node(id), port)
    }

    pub fn peers(&self, id: u64) -> SocketAddr {
        self.address(id, PEERS)
    }

    pub fn admin(&self, id: u64) -> SocketAddr {
        self.address(id, ADMIN)
    }

    pub fn nbd(&self, id: u64) -> SocketAddr {
        self.address(id, NBD)
    }

    pub fn iscsi(&self, id: u64) -> SocketAddr {
        self.address(id, ISCSI)
    }

    /// The folder of authority and certificates, if the rig has any.
    pub fn certificates(&self) -> PathBuf {
        certificates(&self.folder)
    }

    pub fn pool(&self, id: u64) -> PathBuf {
        self.folder.join(format!("pool-{id}"))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    fn at(id: u64) -> usize {
        usize::try_from(id).expect("nodes are few") - 1
    }

    pub fn node(&mut self, id: u64) -> &mut Process {
        &mut self.nodes[Rig::at(id)]
    }

    pub fn ids(&self) -> impl Iterator<Item = u64> + use<> {
        1..=self.nodes.len() as u64
    }

    pub fn catalog(&mut self) -> &mut Process {
        &mut self.catalog
    }

    pub fn kill9(&mut self, id: u64) {
        self.node(id).kill9();
    }

    pub fn restart(&mut self, id: u64) -> Result<()> {
        self.node(id).restart()
    }

    pub fn stop(&mut self, id: u64) -> Result<()> {
        self.node(id).stop()
    }

    /// Puts a line of the test into every log, so that causes and effects stand in order.
    pub fn note(&self, line: &str) {
        println!("{line}");
        self.nodes.iter().chain([&self.catalog]).for_each(|process| process.note(line));
    }

    pub fn operator(&self) -> Result<Operator> {
        let identity = match self.wires {
            Wires::Plain => None,
            Wires::Tls => Some(Identity::load(&self.certificates().join(OPERATOR))?),
        };
        Operator::new(&self.catalog_address(), identity)
    }

    /// Where NBD clients find a volume: on the node that the catalog says has its grant.
    pub fn finder(&self, volume: &str) -> Result<Finder> {
        let operator = Mutex::new(self.operator()?);
        let nodes: Vec<SocketAddr> = self.ids().map(|id| self.nbd(id)).collect();
        let volume = volume.to_owned();
        Ok(Arc::new(move || {
            let operator = operator.lock().expect("nobody panics with it");
            let holder = operator.holder(&volume).ok()?;
            nodes.get(usize::try_from(holder).ok()?.checked_sub(1)?).copied()
        }))
    }
}

fn certificates(folder: &Path) -> PathBuf {
    folder.join("certs")
}

fn tls_option(wires: Wires, folder: &Path, name: &str) -> Vec<OsString> {
    match wires {
        Wires::Plain => Vec::new(),
        Wires::Tls => vec!["--tls".into(), certificates(folder).join(name).into()],
    }
}

/// As an operator does it.
fn certify(folder: &Path, nodes: usize) -> Result<()> {
    let dir = certificates(folder);
    let run = |words: &[&str]| -> Result<()> {
        let mut command = Command::new(pollux());
        let made = command.arg("certs").args(words).arg("--dir").arg(&dir).output()?;
        let said = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "pollux certs {words:?}: {said}");
        Ok(())
    };
    run(&["init"])?;
    run(&["issue", "catalog"])?;
    run(&["issue", OPERATOR])?;
    (1..=nodes as u64).try_for_each(|id| run(&["issue", &node_name(id)]))
}

pub fn node_name(id: u64) -> String {
    format!("node-{id}")
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for process in self.nodes.iter().chain([&self.catalog]) {
                eprintln!("==== {}\n{}", process.log().display(), process.tail());
            }
        }
        self.nodes.iter_mut().for_each(Process::kill9);
        self.catalog.kill9();
        // Pools are large; what tells of a failure are the logs.
        for id in self.ids() {
            if std::env::var_os("RIG_KEEP").is_none() {
                let _ = fs::remove_file(self.pool(id));
            }
        }
    }
}
