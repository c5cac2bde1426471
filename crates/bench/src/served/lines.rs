//! What was found out about servers, for people and for programs.
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::comparison::{Goals, Measured, name};
use super::noise::Noise;
use super::points::Point;
use super::slow_replica;
use crate::cost::Spread;
use crate::table::Unit;

/// One point, ours beside one other: medians of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub name: String,
    pub against: &'static str,
    pub unit: Unit,
    pub other: f64,
    pub ours: f64,
    /// Of rounds that ran after each other: ours by the other's.
    pub ratio: Spread,
    pub goal: f64,
    pub met: bool,
    /// Seconds of processor time of all server processes per million IOs.
    pub cpu_other: f64,
    pub cpu_ours: f64,
    pub cpu_ratio: Spread,
    pub cpu_goal: Option<f64>,
    pub cpu_met: Option<bool>,
    pub latency_other: Latency,
    pub latency_ours: Latency,
    pub noise_max: Noise,
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
}

impl Latency {
    pub fn of(rounds: &[Measured]) -> Latency {
        let median = |of: fn(&Measured) -> f64| Spread::of(rounds.iter().map(of)).median;
        Latency { p50: median(|round| round.p50), p99: median(|round| round.p99) }
    }

    fn shown(&self) -> String {
        format!("{:.3} {:.3}", self.p50, self.p99)
    }
}

impl Line {
    pub fn of(
        (part, point): (&str, &Point),
        against: &'static str,
        goals: Goals,
        ours: &[Measured],
        other: &[Measured],
    ) -> Line {
        let speed = |measured: &Measured| point.unit.of(&measured.round);
        let cpu = |measured: &Measured| measured.round.cpu_seconds_per_million();
        let median = |rounds: &[Measured], of: &dyn Fn(&Measured) -> f64| {
            Spread::of(rounds.iter().map(of)).median
        };
        let ratio = |of: &dyn Fn(&Measured) -> f64| {
            Spread::of(ours.iter().zip(other).map(|(ours, other)| of(ours) / of(other)))
        };
        let (speeds, cpus) = (ratio(&speed), ratio(&cpu));
        Line {
            name: name(part, point),
            against,
            unit: point.unit,
            other: median(other, &speed),
            ours: median(ours, &speed),
            ratio: speeds,
            goal: goals.speed,
            met: speeds.median >= goals.speed,
            cpu_other: median(other, &cpu),
            cpu_ours: median(ours, &cpu),
            cpu_ratio: cpus,
            cpu_goal: goals.cpu,
            cpu_met: goals.cpu.map(|goal| cpus.median <= goal),
            latency_other: Latency::of(other),
            latency_ours: Latency::of(ours),
            noise_max: Noise::max(ours.iter().chain(other).map(|measured| measured.noise)),
        }
    }

    /// One line while the rest is still being measured.
    pub fn shown(&self) -> String {
        format!(
            "{}: {} of {}'s {} {}, ratio {:.2} ({:.2}..{:.2}), cpu {:.1} beside {:.1}",
            self.name,
            self.unit.shown(self.ours),
            self.against,
            self.unit.shown(self.other),
            self.unit.name(),
            self.ratio.median,
            self.ratio.min,
            self.ratio.max,
            self.cpu_ours,
            self.cpu_other,
        )
    }
}

fn mark(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

pub fn table(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "line",
        "against",
        "unit",
        "other",
        "ours",
        "ratio",
        "spread",
        "goal",
        "cpu s/M other",
        "ours",
        "ratio",
        "goal",
        "p50 p99 ms other",
        "ours",
        "noise %",
    ]);
    for line in lines {
        let cpu_goal = line.cpu_goal.zip(line.cpu_met);
        table.add_row([
            line.name.clone(),
            line.against.to_owned(),
            line.unit.name().to_owned(),
            line.unit.shown(line.other),
            line.unit.shown(line.ours),
            format!("{:.2}", line.ratio.median),
            format!("{:.2}..{:.2}", line.ratio.min, line.ratio.max),
            format!("{:.1} {}", line.goal, mark(line.met)),
            format!("{:.1}", line.cpu_other),
            format!("{:.1}", line.cpu_ours),
            format!("{:.2}", line.cpu_ratio.median),
            cpu_goal.map_or_else(|| "-".into(), |(goal, met)| format!("{goal:.1} {}", mark(met))),
            line.latency_other.shown(),
            line.latency_ours.shown(),
            line.noise_max.shown(),
        ]);
    }
    right(table, 3)
}

pub fn slow_table(lines: &[slow_replica::Line]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "line",
        "asked/s",
        "done/s without",
        "with",
        "p50 p99 ms without",
        "with",
        "p99 ratio",
        "spread",
        "goal",
        "noise %",
    ]);
    for line in lines {
        let verdict = if line.kept_up() { mark(line.met) } else { "MISSED, did not keep up" };
        table.add_row([
            line.name.clone(),
            line.asked_per_second.to_string(),
            format!("{:.0}", line.near_per_second),
            format!("{:.0}", line.far_per_second),
            line.near.shown(),
            line.far.shown(),
            format!("{:.2}", line.ratio.median),
            format!("{:.2}..{:.2}", line.ratio.min, line.ratio.max),
            format!("{:.1} {verdict}", line.goal),
            line.noise_max.shown(),
        ]);
    }
    right(table, 1)
}

fn right(mut table: Table, from: usize) -> Table {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
