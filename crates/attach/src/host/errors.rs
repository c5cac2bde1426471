//! Why something cannot be done with a volume on this machine.
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::filesystem::FileSystemError;
use crate::loops::LoopError;
use crate::orders::OrderError;
use crate::record::RecordError;
use crate::ways::WayError;

#[derive(Debug, Error)]
pub enum HostError {
    #[error("something else is being done with the volume {uid} on this machine: ask again")]
    Busy { uid: String },
    #[error("{field}: {}: {problem}", path.display())]
    Path { field: &'static str, path: PathBuf, problem: &'static str },
    #[error("no way to attach a volume: {0}")]
    NoWay(String),
    #[error("the volume could not be attached: {0}")]
    Start(String),
    #[error(
        "the attachment of {volume} is lost ({reason}) and still used at {}: unmount it there, then stage it anew",
        shown(used)
    )]
    Lost { volume: String, reason: String, used: Vec<PathBuf> },
    #[error("the volume is still used at {}: unpublish it there first", shown(used))]
    Used { used: Vec<PathBuf> },
    #[error("{} has something else mounted ({by}): it is not touched", path.display())]
    Occupied { path: PathBuf, by: String },
    #[error("{} cannot be unmounted, somebody works in it: end that, then ask again", path.display())]
    Worked { path: PathBuf },
    #[error(
        "the volume {volume} stays: what was written to {} and is buffered in this machine's memory could not be written to it ({reason}), and would be lost; bring its target back and ask again, or give those writes up with `pollux volume unmount {volume} --force`",
        device.display()
    )]
    Unwritten { volume: String, device: PathBuf, reason: String },
    #[error("{} is no mount and not empty: what is in it is somebody's, and it stays", path.display())]
    NotEmpty { path: PathBuf },
    #[error("{} does not take these mount options: {options}", kind)]
    Options { kind: &'static str, options: String },
    #[error("the volume is at {} already, in another way: {difference}", path.display())]
    Different { path: PathBuf, difference: &'static str },
    #[error("the volume {uid} is not attached to this machine")]
    NotAttached { uid: String },
    #[error("the volume is not staged at {}", path.display())]
    NotStaged { path: PathBuf },
    #[error("the volume is not at {}", path.display())]
    NotThere { path: PathBuf },
    #[error("the volume is published at {}, and only one place may have it", path.display())]
    SingleWriter { path: PathBuf },
    #[error(
        "the volume holds {found}, and {wanted} was asked for: it is not formatted over; wipe it first if nobody needs it"
    )]
    Foreign { found: String, wanted: &'static str },
    #[error(
        "a device can be published for reading only if the volume is attached for reading only: use a mode for readers"
    )]
    WritableDevice,
    #[error(
        "the volume is blank, or its file system was not finished, and it is read-only: there is nothing to mount"
    )]
    BlankReadOnly,
    /// The site did not let the volume be formatted.
    #[error(transparent)]
    Permit(#[from] super::PermitError),
    #[error(
        "another file system with the id {uuid} is mounted here, and this kernel cannot have both: {why}"
    )]
    Twin { uuid: String, why: String },
    #[error("{what}: {error}")]
    System { what: String, error: io::Error },
    #[error(transparent)]
    FileSystem(#[from] FileSystemError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error(transparent)]
    Way(#[from] WayError),
    #[error(transparent)]
    Loop(#[from] LoopError),
}

fn shown(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

impl HostError {
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> HostError {
        let what = what.into();
        move |error| HostError::System { what, error }
    }
}
