//! Looking for damage.
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use comfy_table::Table;
use engine::check::{Depth, Report, check};
use serde::Serialize;

use crate::offline::{about, open_to_read};
use crate::render::{self, Answer, Output};

#[derive(Debug, Serialize)]
struct CheckAnswer {
    path: String,
    data_read: bool,
    volumes: u64,
    /// Also those that are deleted and not dropped yet.
    snapshots: u64,
    map_pages: u64,
    blocks: u64,
    used_sectors: u64,
    free_sectors: u64,
    journal_slots: u64,
    problems: Vec<String>,
    /// Those that are not listed.
    more_problems: u64,
}

impl CheckAnswer {
    fn new(path: &Path, data: bool, report: Report) -> CheckAnswer {
        CheckAnswer {
            path: path.display().to_string(),
            data_read: data,
            volumes: report.volumes,
            snapshots: report.snapshots,
            map_pages: report.map_pages,
            blocks: report.blocks,
            used_sectors: report.used_sectors,
            free_sectors: report.free_sectors,
            journal_slots: report.journal_slots,
            problems: report.problems,
            more_problems: report.more_problems,
        }
    }

    fn problem_count(&self) -> u64 {
        self.problems.len() as u64 + self.more_problems
    }
}

impl Answer for CheckAnswer {
    fn table(&self) -> Table {
        let read = if self.data_read { "read and compared" } else { "not read: --data does" };
        let verdict = match self.problem_count() {
            0 => "no problem".to_owned(),
            count => format!("{count} problems"),
        };
        let mut table = render::facts([
            ("pool", self.path.clone()),
            ("volumes", self.volumes.to_string()),
            ("snapshots", self.snapshots.to_string()),
            ("map pages", self.map_pages.to_string()),
            ("blocks", format!("{}, {read}", self.blocks)),
            ("sectors used", self.used_sectors.to_string()),
            ("sectors free", self.free_sectors.to_string()),
            ("journal slots", format!("{} to replay", self.journal_slots)),
            ("verdict", verdict),
        ]);
        for problem in &self.problems {
            table.add_row(["problem", problem]);
        }
        if self.more_problems > 0 {
            table.add_row(["problem".to_owned(), format!("and {} more", self.more_problems)]);
        }
        table
    }
}

pub fn run(path: &Path, data: bool, output: Output) -> Result<ExitCode> {
    let depth = if data { Depth::Data } else { Depth::Structure };
    let mut disk = open_to_read(path)?;
    let report = check(&mut disk, depth).map_err(|error| about(path, error))?;
    let answer = CheckAnswer::new(path, data, report);
    render::show(&answer, output)?;
    match answer.problem_count() {
        0 => Ok(ExitCode::SUCCESS),
        count => Err(about(
            path,
            format!("the check found {count} problems; rebuild this pool from a good copy"),
        )),
    }
}
