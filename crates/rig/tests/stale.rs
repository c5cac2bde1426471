//! A target that was taken over without knowing it must not answer reads with what was there
//! before: its lease is over by then.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rig::links::{Network, Own, own_network};
use rig::load::block::{self, Found, Version};
use rig::nbd::Nbd;
use rig::site::{MIB, Rig};

const VOLUME: &str = "stale";
const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;
const OLD: u64 = 1;
const NEW: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_target_that_is_cut_off() {
    let network = match own_network("a_target_that_is_cut_off") {
        Own::Inside(network) => network,
        Own::Passed => return,
        Own::Impossible(why) => return println!("SKIPPED: no wire can be cut here: {why}"),
    };
    // From the catalog too, which would tell it.
    let cut = |rig: &mut Rig| {
        rig.network().cut_catalog(OLD)?;
        rig.network().cut(OLD, 2)?;
        rig.network().cut(OLD, 3)
    };
    let mend = |rig: &mut Rig| {
        rig.network().mend_catalog(OLD)?;
        rig.network().mend(OLD, 2)?;
        rig.network().mend(OLD, 3)
    };
    taken_over("stale_cut", network, cut, |_| Ok(()), mend).unwrap();
}

#[test]
fn a_target_that_slept() {
    let freeze = |rig: &mut Rig| rig.node(OLD).freeze();
    let thaw = |rig: &mut Rig| rig.node(OLD).thaw();
    taken_over("stale_slept", Network::loopback(), freeze, thaw, |_| Ok(())).unwrap();
}

/// `wake` comes when reads have been sent that the old target has yet to see.
fn taken_over(
    name: &str,
    network: Network,
    part: impl Fn(&mut Rig) -> Result<()>,
    wake: impl Fn(&mut Rig) -> Result<()>,
    join: impl Fn(&mut Rig) -> Result<()>,
) -> Result<()> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut rig = Rig::start(&folder, &[256 * MIB; 3], network)?;
    let operator = rig.operator()?;
    operator.create(VOLUME, 64 * MIB, 4096, &[1, 2, 3])?;
    let finder = rig.finder(VOLUME)?;
    let old_address = finder().context("it is served")?;
    let mut before = connect(old_address, PATIENCE)?;
    write(&mut before, Version(1))?;
    let readers: Vec<Nbd> =
        (0..8).map(|_| connect(old_address, Duration::from_secs(8))).collect::<Result<_>>()?;

    part(&mut rig)?;
    operator.serve(VOLUME, NEW, PATIENCE)?;
    let mut after = connect(finder().context("it is served")?, PATIENCE)?;
    write(&mut after, Version(2))?;
    let reads =
        |(number, mut nbd): (u64, Nbd)| thread::spawn(move || old_answers(&mut nbd, number));
    let readers: Vec<_> = (0..).zip(readers).map(reads).collect();
    thread::sleep(Duration::from_millis(300));
    wake(&mut rig)?;
    let mut answered = 0;
    for reader in readers {
        answered += reader.join().expect("readers do not panic")?;
    }
    println!("{answered} reads were answered by the old target, none with old data");
    join(&mut rig)?;
    let took = operator.wait_healthy(VOLUME, 3, PATIENCE)?;
    println!("healthy {took:.1?} later");
    ensure!(read(&mut after, 0)? == Found::Written(Version(2)), "the new target lost it");
    Ok(())
}

fn connect(at: SocketAddr, patience: Duration) -> Result<Nbd> {
    let begun = Instant::now();
    Ok(Nbd::connect(at, VOLUME, Box::new(move || begun.elapsed() < patience))?)
}

fn write(nbd: &mut Nbd, version: Version) -> Result<()> {
    let mut bytes = vec![0; BLOCK];
    for number in 0..BLOCKS {
        block::write(block::tag(VOLUME), number, version, &mut bytes);
        nbd.write(number * BLOCK as u64, &bytes, false)?;
    }
    Ok(nbd.flush()?)
}

fn read(nbd: &mut Nbd, number: u64) -> Result<Found> {
    let mut bytes = vec![0; BLOCK];
    nbd.read(number * BLOCK as u64, &mut bytes)?;
    Ok(block::read(block::tag(VOLUME), number, &bytes))
}

/// Reads that were begun after the new data was acknowledged, until the old target has no answer.
fn old_answers(nbd: &mut Nbd, number: u64) -> Result<u64> {
    let mut answered = 0;
    while let Ok(found) = read(nbd, number) {
        answered += 1;
        if found != Found::Written(Version(2)) {
            bail!("block {number} was read as {found:?} after version 2 was acknowledged");
        }
        if answered > 100 {
            break;
        }
    }
    Ok(answered)
}
