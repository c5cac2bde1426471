//! What can go wrong with certificates; each message says what to do.
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::inspect::Date;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{name:?} is no name for a certificate: use 1 to 63 of a-z, 0-9 and '-', with '-' neither first \
     nor last, such as node-1 or catalog"
)]
pub struct NameError {
    pub name: String,
}

#[derive(Debug, Error)]
pub enum IssueError {
    #[error("{address:?} is no IP address and no host name: give one that the site is reached by")]
    BadAddress { address: String },

    #[error("{address:?} looks like the name of a certificate: leave it out, or rename the host")]
    AddressInZone { address: String },

    #[error(
        "the name {name} is kept for the authority itself: choose another, such as node-1 or catalog"
    )]
    Reserved { name: String },

    #[error(
        "the authority's certificate expired on {on}: make a new authority with `pollux certs init` \
         in another folder, and issue all certificates anew"
    )]
    AuthorityExpired { on: Date },

    #[error("the certificate could not be made: {error}")]
    Made { error: rcgen::Error },

    #[error(
        "what the authority's key signs does not fit the authority's certificate ({error}): its files \
         do not belong together; take both from one backup"
    )]
    WrongAuthority { error: webpki::Error },
}

#[derive(Debug, Error)]
pub enum WriteError {
    #[error(
        "{} exists already and is left alone: remove it first if it is no longer needed, or choose \
         another folder",
        path.display()
    )]
    Exists { path: PathBuf },

    #[error("{} could not be written: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

#[derive(Debug, Error)]
pub enum LoadError {
    #[error("{} does not exist: {advice}", path.display())]
    Missing { path: PathBuf, advice: &'static str },

    #[error("{} could not be read: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },

    #[error("{} has more than {max} bytes: it is no certificate and no key", path.display())]
    TooLarge { path: PathBuf, max: u64 },

    #[error("{} holds no {what} in PEM: put back the file that was issued", path.display())]
    NotPem { path: PathBuf, what: &'static str },

    #[error(
        "{} is a private key that others may read (mode {mode:o}): run `chmod 600 {}`, and issue the \
         certificate anew if somebody may have read it",
        path.display(), path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },

    #[error(
        "{} and {} do not belong together: put back the two files that were issued together",
        certificate.display(), key.display()
    )]
    Unpaired { certificate: PathBuf, key: PathBuf },

    #[error("{} expired on {on}: remove its folder and run `pollux certs issue` again", path.display())]
    Expired { path: PathBuf, on: Date },

    #[error("{} is valid only from {from} on: set this machine's clock, or wait", path.display())]
    NotYetValid { path: PathBuf, from: Date },

    #[error(
        "{} was not issued by the authority in {}: use the files of one folder, as they were issued",
        path.display(), authority.display()
    )]
    OtherAuthority { path: PathBuf, authority: PathBuf },

    #[error("{} cannot be used: {reason}", path.display())]
    Unusable { path: PathBuf, reason: String },
}

/// Why it cannot be said who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeerError {
    #[error("it has shown no certificate")]
    NoCertificate,
    #[error("its certificate cannot be read")]
    Unreadable,
    #[error("its certificate has no name, or more than one, of a participant of a site")]
    NoName,
}
