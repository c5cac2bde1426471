//! A pool beside its device: the same load on both, in turns.
use std::time::Duration;

use anyhow::{Context, Result};
use block::{ByteLen, Disk};
use engine::Limits;
use sim::Rng;

use super::{Effort, FILL, MIB, Run, WARM_UP, round};
use crate::contents::Stretch;
use crate::load::{self, Direction, Load, Order, Until};
use crate::place;
use crate::pool_side::PoolSide;
use crate::raw_side::RawSide;
use crate::table::{Line, Unit};

const QUICK: Effort = Effort {
    pairs: 3,
    round: Duration::from_millis(500),
    volume: ByteLen(256 << 20),
    pool: ByteLen(768 << 20),
    samples: 500,
};

const FULL: Effort = Effort {
    pairs: 5,
    round: Duration::from_secs(3),
    volume: ByteLen(1 << 30),
    pool: ByteLen(3 << 30),
    samples: 2000,
};

/// The map of the measured volume has 2049 pages per GiB: this keeps a 32nd of the full one.
const SMALL_CACHE: usize = 64;

/// Which pool a line is measured on. In this order, each built from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// The volume was written once, in order.
    Fresh,
    /// Parts of it were overwritten, in no order.
    Worn,
    SmallCache,
    /// A volume of 512 B blocks.
    SmallBlocks,
}

struct Plan {
    name: &'static str,
    scene: Scene,
    load: Load,
    unit: Unit,
    goal: Option<f64>,
}

const fn plan(
    name: &'static str,
    scene: Scene,
    (direction, order): (Direction, Order),
    (len, depth): (usize, usize),
    unit: Unit,
    goal: Option<f64>,
) -> Plan {
    let load = Load { direction, order, len, depth };
    Plan { name, scene, load, unit, goal }
}

const LINES: [Plan; 12] = {
    use Direction::{Read, Write, WriteFlush};
    use Order::{Random, Sequential};
    use Scene::{Fresh, SmallBlocks, SmallCache, Worn};
    use Unit::{Iops, MegabytesPerSecond as Mbs};
    [
        plan("1 MiB sequential read, depth 4", Fresh, (Read, Sequential), (MIB, 4), Mbs, Some(0.9)),
        plan(
            "1 MiB sequential write, depth 4",
            Fresh,
            (Write, Sequential),
            (MIB, 4),
            Mbs,
            Some(0.9),
        ),
        plan(
            "1 MiB sequential write + flush",
            Fresh,
            (WriteFlush, Sequential),
            (MIB, 1),
            Mbs,
            Some(0.8),
        ),
        plan("4 KiB random read, depth 1", Fresh, (Read, Random), (4096, 1), Iops, Some(0.9)),
        plan("4 KiB random read, depth 32", Fresh, (Read, Random), (4096, 32), Iops, Some(0.9)),
        plan("4 KiB random write, depth 1", Worn, (Write, Random), (4096, 1), Iops, Some(0.8)),
        plan("4 KiB random write, depth 32", Worn, (Write, Random), (4096, 32), Iops, Some(1.0)),
        plan("4 KiB random write + flush", Worn, (WriteFlush, Random), (4096, 1), Iops, Some(0.8)),
        plan(
            "4 KiB random write + flush, depth 32",
            Worn,
            (WriteFlush, Random),
            (4096, 32),
            Iops,
            None,
        ),
        plan(
            "1 MiB sequential read after random writes",
            Worn,
            (Read, Sequential),
            (MIB, 4),
            Mbs,
            None,
        ),
        plan(
            "4 KiB random write, depth 32, small cache",
            SmallCache,
            (Write, Random),
            (4096, 32),
            Iops,
            None,
        ),
        plan("512 B random write, depth 32", SmallBlocks, (Write, Random), (512, 32), Iops, None),
    ]
};

pub fn names() -> Vec<&'static str> {
    LINES.iter().map(|plan| plan.name).collect()
}

pub fn run(run: &Run<'_>) -> Result<Vec<Line>> {
    let effort = if run.quick { QUICK } else { FULL };
    let place = run.place;
    place.need(effort.volume.0 + effort.pool.0 + (1 << 30))?;
    let mut rng = Rng::new(2);

    let raw_file = place.file("raw")?;
    let mut disk = place::open(raw_file.path(), Some(effort.volume))?;
    let raw_stretch = Stretch::new(1, Some(&mut disk));
    println!("raw:    {}", place::describe(&disk));
    let mut raw = RawSide::new(disk, &raw_stretch);
    load::run(&mut raw, FILL, Until::End, &mut rng)?;

    let pool_file = place.file("pool")?;
    let mut disk = place::open(pool_file.path(), Some(effort.pool))?;
    let stretch = Stretch::new(1, Some(&mut disk));
    println!("engine: {}", place::describe(&disk));
    let disk = super::written_once(disk, &stretch, &mut rng)?;
    let mut pool = PoolSide::new(disk, Limits::default(), None, effort.volume, &stretch)?;
    load::run(&mut pool, FILL, Until::End, &mut rng)?;
    println!(
        "volume: {} of 4 KiB blocks, pool sector {} B, {} rounds of {:?} each side",
        effort.volume,
        pool.pool().info().sector.bytes(),
        effort.pairs,
        effort.round
    );

    let mut scene = Scene::Fresh;
    let mut lines = Vec::new();
    for plan in LINES.iter().filter(|plan| run.wants(plan.name)) {
        if plan.scene != scene {
            scene = plan.scene;
            pool = enter(scene, pool, &mut raw, &effort, &mut rng)?;
        }
        let sector = pool.pool().disk().geometry().sector.bytes();
        if (plan.load.len as u64) < sector {
            println!("{}: left out, the device's sector is {sector} B", plan.name);
            continue;
        }
        let line = measure(plan, &mut raw, &mut pool, &effort, &mut rng)
            .with_context(|| plan.name.to_owned())?;
        println!("  {}", line.shown());
        lines.push(line);
    }
    pool.close()?;
    Ok(lines)
}

fn enter<'a>(
    scene: Scene,
    pool: PoolSide<'a>,
    raw: &mut RawSide<'_>,
    effort: &Effort,
    rng: &mut Rng,
) -> Result<PoolSide<'a>> {
    let limits = match scene {
        Scene::SmallCache => Limits { cache_pages: SMALL_CACHE, ..Limits::default() },
        Scene::Fresh | Scene::Worn | Scene::SmallBlocks => Limits::default(),
    };
    let mut pool = pool.reopen(limits)?;
    if scene == Scene::SmallBlocks {
        let size = ByteLen(effort.volume.0 / 4);
        pool.create_volume("small blocks", size, 512)?;
        load::run(&mut pool, FILL, Until::End, rng)?;
        raw.narrow(size.0);
    }
    Ok(pool)
}

fn measure(
    plan: &Plan,
    raw: &mut RawSide<'_>,
    pool: &mut PoolSide<'_>,
    effort: &Effort,
    rng: &mut Rng,
) -> Result<Line> {
    println!("{}", plan.name);
    round(raw, plan.load, WARM_UP, rng)?;
    round(pool, plan.load, WARM_UP, rng)?;
    let mut pairs = Vec::new();
    for _ in 0..effort.pairs {
        let raw = round(raw, plan.load, effort.round, rng)?;
        let engine = round(pool, plan.load, effort.round, rng)?;
        println!("  {}", plan.unit.pair(&raw, &engine));
        pairs.push((raw, engine));
    }
    pool.verify(effort.samples)?;
    Ok(Line::of(plan.name, "raw file", plan.unit, &pairs).with_goal(plan.goal))
}
