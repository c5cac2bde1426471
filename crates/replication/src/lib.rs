//! One volume over several replicas: the machines of a target and of a replica.
//!
//! Both are pure: `step_all(now, events, out)`; no IO, no clock, no thread. The life of a write:
//! `target/front.rs` (who asks, may it) -> `target/sequence.rs` (a seq, a place in the window) ->
//! `target/peer.rs` (on its way to each replica) -> `replica/apply.rs` (into the store, held) ->
//! `target/sequence.rs` (CF hold it: acknowledged). `docs/quorum.md` is the protocol.
#![forbid(unsafe_code)]

pub mod bounds;
pub mod catalog;
pub mod client;
pub mod constants;
pub mod cost;
pub mod encoding;
pub mod entry;
pub mod history;
pub mod membership;
pub mod message;
pub mod replica;
pub mod residue;
mod shared;
pub mod state;
pub mod store;
pub mod sums;
#[cfg(feature = "faults")]
mod switches;
pub mod target;
pub mod words;
#[cfg(feature = "faults")]
pub use switches::Switch;
