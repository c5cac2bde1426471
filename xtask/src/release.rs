//! Planted faults must not ship.
//!
//! The engine's feature `faults` compiles in switches that break it on purpose, so that the
//! simulator can show that it would notice. Each carries a marker string. A release must have
//! neither feature nor marker, and both ways of looking are tried on a build that does have them.
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::shell;
use crate::totals::Totals;

const MARKER: &[u8] = b"POLLUX-PLANTED-FAULT";

const SHIPPED: &str = "build --release -p pollux --locked";
const PLANTED: &str = "build -p engine --features faults --example planted --locked";

/// `-i` lists every feature that is on, whoever asked for it. The forward tree would not name
/// those that the command line asked for.
const FEATURES: &str = "tree -p pollux -e normal,features -i engine --prefix none --locked";

pub fn check(log: &str) -> Result<Totals> {
    let mut totals = Totals::default();
    let mut expect = |what: &str, holds: bool| {
        println!("{what}: {}", if holds { "ok" } else { "FAILED" });
        totals += Totals::of_check(holds);
    };
    expect("the check sees a marker where one is", has_marker(&build(PLANTED, "planted", log)?)?);
    expect("the released binary has no marker", !has_marker(&build(SHIPPED, "pollux", log)?)?);
    let with_faults = format!("{FEATURES} --features engine/faults");
    expect("the check sees the feature where it is on", has_faults(&with_faults, log)?);
    expect("the released binary is without the feature", !has_faults(FEATURES, log)?);
    Ok(totals)
}

/// Builds, and returns the path of the executable as cargo tells it: never a stale or a guessed
/// one.
fn build(command: &str, name: &str, log: &str) -> Result<PathBuf> {
    let built = shell::cargo(command)
        .arg("--message-format=json-render-diagnostics")
        .keep_output()
        .run(log)?;
    ensure!(built.exited_well, "`cargo {command}` failed");
    executable(&built.stdout, name).with_context(|| format!("`cargo {command}` made no {name}"))
}

fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

fn has_marker(binary: &Path) -> Result<bool> {
    let bytes = fs::read(binary).with_context(|| format!("reading {}", binary.display()))?;
    Ok(contains(&bytes, MARKER))
}

fn contains(bytes: &[u8], marker: &[u8]) -> bool {
    bytes.windows(marker.len()).any(|window| window == marker)
}

fn has_faults(command: &str, log: &str) -> Result<bool> {
    let tree = shell::cargo(command).keep_output().run(log)?;
    ensure!(tree.exited_well, "`cargo {command}` failed");
    lists_faults(&tree.stdout)
}

/// A tree that does not name the engine at all is no answer: the question was asked wrongly.
fn lists_faults(tree: &str) -> Result<bool> {
    let mut lines = tree.lines();
    ensure!(
        lines.clone().any(|line| line.starts_with("engine v")),
        "the feature tree does not name the engine"
    );
    Ok(lines.any(|line| line.starts_with("engine feature \"faults\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_found_anywhere_and_only_where_it_is() {
        assert!(contains(b"..POLLUX-PLANTED-FAULT", MARKER));
        assert!(contains(b"POLLUX-PLANTED-FAULT..", MARKER));
        assert!(!contains(b"POLLUX-PLANTED-FAUL", MARKER));
        assert!(!contains(b"", MARKER));
    }

    #[test]
    fn the_executable_is_the_one_that_cargo_names() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"engine"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"planted"},"executable":"/t/examples/planted"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "planted"), Some("/t/examples/planted".into()));
        assert_eq!(executable(messages, "pollux"), None);
    }

    #[test]
    fn a_feature_that_is_on_is_seen() {
        let off = "engine v0.1.0 (/p/crates/engine)\nengine feature \"default\"\n";
        assert!(!lists_faults(off).unwrap());
        let on = format!("{off}engine feature \"faults\" (command-line)\n");
        assert!(lists_faults(&on).unwrap());
        assert!(lists_faults("sim v0.1.0\n").is_err());
    }
}
