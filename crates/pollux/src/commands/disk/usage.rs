//! The space of volumes and snapshots: how much there is, and how much is whose.
use std::path::Path;

use anyhow::{Result, bail};
use block::ByteLen;
use comfy_table::Table;
use engine::{Op, Reply, Subject, Usage};
use serde::Serialize;

use crate::offline::{Contents, open_shadow};
use crate::render::{self, Answer, Output};

#[derive(Debug, Serialize)]
struct UsageAnswer {
    /// `VOLUME` or `VOLUME@SNAPSHOT`.
    name: String,
    logical: u64,
    stored: u64,
    unique: u64,
    shared: u64,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct UsageList(Vec<UsageAnswer>);

impl Answer for UsageList {
    fn table(&self) -> Table {
        let mut table = render::plain(&["NAME", "LOGICAL", "STORED", "UNIQUE", "SHARED"]);
        for UsageAnswer { name, logical, stored, unique, shared } in &self.0 {
            let figures = [logical, stored, unique, shared].map(|len| ByteLen(*len).to_string());
            table.add_row(std::iter::once(name.clone()).chain(figures));
        }
        table
    }
}

pub fn of_volumes(path: &Path, name: Option<&str>, output: Output) -> Result<()> {
    let contents = Contents::of(path)?;
    let volumes = match name {
        Some(name) => vec![contents.volume(name)?],
        None => contents.volumes().collect(),
    };
    let subjects = volumes.into_iter().map(|v| (v.name.clone(), Subject::Volume(v.id)));
    show(&contents, subjects.collect(), output)
}

pub fn of_snapshots(path: &Path, snapshot: Option<&str>, output: Output) -> Result<()> {
    let contents = Contents::of(path)?;
    let shown = contents.found.snapshots.iter().filter(|s| !s.hidden && !s.internal);
    let snapshots = match snapshot {
        Some(snapshot) => vec![contents.snapshot(snapshot)?],
        None => shown.collect(),
    };
    let subjects =
        snapshots.into_iter().map(|s| (contents.title(s), Subject::Snapshot(s.id))).collect();
    show(&contents, subjects, output)
}

fn show(contents: &Contents, subjects: Vec<(String, Subject)>, output: Output) -> Result<()> {
    let mut pool = open_shadow(&contents.path)?;
    let mut answers = Vec::new();
    for (name, of) in subjects {
        let reply = pool.run(Op::Usage { of }).map_err(|error| contents.explain(error))?;
        let Reply::Usage(Usage { logical, stored, unique, shared }) = reply else {
            bail!("the pool gave the wrong answer: {reply:?}");
        };
        let [logical, stored, unique, shared] = [logical, stored, unique, shared].map(|len| len.0);
        answers.push(UsageAnswer { name, logical, stored, unique, shared });
    }
    render::show(&UsageList(answers), output)
}
