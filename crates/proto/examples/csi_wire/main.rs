//! Our definitions of the container storage interface beside the public ones: every name, number and type, and
//! every message read by the other side.
//!
//! `cargo xtask conformance wire` builds the program that speaks for the public module and hands it over here:
//! `csi_wire PROGRAM SCRATCH`. The last line counts, and whatever is wrong is named.
#![forbid(unsafe_code)]

mod definitions;
mod generated;
mod lines;
mod planted;
mod public;
mod samples;
mod secrets;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use prost_reflect::prost_types::FileDescriptorSet;
use prost_reflect::{DescriptorPool, MessageDescriptor};

use crate::public::Public;
use crate::samples::Sample;

const PACKAGE: &str = "csi.v1";

/// Of what went wrong in one check, so much is told.
const TOLD_MAX: usize = 2;

#[derive(Default)]
struct Checks {
    passed: u64,
    failed: u64,
}

impl Checks {
    fn book(&mut self, name: &str, wrong: &[String]) {
        if wrong.is_empty() {
            self.passed += 1;
            return;
        }
        self.failed += 1;
        println!("failed: {name}");
        wrong.iter().take(TOLD_MAX).for_each(|wrong| println!("  {wrong}"));
        if wrong.len() > TOLD_MAX {
            println!("  and {} more", wrong.len() - TOLD_MAX);
        }
    }
}

fn main() -> Result<ExitCode> {
    let words: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [program, scratch] = words.as_slice() else {
        anyhow::bail!("wanted: csi_wire PROGRAM SCRATCH; `cargo xtask conformance wire` does that");
    };
    let checks = run(&Public { program, scratch })?;
    println!("{} passed, {} failed, 0 skipped", checks.passed, checks.failed);
    Ok(if checks.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(public: &Public) -> Result<Checks> {
    let files = our_files()?;
    let ours = DescriptorPool::from_file_descriptor_set(files.clone())?;
    let mut checks = Checks::default();

    let described = public.describe()?;
    let definitions = definitions::of(&ours);
    for (name, wrong) in definitions::compare(&described.definitions, &definitions) {
        checks.book(&name, &wrong);
    }
    let theirs = public.write()?;
    let written = samples::of(&messages(&ours))?;
    let answers = public.read(&written)?;
    ensure!(answers.len() == written.len(), "not every sample was answered");

    for (message, samples) in by_message(&theirs) {
        let wrong =
            samples.iter().filter_map(|sample| sample.misread_by(&ours)).collect::<Vec<_>>();
        checks.book(&format!("{message}: public bytes, read by ours"), &wrong);
    }
    let mut misread: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (sample, answer) in written.iter().zip(&answers) {
        misread.entry(&sample.message).or_default().extend(sample.difference(&answer.lines));
    }
    for (message, wrong) in misread {
        checks.book(&format!("{message}: our bytes, read by the public module"), &wrong);
    }
    for (name, wrong) in generated::check(&ours, by_message(&theirs)) {
        checks.book(&name, &wrong);
    }
    for (name, wrong) in secrets::check(&ours, &described.secrets, &written)? {
        checks.book(&name, &wrong);
    }
    for (name, wrong) in planted::check(&files, &described.definitions, &theirs)? {
        checks.book(&name, &wrong);
    }
    Ok(checks)
}

/// What a check is named, and what was wrong.
type Outcome = (String, Vec<String>);

fn our_files() -> Result<FileDescriptorSet> {
    // Where it runs, not where it was compiled: those may be two clones that share a cache.
    let root = env::var("CARGO_MANIFEST_DIR").context("this is run by cargo")?;
    let root = Path::new(&root).join("proto");
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("csi/v1"))? {
        files.push(Path::new("csi/v1").join(entry?.file_name()));
    }
    files.sort();
    Ok(protox::compile(files, [root])?)
}

/// Those of the interface; entries of maps belong to their fields.
fn messages(pool: &DescriptorPool) -> Vec<MessageDescriptor> {
    let all = pool.all_messages().filter(|message| !message.is_map_entry());
    all.filter(|message| message.package_name() == PACKAGE).collect()
}

fn by_message(samples: &[Sample]) -> BTreeMap<&str, Vec<&Sample>> {
    let mut sorted: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        sorted.entry(&sample.message).or_default().push(sample);
    }
    sorted
}
