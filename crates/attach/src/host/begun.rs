//! File systems that this machine began to make and did not finish.
//!
//! A tool that was killed, or that met an error, leaves something that looks like nothing. It may be made anew only if
//! nobody else had the volume since: every use of a volume has a stage of its own, so that the next stage after the
//! one that is noted is ours as well.
use std::fs;
use std::io;
use std::path::PathBuf;

use super::{Claim, HostError};

impl Claim {
    fn note(&self) -> PathBuf {
        self.host.state.join(format!("{}.begun", self.uid))
    }

    /// Before anything is written.
    pub(super) fn note_begun(&self, stage: u64) -> Result<(), HostError> {
        let note = self.note();
        fs::write(&note, stage.to_string()).map_err(HostError::system(note.display().to_string()))
    }

    /// After it is done, or when something else is found.
    pub(super) fn forget_begun(&self) -> Result<(), HostError> {
        let note = self.note();
        match fs::remove_file(&note) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(HostError::System { what: note.display().to_string(), error })
            }
            _ => Ok(()),
        }
    }

    /// Whether what is there can only be what this machine began.
    pub(super) fn has_begun(&self, stage: u64) -> bool {
        let noted = fs::read_to_string(self.note()).ok().and_then(|text| text.parse::<u64>().ok());
        noted.is_some_and(|begun| stage <= begun.saturating_add(1))
    }
}
