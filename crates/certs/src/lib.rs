//! Who is who in a site, and connections between those who can prove it.
//!
//! A site has one small authority of its own ([`Authority`]). Whoever takes part in the site has a folder
//! with three files ([`Identity`]): the authority's certificate, its own, and its key. Every connection
//! is TLS 1.3, and both sides show a certificate of that authority; what a certificate says of its owner is
//! one [`Name`], such as `node-3`. Addresses prove nothing.
//!
//! [`tls`] has the configurations for any protocol, [`listen`] and [`channel`] the two ends of gRPC, and
//! [`session`] connections for whoever moves the bytes itself. People and programs outside the site have no
//! certificate: [`http`] serves them, and they only have to [`Trust`] the site's authority.
#![forbid(unsafe_code)]

mod authority;
mod connection;
mod descriptors;
mod dial;
mod door;
mod errors;
mod files;
mod grpc;
pub mod http;
mod identity;
mod inspect;
mod name;
pub mod peer;
mod provider;
#[cfg(test)]
mod scratch;
pub mod session;
mod survey;
pub mod tls;
mod trust;
mod unproved;

pub use authority::{Authority, Issued, Validity};
pub use connection::Io;
pub use descriptors::raise_descriptors;
pub use dial::ConnectError;
pub use door::{ListenError, Refused};
pub use errors::{IssueError, LoadError, NameError, PeerError, WriteError};
pub use grpc::{Caller, Connection, Incoming, admit, channel, listen};
pub use identity::Identity;
pub use inspect::{Date, Subject, inspect};
pub use name::Name;
pub use provider::{hmac_sha256, is_hmac_sha256, random, sha256};
pub use survey::{Surveyed, survey};
pub use trust::Trust;
pub use unproved::Proof;

use std::time::Duration;

/// A machine that takes longer for a handshake is as good as gone.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
