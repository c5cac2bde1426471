//! Files that are there whole or not at all: whoever waits for one must never see a part of it.
use std::fs::{self, File};
use std::io;
use std::path::Path;

pub fn write(path: &Path, content: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".new-{}", std::process::id()));
    let mut file = File::create(&aside)?;
    content(&mut file)?;
    file.sync_all()?;
    fs::rename(&aside, path)
}
