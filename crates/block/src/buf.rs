//! Memory for direct IO: aligned to a page, recycled, and shared without copying.
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment of every buffer, and the unit in which buffers are sized. Direct IO wants the
/// device's sector at most, and no sector that we support is larger.
pub const PAGE_LEN: usize = 4096;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_LEN]);

/// Memory that somebody lends for IO, such as a region that a device knows already. It is aligned
/// to [`PAGE_LEN`], and goes back when it is dropped.
pub trait Lent: Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

enum Memory {
    Own(Vec<Page>),
    Lent(Box<dyn Lent>),
}

/// Memory of one owner, aligned to [`PAGE_LEN`]. Its length may be any number up to its capacity.
pub struct Buf {
    memory: Memory,
    len: usize,
}

impl Buf {
    /// A buffer of zeros.
    pub fn zeroed(len: usize) -> Buf {
        let pages = Page::new_vec_zeroed(len.div_ceil(PAGE_LEN))
            .expect("memory for a buffer: running without it is not planned for");
        Buf { memory: Memory::Own(pages), len }
    }

    /// A buffer in lent memory, all of it, with whatever bytes are there.
    pub fn lent(memory: Box<dyn Lent>) -> Buf {
        let len = memory.bytes().len();
        Buf { memory: Memory::Lent(memory), len }
    }

    pub fn copy_of(bytes: &[u8]) -> Buf {
        let mut buf = Buf::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Own(pages) => pages.len() * PAGE_LEN,
            Memory::Lent(lent) => lent.bytes().len(),
        }
    }

    /// Changes the length within the capacity; bytes that come into view are what they were.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "a buffer of {} cannot hold {len}", self.capacity());
        self.len = len;
    }

    pub fn into_data(self) -> Data {
        let range = 0..self.len;
        Data { buf: Arc::new(self), range }
    }
}

impl std::ops::Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Own(pages) => &pages.as_slice().as_bytes()[..self.len],
            Memory::Lent(lent) => &lent.bytes()[..self.len],
        }
    }
}

impl std::ops::DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Own(pages) => &mut pages.as_mut_slice().as_mut_bytes()[..self.len],
            Memory::Lent(lent) => &mut lent.bytes_mut()[..self.len],
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

/// A shared, immutable view into a [`Buf`]: cheap to clone and to slice.
#[derive(Clone)]
pub struct Data {
    buf: Arc<Buf>,
    range: Range<usize>,
}

impl Data {
    pub fn copy_of(bytes: &[u8]) -> Data {
        Buf::copy_of(bytes).into_data()
    }

    /// A part of this view; the range is relative to it.
    pub fn slice(&self, range: Range<usize>) -> Data {
        assert!(
            range.start <= range.end && range.end <= self.range.len(),
            "slice {range:?} of a view of {} bytes",
            self.range.len()
        );
        let start = self.range.start;
        Data { buf: Arc::clone(&self.buf), range: start + range.start..start + range.end }
    }

    /// Whether the bytes begin at a multiple of `align` in memory, as direct IO asks.
    pub fn is_aligned(&self, align: usize) -> bool {
        self.range.start.is_multiple_of(align)
    }

    /// Whether `next` begins where this view ends, in the same buffer.
    pub fn adjoins(&self, next: &Data) -> bool {
        Arc::ptr_eq(&self.buf, &next.buf) && self.range.end == next.range.start
    }

    /// This view and the one that adjoins it as one.
    pub fn join(&self, next: &Data) -> Data {
        assert!(self.adjoins(next), "only neighbours can be joined");
        Data { buf: Arc::clone(&self.buf), range: self.range.start..next.range.end }
    }

    /// The buffer, where this view was the last to hold it.
    pub fn into_buf(self) -> Option<Buf> {
        Arc::into_inner(self.buf)
    }
}

impl std::ops::Deref for Data {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[self.range.clone()]
    }
}

impl From<Buf> for Data {
    fn from(buf: Buf) -> Data {
        buf.into_data()
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({} bytes)", self.range.len())
    }
}

/// Buffers that were used once and wait to be used again, up to a fixed number of bytes.
///
/// Fresh memory costs a page fault per 4 KiB, which is more than the checksum of the same bytes;
/// recycling keeps large IO near the speed of the device.
#[derive(Debug)]
pub struct BufPool {
    free: Vec<Vec<Buf>>,
    kept: usize,
    kept_max: usize,
}

impl BufPool {
    pub fn new(kept_max: usize) -> BufPool {
        BufPool { free: Vec::new(), kept: 0, kept_max }
    }

    fn class(len: usize) -> usize {
        len.div_ceil(PAGE_LEN).max(1).next_power_of_two().trailing_zeros() as usize
    }

    /// The capacity of buffers that are kept for this length: a power of two of pages.
    pub fn capacity_for(len: usize) -> usize {
        PAGE_LEN << Self::class(len)
    }

    /// A kept buffer with this length, whose bytes are whatever they were.
    pub fn take_kept(&mut self, len: usize) -> Option<Buf> {
        let mut buf = self.free.get_mut(Self::class(len)).and_then(Vec::pop)?;
        self.kept -= buf.capacity();
        buf.set_len(len);
        Some(buf)
    }

    /// A buffer of this length whose bytes are whatever they were.
    pub fn take(&mut self, len: usize) -> Buf {
        self.take_kept(len).unwrap_or_else(|| {
            let mut buf = Buf::zeroed(Self::capacity_for(len));
            buf.set_len(len);
            buf
        })
    }

    /// Keeps a buffer for later, unless enough are kept already.
    pub fn give(&mut self, buf: Buf) {
        let capacity = buf.capacity();
        let class = Self::class(capacity);
        if self.kept + capacity > self.kept_max || capacity != PAGE_LEN << class {
            return;
        }
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.kept += capacity;
        self.free[class].push(buf);
    }

    /// Bytes that wait for reuse.
    pub fn kept(&self) -> usize {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_slices_see_their_part() {
        let mut buf = Buf::zeroed(10_000);
        assert_eq!(buf.as_ptr() as usize % PAGE_LEN, 0);
        buf[4096] = 7;
        let data = buf.into_data();
        let part = data.slice(4096..8192);
        assert_eq!(part[0], 7);
        assert!(part.is_aligned(4096));
        assert!(!part.slice(1..2).is_aligned(512));
        assert!(part.into_buf().is_none(), "another view holds the buffer");
        assert!(data.into_buf().is_some());
    }

    #[test]
    fn the_pool_recycles_up_to_its_bound() {
        let mut pool = BufPool::new(8192);
        let (a, b, c) = (pool.take(4096), pool.take(100), pool.take(4096));
        let at = a.as_ptr();
        pool.give(a);
        pool.give(b);
        pool.give(c);
        assert_eq!(pool.kept(), 8192);
        let again = [pool.take(1), pool.take(1)];
        assert!(again.iter().any(|buf| buf.as_ptr() == at));
        assert_eq!(pool.kept(), 0);
    }
}
