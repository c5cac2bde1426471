//! Raw DEFLATE: what gzip makes, without its header and trailer. A block has a checksum already,
//! and its length is known.
use std::cell::RefCell;

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

use super::GzipLevel;

thread_local! {
    /// The encoder's memory, a third of a megabyte: making it anew costs more than compressing
    /// 8 KiB. It is reset before each use, so nothing of one granule reaches another.
    static LAST: RefCell<Option<(GzipLevel, Compress)>> = const { RefCell::new(None) };
}

pub fn encode(level: GzipLevel, plain: &[u8], out: &mut [u8]) -> Option<usize> {
    LAST.with_borrow_mut(|last| {
        let fresh = || (level, Compress::new(flate2::Compression::new(level.get().into()), false));
        let (_, stream) = match last {
            Some(same) if same.0 == level => same,
            other => other.insert(fresh()),
        };
        stream.reset();
        match stream.compress(plain, out, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => usize::try_from(stream.total_out()).ok(),
            // The output is full.
            _ => None,
        }
    })
}

pub fn decode(packed: &[u8], out: &mut [u8]) -> Option<()> {
    let mut stream = Decompress::new(false);
    let ended = stream.decompress(packed, out, FlushDecompress::Finish);
    let all = stream.total_in() == packed.len() as u64 && stream.total_out() == out.len() as u64;
    (matches!(ended, Ok(Status::StreamEnd)) && all).then_some(())
}
