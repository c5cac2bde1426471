//! A real process that writes to a real file, and is killed without a warning.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use block::ByteLen;
use disk::{Backend, Direct, OpenOptions};
use engine::check::{Depth, check};
use pollux::patience;
use pollux::proof::{Ledger, Orders, Promise, Scratch, Verified, Victim, format, limits, open};
use sim::Rng;

use super::Shown;

const POOL: ByteLen = ByteLen(64 << 20);
const VOLUME: ByteLen = ByteLen(4 << 20);
const KILLS: u64 = 5;
const DEPTH: usize = 16;
const PATIENCE: Duration = Duration::from_secs(2);

pub fn run(scratch: &Scratch, rng: &mut Rng) -> Result<Shown> {
    let path = scratch.file("killed.img");
    let disk = disk::open(&path, &OpenOptions { create: Some(POOL), ..OpenOptions::default() })?;
    let mut uuid = [0; 16];
    rng.fill(&mut uuid);
    let pool = format(disk, uuid, VOLUME, limits())?;
    let mut ledger = Ledger::new(&pool.volumes(), Promise::Held);
    let mut disk = pool.close()?;
    let program = std::env::current_exe().context("the path of this program")?;
    let mut verified = Verified::default();
    for term in 1..=KILLS {
        drop(disk);
        let orders = Orders {
            path: path.clone(),
            backend: Backend::Auto,
            direct: Direct::Auto,
            seed: rng.next_u64(),
            term,
            depth: DEPTH,
        };
        let moment = Duration::from_millis(rng.range(50..300));
        ledger.follow(&Victim::spawn(&program, &orders)?.kill_after(moment)?)?;
        let killed = patience::open(&path, &OpenOptions::default(), PATIENCE)?;
        let mut pool = open(killed, limits())?;
        verified += ledger.verify(&mut pool).with_context(|| format!("kill {term}"))?;
        disk = pool.close()?;
    }
    let report = check(&mut disk, Depth::Data)?;
    ensure!(report.is_clean(), "the check found: {}", report.problems.join("; "));
    let done = format!(
        "a process that writes to a pool file, {DEPTH} operations at a time; killed {KILLS} times \
         at random moments; opened and read after each"
    );
    let verdict = "everything acknowledged is there";
    Ok(Shown { done, promise: "acknowledged", found: verified, verdict })
}
