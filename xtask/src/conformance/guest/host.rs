//! What the guest cannot do itself: killing nodes, and looking at the site from outside.
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::script::{Victim, Wish};
use crate::conformance::site::Site;

const PATIENCE: Duration = Duration::from_secs(40);

/// The controller asks nodes every second.
const STEADY: Duration = Duration::from_secs(4);

pub struct Host {
    site: Site,
    api: String,
    dead: Option<String>,
    /// Free in all pools together, in bytes.
    noted: u64,
}

impl Host {
    pub fn new(site: Site, api: String) -> Host {
        Host { site, api, dead: None, noted: 0 }
    }

    pub fn api(&self) -> &str {
        &self.api
    }

    pub fn token(&self) -> PathBuf {
        self.site.token()
    }

    pub fn authority(&self) -> Result<PathBuf> {
        self.site.authority().context("a site that others reach has an authority")
    }

    pub fn show_logs(&self) {
        self.site.show_logs();
    }

    fn ask(&self, words: &[&str]) -> Result<Value> {
        let token = self.site.token().display().to_string();
        let how = ["--api", &self.api, "--token-file", &token];
        let answer = self.site.pollux(&[&["--output", "json"], words, &how].concat())?;
        Ok(serde_json::from_str(&answer)?)
    }

    pub fn create(&self, volume: &str, size: &str) -> Result<()> {
        let words = ["volume", "create", volume, "--size", size, "--replicas", "3"];
        self.ask(&words).map(drop)?;
        self.wait_until_healthy(volume)
    }

    fn wait_until_healthy(&self, volume: &str) -> Result<()> {
        wait(&format!("{volume} is not healthy"), || {
            let found = self.ask(&["volume", "get", volume])?;
            Ok(found["state"]["health"] == "Healthy" && found["target"]["serving"] == true)
        })
    }

    /// Does it; what the guest is told then.
    pub fn grant(&mut self, wish: Wish) -> Result<String> {
        match wish {
            Wish::Kill { victim, volume } => self.kill(victim, volume)?,
            Wish::Revive { volume } => {
                let dead = self.dead.take().context("nobody is dead")?;
                self.site.revive(&dead)?;
                self.site.wait_for_nodes(&self.api)?;
                self.wait_until_healthy(volume)?;
            }
            Wish::NoteFree => self.noted = self.steady_free()?,
            Wish::Freed { mebibytes } => {
                let above = self.noted + (mebibytes << 20);
                wait("the space did not come back", || Ok(self.free()? >= above))?;
            }
        }
        Ok(String::new())
    }

    fn kill(&mut self, victim: Victim, volume: &str) -> Result<()> {
        ensure!(self.dead.is_none(), "somebody is dead already");
        let found = self.ask(&["volume", "get", volume])?;
        let serving = &found["target"]["node"];
        let others = found["copies"].as_array().into_iter().flatten().map(|copy| &copy["node"]);
        let node = match victim {
            Victim::Target => Some(serving),
            Victim::Replica => others.into_iter().find(|node| *node != serving),
        };
        let node = node.and_then(Value::as_str).context("nobody to be killed")?;
        println!("-- {node} is killed");
        self.site.kill(node)?;
        self.dead = Some(node.to_owned());
        Ok(())
    }

    /// What is free now may be told late, and change once more with the next checkpoint.
    fn steady_free(&self) -> Result<u64> {
        let (mut free, mut since) = (self.free()?, Instant::now());
        wait("the pools do not come to rest", || {
            let now = self.free()?;
            if now != free {
                (free, since) = (now, Instant::now());
            }
            Ok(since.elapsed() >= STEADY)
        })?;
        Ok(free)
    }

    fn free(&self) -> Result<u64> {
        let pools = self.ask(&["pool", "list"])?;
        let pools = pools.as_array().context("a list of pools")?;
        let free = pools.iter().map(|pool| pool["free"].as_u64().context("a pool without figures"));
        free.sum()
    }
}

fn wait(otherwise: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        ensure!(begun.elapsed() < PATIENCE, "{otherwise} after {} s", PATIENCE.as_secs());
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
