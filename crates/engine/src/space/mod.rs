//! Which sectors are in use: where that is kept, and how fresh space is found.
//!
//! A space page has two homes at fixed places in its region, each in two copies. A checkpoint
//! writes the home that the last one did not, so recording allocation never allocates.
mod edit;
mod layout;
mod region;
mod seek;

use std::sync::Arc;

use block::Disk;

use crate::error::CheckpointError;
use crate::format::{PageId, PageKind, SpaceEntry};
use crate::map::{Got, Pages, Waiter};
use crate::pool::Device;
use crate::units::Birth;

pub use edit::{SpaceEdit, SpaceStep};
pub use layout::Layout;
pub use region::{Contradiction, OpenRegion};
pub use seek::{Alloc, Space, Stream};

/// The newest version of a space page; `None` while it is being read.
fn space_page<D: Disk>(
    layout: &Layout,
    level: u8,
    index: u64,
    entry: SpaceEntry,
    pages: &mut Pages,
    device: &mut Device<D>,
) -> Result<Option<Arc<[u8]>>, CheckpointError> {
    let ptr = layout.space_page(level, index, entry);
    let id = PageId { kind: PageKind::Space, level, index, born: Birth(entry.epoch.0) };
    match pages.want(ptr, id, Waiter::Pump, device) {
        Got::Page(page) => Ok(Some(page)),
        Got::Wait => Ok(None),
        Got::Bad(problem) => Err(CheckpointError::PageDamaged { what: "space map", problem }),
    }
}

#[cfg(test)]
mod tests;
