//! The system's allocator with a count: how many bytes are on the heap, and how many at the most,
//! since counting began. Until then it costs one branch that is always predicted.
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

pub struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static NOW: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

/// Begins at zero: what was allocated before is not counted, and counts as negative when freed.
pub fn begin() {
    NOW.store(0, Relaxed);
    PEAK.store(0, Relaxed);
    COUNTS.store(true, Relaxed);
}

/// The most bytes that were allocated at once since [`begin`].
pub fn peak() -> u64 {
    u64::try_from(PEAK.load(Relaxed)).unwrap_or(0)
}

/// The bytes that are allocated now.
pub fn now() -> i64 {
    NOW.load(Relaxed)
}

fn add(bytes: usize) {
    if COUNTS.load(Relaxed) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let now = NOW.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(now, Relaxed);
    }
}

fn subtract(bytes: usize) {
    if COUNTS.load(Relaxed) {
        NOW.fetch_sub(i64::try_from(bytes).unwrap_or(i64::MAX), Relaxed);
    }
}

// SAFETY: every call is passed on unchanged to the system's allocator, which upholds the contract;
// the counts are atomic, allocate nothing and cannot panic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise about the layout is the one that is asked for here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        subtract(layout.size());
        // SAFETY: what came from this allocator came from the system's, with the same layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may exist for a moment, while bytes move from one to the other.
        add(size);
        subtract(layout.size());
        // SAFETY: as above, and the caller's promise about the new size is the one asked for.
        unsafe { System.realloc(at, layout, size) }
    }
}
