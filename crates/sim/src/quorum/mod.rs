//! A world of nodes, links, a catalog and clients around the machines of replication.
//!
//! Everything that happens follows from one seed: virtual time, one heap of events, one stream of
//! chance per actor. What is checked here is what can be seen from outside the machines.
mod check;
mod clients;
pub mod coverage;
pub mod history;
mod load;
mod off;
mod plan;
mod run;
mod sparse;
mod store;
mod trace;
mod wire;
mod world;

pub use off::{Check, Off};
pub use plan::{FAULTS, Plan};
pub use run::{Summary, run, run_one, run_plan};
pub use sparse::Sparse;
pub use trace::Trace;
pub use world::Outcome;

/// A length or a place of something that is held in memory.
fn in_memory(n: u64) -> usize {
    usize::try_from(n).expect("what is in memory fits a word")
}
