//! Replicas are replaced while those who take part die: the change is finished whoever is left to
//! finish it, and nothing is lost on the way.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rig::links::Network;
use rig::load::{Load, Plan};
use rig::operator::Operator;
use rig::pools;
use rig::random::Random;
use rig::site::{MIB, Rig, node_name};

const VOLUME: &str = "members";
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum Blow {
    TargetDies,
    /// Another takes over; it may be one without a replica.
    TargetReplaced {
        by: u64,
    },
    TargetFreezes,
    /// The one that leaves, the one that comes, or one that stays.
    Dies {
        node: u64,
    },
    CatalogDies,
}

struct Members {
    rig: Rig,
    operator: Operator,
    random: Random,
}

#[test]
fn replaced_while_others_die() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("members");
    let rig = Rig::start(&folder, &[384 * MIB; 4], Network::loopback()).unwrap();
    let operator = rig.operator().unwrap();
    Members { rig, operator, random: Random::from_env() }.run().unwrap();
}

impl Members {
    fn run(&mut self) -> Result<()> {
        let seconds = std::env::var("RIG_SECONDS").ok().and_then(|it| it.parse().ok());
        let lasts = Duration::from_secs(seconds.unwrap_or(15));
        self.operator.create(VOLUME, 64 * MIB, 4096, &[1, 2, 3])?;
        let plan = Plan {
            volume: VOLUME.into(),
            block: 4096,
            first: 0,
            blocks: 48 * MIB / 4096,
            writers: 4,
            seed: self.random.draw(),
            rest: Duration::from_millis(1),
        };
        let load = Load::start(plan, self.rig.finder(VOLUME)?);
        load.wait_acks(500, PATIENCE)?;
        let begun = Instant::now();
        while begun.elapsed() < lasts && !load.has_failed() {
            self.replace_one(begun)?;
        }
        let mut rested = load.rest()?;
        println!("{:?}, in doubt: {}", rested.report, rested.in_doubt());
        rested.verify()?;
        ensure!(rested.report.errors.is_empty(), "errors: {:?}", rested.report.errors);
        self.all_alike()
    }

    /// The nodes that have a replica, and the one that has none.
    fn places(&self) -> Result<(BTreeSet<u64>, u64)> {
        let known = self.operator.insist(PATIENCE, async |site| site.known(VOLUME).await)?;
        let nodes: BTreeSet<u64> = known.volume.places.iter().map(|place| place.node).collect();
        let spare = self.rig.ids().find(|id| !nodes.contains(id)).context("one has none")?;
        Ok((nodes, spare))
    }

    fn replace_one(&mut self, begun: Instant) -> Result<()> {
        let (nodes, new) = self.places()?;
        let at = usize::try_from(self.random.below(nodes.len() as u64))?;
        let old = *nodes.iter().nth(at).context("it has replicas")?;
        let target = self.operator.holder(VOLUME)?;
        let others: Vec<u64> = self.rig.ids().filter(|id| *id != target).collect();
        let other = others[usize::try_from(self.random.below(3))?];
        let blow = match self.random.below(6) {
            0 => Blow::TargetDies,
            1 => Blow::TargetReplaced { by: other },
            2 => Blow::TargetFreezes,
            3 => Blow::CatalogDies,
            4 => Blow::Dies { node: if self.random.chance(50) { old } else { new } },
            _ => Blow::Dies { node: other },
        };
        let since = begun.elapsed().as_secs_f64();
        self.rig.note(&format!("{since:.1} s: {new} for {old}, served by {target}: {blow:?}"));
        let operator = self.rig.operator()?;
        let change = thread::spawn(move || replace(&operator, old, new));
        thread::sleep(Duration::from_millis(self.random.below(600)));
        self.strike(&blow, target)?;
        change.join().expect("it does not panic").with_context(|| format!("{blow:?}"))?;
        let settled = self
            .operator
            .ask_within(PATIENCE * 2, async |site| site.settled(VOLUME, PATIENCE).await);
        settled.with_context(|| format!("{blow:?}"))?;
        let took = self.operator.wait_healthy(VOLUME, 3, PATIENCE)?;
        self.rig.note(&format!("healthy {took:.1?} later"));
        Ok(())
    }

    fn strike(&mut self, blow: &Blow, target: u64) -> Result<()> {
        let away = Duration::from_millis(self.random.below(2000));
        match *blow {
            Blow::TargetDies => self.dies(target, away),
            Blow::Dies { node } => self.dies(node, away),
            Blow::TargetReplaced { by } => {
                self.rig.kill9(target);
                self.operator.serve(VOLUME, by, PATIENCE)?;
                self.rig.restart(target)
            }
            Blow::TargetFreezes => {
                self.rig.node(target).freeze()?;
                thread::sleep(away * 3);
                self.rig.node(target).thaw()
            }
            Blow::CatalogDies => {
                self.rig.catalog().kill9();
                thread::sleep(away);
                self.rig.catalog().restart()
            }
        }
    }

    fn dies(&mut self, node: u64, away: Duration) -> Result<()> {
        self.rig.kill9(node);
        thread::sleep(away);
        self.rig.restart(node)
    }

    fn all_alike(&mut self) -> Result<()> {
        self.operator.snapshot(VOLUME, "end")?;
        self.operator.wait_healthy(VOLUME, 3, PATIENCE)?;
        let (nodes, spare) = self.places()?;
        ensure!(self.operator.ask(async |site| site.stop(VOLUME).await)?, "not closed cleanly");
        for id in self.rig.ids() {
            self.rig.stop(id)?;
        }
        let pools: Vec<_> = nodes.iter().map(|id| self.rig.pool(*id)).collect();
        println!("alike on all nodes: {:x?}", pools::compare(&pools, VOLUME)?);
        let left = pools::volumes(&self.rig.pool(spare))?;
        ensure!(left.is_empty(), "node {spare} still has {left:?}");
        Ok(())
    }
}

/// Said again until it is so: whoever it was said to may have died over it.
fn replace(operator: &Operator, old: u64, new: u64) -> Result<()> {
    let begun = Instant::now();
    let (from, to) = (node_name(old), node_name(new));
    loop {
        let said = operator.ask_within(PATIENCE, async |site| {
            site.replace_replica(VOLUME, &from, &to, "main").await
        });
        let known = operator.insist(PATIENCE, async |site| site.known(VOLUME).await)?;
        let has = |node: u64| known.volume.places.iter().any(|place| place.node == node);
        if has(new) && !has(old) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE * 2 {
            bail!("{to} does not come in place of {from}: {said:?}");
        }
        thread::sleep(Duration::from_millis(200));
    }
}
