//! The two ends of gRPC within a site.
//!
//! The handshake is ours on both sides, with the same configurations as every other protocol: who calls
//! is known before the first request is read, and who is refused is told why. Without certificates both ends
//! stay on this machine.
mod call;
mod io;
mod listen;

pub use call::{ConnectError, channel};
pub use io::{Caller, Connection};
pub use listen::{Incoming, ListenError, Refused, listen};

use std::time::Duration;

/// A machine that takes longer for a handshake is as good as gone.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
