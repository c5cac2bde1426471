//! The ways in which a kernel can have a volume as a device, the best first.
mod fuse;
mod iscsi;
mod kernel;
mod linked;
mod nbd;
mod redirect;

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use kernel::{Choice, choose, there};

use crate::host::Unwritten;
use crate::link::{HandshakeError, Plan};
use crate::loops::LoopError;
use crate::orders::Health;
use crate::record::{Folder, Record};
use crate::sync::{self, Notes, SyncError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Way {
    /// The kernel's initiator, by open-iscsi.
    Iscsi,
    /// The kernel's client of NBD.
    Nbd,
    /// A file that this process serves, and a loop device of it: needs no module.
    Fuse,
}

impl Way {
    pub const ALL: [Way; 3] = [Way::Iscsi, Way::Nbd, Way::Fuse];

    pub fn name(self) -> &'static str {
        match self {
            Way::Iscsi => "iscsi",
            Way::Nbd => "nbd",
            Way::Fuse => "fuse",
        }
    }
}

#[derive(Debug, Error)]
pub enum WayError {
    #[error(transparent)]
    Target(#[from] HandshakeError),
    #[error(transparent)]
    Loop(#[from] LoopError),
    #[error("{what}: {error}")]
    System { what: &'static str, error: std::io::Error },
    #[error("{} is not this volume any more", device.display())]
    Gone { device: PathBuf },
    #[error("{} is still used by somebody: unmount it, or close what has it open", device.display())]
    Busy { device: PathBuf },
    #[error(transparent)]
    Tool(#[from] crate::tools::ToolError),
    #[error("{0}")]
    Iscsi(String),
    /// The kernel has given up writing it.
    #[error("what was written to {} is lost: {reason}", device.display())]
    Unwritten { device: PathBuf, reason: String },
    #[error("what was written to {} is not durable yet ({reason}), and the device stays: ask again", device.display())]
    NotDurable { device: PathBuf, reason: String },
}

/// A volume that is a device now.
pub trait Attached: Send {
    fn device(&self) -> &Path;
    fn size(&self) -> u64;
    fn health(&self) -> Health;
    /// Writes that failed; `None`: they do not come by here.
    fn failed_writes(&self) -> Option<u64>;
    /// Asks how large the volume is by now.
    fn resize(&mut self) -> Result<(), WayError>;
    /// What was written is durable and the device is gone, or nothing has changed.
    fn close(&mut self) -> Result<(), WayError>;
    /// Whatever is not written yet is lost: it fails, and does not stand in the way of [`Attached::close`].
    fn abandon(&mut self);
}

/// Makes a device of it.
pub fn attach(record: &Record, folder: &Folder, plan: Plan) -> Result<Box<dyn Attached>, WayError> {
    match record.way {
        Way::Fuse => Ok(Box::new(fuse::Attachment::open(record, folder, plan)?)),
        Way::Nbd => Ok(Box::new(nbd::Attachment::open(record, folder, plan)?)),
        Way::Iscsi => Ok(Box::new(iscsi::Attachment::open(record, folder, plan)?)),
    }
}

/// What a process that was killed left of a device. Nothing may use it any more.
pub fn clean(record: &Record, folder: &Folder, unwritten: Unwritten) -> Result<(), WayError> {
    match record.way {
        Way::Fuse => fuse::clean(folder),
        // The kernel let go of its device when the process ended, which had the other end of its socket.
        Way::Nbd => Ok(()),
        Way::Iscsi => iscsi::clean(record, folder, unwritten),
    }
}

/// Devices of an attachment, whether its process lives or not.
pub fn devices(folder: &Folder) -> Vec<PathBuf> {
    // Of loop devices the kernel knows better whose they are: numbers are used again.
    let told = told_device(folder).filter(|device| !is_loop(device));
    told.into_iter().chain(fuse::devices(folder)).collect()
}

fn is_loop(device: &Path) -> bool {
    device.file_name().is_some_and(|name| name.to_string_lossy().starts_with("loop"))
}

/// So that others find it.
fn tell_device(folder: &Folder, device: &Path) -> std::io::Result<()> {
    std::fs::write(folder.device(), format!("{}\n", device.display()))
}

fn told_device(folder: &Folder) -> Option<PathBuf> {
    let told = std::fs::read_to_string(folder.device()).ok()?;
    Some(PathBuf::from(told.trim_end()))
}

/// How long what a device has in memory may take to be written: shorter than whoever gave the order waits.
const WRITE_BACK_MAX: Duration = Duration::from_secs(60);

/// Everything that the kernel has of a device in memory is the target's, and durable there, before `until`.
/// `is_lost` tells of a failure whether something was not written.
fn write_back(
    device: &Path,
    folder: &Folder,
    until: Instant,
    is_lost: impl FnOnce() -> bool + Send + 'static,
) -> Result<(), WayError> {
    let (path, wait) = (device.to_owned(), until.saturating_duration_since(Instant::now()));
    let all_of_it = move || File::open(path)?.sync_all();
    // Without a mark: if this process is killed, so is the device, and nobody looks.
    let notes = Notes { lost: folder.unwritten(), unsettled: None };
    sync::within(wait, notes, all_of_it, is_lost).map_err(|error| {
        let (device, reason) = (device.to_owned(), error.to_string());
        match error {
            SyncError::Lost(_) => WayError::Unwritten { device, reason },
            SyncError::Failed(_) | SyncError::Late(_) | SyncError::NotBegun(_) => {
                WayError::NotDurable { device, reason }
            }
        }
    })
}

/// Nobody has it mounted, or for himself in another way.
fn unused(device: &Path) -> Result<std::fs::File, WayError> {
    let open = |writes| {
        let mut open = std::fs::OpenOptions::new();
        open.read(true).write(writes).custom_flags(libc::O_EXCL).open(device)
    };
    let opened = open(true).or_else(|error| match error.kind() {
        std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
            open(false)
        }
        _ => Err(error),
    });
    opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => WayError::Busy { device: device.to_owned() },
        _ => WayError::System { what: "the volume's device", error },
    })
}
