//! The program that speaks for the public module.
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::samples::Sample;

pub struct Public<'a> {
    pub program: &'a Path,
    /// What was asked and answered stays here, for whoever looks for the cause of a failure.
    pub scratch: &'a Path,
}

#[derive(Deserialize)]
pub struct Description {
    pub definitions: BTreeMap<String, String>,
    pub secrets: Vec<String>,
}

impl Public<'_> {
    pub fn describe(&self) -> Result<Description> {
        let answer = self.run("describe", Stdio::null())?;
        Ok(serde_json::from_slice(&fs::read(answer)?)?)
    }

    pub fn write(&self) -> Result<Vec<Sample>> {
        samples(&self.run("write", Stdio::null())?)
    }

    pub fn read(&self, ours: &[Sample]) -> Result<Vec<Sample>> {
        let path = self.scratch.join("ours.json");
        let mut file = BufWriter::new(File::create(&path)?);
        for sample in ours {
            serde_json::to_writer(&mut file, sample)?;
            writeln!(file)?;
        }
        file.into_inner()?;
        samples(&self.run("read", File::open(path)?.into())?)
    }

    /// Hands back the file with the answer.
    fn run(&self, word: &str, input: Stdio) -> Result<PathBuf> {
        let answer = self.scratch.join(format!("public-{word}.json"));
        let status = Command::new(self.program)
            .arg(word)
            .stdin(input)
            .stdout(File::create(&answer)?)
            .status()
            .with_context(|| format!("starting {}", self.program.display()))?;
        ensure!(status.success(), "the public module could not {word}: {status}");
        Ok(answer)
    }
}

fn samples(file: &Path) -> Result<Vec<Sample>> {
    let text = fs::read_to_string(file)?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}
