//! Sockets, and what lies directly on them: framing and greeting of peers.
pub mod frames;
pub mod greeting;
mod outbox;
mod secure;
pub mod socket;
