//! Which sectors are in use: where that is kept, and how fresh space is found.
//!
//! A space page has two homes at fixed places in its region, each in two copies. A checkpoint
//! writes the home that the last one did not, so recording allocation never allocates.
mod edit;
mod layout;
mod region;
mod seek;
#[cfg(test)]
mod tests;

pub use edit::{SpaceEdit, SpaceStep};
pub use layout::Layout;
pub use region::{Contradiction, OpenRegion};
pub use seek::{Alloc, Space, Stream};
