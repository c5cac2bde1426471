//! A file system that fills up under everything that a site has on it: sparse pools, the catalog, state
//! folders and logs. Writes are refused, nothing fails, and all of it goes on when there is space again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rig::disk::SmallDisk;
use rig::load::block::{self, Found, Version};
use rig::nbd::{ENOSPC, Nbd, NbdError};
use rig::pools;
use rig::site::{MIB, Rig};

const VOLUME: &str = "full";
const BLOCK: usize = 65536;
const BLOCKS: u64 = 96 * MIB / BLOCK as u64;
/// Written while there is space.
const BEFORE: u64 = BLOCKS / 6;
const PATIENCE: Duration = Duration::from_secs(60);
const NODES: [u64; 3] = [1, 2, 3];

/// The volume, and what was acknowledged of it.
struct Load {
    nbd: Nbd,
    sure: Vec<Version>,
}

impl Load {
    fn write(&mut self, number: u64, version: Version) -> Result<(), NbdError> {
        let mut bytes = vec![0; BLOCK];
        block::write(block::tag(VOLUME), number, version, &mut bytes);
        self.nbd.write(number * BLOCK as u64, &bytes, number.is_multiple_of(16))?;
        self.sure[usize::try_from(number).expect("it is an index")] = version;
        Ok(())
    }

    /// From a block on; the one that was refused for want of space.
    fn fill(&mut self, from: u64, version: Version) -> Result<Option<u64>> {
        for number in from..BLOCKS {
            match self.write(number, version) {
                Ok(()) => {}
                Err(NbdError::Errno(ENOSPC)) => return Ok(Some(number)),
                Err(error) => return Err(error).with_context(|| format!("block {number}")),
            }
        }
        Ok(None)
    }

    fn verify(&mut self) -> Result<()> {
        let mut bytes = vec![0; BLOCK];
        for (number, version) in (0..).zip(&self.sure) {
            self.nbd.read(number * BLOCK as u64, &mut bytes)?;
            let found = block::read(block::tag(VOLUME), number, &bytes);
            let is_it = match found {
                Found::Zeroes => *version == Version(0),
                Found::Written(found) => found == *version,
                Found::Garbage { .. } => false,
            };
            ensure!(is_it, "block {number}: {found:?}, and {version:?} was acknowledged");
        }
        Ok(())
    }
}

#[test]
fn a_full_file_system_below_everything_is_only_full() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can mount a file system that fills up");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("full_disk");
    // It holds a site, but not all that its pools may become.
    let small = SmallDisk::in_memory(&folder, 448).unwrap();
    // Dropped before the file system that it is on.
    let mut rig =
        Rig::start_controlled_sparse(&small.at().join("site"), &[256 * MIB; 3], &[]).unwrap();
    run(&mut rig, &small).unwrap();
}

fn run(rig: &mut Rig, small: &SmallDisk) -> Result<()> {
    let pids = NODES.map(|id| rig.node(id).pid());
    let catalog = rig.catalog().pid();
    let api = rig.api()?;
    api.create(VOLUME, BLOCKS * BLOCK as u64, 3)?;
    api.wait_healthy(VOLUME, PATIENCE)?;
    let at = (rig.finder(VOLUME)?)().context("it is served")?;
    let nbd = Nbd::connect(at, VOLUME, Box::new(|| true))?;
    let mut load = Load { nbd, sure: vec![Version(0); usize::try_from(BLOCKS)?] };
    for number in 0..BEFORE {
        load.write(number, Version(1))?;
    }
    small.fill()?;
    rig.note("the file system is full");
    let refused = load.fill(BEFORE, Version(1))?.context("nothing said that there is no space")?;
    println!("block {refused} of {BLOCKS} was refused");
    // It stays so, and harms nothing.
    for _ in 0..20 {
        ensure!(load.fill(refused, Version(1))?.is_some(), "there is no space");
        thread::sleep(Duration::from_millis(50));
    }
    load.verify()?;
    // What the site is asked for meanwhile is taken or refused, and either way answered.
    match api.create("meanwhile", 16 * MIB, 3) {
        Ok(_) => println!("a volume was taken while there was no space"),
        Err(error) => println!("a volume was refused while there was no space: {error:#}"),
    }

    small.empty()?;
    rig.note("there is space again");
    let begun = Instant::now();
    while let Some(number) = load.fill(refused, Version(2))? {
        ensure!(begun.elapsed() < PATIENCE, "block {number} is still refused");
        thread::sleep(Duration::from_millis(100));
    }
    println!("everything was written {:.1?} after there was space", begun.elapsed());
    load.verify()?;
    api.wait_healthy(VOLUME, PATIENCE)?;
    api.create("later", 16 * MIB, 3)?;
    api.wait_healthy("later", PATIENCE)?;
    ensure!(pids == NODES.map(|id| rig.node(id).pid()), "a node was started again");
    ensure!(catalog == rig.catalog().pid(), "the catalog was started again");
    for id in NODES {
        rig.stop(id).with_context(|| format!("node {id}"))?;
        let log = fs::read_to_string(rig.node(id).log())?;
        if let Some(line) = log.lines().find(|line| line.contains("has failed")) {
            bail!("node {id}: {line}");
        }
        pools::check(&rig.pool(id))?;
    }
    rig.catalog().stop()
}
