//! A file system of a few hundred MiB to have a site on, which can be filled up. Needs root.
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// What the filler asks for at once, until less is left.
const STEPS: [u64; 3] = [64 << 20, 1 << 20, 4096];

#[derive(Debug)]
pub struct SmallDisk {
    at: PathBuf,
    /// The file of a file system that is not in memory.
    image: Option<PathBuf>,
}

impl SmallDisk {
    pub fn in_memory(at: &Path, mib: u64) -> Result<SmallDisk> {
        fs::create_dir_all(at)?;
        tool("mount", &["-t", "tmpfs", "-o", &format!("size={mib}m"), "small"], at)?;
        Ok(SmallDisk { at: at.into(), image: None })
    }

    /// With ext4, on a loop device that goes with the mount: the IO of its files is that of a disk.
    pub fn on_disk(at: &Path, mib: u64) -> Result<SmallDisk> {
        fs::create_dir_all(at)?;
        let image = at.with_extension("img");
        File::create(&image)?.set_len(mib << 20)?;
        tool("mkfs.ext4", &["-q", "-F", "-m", "0"], &image)?;
        let from = image.to_string_lossy().into_owned();
        tool("mount", &["-o", "loop", &from], at)?;
        Ok(SmallDisk { at: at.into(), image: Some(image) })
    }

    pub fn at(&self) -> &Path {
        &self.at
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }

    /// Takes all space that is left.
    pub fn fill(&self) -> Result<()> {
        let mut file = File::create(self.filler())?;
        let mut len = 0;
        for step in STEPS {
            loop {
                match fallocate(&file, FallocateFlags::empty(), len, step) {
                    Ok(()) => len += step,
                    Err(Errno::NOSPC) => break,
                    Err(error) => return Err(error).context("filling a file system"),
                }
            }
        }
        // What the file system kept back for its own needs.
        file = File::options().append(true).open(self.filler())?;
        let error = loop {
            if let Err(error) = file.write_all(&[1; 4096]) {
                break error;
            }
        };
        ensure!(error.kind() == ErrorKind::StorageFull, "{error}");
        Ok(())
    }

    pub fn empty(&self) -> Result<()> {
        Ok(fs::remove_file(self.filler())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = tool("umount", &["-l"], &self.at) {
            eprintln!("{error:#}");
        }
        if let Some(image) = &self.image {
            let _ = fs::remove_file(image);
        }
    }
}

fn tool(name: &str, words: &[&str], at: &Path) -> Result<()> {
    let done = Command::new(name).args(words).arg(at).output().with_context(|| name.to_owned())?;
    ensure!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}
