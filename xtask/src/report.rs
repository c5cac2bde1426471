//! What a verb leaves behind: a table, one summary line, and a JSON file.
use std::fs;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::shell;
use crate::totals::Totals;

#[derive(Debug, Serialize)]
struct Step {
    name: String,
    seconds: f64,
    #[serde(flatten)]
    totals: Totals,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Report {
    verb: &'static str,
    /// Seconds since 1970.
    started: u64,
    steps: Vec<Step>,
    totals: Totals,
}

impl Report {
    pub fn new(verb: &'static str) -> Report {
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        Report {
            verb,
            started: started.map_or(0, |since| since.as_secs()),
            steps: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Runs one step and books what came of it. A step that could not be run is a failure, and
    /// the steps after it still run: one report tells all that is wrong. The step is handed the
    /// name of its log.
    pub fn step(&mut self, name: &str, run: impl FnOnce(&str) -> Result<Totals>) {
        println!("\n== {name}");
        let begun = Instant::now();
        let log = format!("{}-{name}", self.verb);
        let outcome = shell::clear_log(&log).and_then(|()| run(&log));
        let (totals, error) = match outcome {
            Ok(totals) => (totals, None),
            Err(error) => {
                eprintln!("error: {error:#}");
                (Totals::of_check(false), Some(format!("{error:#}")))
            }
        };
        self.totals += totals;
        self.steps.push(Step {
            name: name.to_owned(),
            seconds: begun.elapsed().as_secs_f64(),
            totals,
            error,
        });
    }

    /// Prints the table and the summary line, writes the JSON, and says how to exit.
    pub fn finish(self) -> Result<ExitCode> {
        let path = shell::reports()?.join(format!("{}.json", self.verb));
        fs::write(&path, serde_json::to_string_pretty(&self)? + "\n")
            .with_context(|| format!("writing {}", path.display()))?;
        println!("\n{}\n{}", self.table(), self.totals);
        Ok(match self.totals.is_success() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }

    fn table(&self) -> String {
        let width = self.steps.iter().map(|step| step.name.len()).max();
        let width = width.unwrap_or(0).max("total".len());
        let row = |name: &str, seconds: f64, totals: Totals| {
            let minutes = seconds / 60.0;
            let Totals { passed, failed, skipped } = totals;
            let status = match totals.is_success() {
                true => "ok",
                false if failed == 0 && skipped > 0 => "SKIPPED",
                false => "FAILED",
            };
            format!(
                "{name:width$}  {minutes:>7.1}  {status:7}  {passed:>6}  {failed:>6}  {skipped:>7}\n"
            )
        };
        let mut table = format!("{:width$}  minutes  status   passed  failed  skipped\n", "step");
        for step in &self.steps {
            table += &row(&step.name, step.seconds, step.totals);
        }
        let seconds = self.steps.iter().map(|step| step.seconds).sum();
        table + &row("total", seconds, self.totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, seconds: f64, totals: Totals) -> Step {
        Step { name: name.into(), seconds, totals, error: None }
    }

    #[test]
    fn the_table_shows_every_step_and_their_sum() {
        let tests = Totals { passed: 41, failed: 1, skipped: 2 };
        let mut totals = Totals::of_check(true);
        totals += tests;
        let report = Report {
            verb: "ci",
            started: 0,
            steps: vec![
                step("fmt", 6.0, Totals::of_check(true)),
                step("test", 90.0, tests),
                step("wire", 0.0, Totals { skipped: 1, ..Totals::default() }),
            ],
            totals,
        };
        assert_eq!(
            report.table(),
            "step   minutes  status   passed  failed  skipped\n\
             fmt        0.1  ok            1       0        0\n\
             test       1.5  FAILED       41       1        2\n\
             wire       0.0  SKIPPED       0       0        1\n\
             total      1.6  FAILED       42       1        2\n"
        );
    }
}
