//! What a node remembers of the catalog, so that it can start its targets again while that is away.
//!
//! One file per volume, with the volume's name, replaced whole. Only the owner of the process may read them, and the
//! secrets of volumes are not among what is written (`catalog/mod.rs`). Invariant: what a target is told of the catalog
//! was written here before, so a restarted target never acts on less than its predecessor did; on more it cannot,
//! since replicas refuse a target that knows less than they do.
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Ends the name of a file that is not whole yet. No name of a volume has this character.
const UNFINISHED: &str = "@new";

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
    /// Closes the folder and its files to others, if an earlier version left them open.
    pub fn open(state: &Path) -> Result<Memory, MemoryError> {
        let folder = state.join("volumes");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(about(&folder))?;
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).map_err(about(&folder))?;
        let memory = Memory { folder };
        for path in memory.files()? {
            fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(about(&path))?;
        }
        Ok(memory)
    }

    /// Durable when it returns.
    pub fn keep(&self, name: &str, bytes: &[u8]) -> Result<(), MemoryError> {
        let path = self.folder.join(name);
        let new = self.folder.join(format!("{name}{UNFINISHED}"));
        let write = || {
            remove(&new)?;
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(about(&path))
    }

    pub fn forget(&self, name: &str) -> Result<(), MemoryError> {
        let path = self.folder.join(name);
        remove(&path).map_err(about(&path))
    }

    /// Everything that is remembered, by name; unfinished files are not.
    ///
    /// Earlier versions gave an unfinished file of `db` the name of the volume `db.new`: whether what is in a file is
    /// of the volume that its name says is for the caller to compare.
    pub fn all(&self) -> Result<Vec<(String, Vec<u8>)>, MemoryError> {
        let mut all = Vec::new();
        for path in self.files()? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !name.is_empty() && !name.ends_with(UNFINISHED) {
                all.push((name.to_owned(), fs::read(&path).map_err(about(&path))?));
            }
        }
        Ok(all)
    }

    fn files(&self) -> Result<Vec<PathBuf>, MemoryError> {
        let entries = fs::read_dir(&self.folder).map_err(about(&self.folder))?;
        let path = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.path());
        entries.map(path).collect::<io::Result<_>>().map_err(about(&self.folder))
    }
}

/// Also if it is not there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
