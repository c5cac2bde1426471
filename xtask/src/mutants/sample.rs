//! The mutants of some crates, and a sample of them that a seed decides.
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::shell;

#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    pub name: String,
    pub package: String,
    pub file: String,
    pub diff: String,
    pub function: Option<Function>,
    /// What `replacement` stands for.
    pub span: Span,
    pub replacement: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Function {
    /// From its comment to its last brace.
    pub span: Span,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Span {
    pub start: Place,
    pub end: Place,
}

/// Both are counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

impl Mutant {
    /// The change as git takes it: the tool names the change where a diff has the new file.
    pub fn patch(&self) -> String {
        let hunks = self.diff.lines().skip(2).map(|line| format!("{line}\n"));
        format!("--- a/{0}\n+++ b/{0}\n{1}", self.file, hunks.collect::<String>())
    }
}

/// Where `cargo-mutants` is; it is installed if it is missing.
pub fn tool() -> Result<PathBuf> {
    let known = shell::program("cargo-mutants", "mutants --version").keep_output().run("mutants");
    if known.is_ok_and(|finished| finished.exited_well) {
        return Ok("cargo-mutants".into());
    }
    let root = shell::target().join("tools");
    let tool = root.join("bin/cargo-mutants");
    if !tool.exists() {
        let install = shell::cargo("install --locked cargo-mutants --root");
        let finished = install.arg(&root.display().to_string()).run("mutants")?;
        ensure!(finished.exited_well, "cargo-mutants cannot be installed");
    }
    Ok(tool)
}

pub fn list(tool: &Path, tree: &Path, crates: &[String]) -> Result<Vec<Mutant>> {
    let mut command =
        shell::program(&tool.display().to_string(), "mutants --list --json --diff --no-config");
    for name in crates {
        command = command.arg("--package").arg(name);
    }
    let finished = command.at(tree).keep_output().run("mutants")?;
    ensure!(finished.exited_well, "cargo-mutants does not list its mutants");
    serde_json::from_str(&finished.stdout).context("the list of mutants")
}

/// SplitMix64: small, and any seed is a good one.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((word ^ (word >> 31)) % end as u64).expect("below a usize")
    }
}

/// So many of them, each with the same chance.
pub fn draw(mut all: Vec<Mutant>, count: usize, seed: u64) -> Vec<Mutant> {
    let mut rng = Rng(seed);
    let count = count.min(all.len());
    for at in 0..count {
        let other = at + rng.below(all.len() - at);
        all.swap(at, other);
    }
    all.truncate(count);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(count: usize) -> Vec<Mutant> {
        let mutant = |at| Mutant {
            name: format!("m{at}"),
            package: "engine".into(),
            file: "src/lib.rs".into(),
            diff: "--- src/lib.rs\n+++ replace f with ()\n@@ -1,1 +1,1 @@\n-f()\n+()\n".into(),
            function: None,
            span: Span { start: Place { line: 1, column: 1 }, end: Place { line: 1, column: 4 } },
            replacement: "()".into(),
        };
        (0..count).map(mutant).collect()
    }

    #[test]
    fn a_seed_draws_the_same_sample_and_none_twice() {
        let names = |seed| -> Vec<String> {
            draw(mutants(100), 30, seed).into_iter().map(|mutant| mutant.name).collect()
        };
        assert_eq!(names(7), names(7));
        assert_ne!(names(7), names(8));
        let mut once = names(7);
        once.sort();
        once.dedup();
        assert_eq!(once.len(), 30);
        assert_eq!(draw(mutants(3), 30, 1).len(), 3);
    }

    #[test]
    fn a_patch_names_its_file_twice() {
        let patch = mutants(1)[0].patch();
        assert_eq!(patch, "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1,1 +1,1 @@\n-f()\n+()\n");
    }
}
