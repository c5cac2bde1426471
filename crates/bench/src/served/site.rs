//! A site of ours: a catalog and nodes, each a process, on loopback addresses.
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use control::steps::NewVolume;
use proto::catalog_client::{Client, Swapped};
use proto::v1::object::Body;
use proto::v1::swap_request::Change;
use proto::v1::{Key, Kind, Standing};
use rig::operator::{HOLD_DEADLINE, Operator};
use rig::process::{Process, Recipe, pollux};
use rig::site::node_name;
use serde_json::Value;

use super::arena::{Arena, Room};
use super::procs::Processes;
use super::server::{Server, Speaks};

const IQN: &str = "iqn.2026-11.io.pollux:";
const BLOCK: u32 = 4096;

/// For a volume to be served with all its replicas.
const HEALTHY: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Nbd,
    Iscsi,
}

struct Node {
    process: Process,
    told: Value,
}

pub struct Site {
    // Processes go before the folder that they write to.
    nodes: Vec<Node>,
    catalog: Process,
    catalog_at: String,
    operator: Operator,
    folder: Room,
    program: PathBuf,
}

impl Site {
    /// Nodes are numbered from 1 on; each has a pool of this size.
    pub fn start(arena: &Arena, name: &str, nodes: u64, pool: u64) -> Result<Site> {
        Site::of_program(&pollux(), arena, name, nodes, pool)
    }

    /// The same with another program than the one that was built with this bench.
    pub fn of_program(
        program: &Path,
        arena: &Arena,
        name: &str,
        nodes: u64,
        pool: u64,
    ) -> Result<Site> {
        let program = program.to_owned();
        let folder = arena.room(name)?;
        let ready = folder.join("catalog.ready");
        let listen = [("--listen", "127.0.0.1:0".into())];
        let catalog = serve(&program, "catalog", &listen, &folder, "catalog")?;
        let catalog_at = fs::read_to_string(ready)?.trim().to_owned();
        let operator = Operator::new(&catalog_at, None)?;
        let mut site = Site { program, nodes: Vec::new(), catalog, catalog_at, operator, folder };
        for id in 1..=nodes {
            site.add_node(id, pool)?;
        }
        site.operator.wait_known(site.nodes.len())?;
        Ok(site)
    }

    fn add_node(&mut self, id: u64, size: u64) -> Result<()> {
        let (name, pool) = (node_name(id), self.folder.join(format!("pool-{id}")));
        touch(&pool, size)?;
        let size = size.to_string();
        let mut create = Command::new(&self.program);
        create.args(["disk", "create", "--force", "--size", &size]).arg(&pool);
        let made = create.output();
        let made = made.with_context(|| format!("{} does not start", self.program.display()))?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut main = OsString::from("main=");
        main.push(&pool);
        let options: [(&str, OsString); 5] = [
            ("--id", id.to_string().into()),
            ("--pool", main),
            ("--nbd", "127.0.0.1:0".into()),
            ("--iscsi", "127.0.0.1:0".into()),
            ("--catalog", (&self.catalog_at).into()),
        ];
        let process = serve(&self.program, "node", &options, &self.folder, &name)?;
        let told = fs::read_to_string(self.folder.join(format!("{name}.ready")))?;
        self.nodes.push(Node { process, told: serde_json::from_str(&told)? });
        Ok(())
    }

    /// Where a node listens: `nbd`, `iscsi` or `peers`.
    fn address(&self, node: u64, what: &str) -> Result<SocketAddr> {
        let told = self.nodes.iter().zip(1..).find(|(_, id)| *id == node);
        let address = told.and_then(|(node, _)| node.told[what].as_str());
        Ok(address.with_context(|| format!("node {node} tells no {what}"))?.parse()?)
    }

    pub fn peers_of(&self, node: u64) -> Result<SocketAddr> {
        self.address(node, "peers")
    }

    /// The others reach this node at another address from now on. It told its own when it
    /// started, and does not tell it again.
    pub fn detour(&self, node: u64, by: SocketAddr) -> Result<()> {
        let key = Key { kind: Kind::Node.into(), name: node_name(node) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let channel = certs::channel(&self.catalog_at, &certs::Name::catalog(), None)?;
            let client = Client::new(channel);
            let object = client.get(&key).await?.context("the catalog does not know the node")?;
            let Some(Body::Node(mut known)) = object.body else { unreachable!("asked for a node") };
            known.peer_address = by.to_string();
            let swapped = client.swap(&key, object.version, Change::Node(known)).await?;
            ensure!(matches!(swapped, Swapped::Done(_)), "somebody else changes node {node}");
            Ok(())
        })
    }

    /// A volume with a replica on each of these nodes, served by the first. The number is its own.
    pub fn create(&self, name: &str, number: u64, size: u64, nodes: &[u64]) -> Result<()> {
        let mut uid = [0; 16];
        uid[8..].copy_from_slice(&(number + 1).to_be_bytes());
        let wanted = NewVolume {
            name: name.into(),
            uid,
            size,
            block_size: BLOCK,
            compression: "off".into(),
            places: nodes.iter().map(|id| (node_name(*id), "main".into())).collect(),
            hold_deadline_ms: u64::try_from(HOLD_DEADLINE.as_millis())?,
            zvol_workers: 0,
            chap: None,
            allowed_initiators: Vec::new(),
        };
        let first = node_name(*nodes.first().context("a volume has replicas")?);
        self.operator.ask(async |site| {
            site.create(&wanted).await?;
            site.serve(name, &first).await
        })
    }

    pub fn wait_healthy(&self, volume: &str, replicas: usize) -> Result<()> {
        self.operator.wait_healthy(volume, replicas, HEALTHY)?;
        Ok(())
    }

    /// Fails unless every replica is healthy now. One that catches up has not kept up.
    pub fn ensure_healthy(&self, volume: &str) -> Result<()> {
        let status = self.operator.target(volume)?;
        for peer in &status.peers {
            let replica = peer.member.as_ref().map_or(0, |member| member.replica);
            let standing = peer.standing();
            ensure!(
                standing == Standing::Healthy && peer.votes,
                "replica {replica} of `{volume}` did not stay healthy: it is {standing:?}"
            );
        }
        Ok(())
    }

    /// All processes of the site.
    pub fn processes(&self) -> Result<Processes> {
        let nodes = self.nodes.iter().map(|node| &node.process);
        let groups: Vec<u32> = nodes.chain([&self.catalog]).filter_map(Process::pid).collect();
        Processes::of_groups(&groups)
    }

    /// Each process by its name.
    pub fn each_process(&self) -> Result<Vec<(String, Processes)>> {
        let nodes = self.nodes.iter().map(|node| &node.process);
        let all = nodes.chain([&self.catalog]);
        all.map(|process| {
            let group: Vec<u32> = process.pid().into_iter().collect();
            Ok((process.name().to_owned(), Processes::of_groups(&group)?))
        })
        .collect()
    }

    /// A volume as one of its clients sees it, at the node that serves it.
    pub fn server(
        &self,
        name: &'static str,
        wire: Wire,
        volume: &str,
        node: u64,
    ) -> Result<Server> {
        let (at, speaks) = match wire {
            Wire::Nbd => (self.address(node, "nbd")?, Speaks::Nbd { export: volume.into() }),
            Wire::Iscsi => {
                let target = format!("{IQN}{volume}");
                (self.address(node, "iscsi")?, Speaks::Iscsi { target, lun: 0 })
            }
        };
        Ok(Server::within(name, at, speaks, self.processes()?))
    }

    pub fn last_words(&self) -> String {
        let nodes = self.nodes.iter().map(|node| &node.process);
        let said = |process: &Process| format!("---- {}\n{}", process.name(), process.tail());
        nodes.chain([&self.catalog]).map(said).collect::<Vec<_>>().join("\n")
    }
}

fn serve(
    program: &Path,
    kind: &str,
    options: &[(&str, OsString)],
    folder: &Path,
    name: &str,
) -> Result<Process> {
    let ready = folder.join(format!("{name}.ready"));
    let keeps = match kind {
        "catalog" => ("--file", folder.join("catalog.db")),
        _ => ("--state", folder.join(format!("{name}.state"))),
    };
    let mut words: Vec<OsString> = vec![program.into(), "serve".into(), kind.into()];
    words.extend([keeps.0.into(), keeps.1.into(), "--ready-file".into(), ready.clone().into()]);
    words.extend(options.iter().flat_map(|(key, value)| [(*key).into(), value.clone()]));
    Process::start(folder, Recipe { name: name.into(), words, ready })
}

/// All of a pool has its memory, or its place on the disk, before anything is measured: files of
/// others do. The first touch of memory that the host has to find takes longer than writing it.
fn touch(pool: &Path, size: u64) -> Result<()> {
    let mut file = fs::File::create(pool)?;
    let zeros = vec![0; 1 << 20];
    let mut pieces = (0..size).step_by(zeros.len());
    pieces.try_for_each(|_| file.write_all(&zeros)).context("making a pool")
}
