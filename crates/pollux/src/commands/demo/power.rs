//! Power cuts, in a disk that knows what a real one may lose: everything that was not flushed, in
//! any order, and torn.
use anyhow::{Context, Result};
use block::{ByteLen, SectorSize, Term};
use engine::Limits;
use pollux::proof::{Ledger, Load, Promise, Script, Verified, format, open};
use sim::{Budget, CrashDisk, Delivery, Image, Rng};

use super::{Shown, grouped};

const POOL: ByteLen = ByteLen(16 << 20);
const VOLUME: ByteLen = ByteLen(512 << 10);
const CUTS: u64 = 100;
/// Of each cut: what the disk may be afterwards.
const IMAGES: u64 = 3;
const DEPTH: usize = 12;

pub fn run(rng: &mut Rng) -> Result<Shown> {
    let disk = CrashDisk::new(POOL, SectorSize::B4096, rng.next_u64());
    let mut uuid = [0; 16];
    rng.fill(&mut uuid);
    let pool = format(disk.with_delivery(Delivery::Random), uuid, VOLUME, Limits::tiny())?;
    let mut ledger = Ledger::new(&pool.volumes(), Promise::Durable);
    let script = Script::new(&pool.volumes(), Term(1), rng.next_u64());
    let mut load = Load::new(pool, script, DEPTH);
    let (mut verified, mut images) = (Verified::default(), 0);
    for cut in 0..CUTS {
        // The load goes on after a cut, so that the next one meets another state of the pool.
        for _ in 0..rng.range(1..20) {
            let planned = load.plan();
            ledger.follow(&planned)?;
            ledger.follow(&load.carry_out(&planned)?)?;
        }
        let tear = *rng.pick(&[SectorSize::B512, SectorSize::B4096]);
        let budget = Budget { every_up_to: 0, combinations: 0, samples: IMAGES };
        for image in load.pool().disk().crash_images(tear, budget, rng) {
            let judged = judge(image, ledger.clone(), rng.next_u64());
            verified += judged.with_context(|| format!("power cut {cut}"))?;
            images += 1;
        }
    }
    let (cuts, images) = (grouped(CUTS), grouped(images));
    let done = format!(
        "a simulated disk; its power cut {cuts} times under load; {images} images of what it may \
         have lost or torn; each opened, read, and cut again (the figures are the sum \
         over all images)"
    );
    let verdict = "everything flushed is there, the rest is old or new";
    Ok(Shown { done, promise: "flushed", found: verified, verdict })
}

/// Opens what the cut left and reads it all, then cuts the power again: what was read stays.
fn judge(image: Image, mut ledger: Ledger, seed: u64) -> Result<Verified> {
    let mut pool = open(CrashDisk::from_image(image, seed), Limits::tiny())?;
    let verified = ledger.verify(&mut pool)?;
    let worst = pool.abandon().durable_image();
    let mut pool = open(CrashDisk::from_image(worst, seed), Limits::tiny())?;
    ledger.verify(&mut pool).context("it changed back after it was read")?;
    Ok(verified)
}
