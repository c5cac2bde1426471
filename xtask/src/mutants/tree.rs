//! A checkout in which sources may be changed, with builds of its own.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::Fate;
use super::combine::{self, CHOICE, CHOOSER, Combined};
use super::plan::{self, CRATES, Suite};
use super::sample::Mutant;
use crate::shell::{self, Ended};

pub struct Tree {
    pub path: PathBuf,
    builds: PathBuf,
    /// How many suites of a crate are run.
    suites_max: usize,
    /// What suites take that pass, with everything built.
    takes: BTreeMap<&'static str, Duration>,
}

/// A mutant that was built beside others is chosen by its number.
#[derive(Clone, Copy)]
enum Built {
    Beside { number: usize },
    Alone,
}

pub fn git(at: &Path, words: &str) -> Result<String> {
    let finished = shell::program("git", words).at(at).keep_output().run("mutants")?;
    ensure!(finished.exited_well, "git {words} failed");
    Ok(finished.stdout)
}

impl Tree {
    pub fn at_head(suites_max: usize) -> Result<Tree> {
        let folder = shell::target().join("mutants");
        let (path, builds) = (folder.join("tree"), folder.join("builds"));
        if path.join(".git").exists() {
            let head = git(&shell::root(), "rev-parse HEAD")?;
            git(&path, &format!("checkout --quiet --force --detach {}", head.trim()))?;
        } else {
            git(&shell::root(), "worktree prune")?;
            let add = format!("worktree add --quiet --force --detach {} HEAD", path.display());
            git(&shell::root(), &add)?;
        }
        fs::create_dir_all(&builds).context("making a folder for builds")?;
        Ok(Tree { path, builds, suites_max, takes: BTreeMap::new() })
    }

    fn restore(&self) -> Result<()> {
        git(&self.path, "checkout --quiet -- .").map(|_| ())
    }

    /// Brings as many mutants as can be built together into the sources, and tells which.
    pub fn combine(&self, sample: &[Mutant]) -> Result<BTreeSet<usize>> {
        let mut numbers: BTreeSet<usize> = (0..sample.len()).collect();
        loop {
            let files = self.write_combined(sample, &numbers)?;
            let refused: BTreeSet<usize> =
                files.values().flat_map(|it| it.left_out.iter().copied()).collect();
            numbers.retain(|number| !refused.contains(number));
            let blamed = self.check_combined(&files)?;
            if blamed.is_empty() {
                return Ok(numbers);
            }
            numbers.retain(|number| !blamed.contains(number));
        }
    }

    fn write_combined(
        &self,
        sample: &[Mutant],
        numbers: &BTreeSet<usize>,
    ) -> Result<BTreeMap<String, Combined>> {
        self.restore()?;
        let mut files: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
        for number in numbers {
            let mutant = &sample[*number];
            files.entry(&mutant.file).or_default().push((*number, mutant));
        }
        let mut combined = BTreeMap::new();
        for (file, mutants) in files {
            let path = self.path.join(file);
            let source = fs::read_to_string(&path).with_context(|| format!("reading {file}"))?;
            let made = combine::combine(&source, &mutants);
            fs::write(&path, &made.source).with_context(|| format!("writing {file}"))?;
            combined.insert(file.to_owned(), made);
        }
        for name in CRATES {
            let path = self.path.join(format!("crates/{name}/src/lib.rs"));
            let source = fs::read_to_string(&path).with_context(|| format!("reading {name}"))?;
            fs::write(&path, source + CHOOSER).with_context(|| format!("writing {name}"))?;
        }
        Ok(combined)
    }

    /// Which mutants do not build beside the others; none if everything builds.
    fn check_combined(&self, files: &BTreeMap<String, Combined>) -> Result<BTreeSet<usize>> {
        let packages = CRATES.map(|name| format!("-p {name}")).join(" ");
        let words = format!("check --locked --tests -p sim {packages} --message-format json");
        let check = shell::cargo(&words).at(&self.path);
        let check = check.env("CARGO_TARGET_DIR", self.builds.display());
        let finished = check.keep_output().run("mutants")?;
        let mut blamed = BTreeSet::new();
        for (file, line) in finished.stdout.lines().flat_map(error_places) {
            let found = files.get(&file).and_then(|combined| combined.blamed(line));
            blamed.extend(found.into_iter().flatten().copied());
        }
        ensure!(finished.exited_well || !blamed.is_empty(), "the build fails beside all mutants");
        Ok(blamed)
    }

    /// Without a mutant everything has to pass, or nothing would be known of any.
    pub fn check_baseline(&mut self, sample: &[Mutant]) -> Result<()> {
        for name in CRATES {
            if !sample.iter().any(|mutant| mutant.package == name) {
                continue;
            }
            for suite in self.suites(name) {
                // Building is no part of what it takes.
                let build = Suite { words: suite.words, ..*suite };
                self.run(&build, &["--no-run"], None, suite.limit)?;
                let begun = Instant::now();
                let ended = self.run(suite, &[], None, suite.limit)?;
                ensure!(ended == Ended::Well, "`{}` does not pass: {ended:?}", suite.words);
                self.takes.insert(suite.words, begun.elapsed());
            }
        }
        Ok(())
    }

    fn suites(&self, package: &str) -> &'static [Suite] {
        let all = plan::suites(package);
        &all[..all.len().min(self.suites_max)]
    }

    pub fn try_combined(&self, number: usize, mutant: &Mutant) -> Result<Fate> {
        self.judge(mutant, Built::Beside { number })
    }

    pub fn try_alone(&self, mutant: &Mutant) -> Result<Fate> {
        self.restore()?;
        let patch = self.builds.join("mutant.patch");
        fs::write(&patch, mutant.patch()).context("writing a mutant")?;
        git(&self.path, &format!("apply {}", patch.display()))?;
        let build = Suite::build_of(&mutant.package);
        let fate = match self.run(&build, &[], None, build.limit)? {
            Ended::Well => self.judge(mutant, Built::Alone),
            Ended::Badly => Ok(Fate::DoesNotBuild),
            Ended::TooLate => bail!("building `{}` takes too long", mutant.package),
        };
        self.restore()?;
        fate
    }

    fn judge(&self, mutant: &Mutant, built: Built) -> Result<Fate> {
        for suite in self.suites(&mutant.package) {
            let takes = self.takes.get(suite.words);
            let (number, limit) = match (built, takes) {
                (Built::Beside { number }, Some(takes)) => (Some(number), plan::limit(*takes)),
                (Built::Beside { number }, None) => (Some(number), suite.limit),
                (Built::Alone, _) => (None, suite.limit),
            };
            if self.run(suite, &[], number, limit)? != Ended::Well {
                return Ok(Fate::Caught { by: suite.words.to_owned() });
            }
        }
        Ok(Fate::Survived)
    }

    fn run(
        &self,
        suite: &Suite,
        more: &[&str],
        number: Option<usize>,
        limit: Duration,
    ) -> Result<Ended> {
        if suite.runs_processes() {
            let build = shell::cargo("build --locked -p pollux").at(&self.path);
            let build = build.env("CARGO_TARGET_DIR", self.builds.display());
            let finished = build.run("mutants")?;
            ensure!(finished.exited_well, "the program does not build");
        }
        let mut test =
            shell::cargo(suite.words).at(&self.path).env("CARGO_TARGET_DIR", self.builds.display());
        for word in more {
            test = test.arg(word);
        }
        for (name, value) in suite.env {
            test = test.env(name, value);
        }
        if let Some(number) = number {
            test = test.env(CHOICE, number);
        }
        test.run_within(limit, "mutants")
    }
}

/// Of a line of cargo's JSON: where errors are.
fn error_places(line: &str) -> Vec<(String, usize)> {
    #[derive(Deserialize)]
    struct Line {
        message: Option<Message>,
    }
    #[derive(Deserialize)]
    struct Message {
        level: String,
        spans: Vec<At>,
    }
    #[derive(Deserialize)]
    struct At {
        file_name: String,
        line_start: usize,
    }
    let Ok(Line { message: Some(message) }) = serde_json::from_str(line) else { return Vec::new() };
    match message.level == "error" {
        true => message.spans.into_iter().map(|at| (at.file_name, at.line_start)).collect(),
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_errors_are_read_and_those_of_warnings_are_not() {
        let line = |level: &str| {
            format!(
                "{{\"reason\":\"compiler-message\",\"message\":{{\"level\":\"{level}\",\"spans\":\
                 [{{\"file_name\":\"src/a.rs\",\"line_start\":7,\"is_primary\":true}}]}}}}"
            )
        };
        assert_eq!(error_places(&line("error")), [("src/a.rs".to_owned(), 7)]);
        assert!(error_places(&line("warning")).is_empty());
        assert!(error_places("{\"reason\":\"build-finished\"}").is_empty());
    }
}
