//! Three nodes under load while things break in random order: nothing that was acknowledged is
//! lost, nobody waits too long, and in the end all replicas are alike.
//!
//! As root everything is on a file system of its own, which fills up now and then; pools take their space there
//! at once or as it is used, which the seed decides.
//!
//! `RIG_SECONDS` for longer, `RIG_SEED` for the same order again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use control::steps::Site;
use rig::disk::SmallDisk;
use rig::links::{Network, Own, own_network};
use rig::load::{Load, Plan};
use rig::operator::{HOLD_DEADLINE, Operator};
use rig::pools;
use rig::random::Random;
use rig::site::{MIB, PoolSpace, Rig};

const VOLUME: &str = "torture";
const NODES: u64 = 3;
const HEALTHY: Duration = Duration::from_secs(60);
const SNAPSHOTS: u32 = 3;

#[derive(Debug)]
enum Blow {
    /// The target's node dies, and comes back by itself.
    TargetDies {
        away_ms: u64,
    },
    /// The target's node dies, and another takes over before it is back.
    TargetReplaced {
        by: u64,
        away_ms: u64,
    },
    ReplicaDies {
        node: u64,
        away_ms: u64,
    },
    WireCut {
        node: u64,
        one_way: Option<Way>,
        ms: u64,
    },
    /// The target hears of nobody any more; its clients still reach it. Another may take over.
    TargetAlone {
        then: Option<u64>,
        ms: u64,
    },
    Moved {
        to: u64,
    },
    CatalogCut {
        node: u64,
        ms: u64,
    },
    /// It stands still and wakes up without knowing.
    Frozen {
        node: u64,
        ms: u64,
    },
    /// Short enough that the deadline of holds covers it.
    TwoDie {
        but: u64,
        away_ms: u64,
    },
    AllDie {
        away_ms: u64,
    },
    /// It is told to stop, and does so in order.
    Stopped {
        node: u64,
        ms: u64,
    },
    CatalogDies {
        away_ms: u64,
    },
    /// The file system of pools, state, catalog and logs is full; a node may die meanwhile.
    DiskFull {
        dies: Option<u64>,
        ms: u64,
    },
    /// A node runs with a log that cannot be written.
    LogFull {
        node: u64,
        ms: u64,
    },
}

#[derive(Debug)]
enum Way {
    FromTarget,
    ToTarget,
}

struct Torture {
    rig: Rig,
    operator: Operator,
    random: Random,
    /// What the rig is on, if it can be filled up.
    disk: Option<SmallDisk>,
    logs: PathBuf,
}

/// Three pools of 512 MiB, and a little for everything else.
const DISK_MIB: u64 = 1792;

#[test]
fn torture() {
    let network = match own_network("torture") {
        Own::Inside(network) => network,
        Own::Passed => return,
        Own::Impossible(why) => {
            println!("NO WIRES ARE CUT: namespaces cannot be made here: {why}");
            Network::loopback()
        }
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("torture");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let mut random = Random::from_env();
    let space = if random.chance(50) { PoolSpace::AtOnce } else { PoolSpace::AsUsed };
    // Only inside is the mount taken away whatever happens.
    let disk = match network.can_cut() {
        true => Some(SmallDisk::on_disk(&folder.join("disk"), DISK_MIB).unwrap()),
        false => None,
    };
    if disk.is_none() {
        println!("NO DISK FILLS UP: a file system cannot be mounted here");
    }
    let site = disk.as_ref().map_or(folder.as_path(), SmallDisk::at).join("site");
    let rig = Rig::start_with(space, &site, &[512 * MIB; 3], network).unwrap();
    rig.note(&format!("pools take their space {space:?}"));
    let operator = rig.operator().unwrap();
    Torture { rig, operator, random, disk, logs: folder }.run().unwrap();
}

impl Drop for Torture {
    /// Logs stay behind where the file system goes.
    fn drop(&mut self) {
        let logs = self.rig.ids().map(|id| self.rig.node(id).log()).collect::<Vec<_>>();
        for log in logs.into_iter().chain([self.rig.catalog().log()]) {
            let name = log.file_name().expect("a log has a name");
            if let Err(error) = fs::copy(&log, self.logs.join(name)) {
                eprintln!("{} is lost: {error}", log.display());
            }
        }
    }
}

impl Torture {
    fn run(&mut self) -> Result<()> {
        let seconds = std::env::var("RIG_SECONDS").ok().and_then(|it| it.parse().ok());
        let lasts = Duration::from_secs(seconds.unwrap_or(60));
        let block = if self.random.chance(50) { 4096 } else { 65536 };
        self.operator.create(VOLUME, 96 * MIB, block, &[1, 2, 3])?;
        let plan = Plan {
            volume: VOLUME.into(),
            block: usize::try_from(block)?,
            first: 0,
            blocks: 64 * MIB / u64::from(block),
            writers: 2 + self.random.below(7),
            seed: self.random.draw(),
            rest: Duration::from_millis(self.random.below(3)),
        };
        let load = Load::start(plan, self.rig.finder(VOLUME)?);
        load.wait_acks(100, Duration::from_secs(20))?;
        self.blows(&load, lasts)?;
        self.finish(load)
    }

    fn blows(&mut self, load: &Load, lasts: Duration) -> Result<()> {
        let begun = Instant::now();
        let (mut snapshots, mut first) = (0, None);
        while begun.elapsed() < lasts && !load.has_failed() {
            let blow = self.choose()?;
            self.rig.note(&format!("{:.1} s: {blow:?}", begun.elapsed().as_secs_f64()));
            self.strike(&blow).with_context(|| format!("{blow:?}"))?;
            if begun.elapsed() * 4 > lasts * (snapshots + 1) && snapshots < SNAPSHOTS {
                snapshots += 1;
                let made = self.operator.snapshot(VOLUME, &format!("during-{snapshots}"))?;
                let old = (snapshots == SNAPSHOTS).then(|| first.take()).flatten();
                first.get_or_insert(made.uid);
                if let Some(uid) = old {
                    self.delete(&uid)?;
                }
            }
            // Now and then the next blow comes before the last is got over.
            if self.random.chance(80) {
                let took = self.operator.wait_healthy(VOLUME, 3, HEALTHY);
                let took = took.with_context(|| format!("after {blow:?}"))?;
                self.rig.note(&format!("healthy {took:.1?} later, {} acks", load.acks()));
            }
        }
        Ok(())
    }

    fn delete(&self, snapshot: &[u8]) -> Result<()> {
        self.rig.note("the first snapshot is deleted");
        let gone = async |site: &Site| site.delete_snapshot(VOLUME, snapshot.to_vec()).await;
        self.operator.insist(HEALTHY, gone)
    }

    fn choose(&mut self) -> Result<Blow> {
        let target = self.target()?;
        let other = (target + self.random.below(NODES - 1)) % NODES + 1;
        let mut ms = |most| self.random.below(most);
        let (short, long) = (ms(3000), ms(8000));
        let kinds = match (self.rig.network().can_cut(), &self.disk) {
            (true, Some(_)) => 19,
            (true, None) => 17,
            (false, _) => 12,
        };
        Ok(match self.random.below(kinds) {
            0 => Blow::TargetDies { away_ms: short },
            1 | 2 => Blow::TargetReplaced { by: other, away_ms: long },
            3 => Blow::ReplicaDies { node: other, away_ms: long },
            4 => Blow::CatalogDies { away_ms: short },
            5 => Blow::Moved { to: other },
            6 => Blow::Frozen { node: target, ms: long },
            7 => Blow::Frozen { node: other, ms: long },
            8 => Blow::TwoDie { but: other, away_ms: short },
            9 => Blow::AllDie { away_ms: short },
            10 => {
                let node = if self.random.chance(50) { target } else { other };
                Blow::Stopped { node, ms: short }
            }
            11 => {
                let node = if self.random.chance(50) { target } else { other };
                Blow::LogFull { node, ms: short }
            }
            12 => {
                let node = if self.random.chance(50) { target } else { other };
                Blow::CatalogCut { node, ms: long }
            }
            13 => Blow::WireCut { node: other, one_way: None, ms: long },
            14 => Blow::WireCut { node: other, one_way: Some(Way::FromTarget), ms: long },
            15 => Blow::WireCut { node: other, one_way: Some(Way::ToTarget), ms: long },
            17 => Blow::DiskFull { dies: None, ms: long },
            18 => {
                let node = if self.random.chance(50) { target } else { other };
                Blow::DiskFull { dies: Some(node), ms: short }
            }
            _ => {
                let then = self.random.chance(60).then_some(other);
                Blow::TargetAlone { then, ms: short }
            }
        })
    }

    fn target(&self) -> Result<u64> {
        let known = self.operator.insist(HEALTHY, async |site| site.known(VOLUME).await)?;
        known.volume.quorum.map(|quorum| quorum.holder).context("a volume has a quorum")
    }

    fn strike(&mut self, blow: &Blow) -> Result<()> {
        let target = self.target()?;
        let rest = |ms: u64| thread::sleep(Duration::from_millis(ms));
        match *blow {
            Blow::TargetDies { away_ms } => {
                self.rig.kill9(target);
                rest(away_ms);
                self.rig.restart(target)?;
            }
            Blow::TargetReplaced { by, away_ms } => {
                self.rig.kill9(target);
                self.serve(by)?;
                rest(away_ms);
                self.rig.restart(target)?;
            }
            Blow::ReplicaDies { node, away_ms } => {
                self.rig.kill9(node);
                rest(away_ms);
                self.rig.restart(node)?;
            }
            Blow::WireCut { node, ref one_way, ms } => {
                self.cut_wire(target, node, one_way.as_ref(), ms)?;
            }
            Blow::TargetAlone { then, ms } => self.alone(target, then, ms)?,
            Blow::Moved { to } => self.serve(to)?,
            Blow::Frozen { node, ms } => {
                self.rig.node(node).freeze()?;
                rest(ms);
                self.rig.node(node).thaw()?;
            }
            Blow::CatalogCut { node, ms } => {
                self.rig.network().cut_catalog(node)?;
                rest(ms);
                self.rig.network().mend_catalog(node)?;
            }
            Blow::Stopped { node, ms } => {
                self.rig.stop(node)?;
                rest(ms);
                self.rig.restart(node)?;
            }
            Blow::TwoDie { but, away_ms } => self.die_together(but, away_ms)?,
            Blow::AllDie { away_ms } => self.die_together(0, away_ms)?,
            Blow::CatalogDies { away_ms } => {
                self.rig.catalog().kill9();
                rest(away_ms);
                self.rig.catalog().restart()?;
            }
            Blow::DiskFull { dies, ms } => self.fill_disk(dies, ms)?,
            Blow::LogFull { node, ms } => {
                self.rig.node(node).log_to(Some(Path::new("/dev/full")));
                self.rig.restart(node)?;
                rest(ms);
                self.rig.node(node).log_to(None);
                self.rig.restart(node)?;
            }
        }
        Ok(())
    }

    fn fill_disk(&mut self, dies: Option<u64>, ms: u64) -> Result<()> {
        let disk = self.disk.as_ref().context("a disk that can be filled")?;
        disk.fill()?;
        thread::sleep(Duration::from_millis(ms));
        dies.into_iter().for_each(|node| self.rig.kill9(node));
        self.disk.as_ref().context("a disk that can be filled")?.empty()?;
        dies.map_or(Ok(()), |node| self.rig.restart(node))
    }

    fn cut_wire(&mut self, target: u64, node: u64, way: Option<&Way>, ms: u64) -> Result<()> {
        let wires = match way {
            None => vec![(target, node), (node, target)],
            Some(Way::FromTarget) => vec![(target, node)],
            Some(Way::ToTarget) => vec![(node, target)],
        };
        let network = self.rig.network();
        wires.iter().try_for_each(|(from, to)| network.cut_one_way(*from, *to))?;
        thread::sleep(Duration::from_millis(ms));
        wires.iter().try_for_each(|(from, to)| network.mend_one_way(*from, *to))
    }

    fn alone(&mut self, target: u64, then: Option<u64>, ms: u64) -> Result<()> {
        let others: Vec<u64> = (1..=NODES).filter(|id| *id != target).collect();
        others.iter().try_for_each(|id| self.rig.network().cut(target, *id))?;
        then.map_or(Ok(()), |by| self.serve(by))?;
        thread::sleep(Duration::from_millis(ms));
        others.iter().try_for_each(|id| self.rig.network().mend(target, *id))
    }

    fn die_together(&mut self, but: u64, away_ms: u64) -> Result<()> {
        let dying: Vec<u64> = self.rig.ids().filter(|id| *id != but).collect();
        dying.iter().for_each(|id| self.rig.kill9(*id));
        thread::sleep(Duration::from_millis(away_ms));
        dying.iter().try_for_each(|id| self.rig.restart(*id))
    }

    fn serve(&self, on: u64) -> Result<()> {
        self.operator.serve(VOLUME, on, HEALTHY)
    }

    fn finish(&mut self, load: Load) -> Result<()> {
        let failed = load.has_failed();
        self.rig.note(if failed { "the load failed" } else { "the end" });
        if !failed {
            self.operator.wait_healthy(VOLUME, 3, HEALTHY)?;
        }
        let mut rested = load.rest()?;
        println!("{:?}, in doubt: {}", rested.report, rested.in_doubt());
        rested.verify()?;
        let pause = rested.report.longest_pause;
        ensure!(pause < HOLD_DEADLINE, "nothing was acknowledged for {pause:?}");
        ensure!(rested.report.errors.is_empty(), "errors: {:?}", rested.report.errors);
        self.operator.snapshot(VOLUME, "end")?;
        self.operator.wait_healthy(VOLUME, 3, HEALTHY)?;
        ensure!(self.operator.ask(async |site| site.stop(VOLUME).await)?, "not closed cleanly");
        for id in self.rig.ids() {
            self.rig.stop(id)?;
        }
        let all: Vec<_> = self.rig.ids().map(|id| self.rig.pool(id)).collect();
        let sums = pools::compare(&all, VOLUME)?;
        println!("alike on all nodes: {sums:x?}");
        ensure!(sums.contains_key("end"), "the last snapshot is missing");
        let (first, third) = (sums.contains_key("during-1"), sums.contains_key("during-3"));
        ensure!(!(first && third), "the first snapshot was deleted, and is there");
        Ok(())
    }
}
