//! Mutation testing by sample: do the tests notice when a line of the product does something else?
//!
//! `cargo mutants` lists the mutants; a sample of them, drawn by seed, is tried one by one in a
//! checkout of HEAD of its own. A mutant that does not build is not counted. The suites that count for
//! its crate run in the order of their cost, and the first one that fails or does not end catches it. The
//! report names what survived.
mod plan;
mod sample;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use crate::shell::{self, Ended};
use plan::{CRATES, Suite};
use sample::Mutant;

/// Of those that build, so many in a hundred have to be caught.
const CAUGHT_PERCENT: usize = 90;

#[derive(clap::Args)]
pub struct Options {
    /// How many mutants are tried
    #[arg(long, default_value_t = 16)]
    sample: usize,
    /// Which ones: the same seed draws the same sample of the same sources
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Crates to draw from
    #[arg(default_values_t = CRATES.map(str::to_owned))]
    crates: Vec<String>,
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Fate {
    DoesNotBuild,
    Caught { by: String },
    Survived,
}

#[derive(Serialize)]
struct Tried {
    name: String,
    seconds: f64,
    fate: Fate,
    diff: String,
}

#[derive(Serialize)]
struct Report<'a> {
    commit: String,
    seed: u64,
    crates: &'a [String],
    listed: usize,
    tried: Vec<Tried>,
}

/// A checkout in which sources may be changed, with builds of its own.
struct Tree {
    path: PathBuf,
    builds: PathBuf,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    for name in &options.crates {
        ensure!(CRATES.contains(&name.as_str()), "no suites are known for `{name}`: {CRATES:?}");
    }
    shell::clear_log("mutants")?;
    let tool = sample::tool()?;
    let tree = Tree::at_head()?;
    let commit = git(&tree.path, "rev-parse HEAD")?.trim().to_owned();
    let mutants = sample::list(&tool, &tree.path, &options.crates)?;
    let listed = mutants.len();
    ensure!(listed > 0, "there is nothing to change in {:?}", options.crates);
    let sample = sample::draw(mutants, options.sample, options.seed);
    println!("{} of {listed} mutants of {commit}, seed {}", sample.len(), options.seed);
    tree.check_baseline(&sample)?;
    let mut tried = Vec::new();
    for (at, mutant) in sample.into_iter().enumerate() {
        let begun = Instant::now();
        let fate = tree.try_out(&mutant)?;
        println!("== {} of {}: {}: {fate:?}", at + 1, options.sample, mutant.name);
        let Mutant { name, diff, .. } = mutant;
        tried.push(Tried { name, seconds: begun.elapsed().as_secs_f64(), fate, diff });
    }
    finish(&Report { commit, seed: options.seed, crates: &options.crates, listed, tried })
}

fn finish(report: &Report<'_>) -> Result<ExitCode> {
    let path = shell::reports()?.join("mutants.json");
    fs::write(&path, serde_json::to_string_pretty(report)? + "\n")
        .with_context(|| format!("writing {}", path.display()))?;
    let built = report.tried.iter().filter(|it| it.fate != Fate::DoesNotBuild).count();
    let survivors: Vec<&Tried> =
        report.tried.iter().filter(|it| it.fate == Fate::Survived).collect();
    for survivor in &survivors {
        println!("\nSURVIVED {}\n{}", survivor.name, survivor.diff);
    }
    let caught = built - survivors.len();
    println!("{} did not build", report.tried.len() - built);
    println!("{caught} passed, {} failed", survivors.len());
    Ok(match built > 0 && caught * 100 >= built * CAUGHT_PERCENT {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn git(at: &Path, words: &str) -> Result<String> {
    let finished = shell::program("git", words).at(at).keep_output().run("mutants")?;
    ensure!(finished.exited_well, "git {words} failed");
    Ok(finished.stdout)
}

impl Tree {
    fn at_head() -> Result<Tree> {
        let folder = shell::target().join("mutants");
        let tree = Tree { path: folder.join("tree"), builds: folder.join("builds") };
        let path = tree.path.display();
        if tree.path.join(".git").exists() {
            let head = git(&shell::root(), "rev-parse HEAD")?;
            git(&tree.path, &format!("checkout --quiet --force --detach {}", head.trim()))?;
        } else {
            git(&shell::root(), "worktree prune")?;
            git(&shell::root(), &format!("worktree add --quiet --force --detach {path} HEAD"))?;
        }
        Ok(tree)
    }

    /// Without a change everything has to pass, or nothing would be known of any mutant.
    fn check_baseline(&self, sample: &[Mutant]) -> Result<()> {
        for name in CRATES {
            if !sample.iter().any(|mutant| mutant.package == name) {
                continue;
            }
            for suite in plan::suites(name) {
                let ended = self.run(suite)?;
                ensure!(
                    ended == Ended::Well,
                    "`{}` does not pass as it is: {ended:?}",
                    suite.words
                );
            }
        }
        Ok(())
    }

    fn try_out(&self, mutant: &Mutant) -> Result<Fate> {
        let patch = self.builds.join("mutant.patch");
        fs::create_dir_all(&self.builds)?;
        fs::write(&patch, mutant.patch()).context("writing a mutant")?;
        git(&self.path, &format!("apply {}", patch.display()))?;
        let fate = self.judge(mutant);
        git(&self.path, "checkout --quiet -- .")?;
        fate
    }

    fn judge(&self, mutant: &Mutant) -> Result<Fate> {
        let build = Suite::build_of(&mutant.package);
        match self.run(&build)? {
            Ended::Well => {}
            Ended::Badly => return Ok(Fate::DoesNotBuild),
            Ended::TooLate => bail!("building `{}` takes too long", mutant.package),
        }
        for suite in plan::suites(&mutant.package) {
            if self.run(suite)? != Ended::Well {
                return Ok(Fate::Caught { by: suite.words.to_owned() });
            }
        }
        Ok(Fate::Survived)
    }

    fn run(&self, suite: &Suite) -> Result<Ended> {
        let mut test =
            shell::cargo(suite.words).at(&self.path).env("CARGO_TARGET_DIR", self.builds.display());
        for (name, value) in suite.env {
            test = test.env(name, value);
        }
        test.run_within(suite.limit, "mutants")
    }
}
