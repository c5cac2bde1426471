//! An operator at the keyboard: [`control::steps::Site`] for threads that wait.
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use certs::Identity;
use control::steps::{NewClone, NewVolume, Site, StepError};
use proto::v1::{self, Standing};
use tokio::runtime::{Builder, Runtime};

use crate::random::Random;
use crate::site::node_name;

/// A call to a node that was cut off must not hold a test up.
const CALL: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);

pub const HOLD_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Operator {
    runtime: Runtime,
    catalog: String,
    identity: Option<Identity>,
}

impl Operator {
    pub fn new(catalog: &str, identity: Option<Identity>) -> Result<Operator> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Operator { runtime, catalog: catalog.into(), identity })
    }

    /// Asks something of the site, within the time of a call.
    pub fn ask<T>(&self, what: impl AsyncFnOnce(&Site) -> Result<T, StepError>) -> Result<T> {
        self.ask_within(CALL, what)
    }

    pub fn ask_within<T>(
        &self,
        patience: Duration,
        what: impl AsyncFnOnce(&Site) -> Result<T, StepError>,
    ) -> Result<T> {
        self.runtime.block_on(async {
            // A connection of its own for every question: none is left over from a dead process.
            let site = Site::new(&self.catalog, self.identity.clone())?;
            let answer = tokio::time::timeout(patience, what(&site)).await;
            Ok(answer.with_context(|| format!("no answer within {patience:?}"))??)
        })
    }

    /// Asks again and again: for what fails while something is down.
    pub fn insist<T>(
        &self,
        patience: Duration,
        what: impl AsyncFn(&Site) -> Result<T, StepError>,
    ) -> Result<T> {
        let begun = Instant::now();
        loop {
            match self.ask(async |site| what(site).await) {
                Ok(answer) => return Ok(answer),
                Err(error) if begun.elapsed() > patience => return Err(error),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Until the catalog lists so many nodes.
    pub fn wait_known(&self, nodes: usize) -> Result<()> {
        let begun = Instant::now();
        loop {
            let known = self.ask(async |site| site.nodes().await)?.len();
            if known >= nodes {
                return Ok(());
            }
            if begun.elapsed() > CALL {
                bail!("the catalog knows {known} of {nodes} nodes after {CALL:?}");
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A volume with a replica on each of these nodes, served by the first.
    pub fn create(&self, name: &str, size: u64, block_size: u32, nodes: &[u64]) -> Result<()> {
        let mut random = Random::new(size ^ u64::from(block_size) ^ name.len() as u64);
        let uid = (u128::from(random.draw()) << 64 | u128::from(random.draw())).to_be_bytes();
        let wanted = NewVolume {
            name: name.into(),
            uid,
            size,
            block_size,
            compression: "off".into(),
            places: nodes.iter().map(|id| (node_name(*id), "main".into())).collect(),
            hold_deadline_ms: HOLD_DEADLINE.as_secs() * 1000,
            zvol_workers: 0,
            chap: None,
            allowed_initiators: Vec::new(),
        };
        let first = *nodes.first().context("a volume has replicas")?;
        self.ask(async |site| {
            site.create(&wanted).await?;
            site.serve(name, &node_name(first)).await
        })?;
        self.wait_healthy(name, nodes.len(), Duration::from_secs(60))?;
        Ok(())
    }

    /// The node that has the grant, as the catalog says.
    pub fn holder(&self, volume: &str) -> Result<u64> {
        let found = self.ask(async |site| site.known(volume).await)?;
        found.volume.quorum.map(|quorum| quorum.holder).context("no quorum")
    }

    /// The node of a replica.
    pub fn node_of(&self, volume: &str, replica: u64) -> Result<u64> {
        let found = self.ask(async |site| site.known(volume).await)?;
        let place = found.volume.places.iter().find(|place| place.replica == replica);
        place.map(|place| place.node).with_context(|| format!("no replica {replica}"))
    }

    pub fn target(&self, volume: &str) -> Result<v1::TargetStatus> {
        self.ask(async |site| site.target(volume).await)
    }

    /// Has a node serve the volume, and waits until it does: before, the catalog still names the
    /// one that served it till then.
    pub fn serve(&self, volume: &str, on: u64, patience: Duration) -> Result<()> {
        self.insist(patience, async |site| site.serve(volume, &node_name(on)).await)?;
        let is_so = |status: &v1::TargetStatus| status.serving && status.node == on;
        self.wait_for(volume, &format!("node {on} to serve"), patience, is_so)?;
        Ok(())
    }

    /// Until the volume is served, and has just so many replicas, all of them healthy and voting.
    /// How long that took.
    pub fn wait_healthy(&self, volume: &str, count: usize, patience: Duration) -> Result<Duration> {
        let is_so = |status: &v1::TargetStatus| {
            let healthy = |peer: &v1::PeerStatus| {
                peer.votes && peer.standing() == Standing::Healthy && !peer.gives_up
            };
            status.serving && status.peers.len() == count && status.peers.iter().all(healthy)
        };
        self.wait_for(volume, "all replicas to be healthy", patience, is_so)
    }

    pub fn wait_for(
        &self,
        volume: &str,
        what: &str,
        patience: Duration,
        is_so: impl Fn(&v1::TargetStatus) -> bool,
    ) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            let status = self.target(volume);
            if status.as_ref().is_ok_and(&is_so) {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > patience {
                bail!("waited {patience:?} for {what} in vain: {status:#?}");
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Answered when it is durable on a quorum.
    pub fn snapshot(&self, volume: &str, name: &str) -> Result<v1::Snapshot> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let uid = now.as_nanos().to_be_bytes().to_vec();
        let created_ms = u64::try_from(now.as_millis())?;
        let spec = v1::SnapshotSpec { uid, name: name.into(), created_ms };
        self.insist(HOLD_DEADLINE, async |site| site.snapshot(volume, spec.clone()).await)
    }

    pub fn clone_of(source: &str, snapshot: &str, name: &str) -> Result<NewClone> {
        let uid = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos().to_be_bytes();
        let (name, source, snapshot) = (name.into(), source.into(), snapshot.into());
        Ok(NewClone { name, uid, source, snapshot, size: None })
    }

    /// Asks for something, and is cut short later and later; then it has to work out.
    pub fn stammer<T>(&self, what: impl AsyncFn(&Site) -> Result<T, StepError>) -> Result<T> {
        for millis in [1, 2, 4, 7, 11, 16] {
            let cut = self.ask_within(Duration::from_millis(millis), async |site| what(site).await);
            if cut.is_ok() {
                return cut;
            }
        }
        self.ask(async |site| what(site).await)
    }
}
