//! What was measured, for people and for programs.
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::cost::{Round, Spread};
use crate::place::Machine;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    #[serde(rename = "IOPS")]
    Iops,
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// How long something took that happens once. Less is better.
    #[serde(rename = "s")]
    Seconds,
}

impl Unit {
    pub fn of(self, round: &Round) -> f64 {
        match self {
            Unit::Iops => round.per_second(),
            Unit::MegabytesPerSecond => round.megabytes_per_second(),
            Unit::Seconds => round.elapsed.as_secs_f64(),
        }
    }

    fn cpu_of(self, round: &Round) -> f64 {
        match self {
            Unit::Iops | Unit::MegabytesPerSecond => round.cpu_seconds_per_million(),
            Unit::Seconds => round.cpu.as_secs_f64(),
        }
    }

    /// One pair of rounds.
    pub fn pair(self, base: &Round, engine: &Round) -> String {
        let (base, engine) = (self.of(base), self.of(engine));
        let ratio = ratio_shown(engine / base);
        format!("{} of {} {}: {ratio}", self.shown(engine), self.shown(base), self.name())
    }

    pub fn shown(self, value: f64) -> String {
        match self {
            Unit::Iops | Unit::MegabytesPerSecond => format!("{value:.0}"),
            Unit::Seconds => format!("{value:.3}"),
        }
    }

    fn cpu_shown(self, seconds: f64) -> String {
        match self {
            Unit::Iops | Unit::MegabytesPerSecond => format!("{seconds:.1}"),
            Unit::Seconds => format!("{seconds:.3}"),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Unit::Iops => "IOPS",
            Unit::MegabytesPerSecond => "MB/s",
            Unit::Seconds => "s",
        }
    }
}

/// Something else that was found out on the way, on both sides where both have it.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub name: &'static str,
    pub unit: &'static str,
    pub base: Option<f64>,
    pub engine: f64,
}

impl Figure {
    pub fn pair(name: &'static str, unit: &'static str, base: f64, engine: f64) -> Figure {
        Figure { name, unit, base: Some(base), engine }
    }

    pub fn alone(name: &'static str, unit: &'static str, engine: f64) -> Figure {
        Figure { name, unit, base: None, engine }
    }
}

/// A line of the table: medians of all pairs of rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub name: &'static str,
    /// What the base is: a raw file, or a pool in other circumstances.
    pub against: &'static str,
    pub base: f64,
    pub engine: f64,
    pub unit: Unit,
    pub ratio_median: f64,
    pub ratio_min: f64,
    pub ratio_max: f64,
    pub goal: Option<f64>,
    pub met: Option<bool>,
    /// Seconds of processor time: per million IOs, or of the whole where the unit is seconds.
    pub cpu_base: f64,
    pub cpu_engine: f64,
    pub figures: Vec<Figure>,
}

impl Line {
    /// The pairs are (base, engine).
    pub fn of(
        name: &'static str,
        against: &'static str,
        unit: Unit,
        pairs: &[(Round, Round)],
    ) -> Line {
        let median = |of: fn(&(Round, Round)) -> &Round, what: &dyn Fn(&Round) -> f64| {
            Spread::of(pairs.iter().map(|pair| what(of(pair)))).median
        };
        let ratio = Spread::of(pairs.iter().map(|(base, engine)| unit.of(engine) / unit.of(base)));
        Line {
            name,
            against,
            base: median(|pair| &pair.0, &|round| unit.of(round)),
            engine: median(|pair| &pair.1, &|round| unit.of(round)),
            unit,
            ratio_median: ratio.median,
            ratio_min: ratio.min,
            ratio_max: ratio.max,
            goal: None,
            met: None,
            cpu_base: median(|pair| &pair.0, &|round| unit.cpu_of(round)),
            cpu_engine: median(|pair| &pair.1, &|round| unit.cpu_of(round)),
            figures: Vec::new(),
        }
    }

    /// The ratio that it is to have at the least.
    pub fn with_goal(mut self, goal: Option<f64>) -> Line {
        self.goal = goal;
        self.met = goal.map(|goal| self.ratio_median >= goal);
        self
    }

    pub fn with_figures(mut self, figures: Vec<Figure>) -> Line {
        self.figures = figures;
        self
    }

    /// One line while the rest is still being measured.
    pub fn shown(&self) -> String {
        let cpu = match self.unit {
            Unit::Iops | Unit::MegabytesPerSecond => "s per million",
            Unit::Seconds => "s",
        };
        format!(
            "median {} of {} {} ({}), ratio {} ({}..{}), cpu {} beside {} {cpu}",
            self.unit.shown(self.engine),
            self.unit.shown(self.base),
            self.unit.name(),
            self.against,
            ratio_shown(self.ratio_median),
            ratio_shown(self.ratio_min),
            ratio_shown(self.ratio_max),
            self.unit.cpu_shown(self.cpu_engine),
            self.unit.cpu_shown(self.cpu_base),
        )
    }
}

/// A line that could not be measured here.
#[derive(Clone, Debug, Serialize)]
pub struct Refusal {
    pub name: &'static str,
    pub why: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub area: &'static str,
    pub quick: bool,
    pub unix_seconds: u64,
    pub machine: Machine,
    pub lines: Vec<Line>,
    pub refused: Vec<Refusal>,
}

pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

pub fn save(path: Option<&Path>, report: &impl Serialize) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(report)? + "\n";
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

pub fn table(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "line",
        "against",
        "unit",
        "base",
        "engine",
        "ratio",
        "spread",
        "goal",
        "met?",
        "cpu base",
        "cpu engine",
    ]);
    for line in lines {
        table.add_row([
            line.name.to_owned(),
            line.against.to_owned(),
            line.unit.name().to_owned(),
            line.unit.shown(line.base),
            line.unit.shown(line.engine),
            ratio_shown(line.ratio_median),
            format!("{}..{}", ratio_shown(line.ratio_min), ratio_shown(line.ratio_max)),
            line.goal.map_or_else(|| "-".into(), |goal| format!("{goal:.1}")),
            match line.met {
                None => "-",
                Some(true) => "yes",
                Some(false) => "no",
            }
            .to_owned(),
            line.unit.cpu_shown(line.cpu_base),
            line.unit.cpu_shown(line.cpu_engine),
        ]);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What was found out beside the ratios.
pub fn figures(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["line", "figure", "unit", "base", "engine"]);
    for line in lines {
        for Figure { name, unit, base, engine } in &line.figures {
            table.add_row([
                line.name.to_owned(),
                (*name).to_owned(),
                (*unit).to_owned(),
                base.map_or_else(|| "-".into(), sized),
                sized(*engine),
            ]);
        }
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn ratio_shown(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

/// With as many decimals as a number of this size deserves.
fn sized(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 100.0 || value.fract() == 0.0 => 0,
        middle if middle >= 10.0 => 1,
        small if small >= 0.1 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}")
}
