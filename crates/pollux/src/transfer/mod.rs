//! Deltas between a pool and a file or a pipe.
//!
//! An export only looks. An import changes its volume at the very end, all or nothing; until then
//! a hidden volume takes what arrives, over any number of runs.
mod ahead;
pub mod export;
mod fit;
pub mod import;
mod intake;
mod marker;
mod meter;
mod plan;
mod sink;
mod source;

pub use meter::Meter;
pub use plan::plan;
pub use sink::{Sink, check as check_sink};
pub use source::Source;
