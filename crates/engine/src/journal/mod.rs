//! The journal: a ring of blocks that holds every operation since the last checkpoint.
mod replay;
mod ring;
#[cfg(test)]
mod tests;

pub use replay::{Replayed, replay};
pub use ring::Ring;
