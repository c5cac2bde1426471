//! The two ends of gRPC within a site.
//!
//! The handshake is ours on both sides, with the same configurations as every other protocol: who calls
//! is known before the first request is read, and who is refused is told why. Without certificates both ends
//! stay on this machine.
mod call;
mod listen;

pub use call::channel;
pub use listen::{Caller, Connection, Incoming, admit, listen};
