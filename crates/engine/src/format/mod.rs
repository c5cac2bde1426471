//! The bytes on the device. `docs/format.md` has the same as tables; the two change together.
//!
//! Everything is little-endian. Every structure is checksummed as a whole and names the pool, so
//! that bytes of another pool, another time or another place are never taken for it.
mod codec;
mod failure;
mod object;
mod page;
mod record;
mod slot;
mod superblock;
#[cfg(test)]
mod tests;

pub use codec::{Malformed, Reader, Writer};
pub use failure::{FAILURE_MARK_PAGE, FAILURE_MARKS_AT, FailureMark};
pub use object::decode as decode_object;
pub use object::encode as encode_object;
pub use page::{
    Block, Child, Encoding, Entry, FAN_OUT, Held, PAGE_HEADER, PageId, PageKind, PageProblem,
    PagePtr, SPACE_FAN_OUT, SPACE_SPAN, SpaceEntry, blank_page, child, entry, seal_page, set_child,
    set_entry, set_space_entry, space_entry, verify_page,
};
pub use record::{BlockRecord, Record, Span};
pub use slot::{SLOT_HEADER, SlotHeader, decode as decode_slot, encode as encode_slot};
pub use superblock::{
    FORMAT_VERSION, SPACE_ROOTS_MAX, SUPERBLOCK_LEN, SpaceRoot, Superblock, SuperblockProblem,
};

/// Feeds arbitrary bytes to every decoder: none may panic, whatever it is given.
pub fn decode_any(bytes: &[u8]) {
    let _ = Superblock::decode(bytes);
    let _ = decode_slot(bytes, 0);
    let _ = FailureMark::failures(bytes, 0);
    let _ = object::decode(bytes);
    crate::delta::decode_any(bytes);
    crate::compress::decode_any(bytes);
    let mut reader = Reader::new(bytes);
    while let Ok(Some(_)) = Record::decode(&mut reader) {}
    if bytes.len() == crate::limits::MAP_PAGE {
        for index in 0..FAN_OUT {
            let _ = entry(bytes, index);
            let _ = child(bytes, index);
        }
    }
}
