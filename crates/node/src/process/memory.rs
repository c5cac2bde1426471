//! What a node remembers of the catalog, so that it can start its targets again while that is away.
//!
//! One file per volume, replaced whole. Invariant: what a target is told of the catalog was written
//! here before, so a restarted target never acts on less than its predecessor did; on more it cannot,
//! since replicas refuse whoever knows less than they do.
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

#[derive(Debug, Error)]
pub enum MemoryError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

#[derive(Debug)]
pub struct Memory {
    folder: PathBuf,
}

fn about(path: &Path) -> impl FnOnce(io::Error) -> MemoryError {
    let path = path.to_path_buf();
    move |error| MemoryError::Io { path, error }
}

impl Memory {
    pub fn open(state: &Path) -> Result<Memory, MemoryError> {
        let folder = state.join("volumes");
        fs::create_dir_all(&folder).map_err(about(&folder))?;
        Ok(Memory { folder })
    }

    /// Durable when it returns.
    pub fn keep(&self, name: &str, bytes: &[u8]) -> Result<(), MemoryError> {
        let path = self.folder.join(name);
        let new = self.folder.join(format!("{name}.new"));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(about(&path))
    }

    pub fn forget(&self, name: &str) -> Result<(), MemoryError> {
        let path = self.folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(about(&path)(error)),
            _ => Ok(()),
        }
    }

    /// Everything that is remembered; what was cut short is not.
    pub fn all(&self) -> Result<Vec<Vec<u8>>, MemoryError> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(about(&self.folder))? {
            let path = entry.map_err(about(&self.folder))?.path();
            if path.extension().is_none_or(|end| end != "new") {
                all.push(fs::read(&path).map_err(about(&path))?);
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_there_and_what_was_cut_short_is_not() {
        let folder = std::env::temp_dir().join(format!("pollux-memory-{}", std::process::id()));
        let memory = Memory::open(&folder).unwrap();
        memory.keep("db", b"one").unwrap();
        memory.keep("db", b"two").unwrap();
        fs::write(folder.join("volumes/log.new"), b"half").unwrap();
        assert_eq!(Memory::open(&folder).unwrap().all().unwrap(), [b"two"]);
        memory.forget("db").unwrap();
        memory.forget("db").unwrap();
        assert!(memory.all().unwrap().is_empty());
        fs::remove_dir_all(folder).unwrap();
    }
}
