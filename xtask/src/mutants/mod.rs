//! Mutation testing by sample: do the tests notice when a line of the product does something else?
//!
//! `cargo mutants` lists the mutants; a sample of them, drawn by seed, is tried in a checkout of HEAD of its
//! own. They are built together (`combine`), and tried one by one. A mutant that does not build is not counted. The
//! suites that count for its crate run in the order of their cost, and the first one that fails or does not
//! end catches it. The report names what survived.
mod combine;
mod plan;
mod sample;
mod tree;

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::shell;
use plan::CRATES;
use tree::{Tree, git};

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
    /// How many suites are run for a crate at the most, cheapest first
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    suites: usize,
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

pub fn run(options: &Options) -> Result<ExitCode> {
    for name in &options.crates {
        ensure!(CRATES.contains(&name.as_str()), "no suites are known for `{name}`: {CRATES:?}");
    }
    shell::clear_log("mutants")?;
    let tool = sample::tool()?;
    let mut tree = Tree::at_head(options.suites)?;
    let commit = git(&tree.path, "rev-parse HEAD")?.trim().to_owned();
    let mutants = sample::list(&tool, &tree.path, &options.crates)?;
    let listed = mutants.len();
    ensure!(listed > 0, "there is nothing to change in {:?}", options.crates);
    let sample = sample::draw(mutants, options.sample, options.seed);
    println!("{} of {listed} mutants of {commit}, seed {}", sample.len(), options.seed);
    let together = tree.combine(&sample)?;
    println!("{} of them are built together", together.len());
    tree.check_baseline(&sample)?;
    // The others want builds of their own, which replace this one.
    let alone = (0..sample.len()).filter(|number| !together.contains(number));
    let order: Vec<usize> = together.iter().copied().chain(alone).collect();
    let mut tried = Vec::new();
    for number in order {
        let mutant = &sample[number];
        let begun = Instant::now();
        let fate = match together.contains(&number) {
            true => tree.try_combined(number, mutant)?,
            false => tree.try_alone(mutant)?,
        };
        let seconds = begun.elapsed().as_secs_f64();
        println!("== {} of {}: {}: {fate:?}", tried.len() + 1, sample.len(), mutant.name);
        tried.push(Tried { name: mutant.name.clone(), seconds, fate, diff: mutant.diff.clone() });
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
