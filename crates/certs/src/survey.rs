//! What a folder of certificates holds, and whether it is in order.
use std::fs;
use std::path::{Path, PathBuf};

use crate::authority::Authority;
use crate::errors::LoadError;
use crate::files::{self, CA_CERTIFICATE, CERTIFICATE};
use crate::identity::Identity;
use crate::inspect::{Subject, inspect};

/// One certificate of a folder.
#[derive(Debug)]
pub struct Surveyed {
    pub folder: PathBuf,
    pub subject: Option<Subject>,
    /// Why it cannot be used, if it cannot.
    pub problem: Option<LoadError>,
}

/// The authority, and everybody whom it has certified, in the order of their folders.
pub fn survey(folder: &Path) -> Result<Vec<Surveyed>, LoadError> {
    let io = |error| LoadError::Io { path: folder.into(), error };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        // One that begins so was left behind by a process that died over it.
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if !path.is_dir() || hidden {
            continue;
        }
        let is_authority = path == folder.join(Authority::FOLDER);
        let problem = match is_authority {
            true => Authority::open(folder).err(),
            false => Identity::load(&path).err(),
        };
        let file = if is_authority { CA_CERTIFICATE } else { CERTIFICATE };
        let certificate = files::certificates(&path.join(file), "").ok();
        let first = certificate.as_deref().and_then(|certificates| certificates.first());
        found.push(Surveyed { folder: path, subject: first.map(inspect), problem });
    }
    found.sort_by(|a, b| a.folder.cmp(&b.folder));
    Ok(found)
}
