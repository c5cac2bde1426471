//! What the demo, the process tests and the command line share.
//!
//! The binary is the product; this library exists so that the tests which kill a writer use the
//! very writer and the very judge that the demo shows to people, and look at pools as the commands
//! do.
#![forbid(unsafe_code)]

pub mod patience;
pub mod proof;
mod shadow;

pub use shadow::Shadow;
