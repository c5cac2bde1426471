//! Somebody who uses the API of a site: [`control::api::Client`] for threads that wait.
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use control::api::types::{Health, NewSnapshot, NewVolume, Proof, Volume};
use control::api::{ApiError, Client, Endpoint};
use tokio::runtime::{Builder, Runtime};

const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Api {
    runtime: Runtime,
    client: Client,
}

impl Api {
    /// With the token that the site wrote into a file.
    pub fn new(address: &str, token_file: &Path) -> Result<Api> {
        let text = std::fs::read_to_string(token_file);
        let text = text.with_context(|| format!("{}", token_file.display()))?;
        let endpoint = Endpoint { address: address.into(), token: text.trim().into(), trust: None };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Api { runtime, client: Client::new(endpoint) })
    }

    /// One question.
    pub fn ask<T>(
        &self,
        what: impl AsyncFnOnce(&Client) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        self.runtime.block_on(what(&self.client))
    }

    /// Asks again and again: for what fails while something is down.
    pub fn insist<T>(
        &self,
        patience: Duration,
        what: impl AsyncFn(&Client) -> Result<T, ApiError>,
    ) -> Result<T> {
        let begun = Instant::now();
        loop {
            match self.ask(async |client| what(client).await) {
                Ok(answer) => return Ok(answer),
                Err(error) if begun.elapsed() > patience || !error.may_retry() => {
                    return Err(error).with_context(|| format!("after {:?}", begun.elapsed()));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Until it has heard of so many nodes.
    pub fn wait_nodes(&self, count: usize, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let nodes = self.ask(async |client| client.nodes().await);
            let here = nodes.as_ref().map_or(0, |nodes| {
                nodes.items.iter().filter(|node| node.state.health == Health::Healthy).count()
            });
            if here >= count {
                return Ok(());
            }
            if begun.elapsed() > patience {
                bail!("{count} nodes are not there after {patience:?}: {nodes:?}");
            }
            std::thread::sleep(PAUSE);
        }
    }

    pub fn create(&self, name: &str, size: u64, replicas: u32) -> Result<Volume> {
        let wanted =
            NewVolume { name: name.into(), size, replicas: Some(replicas), ..NewVolume::default() };
        Ok(self.ask(async |client| client.create_volume(&wanted).await)?)
    }

    pub fn delete(&self, name: &str, patience: Duration) -> Result<()> {
        self.insist(patience, async |client| {
            client.delete_volume(name, &Proof::default()).await.map(|_| ())
        })
    }

    pub fn snapshot(&self, volume: &str, name: &str) -> Result<control::api::types::Snapshot> {
        let wanted =
            NewSnapshot { name: name.into(), volume: volume.into(), ..NewSnapshot::default() };
        Ok(self.ask(async |client| client.create_snapshot(&wanted).await)?)
    }

    /// Until a volume is as it is to be.
    pub fn wait_volume(
        &self,
        name: &str,
        what: &str,
        patience: Duration,
        is_so: impl Fn(&Volume) -> bool,
    ) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            let volume = self.ask(async |client| client.volume(name).await);
            if volume.as_ref().is_ok_and(&is_so) {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > patience {
                bail!("waited {patience:?} for {what} in vain: {volume:#?}");
            }
            std::thread::sleep(PAUSE);
        }
    }

    pub fn wait_healthy(&self, name: &str, patience: Duration) -> Result<Duration> {
        let healthy = |volume: &Volume| volume.state.health == Health::Healthy;
        self.wait_volume(name, "a healthy volume", patience, healthy)
    }
}
