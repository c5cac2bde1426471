//! Public conformance suites: the contract with others.
mod csi;
mod guest;
mod iscsi;
mod nbd;
mod site;
pub mod tools;
mod wire;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::report::Report;
use crate::shell;
use crate::totals::Totals;

/// The suites that exist. A name is added here together with the code that installs and runs it.
pub const SUITES: [Suite; 5] = [
    Suite { name: "nbd", against: Against::Site, run: nbd::run },
    Suite { name: "iscsi", against: Against::Site, run: iscsi::run },
    Suite { name: "guest", against: Against::Site, run: guest::run },
    Suite { name: "csi", against: Against::Site, run: csi::run },
    Suite { name: "wire", against: Against::Definitions, run: wire::run },
];

pub struct Suite {
    pub name: &'static str,
    against: Against,
    pub run: fn(&str) -> Result<Totals>,
}

#[derive(PartialEq, Eq)]
enum Against {
    /// Processes of ours, which are built first.
    Site,
    Definitions,
}

#[derive(clap::Args)]
pub struct Options {
    /// The suite to run: nbd, iscsi, guest, csi or wire
    suite: String,
    /// How `guest` calls itself once more, in namespaces of its own
    #[arg(long, hide = true)]
    inside: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let suite = SUITES.iter().find(|suite| suite.name == options.suite);
    let Some(suite) = suite else { bail!("{}", unknown(&options.suite)) };
    if options.inside {
        return guest::inside();
    }
    let mut report = Report::new("conformance");
    if suite.against == Against::Site {
        let build = shell::cargo("build -p pollux --locked");
        report.step("build", |log| Ok(build.run(log)?.as_check()));
    }
    report.step(suite.name, suite.run);
    report.finish()
}

fn unknown(suite: &str) -> String {
    let known: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
    format!("there is no conformance suite `{suite}`; known: {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_suite_is_refused_with_the_known_ones() {
        let suite = "nonsense".to_owned();
        assert!(run(&Options { suite, inside: false }).is_err());
        assert!(unknown("nonsense").ends_with("known: nbd, iscsi, guest, csi, wire"));
    }
}
