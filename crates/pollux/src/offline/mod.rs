//! A pool that nobody has open: looked at without a trace, or opened to be changed.
//!
//! What can be refused is refused before the pool is opened for writing, since opening alone
//! already changes it: a command that fails leaves every byte as it was.
mod contents;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};
use block::{Position, Seq};
use disk::{FileDisk, OpenOptions};
use engine::Pool;
use pollux::{Shadow, patience};

pub use contents::{Contents, check_snapshot_name};

/// A killed owner's lock lingers for some tens of milliseconds; a living one's stays.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Opens the disk so that nothing can be written to it.
pub fn open_to_read(path: &Path) -> Result<FileDisk> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    Ok(patience::open(path, &options, PATIENCE)?)
}

/// Opens the pool for service: from here on it is changed.
pub fn open_pool(path: &Path) -> Result<Pool<FileDisk>> {
    let disk = patience::open(path, &OpenOptions::default(), PATIENCE)?;
    Pool::open(disk, engine::OpenOptions::default()).map_err(|error| about(path, error))
}

/// Opens the pool to ask it something: what it writes stays in memory.
pub fn open_shadow(path: &Path) -> Result<Pool<Shadow<FileDisk>>> {
    let disk = Shadow::over(open_to_read(path)?);
    Pool::open(disk, engine::OpenOptions::default()).map_err(|error| about(path, error))
}

/// Changes a pool; durable when this returns.
pub fn change<T>(path: &Path, act: impl FnOnce(&mut Pool<FileDisk>) -> Result<T>) -> Result<T> {
    let mut pool = open_pool(path)?;
    let done = act(&mut pool);
    // Closed in any case: a refusal must not leave a pool behind that looks crashed.
    let closed = pool.close().map_err(|error| about(path, error));
    let done = done?;
    closed?;
    Ok(done)
}

/// Checkpoints without a gain after which nothing more is to be had. An object that goes is first
/// unlinked, then emptied, then its pages are released: each a checkpoint of its own.
const IN_VAIN_MAX: u32 = 4;

/// Works through what was deleted, so that its space is free when the command ends, not some
/// openings later.
pub fn reclaim(path: &Path, pool: &mut Pool<FileDisk>) -> Result<()> {
    let (mut left, mut in_vain) = (pool.info().reclaimable, 0);
    while left.0 > 0 && in_vain < IN_VAIN_MAX {
        pool.checkpoint().map_err(|error| about(path, error))?;
        let now = pool.info().reclaimable;
        in_vain = if now < left { 0 } else { in_vain + 1 };
        left = now;
    }
    Ok(())
}

/// Where a change that is made offline stands: its volume's sequence goes on, in the same term.
pub fn after(at: Position) -> Position {
    Position { seq: Seq(at.seq.0 + 1), ..at }
}

/// The engine knows no paths, and an error without one helps nobody.
pub fn about(path: &Path, error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{}: {error}", path.display())
}
