//! Random IO where the cache holds the whole map, and where it holds a 32nd of it.
use std::time::Duration;

use anyhow::{Context, Result};
use block::ByteLen;
use disk::FileDisk;
use engine::Limits;
use sim::Rng;

use super::{FILL, Run, WARM_UP, round, written_once};
use crate::contents::Stretch;
use crate::cost::Round;
use crate::load::{self, Direction, Load, Order, Until};
use crate::place::{self, Place, Scratch};
use crate::pool_side::PoolSide;
use crate::table::{Figure, Line, Unit};

/// What a lowest page of a map of 4 KiB blocks leads to.
const LEAF: u64 = 128 * 4096;

/// How many times what the cache leads to the large volume is.
const TIMES: u64 = 32;

/// Both pools have as much journal, so that both make checkpoints for the same reasons.
const JOURNAL: ByteLen = ByteLen(64 << 20);

struct Effort {
    pairs: usize,
    round: Duration,
    cache_pages: u64,
    /// Decides how often there are checkpoints: several in each round of writes.
    overlay_entries: usize,
    /// Both have room for all that is overwritten in a line, and so does neither grow old in it.
    small_pool: ByteLen,
    large_pool: ByteLen,
    samples: usize,
}

const QUICK: Effort = Effort {
    pairs: 3,
    round: Duration::from_millis(500),
    cache_pages: 64,
    overlay_entries: 16 << 10,
    small_pool: ByteLen(1 << 30),
    large_pool: ByteLen(2 << 30),
    samples: 500,
};

const FULL: Effort = Effort {
    pairs: 5,
    round: Duration::from_secs(4),
    cache_pages: 256,
    overlay_entries: 256 << 10,
    small_pool: ByteLen(3 << 30),
    large_pool: ByteLen(12 << 30),
    samples: 2000,
};

impl Effort {
    /// The cache holds its map twice: upper pages and those of space want a part of it too.
    fn fitting(&self) -> ByteLen {
        ByteLen(self.cache_pages * LEAF / 2)
    }

    fn outgrown(&self) -> ByteLen {
        ByteLen(self.cache_pages * LEAF * TIMES)
    }
}

const LINES: [(&str, Direction); 2] = [
    ("map cache: 4 KiB random read, depth 32, map 32 times the cache", Direction::Read),
    ("map cache: 4 KiB random write, depth 32, map 32 times the cache", Direction::Write),
];

pub fn names() -> Vec<&'static str> {
    LINES.iter().map(|(name, _)| *name).collect()
}

pub fn run(run: &Run<'_>) -> Result<Vec<Line>> {
    let effort = if run.quick { QUICK } else { FULL };
    let (fitting, outgrown) = (effort.fitting(), effort.outgrown());
    run.place.need(effort.small_pool.0 + effort.large_pool.0 + (256 << 20))?;
    let mut rng = Rng::new(21);
    let limits = Limits {
        cache_pages: usize::try_from(effort.cache_pages)?,
        overlay_entries: effort.overlay_entries,
        ..Limits::default()
    };

    let (_small_file, disk) = prepare(run.place, "map-small", effort.small_pool, &mut rng)?;
    let small_stretch = Stretch::new(1, None);
    let mut small = PoolSide::new(disk, limits.clone(), Some(JOURNAL), fitting, &small_stretch)?;
    load::run(&mut small, FILL, Until::End, &mut rng)?;
    small.settle()?;
    let (_large_file, disk) = prepare(run.place, "map-large", effort.large_pool, &mut rng)?;
    let large_stretch = Stretch::new(1, None);
    let mut large = PoolSide::new(disk, limits, Some(JOURNAL), outgrown, &large_stretch)?;
    load::run(&mut large, FILL, Until::End, &mut rng)?;
    large.settle()?;
    println!(
        "map cache of {} pages: volumes of {fitting} and {outgrown}, {} rounds of {:?} each",
        effort.cache_pages, effort.pairs, effort.round
    );

    let mut lines = Vec::new();
    for (name, direction) in LINES.into_iter().filter(|(name, _)| run.wants(name)) {
        let load = Load { direction, order: Order::Random, len: 4096, depth: 32 };
        let line = measure(name, load, &mut small, &mut large, &effort, &mut rng)
            .with_context(|| name.to_owned())?;
        println!("  {}", line.shown());
        lines.push(line);
    }
    small.close()?;
    large.close()?;
    Ok(lines)
}

/// The stretches are not in the disks' memory: two rings lend less than two of them.
fn prepare(place: &Place, name: &str, size: ByteLen, rng: &mut Rng) -> Result<(Scratch, FileDisk)> {
    let file = place.file(name)?;
    let disk = place::open(file.path(), Some(size))?;
    let disk = written_once(disk, &Stretch::new(1, None), rng)?;
    Ok((file, disk))
}

fn measure(
    name: &'static str,
    load: Load,
    small: &mut PoolSide<'_>,
    large: &mut PoolSide<'_>,
    effort: &Effort,
    rng: &mut Rng,
) -> Result<Line> {
    println!("{name}");
    round(small, load, WARM_UP, rng)?;
    round(large, load, WARM_UP, rng)?;
    let mut pairs = Vec::new();
    let mut pages = (Pages::default(), Pages::default());
    for _ in 0..effort.pairs {
        let fits = pages.0.during(small, |small| round(small, load, effort.round, rng))?;
        let outgrows = pages.1.during(large, |large| round(large, load, effort.round, rng))?;
        println!("  {}", Unit::Iops.pair(&fits, &outgrows));
        pairs.push((fits, outgrows));
    }
    small.verify(effort.samples)?;
    large.verify(effort.samples)?;
    let figures = vec![
        Figure::pair(
            "pages read",
            "per 1000 IOs",
            pages.0.read_per_1000(),
            pages.1.read_per_1000(),
        ),
        Figure::pair(
            "map pages written",
            "per 1000 IOs",
            pages.0.written_per_1000(),
            pages.1.written_per_1000(),
        ),
    ];
    Ok(Line::of(name, "map fits", Unit::Iops, &pairs).with_figures(figures))
}

/// What was read and written of maps during some rounds.
#[derive(Default)]
struct Pages {
    ios: u64,
    read: u64,
    written: u64,
}

impl Pages {
    fn during<'a>(
        &mut self,
        side: &mut PoolSide<'a>,
        round: impl FnOnce(&mut PoolSide<'a>) -> Result<Round>,
    ) -> Result<Round> {
        let before = side.pool().counters();
        let round = round(side)?;
        let after = side.pool().counters();
        self.ios += round.ios;
        self.read += after.map_pages_read - before.map_pages_read;
        self.written += after.map_pages_written - before.map_pages_written;
        Ok(round)
    }

    fn read_per_1000(&self) -> f64 {
        self.read as f64 * 1000.0 / self.ios.max(1) as f64
    }

    fn written_per_1000(&self) -> f64 {
        self.written as f64 * 1000.0 / self.ios.max(1) as f64
    }
}
