//! A pool in a real file: written, flushed, closed, opened again, read, and checked.
use anyhow::{Result, ensure};
use block::{ByteLen, Disk, Term};
use disk::OpenOptions;
use engine::check::{Depth, check};
use pollux::proof::{Ledger, Load, Promise, Scratch, Script, VOLUMES, format, limits, open};
use sim::Rng;

use super::{Shown, grouped};

const POOL: ByteLen = ByteLen(64 << 20);
const VOLUME: ByteLen = ByteLen(4 << 20);
const STEPS: u64 = 4000;
const DEPTH: usize = 32;

pub fn run(scratch: &Scratch, rng: &mut Rng) -> Result<Shown> {
    let path = scratch.file("real.img");
    let disk = disk::open(&path, &OpenOptions { create: Some(POOL), ..OpenOptions::default() })?;
    let how = format!("{}, {} IO", disk.backend(), disk.geometry().mode);
    let mut uuid = [0; 16];
    rng.fill(&mut uuid);
    let pool = format(disk, uuid, VOLUME, limits())?;
    let mut ledger = Ledger::new(&pool.volumes(), Promise::Held);
    let script = Script::new(&pool.volumes(), Term(1), rng.next_u64());
    let mut load = Load::new(pool, script, DEPTH);
    let mut issued = 0;
    while issued < STEPS {
        let planned = load.plan();
        issued += planned.len() as u64;
        ledger.follow(&planned)?;
        ledger.follow(&load.carry_out(&planned)?)?;
    }
    ledger.follow(&load.drain()?)?;
    let mut disk = load.into_pool().close()?;
    let report = check(&mut disk, Depth::Data)?;
    ensure!(report.is_clean(), "the check found: {}", report.problems.join("; "));
    let mut pool = open(disk, limits())?;
    let verified = ledger.verify(&mut pool)?;
    pool.close()?;
    let (volumes, steps) = (VOLUMES.len(), grouped(issued));
    let done = format!(
        "a pool of {POOL} in a file ({how}) with {volumes} volumes; {steps} writes, zeroes, \
         discards and flushes; closed, checked, opened again"
    );
    let verdict = "every block is what was written last";
    Ok(Shown { done, promise: "acknowledged", found: verified, verdict })
}
