//! Public conformance suites: the contract with others.
use std::process::ExitCode;

use anyhow::{Result, bail};

/// The suites that exist. A name is added here together with the code that installs and runs it.
const SUITES: [&str; 0] = [];

#[derive(clap::Args)]
pub struct Options {
    /// The suite to run
    suite: String,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    bail!("{}", unknown(&options.suite, &SUITES))
}

fn unknown(suite: &str, known: &[&str]) -> String {
    match known {
        [] => format!("there is no conformance suite `{suite}`: none exists yet"),
        known => format!("there is no conformance suite `{suite}`; known: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_suite_is_refused_with_the_known_ones() {
        let suite = "csi".to_owned();
        assert!(run(&Options { suite }).is_err());
        assert!(unknown("csi", &[]).contains("none exists"));
        assert!(unknown("csi", &["nbd", "iscsi"]).ends_with("known: nbd, iscsi"));
    }
}
