//! The control plane with many volumes: how fast they are made, asked for and listed, what the controller
//! keeps in memory, and how long a group is held for a snapshot.
//!
//! There is no peer to run beside it here; what is judged is growth: the last part of the volumes beside the first.
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use comfy_table::{CellAlignment, Table, presets};
use control::api::types::NewGroupSnapshot;
use rig::api::Api;
use rig::site::{MIB, Rig};
use serde::Serialize;

use super::Settings;
use super::arena::Arena;
use crate::place::{self, Machine};
use crate::table;

const NODES: usize = 3;
/// Each served volume has some room set aside in each of its pools, whatever is written.
const POOL: u64 = 16 << 30;
const VOLUME: u64 = 64 * MIB;
/// Callers at a time, as an orchestrator has them.
const CALLERS: usize = 10;
const PARTS: usize = 4;
const MEMBERS: usize = 8;
/// Of the median of holds.
const HOLD_GOAL: Duration = Duration::from_millis(20);

/// So many volumes more.
#[derive(Serialize)]
struct Line {
    volumes: usize,
    created_per_second: f64,
    create_p50_ms: f64,
    create_p99_ms: f64,
    get_p99_ms: f64,
    list_p99_ms: f64,
    resident: u64,
}

#[derive(Serialize)]
struct Report {
    area: &'static str,
    quick: bool,
    unix_seconds: u64,
    machine: Machine,
    lines: Vec<Line>,
    hold_p50_ms: f64,
    hold_p99_ms: f64,
    hold_goal_met: bool,
}

pub fn run(settings: &Settings) -> Result<()> {
    let count = if settings.quick { 200 } else { 1000 };
    let arena = Arena::open(settings.dir.as_deref())?;
    let machine = Machine::with(place::file_system(arena.folder())?);
    let folder = arena.folder().join("control");
    let mut rig = Rig::start_controlled(&folder, &[POOL; NODES], &["--overcommit", "100000"])?;
    let mut lines = Vec::new();
    for part in 0..PARTS {
        lines.push(grow(&mut rig, part, count / PARTS)?);
    }
    println!("{}", shown(&lines));
    let holds = hold(&rig.api()?, if settings.quick { 20 } else { 100 })?;
    let (hold_p50_ms, hold_p99_ms) = (percentile(&holds, 50), percentile(&holds, 99));
    let hold_goal_met = hold_p50_ms < HOLD_GOAL.as_secs_f64() * 1000.0;
    println!(
        "a group of {MEMBERS} idle volumes is held {hold_p50_ms:.1} ms at the median (goal: under {} ms, {}), \
         {hold_p99_ms:.1} ms at the 99th percentile",
        HOLD_GOAL.as_millis(),
        if hold_goal_met { "met" } else { "MISSED" },
    );
    let report = Report {
        area: "control",
        quick: settings.quick,
        unix_seconds: table::unix_seconds(),
        machine,
        lines,
        hold_p50_ms,
        hold_p99_ms,
        hold_goal_met,
    };
    table::save(settings.json.as_deref(), &report)
}

fn name(part: usize, caller: usize, number: usize) -> String {
    format!("volume-{part}-{caller}-{number}")
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}

fn grow(rig: &mut Rig, part: usize, count: usize) -> Result<Line> {
    let begun = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let api = rig.api()?;
            Ok(thread::spawn(move || -> Result<Vec<Duration>> {
                let create = |number| timed(|| api.create(&name(part, caller, number), VOLUME, 3));
                (0..count / CALLERS).map(create).collect()
            }))
        })
        .collect::<Result<_>>()?;
    let mut created = Vec::new();
    for caller in callers {
        created.extend(caller.join().map_err(|_| anyhow!("a caller panicked"))??);
    }
    let took = begun.elapsed();
    let api = rig.api()?;
    let get = |turn: usize| {
        let id = name(turn % (part + 1), turn % CALLERS, turn % (count / CALLERS));
        timed(|| Ok(api.ask(async |client| client.volume(&id).await)?))
    };
    let got: Vec<Duration> = (0..200).map(get).collect::<Result<_>>()?;
    let listed: Vec<Duration> = (0..50).map(|_| timed(|| list(&api))).collect::<Result<_>>()?;
    Ok(Line {
        volumes: (part + 1) * created.len(),
        created_per_second: created.len() as f64 / took.as_secs_f64(),
        create_p50_ms: percentile(&created, 50),
        create_p99_ms: percentile(&created, 99),
        get_p99_ms: percentile(&got, 99),
        list_p99_ms: percentile(&listed, 99),
        resident: rig.catalog().memory()?,
    })
}

/// All of them, part by part.
fn list(api: &Api) -> Result<usize> {
    let (mut after, mut count) = (String::new(), 0);
    loop {
        let page = api.ask(async |client| client.volumes(&after, 0).await)?;
        count += page.items.len();
        match page.next {
            Some(next) => after = next,
            None => return Ok(count),
        }
    }
}

/// How long writes waited for each of so many group snapshots.
fn hold(api: &Api, count: usize) -> Result<Vec<Duration>> {
    let volumes: Vec<String> = (0..MEMBERS).map(|caller| name(0, caller, 0)).collect();
    let take = |turn: usize| {
        let (name, volumes) = (format!("cut-{turn}"), volumes.clone());
        let wanted = NewGroupSnapshot { name, volumes, ..NewGroupSnapshot::default() };
        let whole = api.ask(async |client| client.create_group_snapshot(&wanted).await);
        Ok(Duration::from_micros(whole.context("a group snapshot")?.hold_us))
    };
    (0..count).map(take).collect()
}

fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

fn shown(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "volumes",
        "created / s",
        "create p50 ms",
        "create p99 ms",
        "get p99 ms",
        "list p99 ms",
        "RSS MiB",
    ]);
    for line in lines {
        table.add_row([
            line.volumes.to_string(),
            format!("{:.1}", line.created_per_second),
            format!("{:.1}", line.create_p50_ms),
            format!("{:.1}", line.create_p99_ms),
            format!("{:.2}", line.get_p99_ms),
            format!("{:.1}", line.list_p99_ms),
            format!("{:.1}", line.resident as f64 / MIB as f64),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
