//! File systems on devices: what is there, and making, checking and growing them.
//!
//! A file system is only ever made on a device that is blank, or on which making one was begun and not finished:
//! a device with anything else on it, known or not, is refused. Before one is made, a mark is written to the
//! device's first block, durably; but every `mkfs` has overwritten it some time before it is done. What was begun here
//! and not finished is therefore noted on this machine too (`host/begun.rs`).
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::tools::{self, ToolError};

const MARK: &[u8] = b"pollux: a file system is being made here\n";
const MARK_BLOCK: usize = 4096;
/// What has to be zero at both ends of a blank device: every file system, partition table and volume manager has
/// something there.
const ENDS: u64 = 4 << 20;
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
    Blank,
    /// Making a file system was begun here, and nothing else.
    Unfinished,
    FileSystem {
        kind: Kind,
        uuid: String,
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
                    return Ok(Found::Unfinished);
                }
                let uuid = value("UUID").unwrap_or_default().to_owned();
                return Ok(Found::FileSystem { kind, uuid });
            }
            let what = value("TYPE").or(value("PTTYPE")).unwrap_or("something").to_owned();
            Ok(Found::Other { what })
        }
        // It knows nothing that looks like this.
        Some(2) => unknown(device),
        Some(8) => Ok(Found::Other { what: "what looks like several things at once".into() }),
        _ => Err(tools::failed("blkid", &probed).into()),
    }
}

fn unknown(device: &Path) -> Result<Found> {
    let failed = |error| FileSystemError::Device { device: device.to_owned(), error };
    if head(device)?.starts_with(MARK) {
        return Ok(Found::Unfinished);
    }
    let mut file = File::open(device).map_err(failed)?;
    let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
    for from in [0, size.saturating_sub(ENDS)] {
        file.seek(SeekFrom::Start(from)).map_err(failed)?;
        if !is_zero((&mut file).take(ENDS)).map_err(failed)? {
            return Ok(Found::Other { what: "data that is no known file system".into() });
        }
    }
    Ok(Found::Blank)
}

fn head(device: &Path) -> Result<Vec<u8>> {
    let read = || {
        let mut block = Vec::new();
        File::open(device)?.take(MARK_BLOCK as u64).read_to_end(&mut block)?;
        Ok(block)
    };
    read().map_err(|error| FileSystemError::Device { device: device.to_owned(), error })
}

fn is_zero(mut from: impl Read) -> io::Result<bool> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(true),
            len if buffer[..len].iter().any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// Only on what [`look`] called blank or unfinished.
pub fn make(device: &Path, kind: Kind) -> Result<()> {
    let mark = || {
        let mut block = vec![0; MARK_BLOCK];
        block[..MARK.len()].copy_from_slice(MARK);
        // Alone: a tool that a killed driver started may still be at it.
        let mut file = OpenOptions::new().write(true).custom_flags(libc::O_EXCL).open(device)?;
        file.write_all(&block)?;
        file.sync_all()
    };
    mark().map_err(|error| FileSystemError::Device { device: device.to_owned(), error })?;
    // Without a discard first: the device is blank, and the mark has to stay until the end.
    let (tool, args): (_, &[&str]) = match kind {
        Kind::Ext4 => ("mkfs.ext4", &["-q", "-F", "-E", "nodiscard", "-m", "0"]),
        Kind::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
        Kind::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"]),
    };
    let args: Vec<&OsStr> = args.iter().map(OsStr::new).chain([device.as_os_str()]).collect();
    tools::must(tool, &args)?;
    Ok(())
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
