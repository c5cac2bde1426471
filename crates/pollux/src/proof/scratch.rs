//! A folder that goes away again, and chance from the system.
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Bytes that nobody can foresee: for names, uuids and seeds.
pub fn entropy<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let read = File::open("/dev/urandom").and_then(|mut from| from.read_exact(&mut bytes));
    read.context("/dev/urandom cannot be read")?;
    Ok(bytes)
}

/// A fresh folder below the system's place for temporary files, removed with all that is in it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(what: &str) -> Result<Scratch> {
        let number = u64::from_le_bytes(entropy()?);
        let path = std::env::temp_dir().join(format!("pollux-{what}-{number:016x}"));
        std::fs::create_dir(&path)
            .with_context(|| format!("{} cannot be created", path.display()))?;
        Ok(Scratch(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} could not be removed: {error}", self.0.display());
        }
    }
}
