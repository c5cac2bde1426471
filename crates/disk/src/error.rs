//! Why a disk could not be opened, and what to do about it.
use std::io;
use std::path::{Path, PathBuf};

use block::ByteLen;

use crate::options::DEPTH_MAX;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} does not exist: check the path, or create the file first", path.display())]
    NotFound { path: PathBuf },

    #[error(
        "no permission to open {}: run as a user who may, or change its owner or mode",
        path.display()
    )]
    Denied { path: PathBuf },

    #[error(
        "{} exists already and is left alone: choose another path, or remove it first",
        path.display()
    )]
    Exists { path: PathBuf },

    /// Also true for tens of milliseconds after a holder was killed: its last IO keeps the lock.
    /// Whoever restarts a killed process should try again for a second before giving up.
    #[error(
        "{} is in use by another process, or mounted: stop or unmount it (`fuser -v` tells who \
         holds it), or choose another path",
        path.display()
    )]
    InUse { path: PathBuf },

    #[error("{} is a {found}: a regular file or a block device is needed", path.display())]
    WrongKind { path: PathBuf, found: &'static str },

    #[error(
        "{} wants direct IO in units of {unit}, and the largest supported is 4 KiB: use another \
         device or file system, or buffered IO",
        path.display()
    )]
    Alignment { path: PathBuf, unit: ByteLen },

    #[error(
        "{} holds {size}, which is less than one sector: give it a size first",
        path.display()
    )]
    TooSmall { path: PathBuf, size: ByteLen },

    #[error(
        "{} cannot be created with {size}: the size must be a multiple of 4 KiB, and not zero",
        path.display()
    )]
    CreateSize { path: PathBuf, size: ByteLen },

    #[error(
        "there is no space for {size} where {} is: make some, choose another place, or let the file take \
         its space only as it is used (--sparse)",
        path.display()
    )]
    NoSpace { path: PathBuf, size: ByteLen },

    #[error(
        "{} cannot be created for reading only: create it writable, then open it again",
        path.display()
    )]
    CreateReadOnly { path: PathBuf },

    #[error("a depth of {depth} is not possible: choose one from 1 to {DEPTH_MAX}")]
    Depth { depth: u32 },

    #[error("the system refuses io_uring ({source}): allow it, or choose the thread backend")]
    NoRing { source: io::Error },

    #[error("cannot {action} {}: {source}", path.display())]
    System { path: PathBuf, action: &'static str, source: io::Error },
}

impl OpenError {
    /// For `map_err`: names the step that failed.
    pub(crate) fn system<E: Into<io::Error>>(
        path: &Path,
        action: &'static str,
    ) -> impl FnOnce(E) -> OpenError {
        move |error| OpenError::System { path: path.into(), action, source: error.into() }
    }

    /// Whether the same call may succeed later without anybody changing its arguments, the file
    /// or the device.
    pub fn is_transient(&self) -> bool {
        match self {
            OpenError::InUse { .. } => true,
            OpenError::NoRing { source } | OpenError::System { source, .. } => {
                is_shortage(source.raw_os_error())
            }
            _ => false,
        }
    }
}

/// Running out of something that others may give back.
fn is_shortage(code: Option<i32>) -> bool {
    matches!(
        code,
        Some(
            libc::EAGAIN
                | libc::EBUSY
                | libc::EINTR
                | libc::EMFILE
                | libc::ENFILE
                | libc::ENOLCK
                | libc::ENOMEM
                | libc::ENOSPC
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects from an operator who is told only that something failed.
    #[test]
    fn messages_name_the_path_and_what_to_do() {
        let path = PathBuf::from("/dev/sdz");
        let text = OpenError::InUse { path: path.clone() }.to_string();
        assert!(text.starts_with("/dev/sdz is in use"), "{text}");
        assert!(text.contains("stop or unmount it"), "{text}");
        let unit = ByteLen(16_384);
        let text = OpenError::Alignment { path, unit }.to_string();
        assert!(text.contains("units of 16 KiB"), "{text}");
        let text = OpenError::Depth { depth: 0 }.to_string();
        assert!(text.contains("from 1 to 32768"), "{text}");
    }

    /// Protects from a caller who retries for ever, and from one who gives up too early.
    #[test]
    fn only_shortages_and_rivals_are_worth_another_try() {
        let path = PathBuf::from("/x");
        let system = |code| OpenError::System {
            path: path.clone(),
            action: "open",
            source: io::Error::from_raw_os_error(code),
        };
        assert!(OpenError::InUse { path: path.clone() }.is_transient());
        assert!(system(libc::EMFILE).is_transient());
        assert!(!system(libc::EIO).is_transient());
        assert!(!OpenError::NotFound { path }.is_transient());
    }
}
