//! Memory that is lent for IO. A ring has it pinned once, so that no IO from or to it pins it again.
//!
//! It grows while what is lent is not given back, since whoever writes may have to keep what was
//! written for a while. Only the first region is ever registered.
//!
//! Invariants:
//! - A region is freed when the last chunk and the ring are gone, and not before.
//! - A range belongs to at most one live chunk: it is carved off, or taken from a free list that
//!   only a dropped chunk puts it on.
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use block::{Buf, ByteLen, Lent, PAGE_LEN};

/// Aligned to a huge page, so that the kernel may use some.
const ALIGN: usize = 2 << 20;

/// Regions at the most. A target keeps 16 MiB of a busy volume until they are durable, which is a
/// region as they are made by default, and as much may be on its way meanwhile.
const REGIONS_MAX: usize = 4;

#[derive(Debug)]
struct Region {
    base: NonNull<u8>,
    layout: Layout,
    /// Everything behind was never given out.
    carved: usize,
}

impl Region {
    fn new(len: usize) -> Option<Region> {
        let layout = Layout::from_size_align(len, ALIGN).ok().filter(|it| it.size() > 0)?;
        // SAFETY: the layout has a size, which was just looked at.
        let memory = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout));
        Some(Region { base, layout, carved: 0 })
    }

    fn carve(&mut self, len: usize) -> Option<NonNull<u8>> {
        if self.carved + len > self.layout.size() {
            return None;
        }
        // SAFETY: the range lies within the region.
        let start = unsafe { self.base.add(self.carved) };
        self.carved += len;
        Some(start)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`; regions go with their arena, which every
        // chunk holds, so nobody is left who could touch it.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[derive(Debug)]
struct Memory {
    regions: Vec<Region>,
    /// Ranges that came back, by the power of two of their pages.
    free: Vec<Vec<NonNull<u8>>>,
}

#[derive(Debug)]
pub(crate) struct Arena {
    /// Of the first region.
    base: NonNull<u8>,
    len: usize,
    memory: Mutex<Memory>,
}

// SAFETY: regions are plain memory. Who may touch which range is settled by the free list, behind
// a lock, and each chunk touches only its own.
unsafe impl Send for Arena {}
// SAFETY: as above; a shared arena gives access to no bytes at all.
unsafe impl Sync for Arena {}

impl Arena {
    pub(crate) fn new(len: ByteLen) -> Option<Arc<Arena>> {
        let len = usize::try_from(len.0).ok()?.next_multiple_of(PAGE_LEN);
        let first = Region::new(len)?;
        let base = first.base;
        let memory = Mutex::new(Memory { regions: vec![first], free: Vec::new() });
        Some(Arc::new(Arena { base, len, memory }))
    }

    /// The first region, for being registered.
    pub(crate) fn region(&self) -> libc::iovec {
        libc::iovec { iov_base: self.base.as_ptr().cast(), iov_len: self.len }
    }

    /// Whether these bytes lie within the first region.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let (start, base) = (bytes.as_ptr() as usize, self.base.as_ptr() as usize);
        start >= base && start + bytes.len() <= base + self.len
    }

    /// A buffer of this capacity, which must be a power of two of pages.
    pub(crate) fn lend(self: &Arc<Arena>, capacity: usize) -> Option<Buf> {
        let pages = capacity / PAGE_LEN;
        if !pages.is_power_of_two() || !capacity.is_multiple_of(PAGE_LEN) || capacity > self.len {
            return None;
        }
        let class = pages.trailing_zeros() as usize;
        let mut memory = self.memory.lock().ok()?;
        let start = match memory.free.get_mut(class).and_then(Vec::pop) {
            Some(start) => start,
            None => memory.carve(capacity, self.len)?,
        };
        drop(memory);
        Some(Buf::lent(Box::new(Chunk { arena: Arc::clone(self), start, len: capacity })))
    }
}

impl Memory {
    fn carve(&mut self, len: usize, region: usize) -> Option<NonNull<u8>> {
        let found = self.regions.iter_mut().find_map(|region| region.carve(len));
        if found.is_some() || self.regions.len() >= REGIONS_MAX {
            return found;
        }
        self.regions.push(Region::new(region)?);
        self.regions.last_mut()?.carve(len)
    }
}

/// A range of a region that belongs to one buffer.
struct Chunk {
    arena: Arc<Arena>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: nobody else has this range, so it goes wherever its owner does.
unsafe impl Send for Chunk {}
// SAFETY: through a shared chunk its bytes can only be read.
unsafe impl Sync for Chunk {}

impl Lent for Chunk {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the range lies within a region, which lives as long as the arena; it was zeroed
        // once, so its bytes are initialised; and nobody else has this range.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the chunk is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let class = (self.len / PAGE_LEN).trailing_zeros() as usize;
        // A lock that a panic left behind only means that this range is not lent again.
        if let Ok(mut memory) = self.arena.memory.lock() {
            if memory.free.len() <= class {
                memory.free.resize_with(class + 1, Vec::new);
            }
            memory.free[class].push(self.start);
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
        assert_eq!(all.len(), 4 * REGIONS_MAX);
        assert_eq!(all.iter().filter(|buf| arena.holds(buf)).count(), 4, "the first is registered");
        assert!(arena.lend(PAGE_LEN).is_none());
        drop(all);
        assert_eq!(std::iter::from_fn(|| arena.lend(2 * PAGE_LEN)).take(99).count(), 99);
        assert!(arena.lend(3 * PAGE_LEN).is_none(), "only powers of two");
        assert!(!arena.holds(&[0; 16]));
    }
}
