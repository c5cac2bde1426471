//! Growing a pool: first the file, where it is one, then the pool into it.
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use block::{ByteLen, Disk};
use comfy_table::Table;
use serde::Serialize;

use crate::offline::{Contents, about, open_pool};
use crate::render::{self, Answer, Output};

#[derive(Debug, Serialize)]
struct Grown {
    path: String,
    size_before: u64,
    size: u64,
}

impl Answer for Grown {
    fn table(&self) -> Table {
        let size = match self.size - self.size_before {
            0 => format!("{}, as before", ByteLen(self.size)),
            _ => format!("{}, before {}", ByteLen(self.size), ByteLen(self.size_before)),
        };
        render::facts([("pool", self.path.clone()), ("size", size)])
    }
}

pub fn run(path: &Path, size: Option<ByteLen>, output: Output) -> Result<()> {
    let size_before = Contents::of(path)?.found.info.size.0;
    if let Some(size) = size {
        check_size(path, size)?;
    }
    let mut pool = open_pool(path)?;
    if let Some(size) = size {
        // The open pool keeps others away while its file changes.
        make_longer(path, size)?;
    }
    let there = pool.disk().geometry().size;
    let size = pool.grow().map_err(|error| about(path, error))?;
    pool.close().map_err(|error| about(path, error))?;
    ensure!(
        size.0 > size_before || there.0 < size_before + UNUSED_MAX,
        about(path, format!("the pool cannot take in {there}; it stays at {size}"))
    );
    render::show(&Grown { path: path.display().to_string(), size_before, size: size.0 }, output)
}

/// A shorter tail of a device may stay unused.
const UNUSED_MAX: u64 = 4 << 20;

fn check_size(path: &Path, size: ByteLen) -> Result<()> {
    let found = std::fs::metadata(path).with_context(|| path.display().to_string())?;
    ensure!(found.is_file(), about(path, "is a device and has its size: leave out --size"));
    let has = ByteLen(found.len());
    ensure!(size >= has, about(path, format!("a pool cannot shrink: it has {has}")));
    ensure!(
        size.0.is_multiple_of(4096),
        about(path, format!("{} bytes cannot be: the size must be a multiple of 4 KiB", size.0))
    );
    Ok(())
}

/// A sparse file stays one; of any other, all that is new has its space at once.
fn make_longer(path: &Path, size: ByteLen) -> Result<()> {
    let cannot = |error| about(path, format!("the file cannot be made longer: {error}"));
    let file = File::options().write(true).open(path).map_err(cannot)?;
    let before = file.metadata().map_err(cannot)?;
    file.set_len(size.0).map_err(cannot)?;
    if before.blocks() * 512 >= before.len()
        && let Err(error) = disk::allocate(path, &file, size)
    {
        // As long as it was; the error tells what is wrong.
        let _ = file.set_len(before.len());
        return Err(error.into());
    }
    file.sync_all().map_err(cannot)
}
