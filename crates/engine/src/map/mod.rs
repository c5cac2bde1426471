//! The maps of volumes and the directory: pages in memory, looking up, walking, and merging
//! updates.
mod changed;
mod directory;
mod drop;
mod lookup;
mod merge;
mod pages;
mod restamp;
#[cfg(test)]
mod tests;
mod walk;
mod writer;

pub use changed::{Changed, ChangedRun};
pub use directory::{DirectoryContext, DirectoryEdit, DirectoryStep};
pub use drop::{Dropping, Unique};
pub use lookup::{Cursor, Found, Tree, lookup};
pub use merge::{Merge, MergeContext, MergeStep, summary};
pub use pages::{Got, PageKey, Pages, Waiter};
pub use restamp::Restamp;
pub use walk::{Enter, Guide, Seen, Walk, WalkContext, WalkStep};
pub use writer::PageWriter;

pub use crate::format::space_entry as space_entry_of;
