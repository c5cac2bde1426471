//! A disk that lies in a sparse file: what was not allocated cannot be written.
use std::collections::BTreeSet;

use block::DiskErrorKind;

/// The system's number for a lack of space.
pub const ENOSPC: i32 = 28;

const PAGE: u64 = 4096;

/// Stricter than a file system, which allocates as it writes while it can: here every write to a page that
/// was not allocated before fails.
#[derive(Clone, Debug)]
pub(super) struct Sparse {
    allocated: BTreeSet<u64>,
    /// Pages that the file system still has.
    left: u64,
}

impl Sparse {
    pub(super) fn new(space: u64) -> Sparse {
        Sparse { allocated: BTreeSet::new(), left: space / PAGE }
    }

    pub(super) fn set_left(&mut self, space: u64) {
        self.left = space / PAGE;
    }

    fn pages(at: u64, len: u64) -> std::ops::Range<u64> {
        at / PAGE..(at + len).div_ceil(PAGE)
    }

    pub(super) fn allocate(&mut self, at: u64, len: u64) -> Result<(), DiskErrorKind> {
        let missing: Vec<u64> =
            Sparse::pages(at, len).filter(|page| !self.allocated.contains(page)).collect();
        if missing.len() as u64 > self.left {
            return Err(DiskErrorKind::System(ENOSPC));
        }
        self.left -= missing.len() as u64;
        self.allocated.extend(missing);
        Ok(())
    }

    pub(super) fn holds(&self, at: u64, len: u64) -> bool {
        Sparse::pages(at, len).all(|page| self.allocated.contains(&page))
    }
}
