//! One site in a folder at a time.
use std::fs::{self, File, TryLockError};
use std::io::Write;

use anyhow::{Context, Result, bail};

use crate::local::Folder;

/// Holds the folder until it is dropped, or the process ends.
pub fn take(folder: &Folder) -> Result<File> {
    let (path, shown) = (folder.lock(), folder.path().display());
    let about = || format!("{} cannot be locked", path.display());
    let options = File::options().create(true).truncate(false).write(true).open(&path);
    let mut file = options.with_context(about)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let who = fs::read_to_string(&path).unwrap_or_default();
            let who = match who.trim() {
                "" => String::new(),
                who => format!(" (process {who})"),
            };
            bail!(
                "a site runs in {shown} already{who}: use that, end it, or give another folder with --dir"
            );
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(about),
    }
    file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).with_context(about)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use pollux::proof::Scratch;

    use super::*;

    #[test]
    fn the_second_one_is_told_who_was_first() {
        let scratch = Scratch::new("lock").unwrap();
        let folder = Folder::at(scratch.path());
        let first = take(&folder).unwrap();
        let error = take(&folder).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        take(&folder).expect("the first one has gone");
    }
}
