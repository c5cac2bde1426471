//! From a granule to its entry: a walk from the root that goes on where it had to wait.
use std::sync::Arc;

use block::{Disk, Seq};

use crate::format::{Child, Entry, PageId, PageKind, PageProblem, child, entry};
use crate::map::{Got, PageKey, Pages, Waiter};
use crate::pool::{Device, ReadKey};
use crate::units::{Epoch, Granule, to_usize};

pub enum Found {
    Entry(Entry),
    Wait,
    Bad(PageProblem),
}

/// The map of a volume as of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    pub root: Child,
    pub height: u8,
    pub epoch: Epoch,
}

/// How far a walk has come. The deepest page is kept, so that a walk gets on however small the
/// cache is, and neighbours of the last granule are found without a walk. A checkpoint makes a
/// new tree, and the walk begins anew.
#[derive(Debug, Default)]
pub struct Cursor {
    epoch: Epoch,
    deepest: Option<(u8, u64, Arc<[u8]>)>,
    arrived: Option<(PageKey, Arc<[u8]>)>,
}

impl Cursor {
    /// A page that this walk waited for.
    pub fn deliver(&mut self, key: PageKey, page: Arc<[u8]>) {
        self.arrived = Some((key, page));
    }
}

pub fn lookup<D: Disk>(
    tree: Tree,
    granule: Granule,
    cursor: &mut Cursor,
    read: ReadKey,
    pages: &mut Pages,
    device: &mut Device<D>,
) -> Found {
    let height = tree.height;
    if height == 0 || granule.0.checked_shr(7 * u32::from(height)).unwrap_or(0) != 0 {
        return Found::Entry(Entry::Hole { changed: Seq(0) });
    }
    if cursor.epoch != tree.epoch {
        *cursor = Cursor { epoch: tree.epoch, deepest: None, arrived: cursor.arrived.take() };
    }
    let index_at = |level: u8| granule.0 >> (7 * (u32::from(level) + 1)).min(63);
    let below =
        |page: &[u8], level: u8| child(page, to_usize(granule.0 >> (7 * u32::from(level))) % 128);
    let (mut at, mut level) = (tree.root, height);
    if let Some((deep, index, page)) = &cursor.deepest
        && *index == index_at(*deep)
    {
        if *deep == 0 {
            return Found::Entry(entry(page, (granule.0 % 128) as usize));
        }
        (at, level) = (below(page, *deep), *deep);
    }
    loop {
        let ptr = match at {
            Child::Hole { changed } => return Found::Entry(Entry::Hole { changed }),
            Child::Page { ptr, .. } => ptr,
        };
        level -= 1;
        let index = index_at(level);
        let id = PageId { kind: PageKind::Map, level, index, born: ptr.born };
        let arrived = cursor.arrived.take().filter(|(key, _)| *key == PageKey::from(ptr));
        let page = match arrived {
            Some((_, page)) => page,
            None => match pages.want(ptr, id, Waiter::Read(read), device) {
                Got::Page(page) => page,
                Got::Wait => return Found::Wait,
                Got::Bad(problem) => return Found::Bad(problem),
            },
        };
        cursor.deepest = Some((level, index, Arc::clone(&page)));
        if level == 0 {
            return Found::Entry(entry(&page, (granule.0 % 128) as usize));
        }
        at = below(&page, level);
    }
}
