//! A pool beside its device, and beside itself in other circumstances: in sections, each with a
//! pool of its own.
mod ageing;
mod beside;
mod compression;
mod map_cache;
mod opening;
mod snapshots;

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use block::ByteLen;
use disk::FileDisk;
use sim::Rng;

use crate::Settings;
use crate::contents::Stretch;
use crate::cost::Round;
use crate::load::{self, Direction, Load, Order, Side, Until};
use crate::place::{Place, Refused};
use crate::raw_side::RawSide;
use crate::table::{self, Line, Refusal, Report};

pub use opening::{Task as OpenerTask, open as run_opener};

const MIB: usize = 1 << 20;

/// Before the first pair of a line: caches, space and frequency settle.
const WARM_UP: Duration = Duration::from_millis(200);

/// Between rounds: what one side left on its way to the device does not disturb the other.
const PAUSE: Duration = Duration::from_millis(20);

/// Fills files and volumes: every sector is written once before anything is measured.
const FILL: Load =
    Load { direction: Direction::Write, order: Order::Sequential, len: MIB, depth: 4 };

/// How long sections take whose lines are pairs of loads on one volume.
struct Effort {
    pairs: usize,
    round: Duration,
    volume: ByteLen,
    pool: ByteLen,
    samples: usize,
}

/// What a section is told.
struct Run<'a> {
    place: &'a Place,
    quick: bool,
    only: &'a str,
}

impl Run<'_> {
    fn wants(&self, name: &str) -> bool {
        name.contains(self.only)
    }
}

struct Section {
    names: fn() -> Vec<&'static str>,
    run: fn(&Run<'_>) -> Result<Vec<Line>>,
}

const SECTIONS: [Section; 6] = [
    Section { names: beside::names, run: beside::run },
    Section { names: compression::names, run: compression::run },
    Section { names: map_cache::names, run: map_cache::run },
    Section { names: ageing::names, run: ageing::run },
    Section { names: snapshots::names, run: snapshots::run },
    Section { names: opening::names, run: opening::run },
];

pub fn run(settings: &Settings, only: &str) -> Result<()> {
    let place = Place::new(settings.dir.as_deref())?;
    let machine = place.machine();
    println!(
        "{} ({}), {} cores, Linux {}, load {}",
        place.folder().display(),
        machine.fs,
        machine.cores,
        machine.kernel,
        std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim()
    );
    let run = Run { place: &place, quick: settings.quick, only };
    let (mut lines, mut refused) = (Vec::new(), Vec::new());
    for section in &SECTIONS {
        let mut names = (section.names)();
        names.retain(|name| run.wants(name));
        if names.is_empty() {
            continue;
        }
        match (section.run)(&run) {
            Ok(measured) => lines.extend(measured.into_iter().filter(|line| run.wants(line.name))),
            Err(error) => match error.downcast::<Refused>() {
                Ok(Refused(why)) => {
                    println!("left out, {why}: {}", names.join("; "));
                    refused
                        .extend(names.into_iter().map(|name| Refusal { name, why: why.clone() }));
                }
                Err(error) => return Err(error),
            },
        }
    }
    ensure!(!lines.is_empty() || !refused.is_empty(), "no line has {only:?} in its name");
    if !lines.is_empty() {
        println!("\n{}", table::table(&lines));
        println!(
            "cpu: seconds of processor time per million IOs; where the unit is s, per opening"
        );
    }
    if lines.iter().any(|line| !line.figures.is_empty()) {
        println!("\n{}", table::figures(&lines));
    }
    let report = Report {
        area: "engine",
        quick: settings.quick,
        unix_seconds: table::unix_seconds(),
        machine,
        lines,
        refused,
    };
    table::save(settings.json.as_deref(), &report)
}

fn round(side: &mut impl Side, load: Load, time: Duration, rng: &mut Rng) -> Result<Round> {
    thread::sleep(PAUSE);
    load::run(side, load, Until::Time(time), rng)
}

/// The file system gives out the whole file before it is a pool.
fn written_once(disk: FileDisk, stretch: &Stretch, rng: &mut Rng) -> Result<FileDisk> {
    let mut whole = RawSide::new(disk, stretch);
    load::run(&mut whole, FILL, Until::End, rng)?;
    Ok(whole.into_disk())
}
