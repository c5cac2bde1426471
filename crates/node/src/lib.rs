//! The data-plane process: pools, replicas and targets of one node.
//!
//! [`shard::Shard`] is the loop that owns them all; `net` is its sockets, `store` carries what
//! replicas ask to the engine. Whoever wants something of the shard sends it an order
//! ([`shard::Order`]); nothing is shared, so nothing is locked. `admin` is who does, `catalog` what this
//! node knows of its site, and `process` puts it all together.
#![forbid(unsafe_code)]

pub mod admin;
pub mod catalog;
pub mod clock;
mod complaints;
pub mod metrics;
pub mod net;
pub mod process;
mod random;
pub mod records;
pub mod shard;
pub mod store;
