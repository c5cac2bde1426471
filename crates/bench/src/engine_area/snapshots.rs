//! Random writes while snapshots are taken, beside the same without.
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use block::ByteLen;
use engine::{Limits, Op};
use sim::Rng;

use super::{FILL, Run, WARM_UP, round, written_once};
use crate::contents::Stretch;
use crate::latency::Latencies;
use crate::load::{self, Direction, Load, Order, Side, Step, Until};
use crate::place;
use crate::pool_side::PoolSide;
use crate::table::{Figure, Line, Unit};

struct Effort {
    pairs: usize,
    round: Duration,
    every: Duration,
    volume: ByteLen,
    pool: ByteLen,
    samples: usize,
}

const QUICK: Effort = Effort {
    pairs: 3,
    round: Duration::from_secs(1),
    every: Duration::from_millis(200),
    volume: ByteLen(256 << 20),
    pool: ByteLen(2 << 30),
    samples: 500,
};

const FULL: Effort = Effort {
    pairs: 5,
    round: Duration::from_secs(6),
    every: Duration::from_secs(1),
    volume: ByteLen(1 << 30),
    pool: ByteLen(8 << 30),
    samples: 2000,
};

const NAME: &str = "snapshots: 4 KiB random write, depth 32, one taken every second";

const LOAD: Load = Load { direction: Direction::Write, order: Order::Random, len: 4096, depth: 32 };

/// The lane of a snapshot: none of the load's.
const LANE: usize = LOAD.depth;

pub fn names() -> Vec<&'static str> {
    vec![NAME]
}

pub fn run(run: &Run<'_>) -> Result<Vec<Line>> {
    let effort = if run.quick { QUICK } else { FULL };
    run.place.need(effort.pool.0 + (512 << 20))?;
    let mut rng = Rng::new(41);
    let file = run.place.file("snapshots")?;
    let mut disk = place::open(file.path(), Some(effort.pool))?;
    let stretch = Stretch::new(1, Some(&mut disk));
    let disk = written_once(disk, &stretch, &mut rng)?;
    let mut pool = PoolSide::new(disk, Limits::default(), None, effort.volume, &stretch)?;
    load::run(&mut pool, FILL, Until::End, &mut rng)?;
    println!(
        "{NAME}\n  a volume of {}, {} rounds of {:?} each way, one taken every {:?}",
        effort.volume, effort.pairs, effort.round, effort.every
    );
    round(&mut pool, LOAD, WARM_UP, &mut rng)?;

    let (mut without, mut with) = (Times::default(), Times::default());
    let mut pairs = Vec::new();
    for pair in 0..effort.pairs {
        pool.settle()?;
        let mut timed = Timed::new(&mut pool, None, pair);
        let base = round(&mut timed, LOAD, effort.round, &mut rng)?;
        without.extend(timed.times);
        pool.settle()?;
        let mut timed = Timed::new(&mut pool, Some(effort.every), pair);
        let taken = round(&mut timed, LOAD, effort.round, &mut rng)?;
        timed.finish()?;
        with.extend(timed.times);
        println!("  {}", Unit::Iops.pair(&base, &taken));
        pairs.push((base, taken));
        drop_snapshots(&mut pool)?;
    }
    pool.verify(effort.samples)?;
    pool.close()?;
    ensure!(with.snapshots.count() > 0, "no snapshot was taken");
    let line = Line::of(NAME, "no snapshots", Unit::Iops, &pairs)
        .with_figures(figures(&mut without, &mut with));
    println!("  {}", line.shown());
    Ok(vec![line])
}

fn figures(without: &mut Times, with: &mut Times) -> Vec<Figure> {
    let (writes, around) = (&mut with.writes, &mut with.around);
    vec![
        Figure::alone("snapshots", "", with.snapshots.count() as f64),
        Figure::alone("snapshot, median", "ms", with.snapshots.share(0.5)),
        Figure::alone("snapshot, slowest", "ms", with.snapshots.max()),
        Figure::pair("write, median", "ms", without.writes.share(0.5), writes.share(0.5)),
        Figure::pair("write, p99", "ms", without.writes.share(0.99), writes.share(0.99)),
        Figure::pair("write, slowest", "ms", without.writes.max(), writes.max()),
        Figure::alone("write beside a snapshot, median", "ms", around.share(0.5)),
        Figure::alone("write beside a snapshot, slowest", "ms", around.max()),
    ]
}

/// Deletes all snapshots, and waits until their space is back: the next round begins as this did.
fn drop_snapshots(side: &mut PoolSide<'_>) -> Result<()> {
    let pool = side.pool_mut();
    for snapshot in pool.snapshots() {
        pool.run(Op::DeleteSnapshot { snapshot: snapshot.id }).context("deleting a snapshot")?;
    }
    while !pool.snapshots().is_empty() {
        pool.checkpoint()?;
    }
    Ok(())
}

/// How long each operation of some rounds took.
#[derive(Default)]
struct Times {
    writes: Latencies,
    /// Writes that were under way at the same time as a snapshot.
    around: Latencies,
    snapshots: Latencies,
}

impl Times {
    fn extend(&mut self, other: Times) {
        self.writes.extend(other.writes);
        self.around.extend(other.around);
        self.snapshots.extend(other.snapshots);
    }
}

/// A pool under a load, with a clock for each operation and a snapshot every now and then.
struct Timed<'a, 'b> {
    side: &'a mut PoolSide<'b>,
    every: Option<Duration>,
    round: usize,
    /// When each lane's write was begun, and whether a snapshot was under way since.
    begun: [Option<(Instant, bool)>; LOAD.depth],
    due: Instant,
    snapshot: Option<Instant>,
    times: Times,
}

impl<'a, 'b> Timed<'a, 'b> {
    fn new(side: &'a mut PoolSide<'b>, every: Option<Duration>, round: usize) -> Timed<'a, 'b> {
        let due = Instant::now() + every.unwrap_or_default() / 2;
        let begun = [None; LOAD.depth];
        Timed { side, every, round, begun, due, snapshot: None, times: Times::default() }
    }

    /// Takes a snapshot if it is time for one. One is under way at a time.
    fn take_snapshot(&mut self) {
        let Some(every) = self.every else { return };
        let now = Instant::now();
        if self.snapshot.is_some() || now < self.due {
            return;
        }
        self.due += every;
        let name = format!("{}-{}", self.round, self.times.snapshots.count());
        self.side.begin_snapshot(LANE, name);
        self.snapshot = Some(now);
        for (_, beside) in self.begun.iter_mut().flatten() {
            *beside = true;
        }
    }

    /// Waits for a snapshot that is still under way when the load is over.
    fn finish(&mut self) -> Result<()> {
        while self.snapshot.is_some() {
            self.side.turn()?;
            self.finished()?;
        }
        Ok(())
    }
}

impl Side for Timed<'_, '_> {
    fn span(&self) -> u64 {
        self.side.span()
    }

    fn begin(&mut self, lane: usize, step: Step) {
        self.begun[lane] = Some((Instant::now(), self.snapshot.is_some()));
        self.side.begin(lane, step);
    }

    fn turn(&mut self) -> Result<()> {
        self.take_snapshot();
        self.side.turn()
    }

    fn finished(&mut self) -> Result<Option<usize>> {
        loop {
            match self.side.finished()? {
                Some(LANE) => {
                    let begun = self.snapshot.take().context("a snapshot was under way")?;
                    self.times.snapshots.note(begun.elapsed());
                }
                Some(lane) => {
                    let (begun, beside) = self.begun[lane].take().context("it was begun")?;
                    let took = begun.elapsed();
                    self.times.writes.note(took);
                    if beside {
                        self.times.around.note(took);
                    }
                    return Ok(Some(lane));
                }
                None => return Ok(None),
            }
        }
    }
}
