//! A deterministic false world: disks that lose power, and the checkers that use them.
//!
//! Every choice that the false world makes comes from one seed, so that a run which found a fault
//! can be had again.
#![forbid(unsafe_code)]

mod crash_disk;
pub mod fixture;
pub mod quorum;
mod rng;
pub mod workload;

pub use crash_disk::{
    Budget, Counters, CrashDisk, CrashImages, Delivery, EIO, Image, Outstanding, OutstandingSector,
    OutstandingWrite,
};
pub use rng::Rng;
