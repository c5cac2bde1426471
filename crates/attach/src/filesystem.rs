//! File systems on devices: what is there, and making, checking and growing them.
//!
//! What a device has on it is told by what is known of it. Whether something unknown is there cannot be told by
//! looking: only the site knows whether a block of the volume is allocated (`host/permit.rs`), so a device without
//! anything known on it is formatted only with the site's permission.
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use block::{ByteLen, ByteOffset};
use rustix::fs::FallocateFlags;
use thiserror::Error;

use crate::calls;
use crate::tools::{self, ToolError};

/// What is read to look into superblocks: those of ext4 and XFS are within.
const HEAD: u64 = 4096;
/// The byte of an XFS superblock that says that `mkfs.xfs` has not finished.
const XFS_IN_PROGRESS: usize = 126;

/// Where the superblock of an ext4, at 1024, has its state; and the bit by which the kernel says that it found an error.
const EXT4_STATE: usize = 1024 + 0x3a;
const EXT4_ERROR: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Ext4, Kind::Xfs, Kind::Btrfs];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
        }
    }

    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What a device has on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing that is known. There may be data all the same.
    Nothing,
    FileSystem {
        kind: Kind,
        uuid: String,
    },
    /// What a mkfs that was cut off may leave, but also something else.
    Unclear {
        what: String,
    },
    /// Something that is not ours to touch.
    Other {
        what: String,
    },
}

#[derive(Debug, Error)]
pub enum FileSystemError {
    #[error("{}: {error}", device.display())]
    Device { device: PathBuf, error: io::Error },
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error(
        "the {} on {} is damaged: {words}; it was not formatted over, look at it with its own tools",
        kind.name(), device.display()
    )]
    Damaged { device: PathBuf, kind: Kind, words: String },
}

type Result<T> = std::result::Result<T, FileSystemError>;

pub fn look(device: &Path) -> Result<Found> {
    let probed = tools::run(
        "blkid",
        &[OsStr::new("-p"), "-o".as_ref(), "export".as_ref(), device.as_ref()],
    )?;
    let said = String::from_utf8_lossy(&probed.stdout).into_owned();
    let value = |key: &str| said.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    match probed.status.code() {
        Some(0) => {
            if let Some(kind) = value("TYPE").and_then(Kind::named) {
                if kind == Kind::Xfs && head(device)?.get(XFS_IN_PROGRESS) == Some(&1) {
                    let what = "an xfs whose mkfs did not finish".into();
                    return Ok(Found::Unclear { what });
                }
                let uuid = value("UUID").unwrap_or_default().to_owned();
                return Ok(Found::FileSystem { kind, uuid });
            }
            let what = value("TYPE").or(value("PTTYPE")).unwrap_or("something").to_owned();
            Ok(Found::Other { what })
        }
        // It knows nothing that looks like this.
        Some(2) => Ok(Found::Nothing),
        Some(8) => Ok(Found::Unclear { what: "what looks like several things at once".into() }),
        _ => Err(tools::failed("blkid", &probed).into()),
    }
}

fn head(device: &Path) -> Result<Vec<u8>> {
    let read = || {
        let mut block = Vec::new();
        File::open(device)?.take(HEAD).read_to_end(&mut block)?;
        Ok(block)
    };
    read().map_err(|error| FileSystemError::Device { device: device.to_owned(), error })
}

/// Everything on it is gone and reads as zeros, and its space is given back.
pub fn discard(device: &Path) -> Result<()> {
    let discarded = || {
        let file = alone(device)?;
        let size = (&file).seek(SeekFrom::End(0))?;
        match file.metadata()?.file_type().is_block_device() {
            true => calls::discard(&file, ByteOffset(0), ByteLen(size))?,
            false => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&file, how, 0, size)?;
            }
        }
        file.sync_all()
    };
    discarded().map_err(|error| FileSystemError::Device { device: device.to_owned(), error })
}

/// For writing, if nobody else has it: a tool that a killed driver started may still be at it.
fn alone(device: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(device)
}

/// With the site's permission only. Durable when it returns.
pub fn make(device: &Path, kind: Kind) -> Result<()> {
    let failed = |error| FileSystemError::Device { device: device.to_owned(), error };
    drop(alone(device).map_err(failed)?);
    // Without a discard first: the device is blank.
    let (tool, args): (_, &[&str]) = match kind {
        Kind::Ext4 => ("mkfs.ext4", &["-q", "-F", "-E", "nodiscard", "-m", "0"]),
        Kind::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
        Kind::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"]),
    };
    let args: Vec<&OsStr> = args.iter().map(OsStr::new).chain([device.as_os_str()]).collect();
    tools::must(tool, &args)?;
    File::open(device).and_then(|file| file.sync_all()).map_err(failed)
}

/// Mends an ext4 in which its kernel has found an error. What its tool cannot mend safely is an error.
pub fn check(device: &Path, kind: Kind) -> Result<()> {
    // All of them replay their logs when they are mounted, and refuse what they cannot. A tool that looks first
    // is more hazard than help: where it does not find the journal of an ext4, it drops it.
    if kind != Kind::Ext4 || !has_errors(&head(device)?) {
        return Ok(());
    }
    let checked = tools::run("e2fsck", &["-p".as_ref(), device.as_ref()])?;
    match checked.status.code() {
        // 1: something was mended; 2: and a mounted root would need a boot, which this is not.
        Some(0..=2) => Ok(()),
        _ => Err(damaged(device, kind, &tools::failed("e2fsck", &checked).to_string())),
    }
}

/// Whether the superblock of an ext4 says so.
fn has_errors(head: &[u8]) -> bool {
    head.get(EXT4_STATE..EXT4_STATE + 2).is_some_and(|state| state[0] & EXT4_ERROR != 0)
}

pub fn damaged(device: &Path, kind: Kind, words: &str) -> FileSystemError {
    FileSystemError::Damaged { device: device.to_owned(), kind, words: words.to_owned() }
}

/// As large as its device, while it is mounted there.
pub fn grow(device: &Path, at: &Path, kind: Kind) -> Result<()> {
    match kind {
        Kind::Ext4 => tools::must("resize2fs", &[device.as_ref()]),
        Kind::Xfs => tools::must("xfs_growfs", &[at.as_ref()]),
        Kind::Btrfs => {
            let args: [&OsStr; 4] =
                ["filesystem".as_ref(), "resize".as_ref(), "max".as_ref(), at.as_ref()];
            tools::must("btrfs", &args)
        }
    }?;
    Ok(())
}

#[cfg(test)]
mod tests;
