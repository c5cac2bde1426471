//! Where an export goes: the standard output, or a file that is there only when it is whole.
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use pollux::proof;

use crate::offline::about;

/// Small frames are gathered up to here before they are written.
const GATHERED: usize = 256 << 10;

pub struct Sink {
    to: To,
    /// What was not written yet; frames are put together in here.
    pub out: Vec<u8>,
    written: u64,
}

enum To {
    Stdout,
    File { file: File, temporary: Temporary, target: PathBuf },
}

/// Removed, unless it got its name.
struct Temporary(Option<PathBuf>);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // The error that led here is the one to tell.
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether an export may go there. Nothing is created yet.
pub fn check(target: &Path, force: bool) -> Result<()> {
    if target == Path::new("-") {
        ensure!(
            !io::stdout().is_terminal(),
            "a delta is nothing to read: name a file with --file, or pipe it on"
        );
        return Ok(());
    }
    match fs::symlink_metadata(target) {
        Ok(found) if found.is_file() && force => Ok(()),
        Ok(found) if found.is_file() => {
            bail!(about(target, "exists: choose another name, or overwrite it with --force"))
        }
        Ok(_) => {
            bail!(about(target, "is no regular file: write to `-` and let the shell redirect"))
        }
        Err(_) => Ok(()),
    }
}

impl Sink {
    pub fn open(target: &Path) -> Result<Sink> {
        let to = match target == Path::new("-") {
            true => To::Stdout,
            false => {
                let path = beside(target)?;
                let file = File::options().write(true).create_new(true).open(&path);
                let file = file.map_err(|error| {
                    about(target, format!("cannot be written: {error}; choose another place"))
                })?;
                let (temporary, target) = (Temporary(Some(path)), target.to_owned());
                To::File { file, temporary, target }
            }
        };
        Ok(Sink { to, out: Vec::new(), written: 0 })
    }

    /// Writes what was gathered, if it is worth it.
    pub fn pass_on(&mut self) -> Result<()> {
        if self.out.len() >= GATHERED { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> Result<()> {
        let (written, whose) = match &mut self.to {
            To::Stdout => (io::stdout().lock().write_all(&self.out), "the standard output".into()),
            To::File { file, target, .. } => {
                (file.write_all(&self.out), target.display().to_string())
            }
        };
        written.with_context(|| format!("{whose}: the delta could not be written"))?;
        self.written += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }

    /// Everything is there: a file is made durable, then gets its name. Returns its length.
    pub fn finish(mut self) -> Result<u64> {
        self.write_out()?;
        match self.to {
            To::Stdout => io::stdout().flush().context("the standard output")?,
            To::File { file, mut temporary, target } => {
                let failed = |error| about(&target, format!("cannot be kept: {error}"));
                file.sync_all().map_err(failed)?;
                let path = temporary.0.as_ref().expect("it has no name yet");
                fs::rename(path, &target).map_err(failed)?;
                temporary.0 = None;
                // The name is durable only with its folder.
                File::open(folder(&target)).and_then(|folder| folder.sync_all()).map_err(failed)?;
            }
        }
        Ok(self.written)
    }
}

fn folder(target: &Path) -> &Path {
    match target.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// A name in the same folder that nobody has.
fn beside(target: &Path) -> Result<PathBuf> {
    let Some(name) = target.file_name() else {
        bail!(about(target, "names no file: choose another path"));
    };
    let number = u64::from_le_bytes(proof::entropy()?);
    let mut unfinished = OsString::from(".");
    unfinished.push(name);
    unfinished.push(format!(".{number:016x}.part"));
    Ok(folder(target).join(unfinished))
}
