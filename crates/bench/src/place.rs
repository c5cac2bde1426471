//! Where the measured files lie: on a disk, alone, and gone at the end.
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use block::{ByteLen, Disk, IoMode};
use disk::{Backend, Direct, FileDisk};
use serde::Serialize;

/// IOs that the kernel may have at once, on both sides of every comparison.
const RING_DEPTH: u32 = 128;

/// How long the kernel may take to let go of a killed process's file. It takes milliseconds.
const RELEASE_MAX: Duration = Duration::from_secs(10);

/// Magic numbers of statfs(2), for the file systems that one meets.
const FILE_SYSTEMS: [(i64, &str); 8] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x794c_7630, "overlay"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
];

/// What a figure depends on beside the code.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cores: usize,
    pub kernel: String,
    pub fs: String,
}

impl Machine {
    pub fn with(fs: String) -> Machine {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: release.trim().to_owned(),
            fs,
        }
    }
}

/// What kind a folder lies on.
pub fn file_system(folder: &Path) -> Result<String> {
    let kind = rustix::fs::statfs(folder)?.f_type;
    let known = FILE_SYSTEMS.iter().find(|(magic, _)| *magic == kind);
    Ok(known.map_or_else(|| format!("{kind:#x}"), |(_, name)| (*name).to_owned()))
}

/// Why something cannot be measured here. Other measurements can go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// A folder that no other measurement uses at the same time.
pub struct Place {
    folder: PathBuf,
    pub fs: String,
    _alone: File,
}

impl Place {
    pub fn new(asked: Option<&Path>) -> Result<Place> {
        let folder = match asked {
            Some(folder) => folder.to_path_buf(),
            None => cache_folder()?.join("pollux/bench"),
        };
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let fs = file_system(&folder)?;
        ensure!(
            fs != "tmpfs" && fs != "ramfs",
            "{} is in memory ({fs}): choose a folder on a disk with --dir",
            folder.display()
        );
        let alone = File::create(folder.join("lock"))?;
        if alone.try_lock().is_err() {
            bail!("another measurement runs in {}", folder.display());
        }
        Ok(Place { folder, fs, _alone: alone })
    }

    /// A file of this place. What an earlier run that was killed left there is removed.
    pub fn file(&self, name: &str) -> Result<Scratch> {
        let scratch = Scratch(self.folder.join(name));
        scratch.remove()?;
        Ok(scratch)
    }

    pub fn need(&self, bytes: u64) -> Result<()> {
        let room = rustix::fs::statvfs(&self.folder)?;
        let free = ByteLen(room.f_bavail * room.f_frsize);
        if free.0 < bytes {
            let (folder, needed) = (self.folder.display(), ByteLen(bytes));
            bail!(Refused(format!("{folder} has {free} free, and this needs {needed}")));
        }
        Ok(())
    }

    pub fn machine(&self) -> Machine {
        Machine::with(self.fs.clone())
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

fn cache_folder() -> Result<PathBuf> {
    if let Some(cache) = env::var_os("XDG_CACHE_HOME") {
        return Ok(cache.into());
    }
    let home = env::var_os("HOME").context("neither HOME nor --dir says where files may go")?;
    Ok(PathBuf::from(home).join(".cache"))
}

/// A file that goes away with its owner, however the run ends.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", self.0.display()))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("left behind: {error:#}");
        }
    }
}

/// Opens what a killed process had open. The kernel lets go of the file of a ring, and so of the
/// lock on it, only some time after the process is gone.
pub fn open_after_kill(path: &Path) -> Result<FileDisk> {
    let began = Instant::now();
    loop {
        let opened = open(path, None);
        let in_use = opened.as_ref().err().and_then(|error| error.downcast_ref());
        if !matches!(in_use, Some(disk::OpenError::InUse { .. })) || began.elapsed() > RELEASE_MAX {
            return opened;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Opens a file the way both sides are measured: a ring, and past the page cache or not at all.
pub fn open(path: &Path, create: Option<ByteLen>) -> Result<FileDisk> {
    let options = disk::OpenOptions {
        backend: Backend::Ring,
        depth: RING_DEPTH,
        create,
        direct: Direct::Auto,
        ..disk::OpenOptions::default()
    };
    let disk = disk::open(path, &options).with_context(|| format!("opening {}", path.display()))?;
    ensure!(
        disk.geometry().mode == IoMode::Direct,
        "{}: no direct IO here, and figures through the page cache say nothing",
        path.display()
    );
    Ok(disk)
}

/// One line about an open disk.
pub fn describe(disk: &FileDisk) -> String {
    let geometry = disk.geometry();
    format!(
        "{}, {} IO, {} deep, sector {} B (physical {} B), {}",
        disk.backend(),
        geometry.mode,
        RING_DEPTH,
        geometry.sector.bytes(),
        geometry.physical_sector.bytes(),
        geometry.size
    )
}
