//! The node that serves a volume loses the network to the other nodes, and still answers the controller, the catalog and
//! its clients. Another node, which reaches a quorum, has to serve the volume then; and where no node reaches one,
//! nothing may move.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use control::api::types::{Health, Volume};
use rig::api::Api;
use rig::links::{Own, own_network};
use rig::load::{Load, Plan};
use rig::operator::Operator;
use rig::site::{MIB, Rig, node_name};

const VOLUME: &str = "stranded";
const NODES: u64 = 3;
const POOLS: [u64; 3] = [256 * MIB; 3];
const PATIENCE: Duration = Duration::from_secs(60);
const ENOUGH: u64 = 300;
const AWAY: &str = "3";

#[test]
fn a_volume_leaves_a_node_that_lost_its_peers() {
    let network = match own_network("a_volume_leaves_a_node_that_lost_its_peers") {
        Own::Inside(network) => network,
        Own::Passed => return,
        Own::Impossible(why) => return println!("SKIPPED: no wire can be cut here: {why}"),
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stranded");
    let options = ["--away-after", AWAY];
    let mut rig = Rig::start_controlled_on(network, &folder, &POOLS, &options).unwrap();
    let (api, operator) = (rig.api().unwrap(), rig.operator().unwrap());
    api.create(VOLUME, 32 * MIB, 3).unwrap();
    let plan = Plan {
        volume: VOLUME.into(),
        block: 4096,
        first: 0,
        blocks: 32 * MIB / 4096,
        writers: 2,
        seed: 11,
        rest: Duration::from_millis(2),
    };
    let load = Load::start(plan, rig.finder(VOLUME).unwrap());
    load.wait_acks(ENOUGH, PATIENCE).unwrap();

    let first = operator.holder(VOLUME).unwrap();
    cut_off(&mut rig, first).unwrap();
    moved(&rig, &api, first).unwrap();
    load.wait_acks(ENOUGH, PATIENCE).unwrap();
    let nodes = api.ask(async |client| client.nodes().await).unwrap().items;
    let health = nodes.iter().find(|node| node.name == node_name(first)).map(|it| it.state.health);
    assert_eq!(health, Some(Health::Healthy), "the controller reaches the node all the time");

    mend(&mut rig, first).unwrap();
    api.wait_healthy(VOLUME, PATIENCE).unwrap();
    let second = operator.holder(VOLUME).unwrap();
    assert_ne!(second, first, "it does not move back by itself");

    nobody_has_a_quorum(&mut rig, &api, &operator).unwrap();
    load.wait_acks(ENOUGH, PATIENCE).unwrap();
    api.wait_healthy(VOLUME, PATIENCE).unwrap();
    let mut rested = load.rest().unwrap();
    rested.verify().unwrap();
    assert!(rested.report.errors.is_empty(), "{:?}", rested.report.errors);
}

fn others(node: u64) -> impl Iterator<Item = u64> {
    (1..=NODES).filter(move |it| *it != node)
}

fn cut_off(rig: &mut Rig, node: u64) -> Result<()> {
    rig.note(&format!("node {node}, which serves, loses its peers"));
    others(node).try_for_each(|other| rig.network().cut(node, other))
}

fn mend(rig: &mut Rig, node: u64) -> Result<()> {
    rig.note(&format!("node {node} has its peers again"));
    others(node).try_for_each(|other| rig.network().mend(node, other))
}

fn moved(rig: &Rig, api: &Api, from: u64) -> Result<()> {
    let elsewhere = |volume: &Volume| {
        volume.target.as_ref().is_some_and(|it| it.serving && it.node != node_name(from))
    };
    let took = api.wait_volume(VOLUME, "the target to move", PATIENCE, elsewhere)?;
    rig.note(&format!("another node serves after {took:.1?}"));
    Ok(())
}

/// All nodes are apart: the volume stays where it is, and says why.
fn nobody_has_a_quorum(rig: &mut Rig, api: &Api, operator: &Operator) -> Result<()> {
    let before = operator.ask(async |site| site.known(VOLUME).await)?;
    rig.note("no node has its peers");
    for (one, other) in [(1, 2), (1, 3), (2, 3)] {
        rig.network().cut(one, other)?;
    }
    let told = |volume: &Volume| {
        let state = &volume.state;
        state.reason == "QuorumLost" && state.message.contains("no other node does")
    };
    let took = api.wait_volume(VOLUME, "the reason", PATIENCE, told)?;
    rig.note(&format!("it is told after {took:.1?}"));
    let after = operator.ask(async |site| site.known(VOLUME).await)?;
    let grant = |found: &control::steps::Found| found.volume.quorum.as_ref().map(|it| it.grant);
    ensure!(grant(&before) == grant(&after), "a move that does not help");
    for (one, other) in [(1, 2), (1, 3), (2, 3)] {
        rig.network().mend(one, other)?;
    }
    Ok(())
}
