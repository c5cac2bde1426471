//! Publishing: a staged volume, or its device, where a workload looks for it.
use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::stage::unmount;
use super::{Claim, HostError, resolved};
use crate::mounts;
use crate::orders::Status;

/// What is published, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Where the file system is staged; `None`: the device itself.
    pub staged: Option<&'a Path>,
    pub to: &'a Path,
    pub read_only: bool,
    /// No other place of this machine may have it.
    pub alone: bool,
}

impl Claim {
    pub fn publish(&self, status: &Status, wanted: &Publish) -> Result<(), HostError> {
        let (staged, to) = (wanted.staged.map(resolved), resolved(wanted.to));
        let wanted = &Publish { staged: staged.as_deref(), to: &to, ..wanted.clone() };
        let from = match wanted.staged {
            Some(staged) => {
                let at = self.ours_at(staged)?;
                let at = at.ok_or_else(|| HostError::NotStaged { path: staged.into() })?;
                if at.read_only && !wanted.read_only {
                    let difference = "it is staged for reading only";
                    return Err(HostError::Different { path: staged.into(), difference });
                }
                staged.to_owned()
            }
            None => {
                self.fits_device(wanted)?;
                PathBuf::from(&status.device)
            }
        };
        if let Some(there) = self.ours_at(wanted.to)? {
            return match there.read_only == wanted.read_only {
                true => Ok(()),
                false => Err(HostError::Different {
                    path: wanted.to.into(),
                    difference: "one is for reading only",
                }),
            };
        }
        if wanted.alone
            && let Some(other) = self.elsewhere(wanted)?
        {
            return Err(HostError::SingleWriter { path: other });
        }
        let made = make_place(wanted.to, wanted.staged.is_some())?;
        let bound = mounts::bind(&from, wanted.to, wanted.read_only);
        bound.map_err(|error| {
            if made {
                // The first error is the one to tell.
                let _ = remove_place(wanted.to);
            }
            HostError::System { what: format!("publishing at {}", wanted.to.display()), error }
        })
    }

    /// A device's file says who may open it, not what may be done with the device then.
    fn fits_device(&self, wanted: &Publish) -> Result<(), HostError> {
        let attached = self.folder.read()?;
        match wanted.read_only && attached.is_some_and(|record| !record.read_only) {
            true => Err(HostError::WritableDevice),
            false => Ok(()),
        }
    }

    fn elsewhere(&self, wanted: &Publish) -> Result<Option<PathBuf>, HostError> {
        let is_other = |at: &PathBuf| at != wanted.to && Some(&**at) != wanted.staged;
        Ok(self.used()?.into_iter().find(is_other))
    }

    /// Takes it from there, and removes the place. Nothing there is no error.
    pub fn unpublish(&self, from: &Path) -> Result<(), HostError> {
        let from = &resolved(from);
        while self.ours_at(from)?.is_some() {
            unmount(from)?;
        }
        remove_place(from)
    }
}

/// A folder for a mount, a file for a device. Whether it had to be made.
fn make_place(at: &Path, is_folder: bool) -> Result<bool, HostError> {
    let field = "target_path";
    let failed = || HostError::system(format!("{field}: {}", at.display()));
    match fs::symlink_metadata(at) {
        Ok(there) if is_folder == there.is_dir() && there.is_file() != is_folder => {
            // Hidden behind a mount, nobody would find what is in it; and afterwards it could not be removed.
            let problem = "it is there and not empty";
            let is_empty = is_empty(at, &there).map_err(failed())?;
            let full = || HostError::Path { field, path: at.into(), problem };
            return if is_empty { Ok(false) } else { Err(full()) };
        }
        Ok(_) => {
            let problem =
                if is_folder { "it is there and no folder" } else { "it is there and no file" };
            return Err(HostError::Path { field, path: at.into(), problem });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed()(error)),
    }
    if !at.parent().is_some_and(Path::is_dir) {
        let problem = "the folder that it is to be in does not exist";
        return Err(HostError::Path { field, path: at.into(), problem });
    }
    let made = match is_folder {
        true => fs::create_dir(at),
        false => OpenOptions::new().write(true).create_new(true).open(at).map(drop),
    };
    made.map_err(failed()).map(|()| true)
}

fn is_empty(at: &Path, there: &Metadata) -> io::Result<bool> {
    match there.is_dir() {
        true => Ok(fs::read_dir(at)?.next().is_none()),
        false => Ok(there.is_file() && there.len() == 0),
    }
}

/// Only if it is empty: what is in it is somebody's.
fn remove_place(at: &Path) -> Result<(), HostError> {
    let removed = fs::symlink_metadata(at).and_then(|there| match is_empty(at, &there)? {
        true if there.is_dir() => fs::remove_dir(at),
        true => fs::remove_file(at),
        false => Err(io::ErrorKind::DirectoryNotEmpty.into()),
    });
    match removed.map_err(|error| (error.kind(), error)) {
        Ok(()) | Err((io::ErrorKind::NotFound, _)) => Ok(()),
        Err((io::ErrorKind::DirectoryNotEmpty, _)) => Err(HostError::NotEmpty { path: at.into() }),
        Err((_, error)) => {
            Err(HostError::System { what: format!("removing {}", at.display()), error })
        }
    }
}
