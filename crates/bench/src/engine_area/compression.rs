//! Volumes of 128 KiB blocks with and without compression, on data that shrinks and on data that
//! does not.
use std::time::Duration;

use anyhow::{Context, Result};
use block::ByteLen;
use engine::{BlockSize, Limits, VolumeSpec};
use sim::Rng;

use super::{Effort, FILL, MIB, Run, WARM_UP, round, written_once};
use crate::contents::Stretch;
use crate::cost::Round;
use crate::load::{self, Direction, Load, Order, Until};
use crate::place;
use crate::pool_side::{PoolSide, Resting};
use crate::table::{Figure, Line, Unit};

const BLOCK: u64 = 128 << 10;

const QUICK: Effort = Effort {
    pairs: 2,
    round: Duration::from_millis(400),
    volume: ByteLen(64 << 20),
    pool: ByteLen(1 << 30),
    samples: 200,
};

const FULL: Effort = Effort {
    pairs: 5,
    round: Duration::from_secs(2),
    volume: ByteLen(512 << 20),
    pool: ByteLen(6 << 30),
    samples: 1000,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Text,
    Random,
}

struct Plan {
    name: &'static str,
    choice: &'static str,
    content: Content,
    direction: Direction,
}

const fn plan(
    name: &'static str,
    choice: &'static str,
    content: Content,
    direction: Direction,
) -> Plan {
    Plan { name, choice, content, direction }
}

/// What all others are measured against.
const OFF: &str = "off";

const LINES: [Plan; 8] = {
    use Content::{Random, Text};
    use Direction::{Read, Write};
    [
        plan("compression: lz4, text, 1 MiB sequential write", "lz4", Text, Write),
        plan("compression: lz4, text, 1 MiB sequential read", "lz4", Text, Read),
        plan("compression: gzip, text, 1 MiB sequential write", "gzip", Text, Write),
        plan("compression: gzip, text, 1 MiB sequential read", "gzip", Text, Read),
        plan("compression: lz4, random, 1 MiB sequential write", "lz4", Random, Write),
        plan("compression: lz4, random, 1 MiB sequential read", "lz4", Random, Read),
        plan("compression: gzip, random, 1 MiB sequential write", "gzip", Random, Write),
        plan("compression: gzip, random, 1 MiB sequential read", "gzip", Random, Read),
    ]
};

pub fn names() -> Vec<&'static str> {
    LINES.iter().map(|plan| plan.name).collect()
}

pub fn run(run: &Run<'_>) -> Result<Vec<Line>> {
    let effort = if run.quick { QUICK } else { FULL };
    run.place.need(effort.pool.0 + (512 << 20))?;
    let mut rng = Rng::new(61);
    let file = run.place.file("compression")?;
    let disk = place::open(file.path(), Some(effort.pool))?;
    let (text, random) = (Stretch::of_text(1), Stretch::new(1, None));
    let disk = written_once(disk, &random, &mut rng)?;
    let mut side = PoolSide::new(disk, Limits::default(), None, ByteLen(MIB as u64), &random)?;
    println!(
        "compression: volumes of {} with blocks of 128 KiB, {} rounds of {:?} each",
        effort.volume, effort.pairs, effort.round
    );
    let mut lines = Vec::new();
    for (content, stretch) in [(Content::Text, &text), (Content::Random, &random)] {
        let wanted: Vec<&Plan> =
            LINES.iter().filter(|plan| plan.content == content && run.wants(plan.name)).collect();
        if wanted.is_empty() {
            continue;
        }
        let mut off = Volume::filled(OFF, content, stretch, &mut side, &effort, &mut rng)?;
        let mut choices: Vec<&str> = wanted.iter().map(|plan| plan.choice).collect();
        choices.dedup();
        for choice in choices {
            let mut on = Volume::filled(choice, content, stretch, &mut side, &effort, &mut rng)?;
            for plan in wanted.iter().filter(|plan| plan.choice == choice) {
                let line = measure(plan, &mut side, &mut off, &mut on, &effort, &mut rng)
                    .with_context(|| plan.name.to_owned())?;
                println!("  {}", line.shown());
                lines.push(line);
            }
        }
    }
    side.close()?;
    Ok(lines)
}

/// A volume with some choice of compression, written once.
struct Volume<'a> {
    name: String,
    resting: Resting<'a>,
}

impl<'a> Volume<'a> {
    fn filled(
        choice: &str,
        content: Content,
        stretch: &'a Stretch,
        side: &mut PoolSide<'a>,
        effort: &Effort,
        rng: &mut Rng,
    ) -> Result<Volume<'a>> {
        let spec = VolumeSpec {
            name: format!("{choice} {content:?}"),
            size: effort.volume,
            block_size: BlockSize::new(BLOCK).context("a legal block size")?,
            uid: [1; 16],
            compression: choice.parse()?,
        };
        let name = spec.name.clone();
        let mut volume = Volume { name, resting: side.create_resting(spec, stretch)? };
        volume.under_load(side, |side| load::run(side, FILL, Until::End, rng))?;
        Ok(volume)
    }

    fn under_load<T>(
        &mut self,
        side: &mut PoolSide<'a>,
        what: impl FnOnce(&mut PoolSide<'a>) -> Result<T>,
    ) -> Result<T> {
        side.swap(&mut self.resting);
        let result = what(side);
        side.swap(&mut self.resting);
        result
    }

    /// What it takes on the device, in percent of what it holds: every block was written.
    fn stored(&self, side: &PoolSide<'_>) -> Result<f64> {
        let volumes = side.pool().volumes();
        let found = volumes.iter().find(|volume| volume.name == self.name);
        let found = found.context("the volume is there")?;
        Ok(found.stored.0 as f64 * 100.0 / found.size.0 as f64)
    }
}

fn measure<'a>(
    plan: &Plan,
    side: &mut PoolSide<'a>,
    off: &mut Volume<'a>,
    on: &mut Volume<'a>,
    effort: &Effort,
    rng: &mut Rng,
) -> Result<Line> {
    println!("{}", plan.name);
    let load = Load { direction: plan.direction, order: Order::Sequential, len: MIB, depth: 4 };
    off.under_load(side, |side| round(side, load, WARM_UP, rng))?;
    on.under_load(side, |side| round(side, load, WARM_UP, rng))?;
    let mut pairs: Vec<(Round, Round)> = Vec::new();
    for _ in 0..effort.pairs {
        let base = off.under_load(side, |side| round(side, load, effort.round, rng))?;
        let engine = on.under_load(side, |side| round(side, load, effort.round, rng))?;
        println!("  {}", Unit::MegabytesPerSecond.pair(&base, &engine));
        pairs.push((base, engine));
    }
    for volume in [&mut *off, &mut *on] {
        volume.under_load(side, |side| side.verify(effort.samples))?;
    }
    side.settle()?;
    let stored = Figure::pair("stored of logical", "%", off.stored(side)?, on.stored(side)?);
    Ok(Line::of(plan.name, "off", Unit::MegabytesPerSecond, &pairs).with_figures(vec![stored]))
}
