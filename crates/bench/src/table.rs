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
}

impl Unit {
    fn of(self, round: &Round) -> f64 {
        match self {
            Unit::Iops => round.per_second(),
            Unit::MegabytesPerSecond => round.megabytes_per_second(),
        }
    }

    /// One pair of rounds.
    pub fn pair(self, raw: &Round, engine: &Round) -> String {
        let (raw, engine, name) = (self.of(raw), self.of(engine), self.name());
        format!("{engine:.0} of {raw:.0} {name}: {:.2}", engine / raw)
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Iops => "IOPS",
            Unit::MegabytesPerSecond => "MB/s",
        }
    }
}

/// A line of the table: medians of all pairs of rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub name: &'static str,
    pub raw: f64,
    pub engine: f64,
    pub unit: Unit,
    pub ratio_median: f64,
    pub ratio_min: f64,
    pub ratio_max: f64,
    pub goal: Option<f64>,
    pub met: Option<bool>,
    /// Seconds of processor time per million IOs.
    pub cpu_raw: f64,
    pub cpu_engine: f64,
}

impl Line {
    /// The pairs are (raw, engine).
    pub fn of(name: &'static str, unit: Unit, goal: Option<f64>, pairs: &[(Round, Round)]) -> Line {
        let median = |of: fn(&(Round, Round)) -> &Round, what: &dyn Fn(&Round) -> f64| {
            Spread::of(pairs.iter().map(|pair| what(of(pair)))).median
        };
        let ratio = Spread::of(pairs.iter().map(|(raw, engine)| unit.of(engine) / unit.of(raw)));
        Line {
            name,
            raw: median(|pair| &pair.0, &|round| unit.of(round)),
            engine: median(|pair| &pair.1, &|round| unit.of(round)),
            unit,
            ratio_median: ratio.median,
            ratio_min: ratio.min,
            ratio_max: ratio.max,
            goal,
            met: goal.map(|goal| ratio.median >= goal),
            cpu_raw: median(|pair| &pair.0, &Round::cpu_seconds_per_million),
            cpu_engine: median(|pair| &pair.1, &Round::cpu_seconds_per_million),
        }
    }

    /// One line while the rest is still being measured.
    pub fn shown(&self) -> String {
        format!(
            "median {:.0} of {:.0} {}, ratio {:.2} ({:.2}..{:.2}), cpu {:.1} beside {:.1} s per million",
            self.engine,
            self.raw,
            self.unit.name(),
            self.ratio_median,
            self.ratio_min,
            self.ratio_max,
            self.cpu_engine,
            self.cpu_raw,
        )
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub area: &'static str,
    pub quick: bool,
    pub unix_seconds: u64,
    pub machine: Machine,
    pub lines: Vec<Line>,
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
        "unit",
        "raw",
        "engine",
        "ratio",
        "spread",
        "goal",
        "met?",
        "cpu raw",
        "cpu engine",
    ]);
    for line in lines {
        table.add_row([
            line.name.to_owned(),
            line.unit.name().to_owned(),
            format!("{:.0}", line.raw),
            format!("{:.0}", line.engine),
            format!("{:.2}", line.ratio_median),
            format!("{:.2}..{:.2}", line.ratio_min, line.ratio_max),
            line.goal.map_or_else(|| "-".into(), |goal| format!("{goal:.1}")),
            match line.met {
                None => "-",
                Some(true) => "yes",
                Some(false) => "no",
            }
            .to_owned(),
            format!("{:.1}", line.cpu_raw),
            format!("{:.1}", line.cpu_engine),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
