//! The network block device protocol, server side: fixed newstyle negotiation, then requests.
//!
//! A [`Connection`] is a machine of one connection. Bytes go in by [`Connection::receive`] or, for
//! the payload of a write, straight to where it is wanted ([`Connection::landing`]); what is to be
//! done comes out as [`Output`]. It knows simple and structured replies, extended headers, and
//! `base:allocation`; and two options of our own by which a host says who it is ([`hello`]). TLS is the business of the socket, which is why `STARTTLS` is not known here.
//!
//! The life of a write: `stream.rs` (a head, however it is cut) -> `transmission/request.rs` (may
//! it) -> `transmission.rs` (its payload lands) -> `transmission/under_way.rs` (the volume is
//! asked) -> `transmission/reply.rs`.
mod connection;
mod drive;
mod errors;
pub mod hello;
mod limits;
mod negotiation;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod transmission;
pub mod wire;

pub use connection::{Connection, Opened, Output};
#[doc(hidden)]
pub use drive::drive;
pub use errors::{OptionRefusal, ProtocolError};
pub use limits::LIST_PAGE;
