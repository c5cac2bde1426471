//! The process that is killed: it writes to a pool and tells of every step, until it is no more.
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use block::Term;
use disk::{Backend, Direct, OpenOptions};

use super::load::Load;
use super::pool;
use super::script::Script;
use super::wire;
use crate::patience;

/// What a writer is told to do.
#[derive(Clone, Debug)]
pub struct Orders {
    pub path: PathBuf,
    pub backend: Backend,
    pub direct: Direct,
    pub seed: u64,
    /// One that no earlier writer had: it is in every sector, and tells lives apart.
    pub term: u64,
    /// How many operations are under way at once.
    pub depth: usize,
}

/// Its predecessor was killed a moment ago.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns only when something failed. Nobody to tell, and so nobody to be killed by, is a
/// failure too: the process does not outlive its parent.
pub fn write_until_killed(orders: &Orders, mut to: impl Write) -> Result<()> {
    let Orders { backend, direct, .. } = *orders;
    let options = OpenOptions { backend, direct, ..OpenOptions::default() };
    let disk = patience::open(&orders.path, &options, PATIENCE)?;
    let pool = pool::open(disk, pool::limits())?;
    let script = Script::new(&pool.volumes(), Term(orders.term), orders.seed);
    let mut load = Load::new(pool, script, orders.depth);
    loop {
        let planned = load.plan();
        wire::tell(&mut to, &planned).context("nobody listens")?;
        let answers = load.carry_out(&planned)?;
        wire::tell(&mut to, &answers).context("nobody listens")?;
    }
}
