//! A volume is changed while it is written: replicas come, go and are replaced, it grows, and it
//! goes back to a snapshot. A clone of it is made and goes its own way.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use control::steps::{NewClone, Site, reference};
use proto::v1;
use rig::links::Network;
use rig::load::{Load, Plan};
use rig::operator::Operator;
use rig::pools;
use rig::site::{MIB, Rig, node_name};

const VOLUME: &str = "changing";
const CLONE: &str = "clone";
const BLOCK: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);
const ENOUGH: u64 = 500;

struct Changes {
    rig: Rig,
    operator: Operator,
    /// Of the whole volume as it was made.
    load: Option<Load>,
    /// Of the clone, once there is one.
    cloned: Option<Load>,
}

#[test]
fn every_change_under_load() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("changes");
    let rig = Rig::start(&folder, &[384 * MIB; 5], Network::loopback()).unwrap();
    let operator = rig.operator().unwrap();
    operator.create(VOLUME, 64 * MIB, 4096, &[1]).unwrap();
    let load = Load::start(plan(0, 64), rig.finder(VOLUME).unwrap());
    let mut changes = Changes { rig, operator, load: Some(load), cloned: None };
    changes.run().unwrap();
}

fn wanted() -> Result<NewClone> {
    Operator::clone_of(VOLUME, "origin", CLONE)
}

fn plan(from_mib: u64, mib: u64) -> Plan {
    let per_mib = MIB / BLOCK as u64;
    Plan {
        volume: VOLUME.into(),
        block: BLOCK,
        first: from_mib * per_mib,
        blocks: mib * per_mib,
        writers: 4,
        seed: from_mib,
        rest: Duration::from_millis(1),
    }
}

impl Changes {
    fn run(&mut self) -> Result<()> {
        self.verified("one replica", 1)?;
        self.add(&[2, 3])?;
        self.verified("three replicas", 3)?;
        self.add(&[4, 5])?;
        self.verified("five replicas", 5)?;
        self.remove(4)?;
        self.remove(5)?;
        self.verified("three replicas again", 3)?;
        self.replace(3, 4)?;
        self.nowhere_else(3)?;
        self.verified("one for another", 3)?;
        self.grow(96)?;
        self.verified("grown", 3)?;
        self.there_and_back()?;
        self.verified("went on after the rollback", 3)?;
        self.clone_snapshot()?;
        self.cut_off(4)?;
        self.verified("went on beside a clone", 3)?;
        self.clone_and_delete()?;
        self.all_alike(&[1, 2, 4], &[3, 5])
    }

    /// The load goes on for a while, then every block is held against its ledger.
    fn verified(&mut self, what: &str, replicas: usize) -> Result<()> {
        let load = self.load.take().expect("there is a load between two steps");
        load.wait_acks(ENOUGH, PATIENCE)?;
        let took = self.operator.wait_healthy(VOLUME, replicas, PATIENCE)?;
        let mut rested = load.rest()?;
        rested.verify()?;
        self.rig.note(&format!("{what}: healthy after {took:.1?}, {:?}", rested.report));
        ensure!(rested.report.errors.is_empty(), "{what}: {:?}", rested.report.errors);
        self.load = Some(rested.go_on());
        Ok(())
    }

    fn add(&self, nodes: &[u64]) -> Result<()> {
        for node in nodes {
            self.rig.note(&format!("one more, on node {node}"));
            let name = node_name(*node);
            self.operator.ask(async |site| site.add_replica(VOLUME, &name, "main").await)?;
        }
        self.settled()
    }

    fn remove(&self, node: u64) -> Result<()> {
        self.rig.note(&format!("one less, on node {node}"));
        let name = node_name(node);
        let gone = async |site: &control::steps::Site| site.remove_replica(VOLUME, &name).await;
        self.operator.ask_within(PATIENCE, gone)?;
        self.settled()
    }

    fn replace(&self, old: u64, new: u64) -> Result<()> {
        self.rig.note(&format!("node {new} in place of node {old}"));
        let (old, new) = (node_name(old), node_name(new));
        self.operator.ask_within(PATIENCE, async |site| {
            site.replace_replica(VOLUME, &old, &new, "main").await
        })?;
        self.settled()
    }

    /// What no place of the volume's object lists is not made.
    fn nowhere_else(&self, node: u64) -> Result<()> {
        let made = self.operator.ask(async |site| {
            let found = site.known(VOLUME).await?;
            let request = v1::CreateReplicaRequest {
                volume: Some(reference(&found.volume)),
                replica: 3,
                pool: "main".into(),
                size: found.volume.size,
                block_size: found.volume.block_size,
                compression: found.volume.compression,
                ..v1::CreateReplicaRequest::default()
            };
            site.admin(&site.node_of_id(node).await?)?.create_replica(request).await?;
            Ok(())
        });
        let why = format!("{:#}", made.expect_err("it has no place there"));
        ensure!(why.contains("list its place first"), "{why}");
        Ok(())
    }

    fn settled(&self) -> Result<()> {
        self.operator.ask_within(PATIENCE, async |site| site.settled(VOLUME, PATIENCE).await)?;
        Ok(())
    }

    /// What was added is written too, by a load of its own.
    fn grow(&self, mib: u64) -> Result<()> {
        self.rig.note(&format!("{mib} MiB"));
        self.operator.ask(async |site| site.resize(VOLUME, mib * MIB).await)?;
        let more = Load::start(plan(64, mib - 64), self.rig.finder(VOLUME)?);
        more.wait_acks(ENOUGH, PATIENCE)?;
        let mut more = more.rest()?;
        more.verify()?;
        ensure!(more.report.errors.is_empty(), "where it grew: {:?}", more.report);
        Ok(())
    }

    /// The load rests around both ends: so its ledger is that of the snapshot.
    fn there_and_back(&mut self) -> Result<()> {
        let rested = self.load.take().expect("there is a load between two steps").rest()?;
        let snapshot = self.operator.snapshot(VOLUME, "then")?;
        let then = rested.ledger.clone();
        let load = rested.go_on();
        load.wait_acks(4 * ENOUGH, PATIENCE)?;
        let mut rested = load.rest()?;
        self.operator.snapshot(VOLUME, "undone")?;
        self.rig.note("back to the snapshot");
        let uid = snapshot.uid;
        self.operator.ask(async |site| site.rollback(VOLUME, uid.clone()).await)?;
        rested.back_to(&then);
        rested.verify()?;
        self.load = Some(rested.go_on());
        Ok(())
    }

    /// The load rests while the snapshot is taken: its ledger is what the clone has to be. Then both are
    /// written.
    fn clone_snapshot(&mut self) -> Result<()> {
        let rested = self.load.take().expect("there is a load between two steps").rest()?;
        self.operator.snapshot(VOLUME, "origin")?;
        let mut cloned = rested.cloned(CLONE, self.rig.finder(CLONE)?);
        self.load = Some(rested.go_on());
        self.rig.note("a clone");
        self.refused(NewClone { snapshot: "nothing".into(), ..wanted()? }, "no snapshot")?;
        self.refused(NewClone { name: VOLUME.into(), ..wanted()? }, "already")?;
        self.refused(NewClone { source: "nobody".into(), ..wanted()? }, "no volume")?;
        self.refused(NewClone { size: Some(32 * MIB), ..wanted()? }, "smaller")?;
        let clone = wanted()?;
        let found = self.operator.stammer(async |site| site.clone_volume(&clone).await)?;
        ensure!(found.volume.size == 96 * MIB && found.volume.uid == clone.uid, "{found:?}");
        // Only those vote from the beginning who began as the snapshot. One that answers late may still
        // need a round, for the barrier that the others have made durable meanwhile.
        let quorum = found.volume.quorum.clone().unwrap_or_default();
        let voters = quorum.membership.unwrap_or_default().voters.unwrap_or_default();
        ensure!(voters.members.len() == 3, "made of the same snapshot, and yet {voters:?}");
        self.operator.serve(CLONE, 2, PATIENCE)?;
        self.operator.wait_healthy(CLONE, 3, PATIENCE)?;
        cloned.verify()?;
        self.cloned = Some(cloned.go_on());
        Ok(())
    }

    fn refused(&self, clone: NewClone, because: &str) -> Result<()> {
        let refused = self.operator.ask(async |site| site.clone_volume(&clone).await);
        let why = format!("{:#}", refused.expect_err("it cannot be"));
        ensure!(why.contains(because), "{clone:?}: {why}");
        let made = self.operator.ask(async |site| site.volume(CLONE).await)?;
        ensure!(made.is_none(), "{clone:?} left {made:?}");
        Ok(())
    }

    /// A node with replicas of both dies and comes back.
    fn cut_off(&mut self, node: u64) -> Result<()> {
        self.rig.note(&format!("kill node {node}"));
        self.rig.kill9(node);
        let (load, cloned) = (self.load.as_ref(), self.cloned.as_ref());
        for load in load.into_iter().chain(cloned) {
            load.wait_acks(ENOUGH, PATIENCE)?;
        }
        self.rig.restart(node)?;
        self.operator.wait_healthy(CLONE, 3, PATIENCE)?;
        Ok(())
    }

    /// What a clone needs stays as long as it is there, and no longer.
    fn clone_and_delete(&mut self) -> Result<()> {
        let snapshot = self.operator.snapshot(VOLUME, "brief")?.uid;
        let brief =
            NewClone { size: Some(128 * MIB), ..Operator::clone_of(VOLUME, "brief", "brief")? };
        let found = self.operator.ask(async |site| site.clone_volume(&brief).await)?;
        ensure!(found.volume.size == 128 * MIB, "{found:?}");
        let clones = |error: anyhow::Error| {
            let why = format!("{error:#}");
            ensure!(why.contains("brief"), "{why}");
            Ok(())
        };
        let deleted = async |site: &Site| site.delete_snapshot(VOLUME, snapshot.clone()).await;
        clones(self.operator.ask(deleted).expect_err("a clone needs it"))?;
        let gone = self.operator.ask(async |site| site.delete(VOLUME).await);
        clones(gone.expect_err("clones need it"))?;
        self.operator.stammer(async |site| site.delete("brief").await)?;
        self.operator.ask(deleted)
    }

    fn all_alike(&mut self, with: &[u64], without: &[u64]) -> Result<()> {
        self.load.take().expect("there is a load between two steps").rest()?.verify()?;
        self.cloned.take().expect("there is a clone").rest()?.verify()?;
        for volume in [VOLUME, CLONE] {
            self.operator.snapshot(volume, "end")?;
            self.operator.wait_healthy(volume, with.len(), PATIENCE)?;
            ensure!(self.operator.ask(async |site| site.stop(volume).await)?, "not closed cleanly");
        }
        let late = Operator::clone_of(VOLUME, "end", "late")?;
        let unserved = self.operator.ask(async |site| site.clone_volume(&late).await);
        let why = format!("{:#}", unserved.expect_err("nobody serves it"));
        ensure!(why.contains("nobody serves"), "{why}");
        for id in self.rig.ids() {
            self.rig.stop(id)?;
        }
        let pools: Vec<_> = with.iter().map(|id| self.rig.pool(*id)).collect();
        let sums = pools::compare(&pools, VOLUME)?;
        println!("alike on all nodes: {sums:x?}");
        ensure!(sums.contains_key("end") && sums.contains_key("then"), "snapshots are missing");
        ensure!(!sums.contains_key("brief"), "a deleted snapshot is still there");
        let sums = pools::compare(&pools, CLONE)?;
        ensure!(sums.keys().eq(["end"]), "the clone has {sums:?}");
        for id in without {
            let left = pools::volumes(&self.rig.pool(*id))?;
            ensure!(left.is_empty(), "node {id} still has {left:?}");
        }
        Ok(())
    }
}
