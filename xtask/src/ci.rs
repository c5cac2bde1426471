//! Everything that must hold before a change lands, in the order of what is cheapest to know.
use std::process::ExitCode;

use anyhow::Result;

use crate::report::Report;
use crate::totals::Totals;
use crate::{conformance, fuzz, release, shell};

/// The same words as in the README, so that what is promised there is what is tested here.
const TEST: &str = "test --workspace --locked";

/// What tests with file systems and databases run, and the packages that have it.
const TOOLS: [conformance::tools::Tool; 8] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("blkid", "util-linux"),
    ("losetup", "mount"),
    ("unshare", "util-linux"),
    ("fstrim", "util-linux"),
    ("sqlite3", "sqlite3"),
];

/// Enough to notice a decoder that broke; `cargo xtask fuzz` looks longer.
const FUZZ_SECONDS: u64 = 10;

pub fn run() -> Result<ExitCode> {
    let mut report = Report::new("ci");
    report.step("fmt", |log| Ok(shell::cargo("fmt --all --check").run(log)?.as_check()));
    report.step("clippy", |log| {
        let clippy = shell::cargo("clippy --workspace --all-targets --locked -- -D warnings");
        Ok(clippy.run(log)?.as_check())
    });
    report.step("tools", |log| {
        // Without them tests say what they skip.
        Ok(match conformance::tools::install(&TOOLS, log) {
            Ok(()) => Totals { passed: 1, ..Totals::default() },
            Err(error) => {
                println!("SKIPPED: tests with mounts and databases: {error:#}");
                Totals { skipped: 1, ..Totals::default() }
            }
        })
    });
    report.step("test", |log| Ok(shell::cargo(TEST).run(log)?.as_tests()));
    for suite in conformance::SUITES {
        report.step(&format!("conformance-{}", suite.name), suite.run);
    }
    report.step("release-check", release::check);
    if fuzz::exists() {
        report.step("fuzz", |log| fuzz::decoders(FUZZ_SECONDS, log));
    }
    report.finish()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_readme_names_the_command_that_is_run_here() {
        let readme = include_str!("../../README.md");
        assert!(readme.contains(&format!("cargo {}\n", super::TEST)));
    }
}
