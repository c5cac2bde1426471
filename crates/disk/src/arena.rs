//! Memory that is lent for IO. A ring has it pinned once, so that no IO from or to it pins it again.
//!
//! Invariants:
//! - The region is allocated once and freed when its last chunk and its ring are gone.
//! - A range of it belongs to at most one live chunk: it is carved off, or taken from a free list
//!   that only a dropped chunk puts it on.
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use block::{Buf, ByteLen, Lent, PAGE_LEN};

/// The whole region. Aligned to a huge page, so that the kernel may use some.
const ALIGN: usize = 2 << 20;

#[derive(Debug, Default)]
struct Free {
    /// Everything behind was never given out.
    carved: usize,
    /// Offsets of free ranges, by the power of two of their pages.
    ranges: Vec<Vec<usize>>,
}

#[derive(Debug)]
pub(crate) struct Arena {
    base: NonNull<u8>,
    layout: Layout,
    free: Mutex<Free>,
}

// SAFETY: the region is plain memory. Who may touch which range of it is settled by the free
// list, behind a lock, and each chunk touches only its own.
unsafe impl Send for Arena {}
// SAFETY: as above; a shared arena gives access to no bytes at all.
unsafe impl Sync for Arena {}

impl Arena {
    pub(crate) fn new(len: ByteLen) -> Option<Arc<Arena>> {
        let len = usize::try_from(len.0).ok()?.next_multiple_of(PAGE_LEN);
        if len == 0 {
            return None;
        }
        let layout = Layout::from_size_align(len, ALIGN).ok()?;
        // SAFETY: the layout has a size, which was just looked at.
        let memory = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout));
        Some(Arc::new(Arena { base, layout, free: Mutex::default() }))
    }

    /// The region, for being registered.
    pub(crate) fn region(&self) -> libc::iovec {
        libc::iovec { iov_base: self.base.as_ptr().cast(), iov_len: self.layout.size() }
    }

    /// Whether these bytes lie within the region.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let (start, base) = (bytes.as_ptr() as usize, self.base.as_ptr() as usize);
        start >= base && start + bytes.len() <= base + self.layout.size()
    }

    /// A buffer of this capacity, which must be a power of two of pages.
    pub(crate) fn lend(self: &Arc<Arena>, capacity: usize) -> Option<Buf> {
        let pages = capacity / PAGE_LEN;
        if !pages.is_power_of_two() || !capacity.is_multiple_of(PAGE_LEN) {
            return None;
        }
        let class = pages.trailing_zeros() as usize;
        let mut free = self.free.lock().ok()?;
        let found = free.ranges.get_mut(class).and_then(Vec::pop);
        let offset = match found {
            Some(offset) => offset,
            None if free.carved + capacity <= self.layout.size() => {
                free.carved += capacity;
                free.carved - capacity
            }
            None => return None,
        };
        drop(free);
        Some(Buf::lent(Box::new(Chunk { arena: Arc::clone(self), offset, len: capacity })))
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, and no chunk is left, since each holds the
        // arena.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// A range of the region that belongs to one buffer.
struct Chunk {
    arena: Arc<Arena>,
    offset: usize,
    len: usize,
}

impl Lent for Chunk {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the range lies within the region, which lives as long as the arena; it was
        // zeroed once, so its bytes are initialised; and nobody else has this range.
        unsafe { std::slice::from_raw_parts(self.arena.base.as_ptr().add(self.offset), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the chunk is borrowed exclusively.
        unsafe {
            std::slice::from_raw_parts_mut(self.arena.base.as_ptr().add(self.offset), self.len)
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let class = (self.len / PAGE_LEN).trailing_zeros() as usize;
        // A lock that a panic left behind only means that this range is not lent again.
        if let Ok(mut free) = self.arena.free.lock() {
            if free.ranges.len() <= class {
                free.ranges.resize_with(class + 1, Vec::new);
            }
            free.ranges[class].push(self.offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects from two buffers that share a byte, whatever is lent and given back in between.
    #[test]
    fn no_two_buffers_share_a_byte() {
        let arena = Arena::new(ByteLen(1 << 20)).unwrap();
        let mut lent: Vec<(u8, Buf)> = Vec::new();
        for round in 0..2000usize {
            let capacity = PAGE_LEN << (round * 7 % 4);
            if round % 3 == 2 && !lent.is_empty() {
                lent.swap_remove(round % lent.len());
            }
            if let Some(mut buf) = arena.lend(capacity) {
                let tag = u8::try_from(round % 251).unwrap();
                buf.fill(tag);
                assert!(arena.holds(&buf));
                assert_eq!(buf.as_ptr() as usize % PAGE_LEN, 0);
                lent.push((tag, buf));
            }
            for (tag, buf) in &lent {
                assert!(buf.iter().all(|byte| byte == tag));
            }
            lent.truncate(60);
        }
    }

    /// Protects from memory that is lent once and then lost.
    #[test]
    fn a_range_that_comes_back_is_lent_again() {
        let arena = Arena::new(ByteLen(8 * PAGE_LEN as u64)).unwrap();
        let all: Vec<Buf> = std::iter::from_fn(|| arena.lend(2 * PAGE_LEN)).collect();
        assert_eq!(all.len(), 4);
        assert!(arena.lend(PAGE_LEN).is_none());
        drop(all);
        assert_eq!(std::iter::from_fn(|| arena.lend(2 * PAGE_LEN)).take(9).count(), 9);
        assert!(arena.lend(3 * PAGE_LEN).is_none(), "only powers of two");
        assert!(!arena.holds(&[0; 16]));
    }
}
