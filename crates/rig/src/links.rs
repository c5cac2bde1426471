//! Wires between nodes, which can be cut.
//!
//! Peers speak plainly on loopback addresses only, and packets between two of those cannot be told
//! apart by their sender. So every node gets a network namespace, joined by a bridge, with an
//! address of 127.0.0.0/8 that is routed like any other (`route_localnet`). A wire is cut by a
//! neighbour entry that leads nowhere: packets vanish without an error, in one direction each.
//!
//! All of it lives in namespaces of the test: [`own_network`] runs the calling test once more
//! inside them, and the kernel takes them away with its last process, whatever happened.
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::{Context, Result, ensure};

const INSIDE: &str = "RIG_INSIDE";
const NOWHERE: &str = "02:00:00:00:00:01";
/// The last bytes of the addresses of the test and of its catalog. Those of nodes are lower.
const HOST: u8 = 31;
const CATALOG: u8 = 30;
/// Addresses of one rig among those of its process.
const STRIDE: u8 = 32;

#[derive(Debug)]
pub struct Network {
    /// The first three bytes of every address.
    prefix: [u8; 3],
    base: u8,
    namespaces: bool,
}

/// Where a test that wants to cut wires finds itself.
#[derive(Debug)]
pub enum Own {
    /// Inside: go on.
    Inside(Network),
    /// It ran inside, and passed: nothing is left to do.
    Passed,
    /// Not on this machine, and why.
    Impossible(String),
}

/// Runs the test of this name once more in namespaces of its own. Panics if it fails there.
pub fn own_network(test: &str) -> Own {
    if std::env::var_os(INSIDE).is_some() {
        return Own::Inside(Network { prefix: [127, 77, 0], base: 0, namespaces: true });
    }
    let probe = "mount -t tmpfs none /run && ip link add b0 type bridge && ip link add v0 type veth \
                 && ip netns add probe";
    let tried = within().args(["sh", "-c", probe]).stdin(Stdio::null()).output();
    match tried {
        Ok(tried) if tried.status.success() => {}
        Ok(tried) => return Own::Impossible(String::from_utf8_lossy(&tried.stderr).into_owned()),
        Err(error) => return Own::Impossible(format!("unshare: {error}")),
    }
    let test_program = std::env::current_exe().expect("a test knows its program");
    let status = within()
        .arg(test_program)
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(INSIDE, "1")
        .status();
    let passed = status.as_ref().is_ok_and(|status| status.success());
    assert!(passed, "the test failed inside its namespaces: {status:?}");
    Own::Passed
}

fn within() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    unshare
}

impl Network {
    /// On the loopback interface of the machine; nothing can be cut. Two rigs at a time, of one
    /// process or of several, have different addresses.
    pub fn loopback() -> Network {
        static RIGS: AtomicU8 = AtomicU8::new(0);
        let base = RIGS.fetch_add(1, Ordering::Relaxed) % (u8::MAX / STRIDE) * STRIDE;
        let [.., high, low] = std::process::id().to_be_bytes();
        Network { prefix: [127, high | 0x80, low], base, namespaces: false }
    }

    pub fn can_cut(&self) -> bool {
        self.namespaces
    }

    fn address(&self, last: u8) -> IpAddr {
        let [first, second, third] = self.prefix;
        Ipv4Addr::new(first, second, third, self.base + last).into()
    }

    fn host(&self) -> IpAddr {
        self.address(HOST)
    }

    pub(crate) fn catalog(&self) -> IpAddr {
        self.address(CATALOG)
    }

    pub(crate) fn node(&self, id: u64) -> IpAddr {
        let id = u8::try_from(id).ok().filter(|id| *id < CATALOG);
        self.address(id.expect("a rig has at most 29 nodes"))
    }

    /// What comes before the command of a node, so that it runs where its address is.
    pub(crate) fn prefix(&self, id: u64) -> Vec<OsString> {
        let words = ["ip".into(), "netns".into(), "exec".into(), namespace(id).into()];
        if self.namespaces { words.into() } else { Vec::new() }
    }

    pub(crate) fn up(&mut self, nodes: usize) -> Result<()> {
        if !self.namespaces {
            return Ok(());
        }
        let [first, second, third] = self.prefix;
        let net = format!("{first}.{second}.{third}.0/24");
        let (host, catalog) = (self.host(), self.catalog());
        shell(&format!(
            "mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link set lo up \
             && ip link add br0 type bridge && ip addr add {host}/24 dev br0 scope global \
             && ip addr add {catalog}/24 dev br0 scope global \
             && ip link set br0 up && echo 1 > /proc/sys/net/ipv4/conf/br0/route_localnet \
             && ip route add {net} dev br0 src {host} table local"
        ))?;
        for id in 1..=nodes as u64 {
            let (name, at) = (namespace(id), self.node(id));
            shell(&format!(
                "ip netns add {name} && ip link add {name} type veth peer name eth0 netns {name} \
                 && ip link set {name} master br0 up && ip -n {name} link set lo up \
                 && ip netns exec {name} sh -c 'cd /proc/sys/net/ipv4/conf/eth0 \
                    && echo 1 > route_localnet && echo 1 > rp_filter' \
                 && ip -n {name} addr add {at}/24 dev eth0 scope global \
                 && ip -n {name} link set eth0 up \
                 && ip -n {name} route add {net} dev eth0 src {at} table local"
            ))?;
        }
        Ok(())
    }

    /// Nothing gets from one node to the other, and the sender is not told.
    pub fn cut_one_way(&self, from: u64, to: u64) -> Result<()> {
        ensure!(self.namespaces, "wires of the loopback interface cannot be cut");
        let (from, to) = (namespace(from), self.node(to));
        shell(&format!("ip -n {from} neigh replace {to} lladdr {NOWHERE} dev eth0 nud permanent"))
    }

    pub fn mend_one_way(&self, from: u64, to: u64) -> Result<()> {
        let (from, to) = (namespace(from), self.node(to));
        shell(&format!("ip -n {from} neigh del {to} dev eth0"))
    }

    pub fn cut(&self, one: u64, other: u64) -> Result<()> {
        self.cut_one_way(one, other)?;
        self.cut_one_way(other, one)
    }

    pub fn mend(&self, one: u64, other: u64) -> Result<()> {
        self.mend_one_way(one, other)?;
        self.mend_one_way(other, one)
    }

    /// The node neither reaches the catalog nor hears of it; its peers and clients still reach it.
    /// What comes from an address that has no way back is dropped (`rp_filter`).
    pub fn cut_catalog(&self, from: u64) -> Result<()> {
        ensure!(self.namespaces, "wires of the loopback interface cannot be cut");
        let (from, catalog) = (namespace(from), self.catalog());
        shell(&format!("ip -n {from} route add blackhole {catalog}/32 table local"))
    }

    pub fn mend_catalog(&self, from: u64) -> Result<()> {
        let (from, catalog) = (namespace(from), self.catalog());
        shell(&format!("ip -n {from} route del blackhole {catalog}/32 table local"))
    }

    /// Bytes that were sent to a node since it has its wire, with the headers of every packet.
    pub fn sent_to(&self, id: u64) -> Result<u64> {
        ensure!(self.namespaces, "the loopback interface does not count by node");
        let output =
            Command::new("ip").args(["-s", "-j", "link", "show", &namespace(id)]).output()?;
        let links: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        // The bridge's end of the wire: what it transmits, the node receives.
        links[0]["stats64"]["tx"]["bytes"].as_u64().context("ip tells no bytes")
    }
}

fn namespace(id: u64) -> String {
    format!("rig{id}")
}

fn shell(script: &str) -> Result<()> {
    let output = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{script}: {said}");
    Ok(())
}
