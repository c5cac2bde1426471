//! Who says whether a volume may be formatted: the site does.
//!
//! Only the site knows whether any block of a volume is allocated, and whether a mkfs on it was cut off: also one that
//! another machine began. This crate does not speak the site's API, so whoever stages brings this along.
use thiserror::Error;

use crate::filesystem::Kind;

/// Asked while the volume is claimed on this machine and attached to it.
pub trait Permit {
    /// Whether a mkfs on the volume was begun and has not finished. What is on the volume was left by that, and nothing
    /// of it may be mounted.
    fn is_unfinished(&self) -> Result<bool, PermitError>;

    /// Before anything is written. When it returns, the site has noted durably that the volume is being formatted.
    /// Refused if the volume has data and no mkfs was cut off on it.
    fn begin(&self, kind: Kind) -> Result<(), PermitError>;

    /// After the file system is durable, and before it is mounted.
    fn finish(&self) -> Result<(), PermitError>;
}

/// Why the site did not do it, in its words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PermitError {
    /// Asking again does not help.
    #[error("{0}")]
    Refused(String),
    /// Something else is being done with the volume in the site.
    #[error("{0}")]
    Busy(String),
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Failed(String),
}
