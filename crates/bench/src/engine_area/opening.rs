//! Opening a pool of 15 TiB whose free space is in a million pieces: closed before, and killed.
mod opener;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use block::ByteLen;
use engine::Limits;
use sim::Rng;

use super::{FILL, MIB, Run};
use crate::child::{self, Killed};
use crate::contents::Stretch;
use crate::cost::{Round, Spread};
use crate::load::{self, Until};
use crate::place::{self, Place, Refused, Scratch};
use crate::pool_side::PoolSide;
use crate::table::{Figure, Line, Unit};

use opener::Opened;
pub use opener::{Task, open};

/// Sparse. Less than what ext4 allows a file.
const POOL: ByteLen = ByteLen(15 << 40);

/// Every other one of the volume's blocks is discarded.
const BLOCK: u64 = 4096;

struct Effort {
    opens: usize,
    kills: usize,
    volume: ByteLen,
    /// Writes before a kill. Each takes one piece of free space, and may join two.
    writes: u64,
    room: u64,
}

const QUICK: Effort =
    Effort { opens: 3, kills: 2, volume: ByteLen(576 << 20), writes: 1_500, room: 2 << 30 };

const FULL: Effort =
    Effort { opens: 5, kills: 3, volume: ByteLen(9 << 30), writes: 24_000, room: 11 << 30 };

const CLOSED: &str = "opening: 15 TiB, free space in pieces";
const KILLED: &str = "opening: the same after a kill";

pub fn names() -> Vec<&'static str> {
    vec![CLOSED, KILLED]
}

pub fn run(run: &Run<'_>) -> Result<Vec<Line>> {
    let effort = if run.quick { QUICK } else { FULL };
    run.place.need(effort.room)?;
    let stretch = Stretch::new(1, None);
    let empty = sparse(run.place, "empty")?;
    let pieces = sparse(run.place, "pieces")?;
    make(empty.path(), effort.volume, &stretch)?.close()?;
    let count = make_pieces(pieces.path(), &effort, &stretch)?;

    println!("{CLOSED}");
    let mut closed = Openings::default();
    for _ in 0..effort.opens {
        let (base, engine) = (opened(empty.path(), 0)?.1, opened(pieces.path(), 0)?.1);
        closed.add(base, engine);
    }
    println!("{KILLED}");
    let mut killed = Openings::default();
    for _ in 0..effort.kills {
        let (child, base) = opened(pieces.path(), effort.writes)?;
        // With the pool open: nothing was closed, and nothing flushed for it.
        drop(child);
        let (_, engine) = opened(pieces.path(), 0)?;
        ensure!(engine.replayed_slots > 0, "there was no journal to replay");
        killed.add(base, engine);
    }
    let writes = effort.opens as u64 + effort.kills as u64 * (effort.writes + 2);
    let closed = closed.line(CLOSED, "empty pool", count - 2 * effort.opens as u64);
    let killed = killed.line(KILLED, "closed", count - 2 * writes);
    for line in [&closed, &killed] {
        println!("  {}", line.shown());
    }
    Ok(vec![closed, killed])
}

fn sparse(place: &Place, name: &str) -> Result<Scratch> {
    let file = place.file(name)?;
    let created = std::fs::File::create(file.path())?;
    if let Err(error) = created.set_len(POOL.0) {
        let why = format!("{} does not take a file of {POOL}: {error}", place.fs);
        return Err(Refused(why).into());
    }
    Ok(file)
}

fn make<'a>(path: &Path, volume: ByteLen, stretch: &'a Stretch) -> Result<PoolSide<'a>> {
    PoolSide::new(place::open(path, None)?, Limits::default(), None, volume, stretch)
}

/// Fills a volume in order and discards every other block of it. Returns how many pieces of free
/// space there are at the least: each discarded block lies between two that stay.
fn make_pieces(path: &Path, effort: &Effort, stretch: &Stretch) -> Result<u64> {
    let began = Instant::now();
    let mut side = make(path, effort.volume, stretch)?;
    load::run(&mut side, FILL, Until::End, &mut Rng::new(51))?;
    side.settle()?;
    let before = side.pool().info().free.0;
    let blocks = effort.volume.0 / BLOCK;
    let discards = (1..blocks).step_by(2).map(|block| block * BLOCK);
    let count = side.discard_each(discards, ByteLen(BLOCK))?;
    side.settle()?;
    let info = side.pool().info();
    let freed = info.free.0 - before;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "a pool of {}: {} written in order, {count} blocks discarded, {freed} bytes freed, in \
         {seconds:.1} s",
        info.size, effort.volume
    );
    // Maps keep their pages, so what came back is what was discarded.
    ensure!(freed.abs_diff(count * BLOCK) <= MIB as u64, "the discarded space did not come back");
    side.close()?;
    Ok(count)
}

/// Opens a pool in a process of its own. With writes, that process is there to be killed;
/// without, it has closed the pool.
fn opened(path: &Path, writes: u64) -> Result<(Killed, Opened)> {
    let (child, opened): (_, Opened) = child::start("opener", &Task::args(path, writes))?;
    Ok((child, opened))
}

/// Pairs of openings.
#[derive(Default)]
struct Openings(Vec<(Opened, Opened)>);

impl Openings {
    fn add(&mut self, base: Opened, engine: Opened) {
        println!("  {}", Unit::Seconds.pair(&round(&base), &round(&engine)));
        self.0.push((base, engine));
    }

    fn line(&self, name: &'static str, against: &'static str, pieces: u64) -> Line {
        let pairs: Vec<(Round, Round)> =
            self.0.iter().map(|(base, engine)| (round(base), round(engine))).collect();
        let pair = |figure, unit, of: fn(&Opened) -> f64| {
            let base = Spread::of(self.0.iter().map(|(base, _)| of(base))).median;
            let engine = Spread::of(self.0.iter().map(|(_, engine)| of(engine))).median;
            Figure::pair(figure, unit, base, engine)
        };
        let mib = f64::from(1 << 20);
        let mut figures = vec![
            Figure::alone("pieces of free space, at least", "", pieces as f64),
            pair("pages read at open", "", |opened| opened.pages_read as f64),
            pair("slots replayed", "", |opened| opened.replayed_slots as f64),
            pair("peak of the heap until open", "MiB", |opened| opened.heap_peak as f64),
            pair("bound of the memory", "MiB", |opened| opened.bound as f64),
            pair("until the first write is acknowledged", "s", |opened| opened.first_write),
        ];
        for figure in figures.iter_mut().filter(|figure| figure.unit == "MiB") {
            figure.base = figure.base.map(|base| base / mib);
            figure.engine /= mib;
        }
        Line::of(name, against, Unit::Seconds, &pairs).with_figures(figures)
    }
}

fn round(opened: &Opened) -> Round {
    Round {
        ios: 1,
        bytes: 0,
        elapsed: Duration::from_secs_f64(opened.seconds),
        cpu: Duration::from_secs_f64(opened.cpu_seconds),
    }
}
