//! What volumes cost that nobody uses: many of them, each with three replicas, a target and a
//! session, and no request.
use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use sim::Rng;

use super::Settings;
use super::arena::Arena;
use super::content::Content;
use super::drive::drive;
use super::noise::Noise;
use super::points::paced;
use super::procs::Processes;
use super::session::Session;
use super::site::{Site, Wire};
use super::waiting::hold;
use crate::load::Until;
use crate::place::{self, Machine};
use crate::table;

const VOLUMES: u64 = 100;
const NODES: u64 = 3;
const VOLUME: u64 = 16 << 20;
const POOL: u64 = 1 << 30;

/// Leases have been renewed, and idle flushes are done.
const SETTLE: Duration = Duration::from_secs(5);

/// Of one processor, and bytes, for each node.
const CPU_GOAL: f64 = 1.0;
const MEMORY_GOAL: u64 = 200 << 20;

#[derive(Serialize)]
struct Line {
    process: String,
    /// Percent of one processor.
    cpu: f64,
    resident: u64,
    /// The same, with what several processes share divided among them.
    share: u64,
    /// `None`: it has no goal.
    cpu_met: Option<bool>,
    memory_met: Option<bool>,
}

#[derive(Serialize)]
struct Report {
    area: &'static str,
    quick: bool,
    unix_seconds: u64,
    machine: Machine,
    volumes: u64,
    seconds: f64,
    noise: Noise,
    lines: Vec<Line>,
}

pub fn run(settings: &Settings) -> Result<()> {
    let time = Duration::from_secs(if settings.quick { 30 } else { 120 });
    let arena = Arena::open(settings.dir.as_deref())?;
    let machine = Machine::with(place::file_system(arena.folder())?);
    let site = Site::start(&arena, "idle", NODES, POOL)?;
    let measured = measure(&site, time);
    let (lines, noise) = measured.inspect_err(|_| eprintln!("{}", site.last_words()))?;
    println!("{}", shown(&lines));
    println!("noise: the host took {:.1} %, other processes {:.1} %", noise.stolen, noise.others);
    let report = Report {
        area: "idle",
        quick: settings.quick,
        unix_seconds: table::unix_seconds(),
        machine,
        volumes: VOLUMES,
        seconds: time.as_secs_f64(),
        noise,
        lines,
    };
    table::save(settings.json.as_deref(), &report)
}

fn measure(site: &Site, time: Duration) -> Result<(Vec<Line>, Noise)> {
    println!("{VOLUMES} volumes on {NODES} nodes, each with a session");
    let mut sessions = begin(site)?;
    hold(&mut sessions, SETTLE)?;
    let processes = site.each_process()?;
    let used = || processes.iter().map(|(_, of)| of.cpu()).collect::<Result<Vec<_>>>();
    let (noise, before) = (Noise::begin()?, used()?);
    hold(&mut sessions, time)?;
    let spent: Vec<Duration> =
        used()?.into_iter().zip(before).map(|(now, then)| now.saturating_sub(then)).collect();
    let noise = noise.end(spent.iter().sum())?;
    let lines = processes.iter().zip(spent).map(|((name, of), cpu)| line(name, of, cpu, time));
    let lines = lines.collect::<Result<Vec<_>>>()?;
    (0..VOLUMES).try_for_each(|number| site.ensure_healthy(&volume(number)))?;
    sessions.into_iter().try_for_each(Session::end)?;
    Ok((lines, noise))
}

fn volume(number: u64) -> String {
    format!("volume-{number}")
}

/// Volumes that were written to once, each with its session; targets go round the nodes, and every
/// second session is NBD.
fn begin(site: &Site) -> Result<Vec<Session>> {
    let on = |number: u64, step: u64| (number + step) % NODES + 1;
    for number in 0..VOLUMES {
        let nodes: Vec<u64> = (0..NODES).map(|step| on(number, step)).collect();
        site.create(&volume(number), number, VOLUME, &nodes)?;
    }
    let content = Content::new();
    let mut rng = Rng::new(7);
    let mut sessions = Vec::new();
    for number in 0..VOLUMES {
        let wire = if number % 2 == 0 { Wire::Nbd } else { Wire::Iscsi };
        site.wait_healthy(&volume(number), 3)?;
        let server = site.server("pollux", wire, &volume(number), on(number, 0))?;
        let mut session = [server.connect(1, &content)?];
        drive(&mut session, paced(1), VOLUME, Until::Ios(1), &mut rng)
            .with_context(|| format!("writing to {}", volume(number)))?;
        sessions.extend(session);
    }
    Ok(sessions)
}

fn line(name: &str, processes: &Processes, cpu: Duration, time: Duration) -> Result<Line> {
    let memory = processes.memory()?;
    let cpu = cpu.as_secs_f64() * 100.0 / time.as_secs_f64();
    let has_goal = name != "catalog";
    Ok(Line {
        process: name.to_owned(),
        cpu,
        resident: memory.resident,
        share: memory.share,
        cpu_met: has_goal.then_some(cpu < CPU_GOAL),
        memory_met: has_goal.then_some(memory.resident < MEMORY_GOAL),
    })
}

fn shown(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["process", "% of a core", "goal", "RSS MiB", "PSS MiB", "goal"]);
    let mark = |met: Option<bool>, goal: String| match met {
        None => "-".to_owned(),
        Some(true) => format!("< {goal} met"),
        Some(false) => format!("< {goal} MISSED"),
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for line in lines {
        table.add_row([
            line.process.clone(),
            format!("{:.2}", line.cpu),
            mark(line.cpu_met, format!("{CPU_GOAL}")),
            format!("{:.1}", mib(line.resident)),
            format!("{:.1}", mib(line.share)),
            mark(line.memory_met, format!("{}", MEMORY_GOAL >> 20)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
