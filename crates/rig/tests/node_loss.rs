//! A node is lost under load: its target moves, its replica is replaced after the grace time, and what it
//! has when it comes back is reused, or wiped, as the rules say.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use control::api::types::{Health, Volume};
use rig::api::Api;
use rig::load::{Load, Plan};
use rig::operator::Operator;
use rig::pools;
use rig::site::{MIB, Rig, node_name};

const VOLUME: &str = "precious";
const PATIENCE: Duration = Duration::from_secs(60);
const ENOUGH: u64 = 500;
const AWAY: &str = "3";
const GRACE: u64 = 15;

struct Loss {
    rig: Rig,
    api: Api,
    operator: Operator,
    load: Option<Load>,
}

#[test]
fn a_site_outlives_the_loss_of_a_node() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node_loss");
    let grace = GRACE.to_string();
    let options = ["--away-after", AWAY, "--grace", &grace];
    let rig = Rig::start_controlled(&folder, &[384 * MIB; 4], &options).unwrap();
    let (api, operator) = (rig.api().unwrap(), rig.operator().unwrap());
    api.create(VOLUME, 64 * MIB, 3).unwrap();
    let plan = Plan {
        volume: VOLUME.into(),
        block: 4096,
        first: 0,
        blocks: 64 * MIB / 4096,
        writers: 4,
        seed: 7,
        rest: Duration::from_millis(1),
    };
    let load = Some(Load::start(plan, rig.finder(VOLUME).unwrap()));
    let mut loss = Loss { rig, api, operator, load };
    loss.run().unwrap();
}

impl Loss {
    fn run(&mut self) -> Result<()> {
        self.verified("three replicas")?;
        let holder = self.operator.holder(VOLUME)?;
        self.back_in_time(holder)?;
        let holder = self.operator.holder(VOLUME)?;
        let outsider = self.outsider()?;
        self.back_too_late(holder, outsider)?;
        let nodes: BTreeSet<u64> = self.places()?.into_iter().map(|(node, _)| node).collect();
        let rested = self.load.take().context("a load")?.rest()?;
        ensure!(rested.report.errors.is_empty(), "{:?}", rested.report.errors);
        self.api.snapshot(VOLUME, "end")?;
        for id in self.rig.ids().collect::<Vec<u64>>() {
            self.rig.stop(id)?;
        }
        let pools: Vec<_> = nodes.iter().map(|id| self.rig.pool(*id)).collect();
        let alike = pools::compare(&pools, VOLUME)?;
        ensure!(alike.contains_key("end"), "{alike:?}");
        Ok(())
    }

    /// Nodes and incarnations of the replicas that vote.
    fn places(&self) -> Result<Vec<(u64, u64)>> {
        let found = self.operator.ask(async |site| site.known(VOLUME).await)?;
        let quorum = found.volume.quorum.context("a quorum")?;
        let membership = quorum.membership.context("a membership")?;
        let voters = membership.voters.context("voters")?.members;
        let node = |replica: u64| {
            let place = found.volume.places.iter().find(|place| place.replica == replica);
            place.map(|place| place.node).context("a voter has a place")
        };
        voters.iter().map(|it| Ok((node(it.replica)?, it.incarnation))).collect()
    }

    fn outsider(&self) -> Result<u64> {
        let taken: Vec<u64> = self.places()?.into_iter().map(|(node, _)| node).collect();
        self.rig.ids().find(|id| !taken.contains(id)).context("four nodes, three replicas")
    }

    /// The node that serves is killed, and comes back within the grace time.
    fn back_in_time(&mut self, holder: u64) -> Result<()> {
        let before = self.places()?;
        self.rig.note(&format!("node {holder}, which serves, is killed"));
        self.rig.kill9(holder);
        self.moved(holder)?;
        self.rig.restart(holder)?;
        self.verified("the node is back in time")?;
        let after = self.places()?;
        let set = |places: Vec<(u64, u64)>| places.into_iter().collect::<BTreeSet<_>>();
        ensure!(set(before) == set(after), "its copy is reused: nothing was made anew");
        Ok(())
    }

    /// The node that serves is killed, and stays away for longer than that.
    fn back_too_late(&mut self, holder: u64, outsider: u64) -> Result<()> {
        self.rig.note(&format!("node {holder}, which serves, is killed for good"));
        self.rig.kill9(holder);
        self.moved(holder)?;
        let replaced = |volume: &Volume| {
            let nodes: Vec<&str> = volume
                .copies
                .iter()
                .filter(|copy| copy.votes)
                .map(|copy| copy.node.as_str())
                .collect();
            volume.state.health == Health::Healthy
                && nodes.contains(&node_name(outsider).as_str())
                && !nodes.contains(&node_name(holder).as_str())
        };
        let took = self.api.wait_volume(VOLUME, "a replacement", PATIENCE, replaced)?;
        self.rig.note(&format!("its replica is replaced after {took:.1?}"));
        self.verified("one replica for another")?;
        self.rig.restart(holder)?;
        let gone = |volume: &Volume| volume.copies.len() == 3;
        let took = self.api.wait_volume(VOLUME, "the old copy to go", PATIENCE, gone)?;
        self.rig.note(&format!("its old copy is wiped after {took:.1?}"));
        let left = self.operator.ask(async |site| {
            let node = site.node_of_id(holder).await?;
            let all = site.admin(&node)?.list_replicas(proto::v1::ListReplicasRequest {}).await?;
            Ok(all.into_inner().replicas.len())
        })?;
        ensure!(left == 0, "{left} replicas are left on node {holder}");
        self.verified("the node is back too late")
    }

    /// Somebody else serves, and IO goes on.
    fn moved(&self, from: u64) -> Result<()> {
        let elsewhere = |volume: &Volume| {
            volume.target.as_ref().is_some_and(|it| it.serving && it.node != node_name(from))
        };
        let took = self.api.wait_volume(VOLUME, "the target to move", PATIENCE, elsewhere)?;
        let load = self.load.as_ref().context("a load")?;
        load.wait_acks(ENOUGH, PATIENCE)?;
        self.rig.note(&format!("the target moved, and was seen there, after {took:.1?}"));
        Ok(())
    }

    fn verified(&mut self, what: &str) -> Result<()> {
        let load = self.load.take().context("a load")?;
        load.wait_acks(ENOUGH, PATIENCE)?;
        let took = self.api.wait_healthy(VOLUME, PATIENCE)?;
        let mut rested = load.rest()?;
        rested.verify()?;
        self.rig.note(&format!("{what}: healthy after {took:.1?}, {:?}", rested.report));
        ensure!(rested.report.errors.is_empty(), "{what}: {:?}", rested.report.errors);
        self.load = Some(rested.go_on());
        Ok(())
    }
}
