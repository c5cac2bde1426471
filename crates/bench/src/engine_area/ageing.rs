//! A fresh pool beside an aged one: 85 % full, and overwritten at random several times over.
use std::time::Duration;

use anyhow::{Result, ensure};
use block::ByteLen;
use disk::FileDisk;
use engine::Limits;
use sim::Rng;

use super::{FILL, MIB, Run, WARM_UP, round, written_once};
use crate::contents::Stretch;
use crate::cost::Round;
use crate::counted::{Counted, Counts};
use crate::load::{self, Direction, Load, Order, Until};
use crate::place;
use crate::pool_side::PoolSide;
use crate::table::{Figure, Line, Unit};

struct Effort {
    pairs: usize,
    round: Duration,
    pool: ByteLen,
    /// What the loads are spread over, on both pools alike.
    window: ByteLen,
    /// How many times its data size the aged pool is overwritten.
    times: u64,
    samples: usize,
}

const QUICK: Effort = Effort {
    pairs: 3,
    round: Duration::from_millis(500),
    pool: ByteLen(1 << 30),
    window: ByteLen(128 << 20),
    times: 1,
    samples: 500,
};

const FULL: Effort = Effort {
    pairs: 5,
    round: Duration::from_secs(3),
    pool: ByteLen(6 << 30),
    window: ByteLen(1 << 30),
    times: 3,
    samples: 2000,
};

const FULL_PERCENT: u64 = 85;

/// Of so much data, maps take one more: a page, twice, for 128 blocks.
const DATA_PER_MAP: u64 = 64;

const SEQUENTIAL_WRITE: &str = "ageing: 1 MiB sequential write, depth 4";
const SEQUENTIAL_READ: &str = "ageing: 1 MiB sequential read of it, depth 4";
const RANDOM_WRITE: &str = "ageing: 4 KiB random write, depth 32";

const RANDOM: Load =
    Load { direction: Direction::Write, order: Order::Random, len: 4096, depth: 32 };
const READ: Load =
    Load { direction: Direction::Read, order: Order::Sequential, len: MIB, depth: 4 };

pub fn names() -> Vec<&'static str> {
    vec![SEQUENTIAL_WRITE, SEQUENTIAL_READ, RANDOM_WRITE]
}

type Aged<'a> = PoolSide<'a, Counted<FileDisk>>;

pub fn run(run: &Run<'_>) -> Result<Vec<Line>> {
    let effort = if run.quick { QUICK } else { FULL };
    run.place.need(2 * effort.pool.0 + (512 << 20))?;
    let mut rng = Rng::new(31);
    let stretch = Stretch::new(1, None);
    let mut prepare = |name: &str| {
        let file = run.place.file(name)?;
        let disk = place::open(file.path(), Some(effort.pool))?;
        anyhow::Ok((file, Counted::new(written_once(disk, &stretch, &mut rng)?)))
    };
    let (_fresh_file, mut fresh_disk) = prepare("fresh")?;
    let (_aged_file, disk) = prepare("aged")?;
    let mut aged = aged_pool(disk, &effort, &stretch, &mut rng)?;
    aged.narrow(effort.window.0);

    let mut shows = [Show::default(), Show::default(), Show::default()];
    for _ in 0..effort.pairs {
        // A pool is fresh once.
        let volume = volume_for(effort.pool);
        let mut fresh = PoolSide::new(fresh_disk, Limits::default(), None, volume, &stretch)?;
        fresh.narrow(effort.window.0);
        for (side, is_aged) in [(&mut fresh, false), (&mut aged, true)] {
            for (show, load) in shows.iter_mut().zip([FILL, READ, RANDOM]) {
                show.measure(side, is_aged, load, &effort, &mut rng)?;
            }
            side.verify(effort.samples)?;
        }
        for (show, name) in shows.iter().zip(names()) {
            let (Some(fresh), Some(aged)) = (show.rounds.0.last(), show.rounds.1.last()) else {
                continue;
            };
            println!("  {name}: {}", Unit::MegabytesPerSecond.pair(fresh, aged));
        }
        fresh_disk = fresh.close()?;
    }
    aged.close()?;
    let lines: Vec<Line> =
        shows.into_iter().zip(names()).map(|(show, name)| show.line(name)).collect();
    for line in &lines {
        println!("  {}", line.shown());
    }
    Ok(lines)
}

/// The volume that fills a pool so far as it is to be filled.
fn volume_for(pool: ByteLen) -> ByteLen {
    let filled = pool.0 / 100 * FULL_PERCENT;
    let journal = pool.0 / 32;
    let data = (filled - journal) / (DATA_PER_MAP + 1) * DATA_PER_MAP;
    ByteLen(data / MIB as u64 * MIB as u64)
}

fn aged_pool<'a>(
    disk: Counted<FileDisk>,
    effort: &Effort,
    stretch: &'a Stretch,
    rng: &mut Rng,
) -> Result<Aged<'a>> {
    let volume = volume_for(effort.pool);
    let mut side = PoolSide::new(disk, Limits::default(), None, volume, stretch)?;
    load::run(&mut side, FILL, Until::End, rng)?;
    side.settle()?;
    side.pool_mut().disk_mut().take();
    println!("ageing: a pool of {}, a volume of {volume}", effort.pool);
    for time in 1..=effort.times {
        let round = load::run(&mut side, RANDOM, Until::Ios(volume.0 / 4096), rng)?;
        let counts = side.pool_mut().disk_mut().take();
        println!(
            "  overwritten {time} times: {:.0} MB/s, data in runs of {:.1} KiB",
            round.megabytes_per_second(),
            counts.kib_per_run()
        );
    }
    side.settle()?;
    let info = side.pool().info();
    let full = 100.0 - info.free.0 as f64 * 100.0 / info.size.0 as f64;
    println!("  {full:.1} % full");
    ensure!((80.0..90.0).contains(&full), "the pool is {full:.1} % full, not {FULL_PERCENT}");
    Ok(side)
}

/// What one load did on both pools.
#[derive(Default)]
struct Show {
    rounds: (Vec<Round>, Vec<Round>),
    counts: (Counts, Counts),
}

impl Show {
    fn measure(
        &mut self,
        side: &mut Aged<'_>,
        is_aged: bool,
        load: Load,
        effort: &Effort,
        rng: &mut Rng,
    ) -> Result<()> {
        let random = load.order == Order::Random;
        if random {
            round(side, load, WARM_UP, rng)?;
        }
        side.settle()?;
        side.pool_mut().disk_mut().take();
        let round = match random {
            true => round(side, load, effort.round, rng)?,
            false => load::run(side, load, Until::End, rng)?,
        };
        let counts = side.pool_mut().disk_mut().take();
        let (rounds, sum) = match is_aged {
            false => (&mut self.rounds.0, &mut self.counts.0),
            true => (&mut self.rounds.1, &mut self.counts.1),
        };
        rounds.push(round);
        sum.add(counts);
        Ok(())
    }

    fn line(self, name: &'static str) -> Line {
        let bytes = |rounds: &[Round]| rounds.iter().map(|round| round.bytes).sum::<u64>() as f64;
        let gb = (bytes(&self.rounds.0) / 1e9, bytes(&self.rounds.1) / 1e9);
        let (fresh, aged) = (self.counts.0, self.counts.1);
        let pair = |figure, unit, of: fn(&Counts) -> f64| {
            Figure::pair(figure, unit, of(&fresh), of(&aged))
        };
        let figures = match name {
            SEQUENTIAL_READ => vec![pair("mean read", "KiB", Counts::kib_per_read)],
            _ => vec![
                pair("mean run of data", "KiB", Counts::kib_per_run),
                pair("mean write of data", "KiB", Counts::kib_per_data_write),
                Figure::pair(
                    "device writes",
                    "per GB",
                    fresh.writes() as f64 / gb.0,
                    aged.writes() as f64 / gb.1,
                ),
                Figure::pair(
                    "written beside data",
                    "MB per GB",
                    fresh.own_bytes as f64 / 1e6 / gb.0,
                    aged.own_bytes as f64 / 1e6 / gb.1,
                ),
            ],
        };
        let pairs: Vec<(Round, Round)> = self.rounds.0.into_iter().zip(self.rounds.1).collect();
        Line::of(name, "fresh pool", Unit::MegabytesPerSecond, &pairs).with_figures(figures)
    }
}
