//! From a granule to its entry: a walk from the root, begun anew whenever a page had to be read.
use std::sync::Arc;

use block::{Buf, Disk, Seq};

use crate::format::{Child, Entry, PageId, PageKind, PageProblem, child, entry};
use crate::map::{Got, Pages, Waiter};
use crate::pool::Device;
use crate::units::Granule;

pub enum Found {
    Entry(Entry),
    Wait,
    Bad(PageProblem),
}

/// Remembers the leaf of the last lookup: neighbours are found without a walk.
#[derive(Default)]
pub struct LeafCursor {
    leaf: Option<(u64, Arc<Buf>)>,
}

pub fn lookup<D: Disk>(
    root: Child,
    height: u8,
    granule: Granule,
    cursor: &mut LeafCursor,
    waiter: Waiter,
    pages: &mut Pages,
    device: &mut Device<D>,
) -> Found {
    let within = (granule.0 % 128) as usize;
    if let Some((index, leaf)) = &cursor.leaf
        && *index == granule.0 >> 7
    {
        return Found::Entry(entry(leaf, within));
    }
    if height == 0 || granule.0.checked_shr(7 * u32::from(height)).unwrap_or(0) != 0 {
        return Found::Entry(Entry::Hole { changed: Seq(0) });
    }
    let mut at = root;
    for level in (0..height).rev() {
        let ptr = match at {
            Child::Hole { changed } => return Found::Entry(Entry::Hole { changed }),
            Child::Page { ptr, .. } => ptr,
        };
        let index = granule.0 >> (7 * (u32::from(level) + 1)).min(63);
        let id = PageId { kind: PageKind::Map, level, index, epoch: ptr.born };
        let page = match pages.want(ptr, id, waiter, device) {
            Got::Page(page) => page,
            Got::Wait => return Found::Wait,
            Got::Bad(problem) => return Found::Bad(problem),
        };
        if level == 0 {
            let found = entry(&page, within);
            cursor.leaf = Some((index, page));
            return Found::Entry(found);
        }
        at = child(&page, (granule.0 >> (7 * u32::from(level))) as usize % 128);
    }
    unreachable!("the walk ends at level 0")
}
