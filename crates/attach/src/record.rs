//! What a plugin that was killed finds again: one folder for each attachment, in a place that is empty after a boot.
//!
//! - `record.json` is written before anything is done with the volume, and removed after everything is undone.
//!   It has the volume's secret, so only root reads it.
//! - `orders.sock` is where the attachment's process listens.
//! - `process.lock` is held by that process as long as it lives.
//! - `device` has the path of the device, where that cannot be found in another way.
//! - `fuse/` is where the volume's file is, if it has one.
//! - `log` is what the process said.
//! - `unwritten` is there if the kernel could not write what it had in memory, and says why.
//! - `unsettled` is there while a driver finds out whether that is so; one that was killed leaves it.
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::link::Secret;
use crate::ways::Way;

const RECORD: &str = "record.json";

/// An attachment of a volume to this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    pub volume: String,
    pub uid: String,
    /// The name that this machine logs in with.
    pub initiator: String,
    /// In every login (P8).
    pub stage: u64,
    pub way: Way,
    /// Why this way.
    pub why: String,
    pub read_only: bool,
    /// How long a request waits at the most.
    pub patience_ms: u64,
    #[serde(default)]
    pub secret: Option<Secret>,
    pub site: SiteAt,
}

/// Where the site is asked who serves the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SiteAt {
    pub api: String,
    pub token_file: PathBuf,
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

#[derive(Debug, Error)]
pub enum RecordError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} is no record of an attachment: {error}", path.display())]
    Strange { path: PathBuf, error: serde_json::Error },
}

/// The folder of one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn of(state: &Path, uid: &str) -> Folder {
        Folder(state.join(uid))
    }

    pub fn orders(&self) -> PathBuf {
        self.0.join("orders.sock")
    }

    pub fn fuse(&self) -> PathBuf {
        self.0.join("fuse")
    }

    /// The device that the volume is; told by the attachment's process.
    pub fn device(&self) -> PathBuf {
        self.0.join("device")
    }

    /// Held by the attachment's process as long as it lives.
    pub fn process_lock(&self) -> PathBuf {
        self.0.join("process.lock")
    }

    /// Why something that was written is lost, if it is.
    pub fn unwritten(&self) -> PathBuf {
        self.0.join("unwritten")
    }

    /// There while a driver syncs and unmounts, and has not seen what came of it.
    pub fn unsettled(&self) -> PathBuf {
        self.0.join("unsettled")
    }

    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// `None`: there is none.
    pub fn read(&self) -> Result<Option<Record>, RecordError> {
        let path = self.0.join(RECORD);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(RecordError::File { path, error }),
        };
        let parsed = serde_json::from_slice(&bytes);
        parsed.map(Some).map_err(|error| RecordError::Strange { path, error })
    }

    /// As a whole or not at all.
    pub fn write(&self, record: &Record) -> Result<(), RecordError> {
        let path = self.0.join(RECORD);
        let failed = |error| RecordError::File { path: path.clone(), error };
        let mut folder = fs::DirBuilder::new();
        folder.recursive(true).mode(0o700).create(&self.0).map_err(failed)?;
        let strange = |error| RecordError::Strange { path: path.clone(), error };
        let bytes = serde_json::to_vec_pretty(record).map_err(strange)?;
        let draft = self.0.join("record.draft");
        let written = || {
            let mut open = OpenOptions::new();
            open.write(true).create(true).truncate(true).mode(0o600);
            let mut file = open.open(&draft)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&draft, &path)
        };
        written().map_err(failed)
    }

    /// With everything in it. Nothing may be mounted there.
    pub fn remove(&self) -> Result<(), RecordError> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(RecordError::File { path: self.0.clone(), error })
            }
            _ => Ok(()),
        }
    }
}

/// All attachments of this machine.
pub fn all(state: &Path) -> Result<Vec<(Folder, Record)>, RecordError> {
    let failed = |error| RecordError::File { path: state.to_owned(), error };
    let entries = match fs::read_dir(state) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let folder = Folder(entry.map_err(failed)?.path());
        if folder.0.is_dir()
            && let Some(record) = folder.read()?
        {
            found.push((folder, record));
        }
    }
    found.sort_by(|(_, one), (_, other)| one.volume.cmp(&other.volume));
    Ok(found)
}

#[cfg(test)]
mod tests;
