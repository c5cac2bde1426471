//! Public conformance suites: the contract with others.
mod iscsi;
mod nbd;
mod site;
mod tools;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::report::Report;
use crate::shell;
use crate::totals::Totals;

/// The suites that exist. A name is added here together with the code that installs and runs it.
pub const SUITES: [(&str, Suite); 2] = [("nbd", nbd::run), ("iscsi", iscsi::run)];

type Suite = fn(&str) -> Result<Totals>;

#[derive(clap::Args)]
pub struct Options {
    /// The suite to run: nbd or iscsi
    suite: String,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let suite = SUITES.iter().find(|(name, _)| *name == options.suite);
    let Some((name, suite)) = suite else { bail!("{}", unknown(&options.suite)) };
    let mut report = Report::new("conformance");
    report.step("build", |log| Ok(shell::cargo("build -p pollux --locked").run(log)?.as_check()));
    report.step(name, suite);
    report.finish()
}

fn unknown(suite: &str) -> String {
    let known: Vec<&str> = SUITES.iter().map(|(name, _)| *name).collect();
    format!("there is no conformance suite `{suite}`; known: {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_suite_is_refused_with_the_known_ones() {
        let suite = "csi".to_owned();
        assert!(run(&Options { suite }).is_err());
        assert!(unknown("csi").ends_with("known: nbd, iscsi"));
    }
}
