//! The process that opens a pool, with nothing of it in memory yet.
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use block::{ByteOffset, Position};
use engine::{Limits, Op, OpenOptions, Pool, RequestId, VolumeInfo};
use serde::{Deserialize, Serialize};
use sim::Rng;

use super::BLOCK;
use crate::child;
use crate::contents::Stretch;
use crate::cost::Stopwatch;
use crate::place;

const DEPTH: u64 = 32;

#[derive(clap::Args, Clone, Debug)]
pub struct Task {
    #[arg(long)]
    path: PathBuf,
    /// Writes, after which the process waits to be killed. Without any it closes the pool
    #[arg(long)]
    writes: u64,
}

impl Task {
    pub fn args(path: &Path, writes: u64) -> [String; 4] {
        ["--path".into(), path.to_string_lossy().into(), "--writes".into(), writes.to_string()]
    }
}

/// What the process found out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opened {
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub pages_read: u64,
    pub replayed_slots: u64,
    /// The most that was on the heap until the pool was open.
    pub heap_peak: u64,
    /// What the engine says that it never exceeds.
    pub bound: u64,
    /// Seconds from the beginning of opening until the first write was acknowledged.
    pub first_write: f64,
}

pub fn open(task: &Task) -> Result<()> {
    let stretch = Stretch::new(2, None);
    let mut rng = Rng::new(53);
    let disk = place::open_after_kill(&task.path)?;
    counting::begin();
    let began = Instant::now();
    let watch = Stopwatch::start();
    let mut pool = Pool::open(disk, OpenOptions::with(Limits::default()))?;
    let opening = watch.stop(1, 0);
    let heap_peak = counting::peak();
    let [volume] = &pool.volumes()[..] else { bail!("the pool has not just one volume") };
    let VolumeInfo { id: volume, size, held, .. } = volume.clone();
    let mut write = |seq: u64, block: u64| {
        let (_, data) = stretch.pick(&mut rng, 4096, 4096);
        let position = Position::new(held.term.0.max(1), held.seq.0 + seq);
        Op::Write { volume, position, offset: ByteOffset(block * BLOCK), data }
    };
    pool.run(write(1, 0)).context("the first write")?;
    let opened = Opened {
        seconds: opening.elapsed.as_secs_f64(),
        cpu_seconds: opening.cpu.as_secs_f64(),
        pages_read: pool.counters().pages_read_at_open,
        replayed_slots: pool.counters().replayed_slots,
        heap_peak,
        bound: pool.memory().bound as u64,
        first_write: began.elapsed().as_secs_f64(),
    };
    if task.writes == 0 {
        pool.close()?;
        return child::tell(&opened);
    }
    let mut blocks = Rng::new(held.seq.0);
    let (mut begun, mut done) = (0, 0);
    while done < task.writes {
        while begun < task.writes && begun - done < DEPTH {
            begun += 1;
            pool.submit(RequestId(begun), write(1 + begun, blocks.below(size.0 / BLOCK)));
        }
        pool.turn();
        pool.wait();
        while let Some((_, result)) = pool.reply() {
            result.context("a write")?;
            done += 1;
        }
    }
    child::tell(&opened)?;
    // To be killed here, with the pool open.
    child::wait_for_the_end()?;
    drop(pool);
    bail!("nobody killed this process")
}
