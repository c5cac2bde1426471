//! The maps of volumes and the directory: pages in memory, looking up, and merging updates.
mod carried;
mod directory;
mod lookup;
mod merge;
mod pages;
#[cfg(test)]
mod tests;
mod writer;

pub use carried::{CARRIED_MAX, CARRIED_STEPS, Carried, Hole, SMALL_HOLE_LEAVES};
pub use directory::{DirectoryContext, DirectoryEdit, DirectoryStep};
pub use lookup::{Cursor, Found, Tree, lookup};
pub use merge::{Merge, MergeContext, MergeStep, Source};
pub use pages::{Got, PageKey, Pages, Waiter};
pub use writer::PageWriter;

pub use crate::format::space_entry as space_entry_of;
