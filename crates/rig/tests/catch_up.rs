//! A replica that was away is brought what changed meanwhile, and hardly more.
//!
//! What is counted are the bytes on the wire to its node, from before its start until it is
//! healthy: with the headers of all packets, greetings, renewals and the catalog's answers. The
//! target's status tells the progress of a round only while it lasts.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proto::v1::{Standing, TargetStatus};
use rig::links::{Own, own_network};
use rig::load::block::{self, Version};
use rig::nbd::Nbd;
use rig::operator::Operator;
use rig::random::Random;
use rig::site::{MIB, Rig};

const HEALTHY: Duration = Duration::from_secs(60);
const AWAY: u64 = 3;

/// Beside the blocks: the catalog's list of objects and its watch, a greeting, the list of reigns,
/// a renewal of less than 200 bytes every half second, and the answers that TCP acknowledges.
const BESIDE: u64 = 128 << 10;

#[test]
fn four_kib_blocks() {
    changed_blocks_only("four_kib_blocks", 4096, 4096).unwrap();
}

#[test]
fn sixty_four_kib_blocks() {
    changed_blocks_only("sixty_four_kib_blocks", 65536, 256).unwrap();
}

fn changed_blocks_only(test: &str, block_size: u32, changed: usize) -> Result<()> {
    let network = match own_network(test) {
        Own::Inside(network) => network,
        Own::Passed => return Ok(()),
        Own::Impossible(why) => {
            println!("SKIPPED: bytes can only be counted in namespaces: {why}");
            return Ok(());
        }
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let mut rig = Rig::start(&folder, &[512 * MIB; 3], network)?;
    run(&mut rig, block_size, changed)
}

fn run(rig: &mut Rig, block_size: u32, changed: usize) -> Result<()> {
    let operator = rig.operator()?;
    operator.create("db", 128 * MIB, block_size, &[1, 2, 3])?;
    let at = (rig.finder("db")?)().context("it is served")?;
    let mut nbd = Nbd::connect(at, "db", Box::new(|| true))?;
    let all: Vec<u64> = (0..64 * MIB / u64::from(block_size)).collect();
    write(&mut nbd, block_size, &all, 1)?;
    operator.wait_healthy("db", 3, HEALTHY)?;

    rig.kill9(AWAY);
    operator
        .wait_for("db", "the loss to be seen", HEALTHY, |it| standing(it) != Standing::Healthy)?;
    let mut random = Random::new(u64::from(block_size));
    let mut distinct = all;
    while distinct.len() > changed {
        let one = random.below(distinct.len() as u64);
        distinct.swap_remove(usize::try_from(one)?);
    }
    // Each of them three times: who brings every write brings three times as much.
    (2..5).try_for_each(|version| write(&mut nbd, block_size, &distinct, version))?;

    let before = rig.network().sent_to(AWAY)?;
    let begun = Instant::now();
    rig.restart(AWAY)?;
    let most = brought_until_healthy(&operator)?;
    let wire = rig.network().sent_to(AWAY)? - before;
    let due = changed as u64 * u64::from(block_size);
    let took = begun.elapsed();
    println!("{changed} x {block_size}: due {due}, on the wire {wire}, in {took:.1?}");
    println!("{:.3} times, beside {BESIDE}; progress showed {most}", ratio(wire, due));
    ensure!(wire >= due, "less on the wire than changed: what was counted?");
    ensure!(wire <= due * 12 / 10 + BESIDE, "{wire} bytes for {due} that changed");
    Ok(())
}

fn ratio(wire: u64, due: u64) -> f64 {
    wire.saturating_sub(BESIDE) as f64 / due as f64
}

fn standing(status: &TargetStatus) -> Standing {
    let peer = status.peers.iter().find(|peer| peer.member.is_some_and(|it| it.replica == AWAY));
    peer.map_or(Standing::Unspecified, |peer| peer.standing())
}

/// The most that the progress of a round showed, which may miss its end.
fn brought_until_healthy(operator: &Operator) -> Result<u64> {
    let begun = Instant::now();
    let mut most = 0;
    loop {
        let status = operator.target("db")?;
        let progress = status.peers.iter().filter_map(|peer| peer.progress.as_ref());
        most = progress.map(|progress| progress.brought).fold(most, u64::max);
        if standing(&status) == Standing::Healthy {
            return Ok(most);
        }
        ensure!(begun.elapsed() < HEALTHY, "not healthy within {HEALTHY:?}: {status:#?}");
    }
}

fn write(nbd: &mut Nbd, block_size: u32, blocks: &[u64], version: u64) -> Result<()> {
    let mut bytes = vec![0; usize::try_from(block_size)?];
    for number in blocks {
        block::write(block::tag("db"), *number, Version(version), &mut bytes);
        nbd.write(number * u64::from(block_size), &bytes, false)?;
    }
    nbd.flush()?;
    Ok(())
}
