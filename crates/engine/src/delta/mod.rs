//! The delta stream: the bytes in which the difference between two points of a volume travels to
//! a file or to another pool. `docs/format.md` has the same as tables; the two change together.
//!
//! A [`Writer`] turns a header and ranges into frames, a [`Reader`] takes pieces of bytes, cut
//! anywhere, and gives whole frames back. Neither does IO, and both hold one frame at most. The
//! reader believes nothing: what it yields was compared with its checksum and is in order, and a
//! stream is whole only when [`Reader::finish`] says so. Whether it belongs to a volume at all,
//! [`Header::fits`] tells before the first range is applied.
mod books;
mod error;
mod fit;
mod frame;
mod header;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use books::Sums;
pub use error::{HeaderError, Part, RangeError, StreamError, StreamOffset};
pub use fit::{Content, Destination, FitError, Interrupted, SnapshotRef};
pub use frame::STREAM_VERSION;
pub use header::{Base, Header, Snapshot};
pub use reader::{Item, Reader};
pub use writer::Writer;

use crate::limits::WRITE_MAX;

/// The most data of one frame. It becomes one write, and bounds what either end holds.
pub const DATA_MAX: u64 = WRITE_MAX;

/// Feeds arbitrary bytes to the decoders of this module: none may panic.
pub(crate) fn decode_any(bytes: &[u8]) {
    let _ = Header::decode(bytes);
    let mut reader = Reader::new();
    let mut rest = bytes;
    loop {
        rest = reader.push(rest);
        match reader.next() {
            Ok(None) if rest.is_empty() => break,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    let _ = reader.finish();
}
